"""Diffs of the text files by which an agent's end state differs from gold's: evidence for people.

They decide nothing; an end state is graded by digests. What an agent leaves is read in bounds, and
compared in bounds: a diff takes time with the product of both sides' lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

__all__ = ["text_diff"]

_MOST_LINES = 400  # of each side, without those that both begin or end with
_MOST_KEPT = 200  # lines of a diff
_LONGEST = 300  # characters of a line
_CONTEXT = 3
_NO_END = "\n"  # stands for the end of a text without one: no line has it
_NO_END_SAID = "\\ No newline at end of file"


def text_diff(mine: bytes | None, theirs: bytes | None) -> list[str]:
    """Return the difference of two files as lines of a unified diff, without names.

    Args:
        mine: the agent's file (``+``); None where it has none.
        theirs: gold's file (``-``); likewise.

    Returns:
        Nothing where one of them is no text, where they do not differ, or are too long for a diff.
    """
    left, right = _lines(theirs), _lines(mine)
    if left is None or right is None:
        return []
    same = 0
    while same < min(len(left), len(right)) and left[same] == right[same]:
        same += 1
    end = 0
    while end < min(len(left), len(right)) - same and left[-1 - end] == right[-1 - end]:
        end += 1
    begin, behind = max(0, same - _CONTEXT), max(0, end - _CONTEXT)
    left, right = left[begin : len(left) - behind], right[begin : len(right) - behind]
    if max(len(left), len(right)) > _MOST_LINES:
        return []
    found = _unified(left, right, begin)
    if len(found) > _MOST_KEPT:
        found = [*found[:_MOST_KEPT], f"@@ {len(found) - _MOST_KEPT} more lines @@"]
    return found


def _lines(content: bytes | None) -> list[str] | None:
    """Return the lines of a text; None for what is no text."""
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


def _unified(left: Sequence[str], right: Sequence[str], begin: int) -> list[str]:
    found = []
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        found.append(f"@@ -{begin + group[0][1] + 1} +{begin + group[0][3] + 1} @@")
        for kind, a, b, c, d in group:
            if kind == "equal":
                found += [_marked(" ", line) for line in left[a:b]]
                continue
            found += [_marked("-", line) for line in left[a:b]]
            found += [_marked("+", line) for line in right[c:d]]
    return found


def _marked(mark: str, line: str) -> str:
    if line == _NO_END:
        return _NO_END_SAID
    return mark + (line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...")
