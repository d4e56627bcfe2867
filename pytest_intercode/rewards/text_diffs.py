"""Diffs of the text files in which an agent's end state differs from gold's: evidence for people.

They do not affect grading, which compares digests. An agent's files are read and compared within
limits: the time of a diff grows with the product of both sides' lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

__all__ = ["equal_ends", "text_diff"]

_MAX_LINES = 400  # of each side, without the lines that both begin or end with
_MAX_DIFF_LINES = 200  # lines of a diff
_MAX_LINE_LENGTH = 300  # characters of a line
_CONTEXT = 3  # equal lines around a difference, as diff prints
_NO_END = "\n"  # last item for a text without a final newline; no line can equal it
_NO_END_NOTE = "\\ No newline at end of file"


def text_diff(agent: bytes | None, gold: bytes | None) -> list[str]:
    """Return the difference of two files as lines of a unified diff, without names.

    Args:
        agent: the agent's file (``+``); None where it has none.
        gold: gold's file (``-``); likewise.

    Returns:
        The lines; none if one file is not text, or if they do not differ or are too long to diff.
    """
    old, new = _lines(gold), _lines(agent)
    if old is None or new is None:
        return []
    head, tail = equal_ends(old, new)
    begin, behind = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    old, new = old[begin : len(old) - behind], new[begin : len(new) - behind]
    if max(len(old), len(new)) > _MAX_LINES:
        return []
    diff = _format_diff(old, new, begin)
    if len(diff) > _MAX_DIFF_LINES:
        diff = [*diff[:_MAX_DIFF_LINES], f"@@ {len(diff) - _MAX_DIFF_LINES} more lines @@"]
    return diff


def equal_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many lines two texts have in common at their start, and then at their end."""
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _lines(content: bytes | None) -> list[str] | None:
    """Return the lines of a text; None if it is not text."""
    if not content:
        return []
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else [*lines, _NO_END]


def _format_diff(old: Sequence[str], new: Sequence[str], begin: int) -> list[str]:
    diff = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        diff.append(f"@@ -{begin + group[0][1] + 1} +{begin + group[0][3] + 1} @@")
        for kind, a, b, c, d in group:
            if kind == "equal":
                diff += [_mark(" ", line) for line in old[a:b]]
                continue
            diff += [_mark("-", line) for line in old[a:b]]
            diff += [_mark("+", line) for line in new[c:d]]
    return diff


def _mark(mark: str, line: str) -> str:
    if line == _NO_END:
        return _NO_END_NOTE
    return mark + (line if len(line) <= _MAX_LINE_LENGTH else f"{line[:_MAX_LINE_LENGTH]}...")
