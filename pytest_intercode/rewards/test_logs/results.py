"""What every parser of logs gives: statuses by name, within limits."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import TypeAlias

from pytest_intercode.errors import UngradableState

__all__ = [
    "LONGEST_LOG",
    "LONGEST_SUITE",
    "Outline",
    "Parser",
    "Results",
    "Rule",
    "Status",
    "Statuses",
    "by_line",
]

LONGEST_LOG = 32 * 1024**2
"""Characters of a log that is read."""

LONGEST_SUITE = 1024
"""Characters of a suite's name that become part of the names of its tests."""

_MOST_TESTS = 1_000_000
_MOST_NAMES = 64 * 1024**2  # characters of all names together
_DEEPEST = 50  # suites within each other that a name tells


class Status(str, Enum):
    """What became of one test."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    ERROR = "ERROR"
    XFAIL = "XFAIL"


Statuses: TypeAlias = dict[str, Status]
Parser: TypeAlias = Callable[[str], Statuses]
Rule: TypeAlias = "Callable[[str], tuple[str, Status] | None]"


class Results(Statuses):
    """Statuses by name, of which there are not too many; a later status replaces an earlier one."""

    _size = 0

    def __setitem__(self, name: str, status: Status) -> None:
        if name not in self:
            self._size += len(name)
            if len(self) >= _MOST_TESTS or self._size > _MOST_NAMES:
                raise UngradableState(
                    f"the log names more than {_MOST_TESTS:,} tests, or names of more than "
                    f"{_MOST_NAMES:,} characters"
                )
        super().__setitem__(name, status)


def by_line(rule: Rule) -> Parser:
    """Return a parser that asks a rule about each line, without the blanks around it."""

    @wraps(rule)
    def parse(log: str) -> Statuses:
        found = Results()
        for line in log.split("\n"):
            result = rule(line.strip())
            if result is not None:
                found[result[0]] = result[1]
        return found

    return parse


class Outline:
    """The suites that a line is in; of very many or very long names the rest is left out."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._open: list[tuple[str | None, int]] = []
        self._names: list[str] = []
        self._prefix: str | None = ""

    def enter(self, line: str) -> None:
        """Take an indented line as the name of a suite; any other line changes nothing."""
        indent = len(line) - len(line.lstrip())
        if indent:
            while self._open and self._open[-1][1] >= indent:
                self.leave()
            self.begin(line.strip(), indent)

    def begin(self, name: str, indent: int = 0) -> None:
        """Begin a suite within those that are open."""
        kept = name[:LONGEST_SUITE] if len(self._names) < _DEEPEST else None
        self._open.append((kept, indent))
        if kept is not None:
            self._names.append(kept)
            self._prefix = None

    def leave(self) -> None:
        """End the innermost suite, if one is open."""
        if self._open and self._open.pop()[0] is not None:
            self._names.pop()
            self._prefix = None

    @property
    def prefix(self) -> str:
        """The names of the suites, the outermost first, each with the separator after it."""
        if self._prefix is None:
            self._prefix = "".join(f"{name}{self._separator}" for name in self._names)
        return self._prefix
