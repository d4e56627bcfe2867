"""The results of every log parser: statuses by name, within limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import wraps
from typing import TypeAlias

from pytest_intercode.errors import UngradableState

__all__ = [
    "DURATION",
    "MAX_LOG_LENGTH",
    "MAX_SUITE_LENGTH",
    "PASSING",
    "Outline",
    "Parser",
    "Results",
    "Rule",
    "Status",
    "Statuses",
    "by_line",
    "by_pattern",
    "by_whole_line",
    "without_colours",
]

MAX_LOG_LENGTH = 32 * 1024**2
"""The most characters of a log that is read."""

MAX_SUITE_LENGTH = 1024
"""The most characters of a suite's name that become part of the names of its tests."""

_MAX_TESTS = 1_000_000  # of a log
_MAX_NAMES_LENGTH = 64 * 1024**2  # characters of all names together
_MAX_DEPTH = 50  # nested suites that are in a name


class Status(str, Enum):
    """The result of one test."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    ERROR = "ERROR"
    XFAIL = "XFAIL"


PASSING = (Status.PASSED, Status.XFAIL)
"""The statuses that count as passed."""

DURATION = re.compile(r"(?<=.)\s\(\d+\s*m?s\)$")
"""The duration of a test, as several runners write it after the test's name."""

Statuses: TypeAlias = dict[str, Status]
Parser: TypeAlias = Callable[[str], Statuses]
Rule: TypeAlias = "Callable[[str], tuple[str, Status] | None]"


class Results(Statuses):
    """Statuses by name, limited in number; a later status replaces an earlier one."""

    _size = 0

    def __setitem__(self, name: str, status: Status) -> None:
        if name not in self:
            self._size += len(name)
            if len(self) >= _MAX_TESTS or self._size > _MAX_NAMES_LENGTH:
                raise UngradableState(
                    f"the log names more than {_MAX_TESTS:,} tests, or names of more than "
                    f"{_MAX_NAMES_LENGTH:,} characters"
                )
        super().__setitem__(name, status)


def by_line(rule: Rule) -> Parser:
    """Return a parser that applies a rule to each line, without the blanks around it."""
    return _by_rule(rule, lambda log: map(str.strip, log.split("\n")))


def by_whole_line(rule: Rule) -> Parser:
    """Return a parser that applies a rule to each line as it is."""
    return _by_rule(rule, lambda log: log.split("\n"))


def _by_rule(rule: Rule, lines_of: Callable[[str], Iterable[str]]) -> Parser:
    @wraps(rule)
    def parse(log: str) -> Statuses:
        statuses = Results()
        for line in lines_of(log):
            result = rule(line)
            if result is not None:
                statuses[result[0]] = result[1]
        return statuses

    return parse


def by_pattern(pattern: str, statuses: Mapping[str, Status], doc: str) -> Parser:
    """Return a parser of lines with a status, the pattern's first group, and then a name."""
    form = re.compile(pattern)

    @by_line
    def parse(line: str) -> tuple[str, Status] | None:
        match = form.fullmatch(line)
        return (match[2], statuses[match[1]]) if match else None

    parse.__doc__ = doc
    return parse


_COLOUR = re.compile(r"\[\d+m")
_CONTROL = dict.fromkeys(range(1, 32))


def without_colours(line: str) -> str:
    """Return a line without control characters and terminal colours."""
    return _COLOUR.sub("", line).translate(_CONTROL)


class Outline:
    """The suites that a line is in; names beyond the limits of depth and length are left out."""

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
        part = name[:MAX_SUITE_LENGTH] if len(self._names) < _MAX_DEPTH else None
        self._open.append((part, indent))
        if part is not None:
            self._names.append(part)
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
