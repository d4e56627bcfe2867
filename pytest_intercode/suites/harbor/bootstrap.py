"""What a test script installs from the network before it runs its tests. Pure.

Scripts of both formats begin by fetching uv, pytest and other packages. A verifier without a
network runs them beside a kit that has these; here is found what has to be in it.
"""

from __future__ import annotations

import re
import shlex

__all__ = ["requirements_of"]

_FETCHES = re.compile(r"\b(?:curl|wget|uvx?|pip3?|apt|apt-get)\b")
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._-]*\])?(?:[=<>!~]=?[^;\s]+)?"
)
_WITH = ("-w", "--with", "--from")
_VALUED = {
    *("-p", "--python", "-r", "--requirement", "-e", "--editable", "-i", "--index-url"),
    *("--extra-index-url", "-c", "--constraint", "-f", "--find-links", "-t", "--target"),
    *("--prefix", "--root", "--cache-dir", "--index", "--directory", "--project"),
}
_END = {"&&", "||", ";", "|", "&"}
_INSTALL = (
    ("uv", "pip", "install"),
    ("uv", "add"),
    ("pip", "install"),
    ("pip3", "install"),
    ("-m", "pip", "install"),
)


def requirements_of(script: str) -> tuple[str, ...] | None:
    """Return what a script asks pip or uv for, in order; None if it fetches nothing at all."""
    found: dict[str, None] = {}
    fetches = False
    for line in re.sub(r"\\\r?\n", " ", script).splitlines():
        words = _words(line)
        fetches = fetches or any(_FETCHES.fullmatch(word.rpartition("/")[2]) for word in words)
        for command in _commands(words):
            found |= dict.fromkeys(_of_command(command))
    return tuple(found) if fetches else None


def _words(line: str) -> list[str]:
    reader = shlex.shlex(line, posix=True, punctuation_chars="();|&")
    reader.whitespace_split = True
    try:
        return list(reader)
    except ValueError:  # a quote that a later line closes
        return line.split("#")[0].split()


def _commands(words: list[str]) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _END or set(word) <= set("();|&"):
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def _of_command(words: list[str]) -> list[str]:
    if "uvx" in words or ("uv" in words and ("run" in words or "tool" in words)):
        return [value for value in _after(words, _WITH) if _REQUIREMENT.fullmatch(value)]
    for names in _INSTALL:
        at = _find(words, names)
        if at is not None:
            return [word for word in _plain(words[at:]) if _REQUIREMENT.fullmatch(word)]
    return []


def _find(words: list[str], names: tuple[str, ...]) -> int | None:
    for start in range(len(words) - len(names) + 1):
        if tuple(words[start : start + len(names)]) == names:
            return start + len(names)
    return None


def _after(words: list[str], options: tuple[str, ...]) -> list[str]:
    values = []
    for at, word in enumerate(words):
        name, sign, value = word.partition("=")
        if word in options and at + 1 < len(words):
            values += words[at + 1].split(",")
        elif sign and name in options and name.startswith("--"):
            values += value.split(",")
    return values


def _plain(words: list[str]) -> list[str]:
    """Return what is neither an option nor the value of one."""
    plain = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _VALUED
        else:
            plain.append(word)
    return plain
