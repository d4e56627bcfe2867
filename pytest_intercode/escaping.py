"""Text from a sandbox or a suite as it may be written to a terminal: it drives nothing there.

Whatever does not show as itself is shown as an escape: control characters, which could move the
cursor, rename the window or answer in the user's place; marks that turn the direction of writing;
blanks that are no blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["fragments", "harmless"]

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
