"""What test scripts install from the network before they run their tests. Pure.

Scripts of both formats begin by fetching uv, pytest and other packages. A verifier without a
network runs them next to a kit that has these; here is found what has to be in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_intercode.environments.swe.requirements import (
    is_requirement,
    split_options,
    to_install,
    to_run,
)
from pytest_intercode.suites.harbor.shell import UNKNOWN, Command, simple_commands

__all__ = ["requirements_of"]

_FETCHES = re.compile(r"curl|wget|uvx?|pip3?|apt|apt-get")
_PIP = re.compile(r"pip[\d.]*")
_SHELLS = ("bash", "sh", "su")
_VARIABLES = {"TEST_DIR": "/tests", "T_BENCH_TEST_DIR": "/tests"}
# What runs a command that is behind it, and its options with a value.
_RUNNERS = {
    "sudo": ("-u", "-g", "-h", "-p"),
    "env": ("-u", "-C", "-S"),
    "timeout": ("-k", "-s", "--signal", "--kill-after"),
    "nice": ("-n",),
    **dict.fromkeys(("nohup", "exec", "command", "time", "stdbuf", "xvfb-run"), ()),
}
_PRINTING = ("echo", "printf", "type", "which", "hash")  # their words are not commands


def requirements_of(
    scripts: Iterable[str], files: Mapping[str, str] | None = None
) -> tuple[str, ...] | None:
    """Return what scripts of tests ask pip or uv for, in order.

    What another command is tried for, where it failed (``||``), is not asked for; nor is what only
    a run would know, or what no package index has, such as a path.

    Args:
        scripts: the texts of the shell scripts.
        files: the texts of further files of the tests by their names, which scripts may run or
            install from.

    Returns:
        None if they fetch nothing at all.
    """
    reader = _Reader(files or {})
    for script in scripts:
        reader.read(script)
    return tuple(dict.fromkeys(reader.requirements)) if reader.fetches else None


class _Reader:
    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self.requirements: list[str] = []
        self.fetches = False

    def read(self, script: str, depth: int = 0) -> None:
        """Read one script, and the scripts that are words or here-documents in it."""
        served = False  # what the command before asked for is tried in another way
        for command in simple_commands(script, _VARIABLES):
            names = [word.rpartition("/")[2] for word in command.words]
            self.fetches = self.fetches or any(map(_FETCHES.fullmatch, names))
            if depth < 5:
                for inner in _inner_scripts(command):
                    self.read(inner, depth + 1)
            if command.operator not in ("||", "|", "|&", ")"):
                served = False
            requirements = list(self._requirements(_plain(command.words), script))
            if not (served and command.operator in ("||", ")")):
                self.requirements += requirements
            served = served or bool(requirements)

    def _requirements(self, words: Sequence[str], script: str) -> Iterator[str]:
        """Yield what one command asks for."""
        name = words[0].rpartition("/")[2] if words else ""
        if name in _PRINTING:
            return
        if name in ("uv", "uvx"):
            yield from self._uv_requirements(name, words[1:], script)
            return
        for index, word in enumerate(words):
            if _PIP.fullmatch(word.rpartition("/")[2]):
                action, rest = _first(words[index + 1 :])
                if action == "install":
                    yield from self._install_requirements(rest)
                return

    def _uv_requirements(self, name: str, words: Sequence[str], script: str) -> Iterator[str]:
        action, rest = ("x", words) if name == "uvx" else _first(words)
        if action in ("pip", "tool"):
            second, rest = _first(rest)
            action = f"{action} {second}"
        if action in ("pip install", "add", "tool install"):
            yield from self._install_requirements(rest)
        elif action in ("x", "tool run", "run"):
            # What it runs may be written by the shell script itself.
            run = to_run(rest, self._file, lambda path: self._file(path) or script, action != "run")
            yield from filter(is_requirement, run.requirements)

    def _install_requirements(self, words: Sequence[str]) -> Iterator[str]:
        """Yield what the words behind ``install`` or ``add`` name."""
        yield from filter(is_requirement, to_install(words, self._file))

    def _file(self, name: str) -> str:
        """Return the text of a file of the tests; nothing where there is no such file."""
        name = name.rpartition(UNKNOWN)[2].removeprefix("/tests/").lstrip("/")
        short = name.rpartition("/")[2]
        return self._files.get(name, self._files.get(short, ""))


def _inner_scripts(command: Command) -> Iterator[str]:
    """Yield the scripts that a command is given: ``bash -c '...'``, or as here-documents."""
    words = _plain(command.words)
    shell = words[0].rpartition("/")[2] if words else ""
    if shell in _SHELLS:
        options = [index for index, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word)]
        yield from (words[index + 1] for index in options[:1] if index + 1 < len(words))
    if shell in _SHELLS or any(target.endswith(".sh") for target in command.targets):
        yield from command.texts


def _plain(words: Sequence[str]) -> Sequence[str]:
    """Return a command without what runs it: ``sudo -u me env A=1 pip ...``."""
    while words and words[0].rpartition("/")[2] in _RUNNERS:
        runner = words[0].rpartition("/")[2]
        if runner == "command" and words[1:2] in (["-v"], ["-V"]):
            return []
        valued = _RUNNERS[runner]
        words = words[1:]
        while words and (words[0].startswith("-") or re.match(r"[A-Za-z_]\w*=", words[0])):
            words = words[2 if words[0] in valued else 1 :]
        if runner == "timeout":
            words = words[1:]
    return words


def _first(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the first word that is not an option, and those behind it."""
    _, words = split_options(words)
    return (words[0], words[1:]) if words else ("", words)
