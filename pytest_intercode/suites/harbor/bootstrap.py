"""Finds the packages that test scripts install from the network before their tests. Pure.

Scripts of both formats begin by fetching uv, pytest and other packages. A verifier without a
network runs them with a kit that contains these; this module finds what the kit must contain.
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
# Programs that run the command after them, and their options with a value.
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
    """Return the requirements that test scripts pass to pip or uv, in order.

    Requirements of a fallback command (after ``||``) are left out. So are those that are only known
    at run time, and those that are not in a package index, such as paths.

    Args:
        scripts: the texts of the shell scripts.
        files: the texts of further files of the tests by their names, which scripts may run or
            install from.

    Returns:
        The requirements; None if the scripts do not fetch anything.
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
        served = False  # an earlier command of this chain had requirements: skip its fallbacks
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
        """Yield the requirements of one command."""
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
            # The shell script itself may write the script that it runs.
            run = to_run(rest, self._file, lambda path: self._file(path) or script, action != "run")
            yield from filter(is_requirement, run.requirements)

    def _install_requirements(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the requirements in the words after ``install`` or ``add``."""
        yield from filter(is_requirement, to_install(words, self._file))

    def _file(self, name: str) -> str:
        """Return the text of a file of the tests; empty if there is no such file."""
        name = name.rpartition(UNKNOWN)[2].removeprefix("/tests/").lstrip("/")
        short = name.rpartition("/")[2]
        return self._files.get(name, self._files.get(short, ""))


def _inner_scripts(command: Command) -> Iterator[str]:
    """Yield the scripts in a command: in ``bash -c '...'``, or as here-documents."""
    words = _plain(command.words)
    shell = words[0].rpartition("/")[2] if words else ""
    if shell in _SHELLS:
        options = [index for index, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word)]
        yield from (words[index + 1] for index in options[:1] if index + 1 < len(words))
    if shell in _SHELLS or any(target.endswith(".sh") for target in command.targets):
        yield from command.texts


def _plain(words: Sequence[str]) -> Sequence[str]:
    """Return a command without the programs that run it: ``sudo -u me env A=1 pip ...``."""
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
    """Return the first word that is not an option, and the words after it."""
    _, words = split_options(words)
    return (words[0], words[1:]) if words else ("", words)
