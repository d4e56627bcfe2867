"""What runs are doing, as lines for a terminal of any width.

Actions come from an agent, and names from a suite: both are escaped, and clipped by the columns
that they take on the terminal.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytest_intercode.core.status import EpisodeStatus, RunStatus, short_count
from pytest_intercode.core.text import one_line

__all__ = ["lines_of"]

_GAP = 2  # columns between two cells
_MIN_NAME, _MIN_ACTION = 12, 12  # columns of an episode's name, and of its action


class _Column(NamedTuple):
    """A column of numbers, which is left out if there is no room for it."""

    title: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(len, (self.title, *self.cells)))


def lines_of(runs: Sequence[RunStatus], columns: int, max_lines: int | None = None) -> list[str]:
    """Return the lines that show runs, escaped.

    Args:
        runs: the runs.
        columns: the width of the terminal.
        max_lines: the number of lines for which there is room; None for any number.
    """
    lines: list[str] = []
    for status in runs:
        if lines:
            lines.append("")
        lines += _heading(status, columns)
        if status.episodes:
            lines += _table(status.episodes, columns)
    if max_lines is not None and len(lines) > max_lines:
        more_lines = len(lines) - max_lines + 1
        lines = [*lines[: max_lines - 1], _fit(f"... {more_lines} more lines", columns)]
    return lines


def _heading(status: RunStatus, columns: int) -> list[str]:
    name = _fit(f"{status.name} in ", columns // 2) if status.name else ""
    place = name + _fit(status.folder, columns - _width(name), keep_end=True)
    text = one_line(f"run {status.pid}: {status.describe()}")
    lines = textwrap.wrap(text, columns, subsequent_indent="  ", break_on_hyphens=False)
    return [place, *lines]


def _table(episodes: Sequence[EpisodeStatus], columns: int) -> list[str]:
    names = [episode.item or episode.task for episode in episodes]
    numbers: list[_Column] = []
    room = columns - _MIN_NAME - _GAP - _MIN_ACTION
    for column in _number_columns(episodes):
        if column.width + _GAP > room:
            break
        room -= column.width + _GAP
        numbers.append(column)
    # The name gets the width that it needs, but not more than the action.
    longest = max(_width(one_line(name)) for name in (*names, "EPISODE"))
    name_width = min(longest, _MIN_NAME + room // 2)
    action_width = _MIN_NAME + _MIN_ACTION + room - name_width
    actions = [episode.describe_action() for episode in episodes]
    rows = zip(names, actions, strict=True)
    cells = [("EPISODE", "LAST ACTION"), *rows]
    lines = []
    for index, (name, action) in enumerate(cells):
        values = [(column.title, *column.cells)[index].rjust(column.width) for column in numbers]
        label = _padded(_fit(name, name_width, keep_end=True), name_width)
        gap = " " * _GAP
        lines.append(gap.join([label, *values, _fit(action, action_width)]).rstrip())
    return lines


def _number_columns(episodes: Sequence[EpisodeStatus]) -> Iterable[_Column]:
    """Return the columns between name and action; those that matter most come first."""
    yield _Column("TURNS", [status.describe_turns() for status in episodes])
    yield _Column("TIME", [status.describe_time() for status in episodes])
    if any(status.tokens for status in episodes):
        yield _Column("TOKENS", [short_count(status.tokens) for status in episodes])
    if any(status.cost is not None for status in episodes):
        yield _Column("COST", [status.describe_cost() for status in episodes])
    if any(status.worker for status in episodes):
        yield _Column("WORKER", [one_line(status.worker) for status in episodes])


# -- columns of the terminal, which are not characters


def _fit(text: str, columns: int, *, keep_end: bool = False) -> str:
    """Return a text, escaped and shortened to a number of columns.

    Args:
        text: the text.
        columns: the number of columns.
        keep_end: cut the beginning, as the end says more.
    """
    text = one_line(text)
    if _width(text) <= columns:
        return text
    dots = "..."[:columns]
    room = columns - len(dots)
    if keep_end:
        return dots + _take(reversed(text), room)[::-1]
    return _take(text, room) + dots


def _take(characters: Iterable[str], columns: int) -> str:
    """Return as many of the first characters as fit into the columns."""
    beginning = ""
    for character in characters:
        columns -= _width(character)
        if columns < 0:
            break
        beginning += character
    return beginning


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - _width(text))


def _width(text: str) -> int:
    """Return how many columns a text takes: East Asian letters two, combining marks none."""
    return sum(map(_columns_of, text))


def _columns_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
