"""Which backend a run has: the one that was asked for, or the one that works here."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Literal

from pytest_intercode.errors import EngineUnavailable

__all__ = ["BACKENDS", "Choice", "choose", "docker_problem"]

BACKENDS = ("auto", "docker", "bubblewrap")
_PATIENCE = 5.0


@dataclass(frozen=True)
class Choice:
    """A backend.

    Attributes:
        backend: its name.
        reason: why it is this one, or nothing when it was asked for, or is the usual one.
        runtime: the runtime that Docker starts sandboxes with, if one is asked for.
        hosts: the names of Docker's hosts, if they are given.
    """

    backend: Literal["docker", "bubblewrap"]
    reason: str = ""
    runtime: str = ""
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"{self.backend} on {', '.join(self.hosts)}" if self.hosts else str(self.backend)
        name = f"{name}, runtime {self.runtime}" if self.runtime else name
        return f"{name} ({self.reason})" if self.reason else name


def choose(wanted: str = "auto") -> Choice:
    """Return the backend to use: Docker if its engine answers, else bubblewrap if it is installed.

    Nothing heavy is imported, and no engine is started.

    Args:
        wanted: ``auto``, ``docker`` or ``bubblewrap``.
    """
    if wanted == "bubblewrap":
        return Choice("bubblewrap")
    problem = "" if wanted == "docker" else docker_problem()
    if not problem:
        return Choice("docker")
    from pytest_intercode.sandboxes.bubblewrap.process import find_program

    try:
        find_program()
    except EngineUnavailable as error:
        return Choice("docker", f"{problem}, and {str(error).partition(':')[0]}")
    return Choice("bubblewrap", problem)


def docker_problem() -> str:
    """Return why Docker cannot be used here, or nothing."""
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not address.startswith("unix://"):
        return ""  # it was set up by hand; if it does not answer, that is an error
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_PATIENCE)
            probe.connect(address.removeprefix("unix://"))
            probe.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            if b" 200 " in probe.recv(64):
                return ""
    except PermissionError:
        return f"no permission to use the Docker engine at {address}"
    except OSError:
        pass
    return f"no Docker engine answers at {address}"
