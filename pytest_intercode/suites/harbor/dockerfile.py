"""What a Dockerfile says of the machine that it makes, without building it. Pure.

Harbor runs commands in the image's directory and as its user, and keeps its entry point. A sandbox
of ours starts with a first process of its own, so these are read from the text and set for it.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

__all__ = ["Machine", "bases", "machine", "rebased", "standing_for"]

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
_FROM = re.compile(r"(?:--platform=\S+\s+)?(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*[\"']?([A-Za-z_]\w*)[\"']?")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")
_PAIR = re.compile(r"""([A-Za-z_]\w*)=("(?:\\.|[^"\\])*"|'[^']*'|\S*)""")

# The base images of Terminal-Bench 1 are these, with tmux, asciinema and the directory.
_KNOWN = {
    r"(?:^|/)t-bench/ubuntu-24-04(?:[:@]|$)": "ubuntu:24.04",
    r"(?:^|/)t-bench/python-3-13(?:[:@]|$)": "python:3.13-slim-bookworm",
}
_KNOWN_WORKDIR = "/app"


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


def machine(text: str) -> Machine:
    """Return what the last stage of a Dockerfile says.

    What a base image says by itself is not known here; those of Terminal-Bench are.
    """
    stages: dict[str, Machine] = {}
    name = ""
    now = Machine()
    for instruction, rest in _instructions(text):
        if instruction == "FROM":
            found = _FROM.fullmatch(rest)
            if found is None:
                continue
            base = _expanded(found[1], now.variables)
            fresh = Machine(_KNOWN_WORKDIR if _plain_base(base) else "/")
            now = replace(stages.get(base.lower(), fresh), variables=dict(now.variables))
            name = (found[2] or "").lower()
        elif instruction in ("ENV", "ARG"):
            now = replace(now, variables={**now.variables, **_pairs(rest, now.variables)})
        elif instruction == "WORKDIR":
            path = _expanded(rest.strip().strip("\"'"), now.variables)
            now = replace(now, workdir=posixpath.normpath(posixpath.join(now.workdir, path)))
        elif instruction == "USER":
            now = replace(now, user=_expanded(rest.strip(), now.variables))
        elif instruction == "ENTRYPOINT":
            now = replace(now, entrypoint=_words(rest))
        if name:
            stages[name] = now
    user = now.user.split(":")[0]
    return replace(now, user="" if user in ("root", "0") else user)


def bases(text: str) -> list[str]:
    """Return the images that a Dockerfile starts from and that it does not make itself."""
    found: list[str] = []
    made: set[str] = {"scratch"}
    for instruction, rest in _instructions(text):
        stage = _FROM.fullmatch(rest) if instruction == "FROM" else None
        if stage is None:
            continue
        if stage[1].lower() not in made and "$" not in stage[1] and stage[1] not in found:
            found.append(stage[1])
        made.add((stage[2] or "scratch").lower())
    return found


def rebased(text: str) -> str:
    """Return a Dockerfile that is the same where a base image of Terminal-Bench 1 is replaced.

    Those have a directory, which is made in any other.
    """
    for name in filter(_plain_base, bases(text)):
        line = re.compile(
            rf"^(\s*FROM\s+(?:--platform=\S+\s+)?{re.escape(name)}(?:[ \t].*)?)$", re.I | re.M
        )
        text = line.sub(rf"\g<1>\nWORKDIR {_KNOWN_WORKDIR}", text)
    return text


def standing_for(
    text: str, replacements: Mapping[str, str], is_there: Callable[[str], bool]
) -> dict[str, str]:
    """Return what takes the place of base images of Terminal-Bench 1 in a Dockerfile.

    They are made of plain images, which take it where they are not there.

    Args:
        text: the Dockerfile.
        replacements: base images to use in place of others.
        is_there: whether there is an image.
    """
    plain = {name: _plain_base(name) for name in bases(text) if name not in replacements}
    return {
        name: replacements.get(base, base)
        for name, base in plain.items()
        if base and not is_there(name)
    }


def _plain_base(name: str) -> str:
    return next((base for known, base in _KNOWN.items() if re.search(known, name)), "")


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions, with their continued lines joined; comments and heredocs go."""
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = line
        while whole.rstrip().endswith("\\"):
            more = next(lines, None)
            if more is None:
                break
            if more.strip() and not more.lstrip().startswith("#"):
                whole = f"{whole.rstrip()[:-1]} {more}"
        found = _INSTRUCTION.fullmatch(whole)
        if found is None:
            continue
        instruction = found[1].upper()
        if instruction in ("RUN", "COPY", "ADD"):
            for end in _HEREDOC.findall(found[2]):
                for line in lines:
                    if line.strip() == end:
                        break
        yield instruction, found[2]


def _pairs(rest: str, variables: dict[str, str]) -> dict[str, str]:
    pairs = {name: value.strip("\"'") for name, value in _PAIR.findall(rest)}
    if not pairs and " " in rest.strip():  # the old form: ENV NAME a value
        name, value = rest.strip().split(None, 1)
        pairs = {name: value}
    return {name: _expanded(value, variables) for name, value in pairs.items()}


def _expanded(text: str, variables: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], found[3] or ""), text)


def _words(rest: str) -> tuple[str, ...]:
    try:
        words = json.loads(rest)
    except (ValueError, RecursionError):
        words = None
    if isinstance(words, list):
        return tuple(map(str, words))
    return ("/bin/sh", "-c", rest.strip()) if rest.strip() else ()
