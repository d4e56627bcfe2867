"""The machine of a task folder, as its Dockerfile and its compose file say it; nothing is built.

Harbor runs commands in the image's directory and as its user, and keeps its entry point. A sandbox
here starts with a first process of its own, so these are read from the text and set for it. A
compose file is to have a single service: what a single sandbox cannot give, such as a second one,
is a reason to skip the task, and the reason names it.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_intercode.core.dockerfile import (
    base_names,
    expand_variables,
    parse_pairs,
    plain_base,
    read_instructions,
)
from pytest_intercode.core.platforms import Platform, parse_platform
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import IntercodeError, SuiteError
from pytest_intercode.suites.harbor.parts import read_text
from pytest_intercode.suites.yaml_files import read_yaml
from pytest_intercode.system.suite_folder import SuitePath

__all__ = [
    *("Machine", "Service", "Unsupported"),
    *("entrypoint_setup", "read_compose", "read_machine", "read_machine_of", "rebase"),
]

_FROM = re.compile(r"(?:--platform=\S+\s+)?(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)

_TERMINAL_BENCH_WORKDIR = "/app"  # of the base images of Terminal-Bench 1

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


# -- a Dockerfile


@dataclass(frozen=True)
class Machine:
    """What an image says of what is run in it.

    Attributes:
        workdir: the directory.
        user: the user; empty for root.
        entrypoint: the words of the command that every container begins with.
        variables: what ``ENV`` and ``ARG`` have set, which paths may name.
    """

    workdir: str = "/"
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


def read_machine(text: str) -> Machine:
    """Return what the last stage of a Dockerfile says.

    What a base image says by itself is not known here; those of Terminal-Bench are.
    """
    stages: dict[str, Machine] = {}
    name = ""
    state = Machine()
    for step in read_instructions(text):
        instruction, rest = step.name, step.rest
        if instruction == "FROM":
            match = _FROM.fullmatch(rest)
            if match is None:
                continue
            base = expand_variables(match[1], state.variables)
            fresh = Machine(_TERMINAL_BENCH_WORKDIR if plain_base(base) else "/")
            state = replace(stages.get(base.lower(), fresh), variables=dict(state.variables))
            name = (match[2] or "").lower()
        elif instruction in ("ENV", "ARG"):
            state = replace(
                state, variables={**state.variables, **parse_pairs(rest, state.variables)}
            )
        elif instruction == "WORKDIR":
            path = expand_variables(rest.strip().strip("\"'"), state.variables)
            state = replace(state, workdir=posixpath.normpath(posixpath.join(state.workdir, path)))
        elif instruction == "USER":
            state = replace(state, user=expand_variables(rest.strip(), state.variables))
        elif instruction == "ENTRYPOINT":
            state = replace(state, entrypoint=_words(rest))
        if name:
            stages[name] = state
    user = state.user.split(":")[0]
    return replace(state, user="" if user in ("root", "0") else user)


def rebase(text: str) -> str:
    """Return a Dockerfile that is the same where a base image of Terminal-Bench 1 is replaced.

    Those have a directory, which is made in any other.
    """
    for name in filter(plain_base, base_names(text)):
        line = re.compile(
            rf"^(\s*FROM\s+(?:--platform=\S+\s+)?{re.escape(name)}(?:[ \t].*)?)$", re.I | re.M
        )
        text = line.sub(rf"\g<1>\nWORKDIR {_TERMINAL_BENCH_WORKDIR}", text)
    return text


def _words(rest: str) -> tuple[str, ...]:
    try:
        words = json.loads(rest)
    except (ValueError, RecursionError):
        words = None
    if isinstance(words, list):
        return tuple(map(str, words))
    return ("/bin/sh", "-c", rest.strip()) if rest.strip() else ()


# -- a compose file


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
        platform: the platform of its image; None where nothing is said.
    """

    dockerfile: SuitePath | None
    image: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    entrypoint: tuple[str, ...] | None = None
    user: str = ""
    memory: int | None = None
    cpus: float | None = None
    platform: Platform | None = None


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
        _platform(path, service.get("platform")),
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


def _platform(path: SuitePath, name: Any) -> Platform | None:
    if name in (None, ""):
        return None
    try:
        return parse_platform(str(name))
    except ValueError as error:
        raise Unsupported(f"{path.name}: platform {name!r:.60}: {error}") from None


# -- both


def read_machine_of(
    service: Service, dockerfile: SuitePath | None, image: str
) -> tuple[ImageSource, Machine]:
    """Return a task's image, and the machine that it makes.

    Args:
        service: what a compose file says, which comes before what the image says.
        dockerfile: what is built; None where there is only an image.
        image: the image that was made of it already, empty for none; or the only one.

    Raises:
        SuiteError: the Dockerfile cannot be read, or is a link to another folder, which would be
            what is built.
    """
    source, machine = ImageSource(image=image), Machine()
    if dockerfile is not None:
        source, machine = _read_image(dockerfile, image)
    return source, replace(
        machine,
        workdir=service.workdir or machine.workdir,
        user=service.user or machine.user,
        entrypoint=machine.entrypoint if service.entrypoint is None else service.entrypoint,
    )


def _read_image(dockerfile: SuitePath, image: str) -> tuple[ImageSource, Machine]:
    place = dockerfile.place()
    if place.parent != dockerfile.parent.place():
        raise SuiteError(
            f"{dockerfile}: is a link that leads out of its folder, which is what an image is made "
            "of: put the file in its place"
        )
    original = read_text(dockerfile, "the Dockerfile")
    text = rebase(original)
    changed = text if text != original else ""
    return ImageSource(dockerfile=place, image=image or None, text=changed), read_machine(text)


def entrypoint_setup(machine: Machine) -> tuple[str, ...]:
    """Return what starts an image's entry point, as the first process of a container would be.

    It is given the command that both harnesses give it, one that waits.
    """
    if not machine.entrypoint:
        return ()
    command = shlex.join([*machine.entrypoint, "sh", "-c", "sleep infinity"])
    if machine.user:
        name = shlex.quote(machine.user)
        command = f'setpriv --reuid {name} --regid "$(id -g {name})" --init-groups {command}'
    return (f"cd {shlex.quote(machine.workdir)} && setsid -f {command} </dev/null >/dev/null 2>&1",)
