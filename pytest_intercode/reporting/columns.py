"""Tables in lines of text, for the terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aligned"]


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
