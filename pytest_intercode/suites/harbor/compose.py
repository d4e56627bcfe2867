"""A compose file with a single service, as a task's machine.

Reads one file. What a single sandbox cannot give, such as a second service, is a reason to skip the
task, and the reason names it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_intercode.errors import IntercodeError, SuiteError
from pytest_intercode.suites.yaml_files import read_yaml
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["Service", "Unsupported", "read_compose"]

_REFERENCE = re.compile(r"\$\$|\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)b?", re.IGNORECASE)
_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
# What a file may have next to its services: networks and volumes are for those that name them.
_TOP_KEYS = frozenset({"services", "version", "name", "volumes", "networks"})
# What makes no difference in a sandbox: names on the host, the terminal, ports that only the host
# would use, the command, which every harness replaces by one that waits.
_IGNORED = frozenset(
    {
        *("image", "build", "container_name", "command", "hostname", "tty", "stdin_open", "init"),
        *("restart", "expose", "ports", "platform", "logging", "labels", "stop_grace_period"),
        *("pull_policy", "environment", "working_dir", "entrypoint", "user", "volumes", "deploy"),
        *("mem_limit", "cpus", "shm_size"),
    }
)


class Unsupported(IntercodeError):
    """A task needs what a single sandbox cannot give; the message says what."""


@dataclass(frozen=True)
class Service:
    """The machine of a compose file.

    Attributes:
        dockerfile: what is built, or None.
        image: the image that is used where nothing is built; empty for none.
        variables: environment variables.
        workdir: the directory of its commands; empty for the image's.
        entrypoint: the words of its entry point; None for the image's.
        user: who runs its commands; empty for the image's user.
        memory: bytes, or None for no limit.
        cpus: processors, or None for no limit.
    """

    dockerfile: SuitePath | None
    image: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    entrypoint: tuple[str, ...] | None = None
    user: str = ""
    memory: int | None = None
    cpus: float | None = None


def read_compose(
    path: SuitePath,
    name: str,
    variables: Mapping[str, str],
    volumes: frozenset[str] = frozenset(),
    *,
    merged: bool = False,
) -> Service:
    """Return the service of a compose file that the agent is in.

    Args:
        path: the file.
        name: what the format calls that service; without one of this name, it is the one with the
            ``container_name``.
        variables: what ``${NAME}`` in it means.
        volumes: folders inside that the format shares with the host, and that a sandbox has itself.
        merged: the format lays the file over one of its own that has this service, so that it need
            not be in the file. Its name alone makes it that service.

    Raises:
        Unsupported: there are several services, or it is one that a sandbox cannot be.
        SuiteError: it is not a compose file, or has no such service.
    """
    raw, _ = read_yaml(path)
    services = raw.get("services", {}) if isinstance(raw, dict) else None
    if not isinstance(services, dict) or not all(isinstance(s, dict) for s in services.values()):
        raise SuiteError(f"{path}: services: a mapping of services is needed")
    services = _expand(services, variables)
    names = list(services)
    if merged:
        names = [name, *(candidate for candidate in names if candidate != name)]
    elif name not in names:
        name = next((n for n in names if services[n].get("container_name") == name), name)
    if len(names) > 1:
        raise Unsupported(
            f"{path.name} has {len(names)} services ({', '.join(names)}), and one is needed"
            if not merged or name in services
            else f"{path.name} adds {', '.join(names[1:])} to the service {name}, and one service "
            "is needed"
        )
    if not merged and name not in services:
        raise SuiteError(f"{path}: services: there is no {name}, which the agent is in")
    try:
        return _service(path, name, raw, services.get(name, {}), volumes)
    except (AttributeError, TypeError):  # a list where a mapping is needed, and the like
        raise SuiteError(f"{path}: services: {name}: not a service of a compose file") from None


def _service(
    path: SuitePath,
    name: str,
    raw: Mapping[str, Any],
    service: Mapping[str, Any],
    volumes: frozenset[str],
) -> Service:
    other_keys = {str(key) for key in raw if not str(key).startswith("x-")} - _TOP_KEYS
    unknown = sorted((service.keys() - _IGNORED) | other_keys)
    if unknown:
        raise Unsupported(f"{path.name}: {name} uses {', '.join(unknown)}")
    if (raw.get("networks") or {}).get("default"):  # what a service is in that names none
        raise Unsupported(f"{path.name}: {name} uses a default network with settings")
    for volume in service.get("volumes") or ():
        inside = volume.split(":")[1] if isinstance(volume, str) and ":" in volume else ""
        if inside not in volumes:
            raise Unsupported(f"{path.name}: {name} shares the volume {volume!r:.80}")
    limits = (service.get("deploy") or {}).get("resources", {}).get("limits", {})
    dockerfile = _dockerfile(path, service.get("build"))
    return Service(
        dockerfile,
        "" if dockerfile is not None else str(service.get("image") or ""),
        tuple(_pairs(service.get("environment")).items()),
        str(service.get("working_dir") or ""),
        _entrypoint(service.get("entrypoint")),
        str(service.get("user") or "").split(":")[0],
        _memory(path, service.get("mem_limit", limits.get("memory"))),
        _cpus(path, service.get("cpus", limits.get("cpus"))),
    )


def _expand(value: Any, variables: Mapping[str, str]) -> Any:
    """Replace ``${NAME}`` and ``${NAME:-default}``; a name that is not known is empty."""
    if isinstance(value, str):
        return _REFERENCE.sub(
            lambda match: (
                "$" if match[0] == "$$" else variables.get(match[1] or match[2], match[3] or "")
            ),
            value,
        )
    if isinstance(value, dict):
        return {str(key): _expand(part, variables) for key, part in value.items()}
    if isinstance(value, list):
        return [_expand(part, variables) for part in value]
    return value


def _dockerfile(path: SuitePath, build: Any) -> SuitePath | None:
    if build is None:
        return None
    build = {"context": build} if isinstance(build, str) else build
    unknown = sorted(build.keys() - {"context", "dockerfile"})
    if unknown:
        raise Unsupported(f"{path.name}: build uses {', '.join(unknown)}")
    context = posixpath.normpath(str(build.get("context") or "."))
    name = str(build.get("dockerfile") or "Dockerfile")
    if context.startswith(("..", "/")) or "/" in name.removeprefix("./"):
        raise Unsupported(f"{path.name}: build: context {context!r} with dockerfile {name!r}")
    return path.parent / context / name.removeprefix("./")


def _pairs(settings: Any) -> dict[str, str]:
    if isinstance(settings, dict):
        return {key: "" if value is None else str(value) for key, value in settings.items()}
    pairs = (str(pair).partition("=") for pair in settings or ())
    return {name: value for name, _, value in pairs}


def _entrypoint(command: Any) -> tuple[str, ...] | None:
    if command is None:
        return None
    return (
        tuple(map(str, command)) if isinstance(command, list) else ("/bin/sh", "-c", str(command))
    )


def _memory(path: SuitePath, size: Any) -> int | None:
    if size in (None, ""):
        return None
    match = _SIZE.fullmatch(str(size).strip())
    if match is None:
        raise SuiteError(f"{path}: {size!r:.40} is not a memory size (use 2g or 512m)")
    return int(float(match[1]) * _BYTES[match[2].lower()])


def _cpus(path: SuitePath, count: Any) -> float | None:
    if count in (None, ""):
        return None
    try:
        return float(count)
    except (TypeError, ValueError):
        raise SuiteError(f"{path}: cpus: {count!r:.40} is not a number") from None
