"""The machine of a task folder, as its Dockerfile and its compose file say it; nothing is built.

Harbor runs commands in the image's directory and as its user, and keeps its entry point. A sandbox
here starts with a first process of its own, so these are read from the text and set for it.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from dataclasses import dataclass, field, replace

from pytest_intercode.core.dockerfile import (
    base_names,
    expand_variables,
    parse_pairs,
    plain_base,
    read_instructions,
)
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.harbor.compose import AgentMachine
from pytest_intercode.suites.harbor.config import HealthcheckConfig
from pytest_intercode.suites.harbor.parts import healthcheck_setup, read_text
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["Machine", "machine_setup", "read_machine", "read_machine_of", "rebase"]

_FROM = re.compile(r"(?:--platform=\S+\s+)?(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)

_TERMINAL_BENCH_WORKDIR = "/app"  # of the base images of Terminal-Bench 1


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


# -- a Dockerfile and a compose file


def read_machine_of(
    service: AgentMachine, dockerfile: SuitePath | None, image: str
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


def machine_setup(machine: Machine, service: AgentMachine) -> tuple[str, ...]:
    """Return the commands that make a machine ready: its folders, its entry point, its check."""
    lines = [f"mkdir -p -m {mode} -- {shlex.quote(folder)}" for folder, mode in service.folders]
    lines += _start_entrypoint(machine)
    if (check := service.health) is not None and check.command:
        config = HealthcheckConfig(
            command=shlex.join(check.command),
            interval_sec=check.interval,
            timeout_sec=check.timeout,
            start_period_sec=check.start_period,
            start_interval_sec=min(check.interval, 1.0),
            retries=check.retries,
        )
        lines.append(healthcheck_setup(config))
    return tuple(lines)


def _start_entrypoint(machine: Machine) -> tuple[str, ...]:
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
