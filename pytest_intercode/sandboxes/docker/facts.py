"""Facts about a Docker engine, for ``pytest-intercode doctor``; each request is a GET."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_intercode.core.facts import Fact
from pytest_intercode.core.text import pluralize
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.sandboxes.docker.address import Address, find_address
from pytest_intercode.sandboxes.docker.engine import limits_problem, runtime_problem
from pytest_intercode.sandboxes.docker.link import Link
from pytest_intercode.sandboxes.docker.podman import REMOTE_PODMAN, is_podman
from pytest_intercode.sandboxes.docker.sharing import shares_machine
from pytest_intercode.system.machine import describe_disk

__all__ = ["describe_engine", "describe_problem"]

_TIMEOUT = 5  # seconds in which an engine has to answer
_GIB = 2**30  # bytes
# By the beginning of a problem: what to do about it. Other problems say so themselves.
_REMEDIES = {
    "no Docker engine answers": "start it, or name another one with DOCKER_HOST or `docker context "
    "use` (docs/platforms.md)",
    "no permission to use": "add the user to the group 'docker', and log in again",
}


def describe_problem(subject: str, problem: str) -> Fact:
    """Return why an engine cannot be used, and what to do about it."""
    remedies = [remedy for beginning, remedy in _REMEDIES.items() if problem.startswith(beginning)]
    return Fact(subject, ": ".join([problem, *remedies]), "problem")


def describe_engine(subject: str, name: str, runtime: str | None) -> Iterator[Fact]:
    """Yield facts about an engine: where and what it is, its machine, its limits and its disk.

    Args:
        subject: the engine's name in the facts.
        name: its address, or the name of a context; empty for the engine that is used here.
        runtime: the runtime that is to start sandboxes; None for the engine's own.
    """
    try:
        address = find_address(name)
        link = Link(address, _TIMEOUT)
        with contextlib.closing(link), link.explained_failures():
            info = link.api.info()
            version = link.api.version()
    except (ConfigurationError, EngineUnavailable) as error:
        yield describe_problem(subject, str(error))
        return
    yield _describe_program(subject, address, info, version)
    is_here = shares_machine(address, info)
    place = "this machine" if is_here else "another or a virtual machine"
    memory = int(info.get("MemTotal") or 0) / _GIB
    system = info.get("OperatingSystem") or "an unknown system"
    processors = pluralize(int(info.get("NCPU") or 0), "processor")
    yield Fact(f"{subject} machine", f"{place}: {system}, {processors}, {memory:.1f} GiB of memory")
    yield _describe_limits(f"{subject} limits", info, runtime)
    root = Path(str(info.get("DockerRootDir") or ""))
    if is_here and root.is_absolute():
        with contextlib.suppress(OSError):  # it is another user's, or not in our container
            yield describe_disk(f"{subject} disk", root)


def _describe_program(
    subject: str, address: Address, info: Mapping[str, Any], version: Mapping[str, Any]
) -> Fact:
    podman = is_podman(info)
    program = "Podman" if podman else "Docker"
    kind = "rootless " if _is_rootless(info) else ""
    machine = f"{version.get('Os', '?')}/{version.get('Arch', '?')}"
    text = f"{kind}{program} {info.get('ServerVersion') or '(no version)'} for {machine}"
    text = f"{text} at {address.shown_url} ({_reason(address)})"
    if podman and not shares_machine(address, info):
        return Fact(subject, f"{text}: {REMOTE_PODMAN}", "problem")
    return Fact(subject, text)


def _reason(address: Address) -> str:
    """Return why the engine is at this address."""
    if address.context:
        return f"the context {address.context}"
    if address.name:
        return "--intercode-docker-host"
    if address.place:
        return address.place
    return "DOCKER_HOST" if os.environ.get("DOCKER_HOST") else "the usual socket"


def _is_rootless(info: Mapping[str, Any]) -> bool:
    return any("rootless" in option for option in info.get("SecurityOptions") or ())


def _describe_limits(subject: str, info: Mapping[str, Any], runtime: str | None) -> Fact:
    problem = limits_problem(info)
    if not problem and runtime is not None:
        problem = runtime_problem(info, runtime)
    if problem:
        return Fact(subject, problem, "problem")
    groups = f"control groups of version {info.get('CgroupVersion') or '1'}"
    storage = info.get("Driver") or "unknown"
    name = runtime or info.get("DefaultRuntime") or "unknown"
    details = f"({groups}, storage {storage}, runtime {name})"
    if info.get("CpuCfsQuota") is False:
        text = f"memory and processes are limited, but processor time is not {details}"
        return Fact(subject, text, "note")
    return Fact(subject, f"memory, processes and processor time are limited {details}")
