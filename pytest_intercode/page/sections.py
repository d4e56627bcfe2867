"""Sections of an end state: lines that are the agent's, gold's or both's.

A section is a dictionary of builtins:

* ``title``, ``note``: what is compared, and what has to be known of it;
* ``same``: whether both sides are equal in it; None where it does not count;
* ``head``: the names of columns, where the lines are rows of a table;
* ``lines``: a mark and the cells. ``=`` is on both sides, ``+`` is the agent's alone, ``-`` is
  gold's alone, ``!`` is different on the two sides;
* ``more``: lines that are left out.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

__all__ = ["Section", "in_order", "plain", "sides", "table", "texts"]

Section: TypeAlias = "dict[str, Any]"

_MOST_LINES = 300
_MOST_DIFFED = 400  # lines of a side: a diff takes time with their square
_CONTEXT = 3
_LONGEST = 500  # characters of a cell


def texts(title: str, mine: str, theirs: str) -> Section:
    """Compare two texts line by line."""
    section = in_order(title, mine.splitlines(), theirs.splitlines())
    if section["same"] and mine != theirs:
        section |= {"same": False, "note": "Only the ends of lines differ."}
    return section


def in_order(title: str, mine: Sequence[str], theirs: Sequence[str]) -> Section:
    """Compare lines as they stand."""
    same = list(mine) == list(theirs)
    lines: list[list[str]]
    if same:
        lines = [["=", line] for line in mine] or [["", "nothing on either side"]]
    elif max(len(mine), len(theirs)) > _MOST_DIFFED:
        note = "Too long for a diff: the lines of each side, whatever their order."
        return {**sides(title, mine, theirs), "same": False, "note": note}
    else:
        lines = _diff(theirs, mine)
    return _with_rest({"title": title, "same": same, "lines": _shortened(lines)}, len(lines))


def plain(title: str, lines: Sequence[str]) -> Section:
    """Show lines that belong to neither side."""
    shown = _shortened([["", line] for line in lines])
    return _with_rest({"title": title, "same": None, "lines": shown}, len(lines))


def _diff(left: Sequence[str], right: Sequence[str]) -> list[list[str]]:
    """Return gold's lines (``-``), the agent's (``+``) and, near them, what both have."""
    found: list[list[str]] = []
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT)):
        if number:
            found.append(["", "..."])
        for kind, a, b, c, d in group:
            if kind == "equal":
                found += [["=", line] for line in left[a:b]]
                continue
            found += [["-", line] for line in left[a:b]]
            found += [["+", line] for line in right[c:d]]
    return found


def sides(title: str, mine: Sequence[str], theirs: Sequence[str]) -> Section:
    """Compare what each side has, whatever its order: what one lacks comes first."""
    left, right = Counter(theirs), Counter(mine)
    lines = [["-", line] for line in (left - right).elements()]
    lines += [["+", line] for line in (right - left).elements()]
    same = not lines
    lines += [["=", line] for line in (left & right).elements()]
    if not lines:
        lines = [["", "nothing on either side"]]
    return _with_rest({"title": title, "same": same, "lines": _shortened(lines)}, len(lines))


def table(title: str, head: list[str], lines: list[list[str]]) -> Section:
    """Compare what has a line of its own for both sides; what differs comes first."""
    lines.sort(key=lambda line: line[0] == "=")
    section: Section = {
        "title": title,
        "same": all(line[0] == "=" for line in lines),
        "lines": _shortened(lines),
    }
    if lines:
        section["head"] = head
    else:
        section["lines"] = [["", "nothing on either side"]]
    return _with_rest(section, len(lines))


def _shortened(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[mark, *map(_short, cells)] for mark, *cells in lines[:_MOST_LINES]]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def _with_rest(section: Section, lines: int) -> Section:
    if lines > _MOST_LINES:
        section["more"] = lines - _MOST_LINES
    return section
