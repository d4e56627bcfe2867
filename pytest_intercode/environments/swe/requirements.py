"""Read what arguments of pip and uv ask for: names, files of names, and scripts' own (PEP 723).

The verifier kit has a copy of this file, which its stand-in for uv runs with the kit's Python. So
it imports only the standard library.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Run",
    "has_block",
    "inline_requirements",
    "is_requirement",
    "listed_requirements",
    "separated",
    "split_options",
    "to_install",
    "to_run",
]

Read = Callable[[str], str]

_BEGIN = re.compile(r"#[ \t]*///[ \t]*script[ \t]*")
_END = re.compile(r"#[ \t]*///[ \t]*")
_DEPENDENCIES = re.compile(r"^[ \t]*dependencies[ \t]*=[ \t]*(\[.*?\])[ \t]*(?:#.*)?$", re.M | re.S)
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[A-Za-z0-9,._\s-]*\])?\s*"
    r"(?:(?:===?|~=|!=|<=?|>=?)[^,;@/\s\0]+(?:\s*,\s*(?:===?|~=|!=|<=?|>=?)\s*[^,;@/\s\0]+)*)?\s*(?:;[^\0]*)?"
)
_FILE = re.compile(r".*\.(?:txt|whl|toml|cfg|in|lock|zip|tgz|gz|py|sh)", re.IGNORECASE)

# Options of pip and uv that have a value.
_VALUED = frozenset(
    {
        *("-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints"),
        *("-e", "--editable", "-i", "--index-url", "--extra-index-url", "-f", "--find-links"),
        *("-t", "--target", "-p", "--python", "-C", "--config-settings", "--config-setting"),
        *("-P", "--upgrade-package", "-b", "--build-constraint", "--build-constraints"),
        *("--prefix", "--root", "--src", "--cache-dir", "--platform", "--python-version"),
        *("--implementation", "--abi", "--upgrade-strategy", "--global-option", "--progress-bar"),
        *("--report", "--log", "--proxy", "--retries", "--timeout", "--exists-action"),
        *("--trusted-host", "--cert", "--client-cert", "--no-binary", "--only-binary"),
        *("--root-user-action", "--use-feature", "--use-deprecated", "--keyring-provider"),
        *("--group", "--only-group", "--no-group", "--extra", "--no-extra", "--index"),
        *("--default-index", "--index-strategy", "--resolution", "--prerelease", "--link-mode"),
        *("--exclude-newer", "--refresh-package", "--reinstall-package", "--override"),
        *("--overrides", "--python-platform", "--torch-backend", "--allow-insecure-host"),
        *("--directory", "--project", "--config-file", "--package", "--env-file", "--branch"),
        *("--tag", "--rev", "--bounds", "--marker", "-m", "--color", "--fork-strategy"),
        *("-w", "--with", "--from", "--with-requirements", "--with-editable", "--optional"),
    }
)
_LETTERS = "".join(name[1] for name in _VALUED if len(name) == 2)
_FILES = ("-r", "--requirement", "--requirements", "--with-requirements")
_INPUT = f"{os.environ.get('VERIFIER_KIT_STATE', '/nowhere')}/input.py"
_WITH = ("-w", "--with", "--from")


class Run(NamedTuple):
    """What ``uv run`` or ``uvx`` is asked for.

    Attributes:
        requirements: the requirements of the command.
        command: the words of the command.
        alone: it has no other packages, whatever the project has.
    """

    requirements: list[str]
    command: list[str]
    alone: bool


def is_requirement(text: str) -> bool:
    """Whether a text names a package of an index, not a path or an address."""
    return bool(_REQUIREMENT.fullmatch(text)) and not _FILE.fullmatch(text)


def separated(text: str) -> list[str]:
    """Return the requirements in a comma-separated list, as in uv's options.

    A comma before a version, or in the brackets of extras, belongs to a requirement.
    """
    parts = re.split(r",(?=\s*[A-Za-z0-9.])(?![^\[]*\])", text)
    return [part.strip() for part in parts if part.strip()]


def has_block(text: str) -> bool:
    """Whether a text holds a script that declares its own dependencies, which may be none."""
    return bool(_blocks(text))


def inline_requirements(text: str) -> list[str]:
    """Return the dependencies that scripts in a text declare, in comments of PEP 723."""
    return list(dict.fromkeys(name for block in _blocks(text) for name in _dependencies(block)))


def _blocks(text: str) -> list[str]:
    blocks: list[str] = []
    block: list[str] | None = None
    for line in map(str.rstrip, text.splitlines()):
        if block is None:
            block = [] if _BEGIN.fullmatch(line) else None
        elif _END.fullmatch(line):
            blocks.append("\n".join(block))
            block = None
        elif line.startswith("#"):
            block.append(line[1:].removeprefix(" "))
        else:  # never closed
            block = None
    return blocks


def _dependencies(table: str) -> list[str]:
    match = _DEPENDENCIES.search(table)
    try:  # TOML and Python write a list of strings in the same way, including comments
        values = ast.literal_eval(match[1]) if match else []
    except (ValueError, SyntaxError):
        return []
    return [str(name).strip() for name in values]


def listed_requirements(text: str, other: Read) -> list[str]:
    """Return the requirements in a file for pip; options in it are ignored.

    Args:
        text: its text.
        other: returns the text of another file that it names (``-r``); may be empty.
    """
    requirements: list[str] = []
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        match = re.fullmatch(r"(?:-r|--requirement)[\s=]*(\S+)", line)
        if match:
            requirements += listed_requirements(other(match[1]), lambda name: "")
        elif line and not line.startswith("-"):
            requirements.append(re.sub(r"\s+--hash\S*", "", line))
    return list(dict.fromkeys(requirements))


def split_options(
    words: Sequence[str], flags: Sequence[str] = ()
) -> tuple[list[tuple[str, str]], Sequence[str]]:
    """Return the options of pip or uv that words begin with, and the other words.

    Args:
        words: the words.
        flags: options that do not have a value here.
    """
    options = []
    while words and words[0].startswith("-") and words[0] != "-":
        word, words = words[0], words[1:]
        if word == "--":
            break
        name, sign, value = word.partition("=")
        if not word.startswith("--"):
            valued = [index for index, letter in enumerate(word) if index and letter in _LETTERS]
            index = valued[0] if valued else len(word)
            name, value = (f"-{word[index]}", word[index + 1 :]) if valued else (word, "")
            sign = value
        if not sign and name in _VALUED and name not in flags:
            value, words = (words[0], words[1:]) if words else ("", words)
        options.append((name, value))
    return options, words


def to_install(words: Sequence[str], read: Read) -> list[str]:
    """Return the requirements in the words after ``install`` or ``add``.

    Args:
        words: the words.
        read: returns the text of a file; may be empty.
    """
    requirements: list[str] = []
    while words:
        options, words = split_options(words)
        requirements += _asked(options, read)
        if words:
            requirements.append(words[0])
            words = words[1:]
    return requirements


def to_run(words: Sequence[str], read: Read, source: Read, tool: bool) -> Run:
    """Return what the words after ``uv run`` or ``uvx`` ask for.

    Args:
        words: the words.
        read: returns the text of a file of requirements; may be empty.
        source: returns the text of a script; may be empty.
        tool: the command is ``uvx`` or ``uv tool run``.
    """
    options, rest = split_options(words, ("-m", "--module"))
    option_names, command = {name for name, _ in options}, [*rest]
    requirements = _asked(options, read)
    if not command:
        return Run(requirements, [], tool)
    if tool:
        name, _, version = command[0].partition("@")
        package = f"{name}=={version}" if version and version != "latest" else name
        if "--from" not in option_names and _normal(package) not in map(_normal, requirements):
            requirements.append(package)
        name = re.split(r"[\[=<>!~]", name)[0]
        return Run(requirements, [name, *command[1:]], True)
    if option_names & {"-m", "--module"}:
        return Run(requirements, ["python", "-m", *command], False)
    if option_names & {"-s", "--script"} or command[0] == "-" or command[0].endswith(".py"):
        text = source(command[0])
        requirements += inline_requirements(text)
        return Run(requirements, ["python", *command], has_block(text))
    return Run(requirements, command, False)


def _asked(options: Iterable[tuple[str, str]], read: Read) -> list[str]:
    requirements: list[str] = []
    for name, value in options:
        if name in _WITH:
            requirements += separated(value)
        elif name in _FILES:
            for file in separated(value):
                beside = partial(_read_beside, file, read)
                requirements += listed_requirements(read(file), beside)
    return requirements


def _read_beside(file: str, read: Read, other: str) -> str:
    return read(posixpath.join(posixpath.dirname(file), other))


def _normal(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]*", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


# -- as a program of the kit


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def _source(path: str) -> str:
    """Return the text of a script; one from standard input is saved, to be run afterwards."""
    if path == "-":
        Path(_INPUT).write_text(sys.stdin.read(), "utf-8")
        path = _INPUT
    return _read(path)


def _main(what: str, *words: str) -> None:
    """Print what the words of a command line ask for, each item followed by a zero byte.

    ``install WORDS`` prints requirements. ``run WORDS`` and ``tool WORDS`` print ``alone`` or
    ``project``, the number of requirements, these, and the words of the command.
    """
    if what == "install":
        printed = to_install(words, _read)
    else:
        run = to_run(words, _read, _source, what == "tool")
        if run.command[:2] == ["python", "-"]:
            run.command[1] = _INPUT
        printed = ["alone" if run.alone else "project", str(len(run.requirements))]
        printed += [*run.requirements, *run.command]
    sys.stdout.write("".join(f"{name}\0" for name in printed))


if __name__ == "__main__":
    _main(*sys.argv[1:])
