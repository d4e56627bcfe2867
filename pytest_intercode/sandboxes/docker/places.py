"""The usual sockets of engines: a table, and a search for the first engine that answers.

Nothing is started. A socket is used only if it and all folders above it belong to this user or to
root: anyone who could put a socket there would get the tasks, and what agents do.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PLACES", "Place", "can_connect", "find_engine", "list_places", "ping"]

_SEARCH_TIMEOUT = 1.0  # seconds for an answer during a search
_MAX_ANSWER = 64  # bytes: the first line of an answer, and some more


@dataclass(frozen=True)
class Place:
    """The usual place of an engine's socket.

    Attributes:
        name: the name of the engine, for messages.
        path: the socket's path, with ``~`` and variables; if one of them is not set, there is no
            such place.
        platforms: the values of :data:`sys.platform` for which this is the place.
    """

    name: str
    path: str
    platforms: tuple[str, ...] = ("darwin", "linux")

    def expand(self) -> Path | None:
        """Return the path on this machine; None if there cannot be one."""
        path = os.path.expandvars(os.path.expanduser(self.path))  # noqa: PTH111 - a text so far
        is_known = sys.platform in self.platforms and path.startswith("/") and "$" not in path
        return Path(path) if is_known else None


# In the order in which they are tried; Podman last, as few use it with Docker's API.
PLACES = (
    # docs.docker.com/desktop/setup/install/mac-permission-requirements, and .../troubleshoot-and-
    # support/faqs/linuxfaqs for Linux, where it is not the machine's own engine.
    Place("Docker Desktop", "~/.docker/run/docker.sock", ("darwin",)),
    Place("Docker Desktop", "~/.docker/desktop/docker.sock", ("linux",)),
    # docs.orbstack.dev/docker
    Place("OrbStack", "~/.orbstack/run/docker.sock", ("darwin",)),
    # github.com/abiosoft/colima: docs/FAQ.md, and config/dirs.go for the other folders
    Place("Colima", "$COLIMA_HOME/default/docker.sock"),
    Place("Colima", "~/.colima/default/docker.sock"),
    Place("Colima", "$XDG_CONFIG_HOME/colima/default/docker.sock", ("linux",)),
    Place("Colima", "~/.config/colima/default/docker.sock", ("linux",)),
    # docs.rancherdesktop.io/how-to-guides/using-testcontainers
    Place("Rancher Desktop", "~/.rd/docker.sock"),
    # docs.docker.com/engine/security/rootless
    Place("rootless Docker", "$XDG_RUNTIME_DIR/docker.sock", ("linux",)),
    # As `podman machine start` prints it; and podman-system-service(1) for Linux.
    Place("Podman machine", "$TMPDIR/podman/podman-machine-default-api.sock", ("darwin",)),
    Place("Podman machine", "~/.local/share/containers/podman/machine/podman.sock", ("darwin",)),
    Place("rootless Podman", "$XDG_RUNTIME_DIR/podman/podman.sock", ("linux",)),
)


def _places_here() -> Iterator[tuple[Place, Path]]:
    paths: set[Path] = set()
    for place in PLACES:
        path = place.expand()
        if path is not None and path not in paths:
            paths.add(path)
            yield place, path


def find_engine() -> tuple[str, Path] | None:
    """Return the name and the socket of the first engine in the table that answers, or None."""
    for place, path in _places_here():
        if _is_trusted(path) and not ping(path, _SEARCH_TIMEOUT):
            return place.name, path
    return None


def list_places() -> str:
    """Return where engines are looked for on this machine, for a message; empty for nowhere."""
    return ", ".join(f"{path} ({place.name})" for place, path in _places_here())


def can_connect(path: str | Path) -> bool:
    """Whether something listens at a socket that this user may open; sends nothing."""
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(_SEARCH_TIMEOUT)
        try:
            trial.connect(os.fspath(path))
        except TimeoutError:  # it listens, and is busy
            return True
        except OSError:  # or the path is too long for a socket
            return False
    return True


def ping(path: str | Path, timeout: float) -> str:
    """Ask an engine whether it answers.

    Args:
        path: the path of its socket.
        timeout: seconds for each step.

    Returns:
        Nothing if it answers; else ``permission`` if the socket may not be opened, or ``silence``.
    """
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout)
            probe.connect(os.fspath(path))
            probe.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return "" if b" 200 " in probe.recv(_MAX_ANSWER) else "silence"
    except PermissionError:
        return "permission"
    except OSError:
        return "silence"


def _is_trusted(path: Path) -> bool:
    """Whether only this user and root could have put a socket there.

    A folder that others may write to, such as /tmp, has to protect each user's files.
    """
    owners = (0, os.geteuid())
    try:
        real = path.resolve(strict=True)
        status = real.stat()
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid not in owners:
            return False
        for folder in real.parents:
            status = folder.stat()
            is_open = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
            if status.st_uid not in owners or is_open:
                return False
    except (OSError, RuntimeError):  # it does not exist, or its links form a loop
        return False
    return True
