"""Text as it is shown to people: escaped, counted, in columns.

Text from a sandbox or a suite drives no terminal once it is escaped. Whatever does not show as
itself is written as an escape: control characters, which could move the cursor, rename the window
or answer in the user's place; marks that turn the direction of writing; blanks that are no blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["aligned", "counted", "fragments", "harmless"]

_STYLE = "reverse"
_RUNS = re.compile(r"[\n\t\x20-\x7e]+|[^\n\t\x20-\x7e]")


def fragments(text: str, style: str = "") -> list[tuple[str, str]]:
    """Return pairs of a style and a text; escapes stand out from backslashes of the text."""
    return [(_STYLE if escaped else style, piece) for piece, escaped in _pieces(text)]


def harmless(text: str) -> str:
    """Return a text in which what does not show as itself is written as an escape."""
    return "".join(piece for piece, _ in _pieces(text))


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    for found in _RUNS.finditer(text):
        piece = found[0]
        if len(piece) > 1 or piece in "\n\t" or piece.isprintable():
            yield piece, False
        else:
            yield piece.encode("unicode_escape").decode("ascii"), True


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 episode``, ``1,024 episodes``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def aligned(rows: Sequence[Sequence[str]], *, labels: int) -> list[str]:
    """Return a line for each row, its cells in columns.

    Args:
        rows: the rows, all of the same length.
        labels: how many columns stand to the left; the others, numbers, stand to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if at < labels else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
