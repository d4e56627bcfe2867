"""Reading of a machine's settings from its Dockerfile; nothing is built."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass, replace

from pytest_intercode.core.dockerfile import (
    base_names,
    expand_variables,
    parse_pairs,
    plain_base,
    read_instructions,
)
from pytest_intercode.core.machine import ImageSource
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.harbor.parts import read_text
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["Machine", "read_image", "read_machine", "rebase"]

_FROM = re.compile(r"(?:--platform=\S+\s+)?(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)

_TERMINAL_BENCH_WORKDIR = "/app"  # the directory of the base images of Terminal-Bench 1


@dataclass(frozen=True)
class Machine:
    """The settings of an image for commands that run in it.

    Attributes:
        workdir: the working directory.
        user: the user; empty for root.
        entrypoint: the words of the entry point.
    """

    workdir: str = "/"
    user: str = ""
    entrypoint: tuple[str, ...] = ()


def read_machine(text: str) -> Machine:
    """Return the settings of the last stage of a Dockerfile.

    The settings of base images are not known here, except for those of Terminal-Bench.
    """
    stages: dict[str, Machine] = {}
    variables: dict[str, str] = {}  # set by ENV and ARG; paths may use them
    name = ""
    state = Machine()
    for step in read_instructions(text):
        instruction, rest = step.name, step.rest
        if instruction == "FROM":
            match = _FROM.fullmatch(rest)
            if match is None:
                continue
            base = expand_variables(match[1], variables)
            fresh = Machine(_TERMINAL_BENCH_WORKDIR if plain_base(base) else "/")
            state = stages.get(base.lower(), fresh)
            name = (match[2] or "").lower()
        elif instruction in ("ENV", "ARG"):
            variables |= parse_pairs(rest, variables)
        elif instruction == "WORKDIR":
            path = expand_variables(rest.strip().strip("\"'"), variables)
            state = replace(state, workdir=posixpath.normpath(posixpath.join(state.workdir, path)))
        elif instruction == "USER":
            state = replace(state, user=expand_variables(rest.strip(), variables))
        elif instruction == "ENTRYPOINT":
            state = replace(state, entrypoint=_words(rest))
        if name:
            stages[name] = state
    user = state.user.split(":")[0]
    return replace(state, user="" if user in ("root", "0") else user)


def rebase(text: str) -> str:
    """Return a Dockerfile that works the same if its Terminal-Bench 1 base image is replaced.

    Those base images have a working directory, which other images need to create.
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


def read_image(dockerfile: SuitePath, image: str) -> tuple[ImageSource, Machine]:
    """Return the image that a Dockerfile builds, and its machine.

    Args:
        dockerfile: the Dockerfile.
        image: an image that was already built from it; empty for none.

    Raises:
        SuiteError: it cannot be read, or is a link to another folder, whose context would be used.
    """
    place = dockerfile.place()
    if place.parent != dockerfile.parent.place():
        raise SuiteError(
            f"{dockerfile}: is a link that leads out of its folder, but an image is built from "
            "that folder alone: replace the link with the file"
        )
    original = read_text(dockerfile, "the Dockerfile")
    text = rebase(original)
    changed = text if text != original else ""
    return ImageSource(dockerfile=place, image=image or None, text=changed), read_machine(text)
