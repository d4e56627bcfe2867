"""Sections that show an end state next to gold's on the report page.

A section is a dictionary of builtins:

* ``title``, ``note``: what is compared, and a remark about it;
* ``same``: whether both sides are equal in it; None if it does not count;
* ``head``: the names of columns, if the lines are rows of a table;
* ``lines``: a mark and the cells of each line. ``=`` is on both sides, ``+`` only on the agent's,
  ``-`` only on gold's, ``!`` differs between them;
* ``more``: the number of lines that are left out.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

__all__ = [
    "Section",
    "compare_lines",
    "compare_table",
    "compare_texts",
    "compare_unordered",
    "show_lines",
    "show_marked_lines",
    "show_state",
]

Section: TypeAlias = "dict[str, Any]"

_MAX_LINES = 300  # of a section
_MAX_DIFFED = 400  # lines of a side; the time of a diff grows with their square
_CONTEXT = 3  # equal lines around each difference
_MAX_CELL = 500  # characters of a cell


def show_state(state: Mapping[str, Any]) -> list[Section]:
    """Show a state of unknown structure as JSON."""
    agent_state, gold_state = (
        json.dumps(state.get(side), indent=1, sort_keys=True) for side in ("agent", "gold")
    )
    if "agent" in state and "gold" in state:
        return [compare_texts("End state", agent_state, gold_state)]
    return [show_lines("End state", json.dumps(state, indent=1, sort_keys=True).split("\n"))]


def compare_texts(title: str, agent: str, gold: str) -> Section:
    """Compare two texts line by line."""
    section = compare_lines(title, agent.splitlines(), gold.splitlines())
    if section["same"] and agent != gold:
        section |= {"same": False, "note": "Only the ends of lines differ."}
    return section


def compare_lines(title: str, agent: Sequence[str], gold: Sequence[str]) -> Section:
    """Compare lines in their order."""
    equal = list(agent) == list(gold)
    lines: list[list[str]]
    if equal:
        lines = [["=", line] for line in agent] or [["", "nothing on either side"]]
    elif max(len(agent), len(gold)) > _MAX_DIFFED:
        note = "Too long for a diff: the lines of each side, whatever their order."
        return {**compare_unordered(title, agent, gold), "same": False, "note": note}
    else:
        lines = _diff(gold, agent)
    return show_marked_lines(title, lines, equal)


def show_marked_lines(title: str, lines: Sequence[Sequence[str]], same: bool | None) -> Section:
    """Show lines that already have marks.

    Args:
        title: what the lines are.
        lines: a mark and the cells of each line.
        same: whether both sides are equal; None if that does not count.
    """
    return _with_remaining({"title": title, "same": same, "lines": _shortened(lines)}, len(lines))


def show_lines(title: str, lines: Sequence[str]) -> Section:
    """Show lines that belong to neither side."""
    return show_marked_lines(title, [["", line] for line in lines], None)


def _diff(gold: Sequence[str], agent: Sequence[str]) -> list[list[str]]:
    """Return gold's lines (``-``), the agent's (``+``) and the common lines near them."""
    diff_lines: list[list[str]] = []
    matcher = difflib.SequenceMatcher(None, gold, agent, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT)):
        if number:
            diff_lines.append(["", "..."])
        for kind, a, b, c, d in group:
            if kind == "equal":
                diff_lines += [["=", line] for line in gold[a:b]]
                continue
            diff_lines += [["-", line] for line in gold[a:b]]
            diff_lines += [["+", line] for line in agent[c:d]]
    return diff_lines


def compare_unordered(title: str, agent: Sequence[str], gold: Sequence[str]) -> Section:
    """Compare the lines of both sides without regard to order; differences come first."""
    gold_counts, agent_counts = Counter(gold), Counter(agent)
    lines = [["-", line] for line in (gold_counts - agent_counts).elements()]
    lines += [["+", line] for line in (agent_counts - gold_counts).elements()]
    equal = not lines
    lines += [["=", line] for line in (gold_counts & agent_counts).elements()]
    if not lines:
        lines = [["", "nothing on either side"]]
    return show_marked_lines(title, lines, equal)


def compare_table(title: str, head: list[str], lines: list[list[str]]) -> Section:
    """Show a table in which each line compares both sides; differences come first."""
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
    return _with_remaining(section, len(lines))


def _shortened(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[mark, *map(_short, cells)] for mark, *cells in lines[:_MAX_LINES]]


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}... ({len(text)} characters)"


def _with_remaining(section: Section, lines: int) -> Section:
    if lines > _MAX_LINES:
        section["more"] = lines - _MAX_LINES
    return section
