"""Text of any characters as a Gymnasium space.

Gymnasium's own ``Text`` keeps a table of its characters, and shells print any of Unicode's 1.1
million: here a character's index is its code point, and the table is computed. Needs Gymnasium.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any, cast

import numpy
from gymnasium.spaces import Text

__all__ = ["MAX_LENGTH", "UnicodeText", "clipped"]

MAX_LENGTH = 65536
"""Characters of an action, and of an observation unless another number is given."""

_SAMPLE_CHARACTERS = string.ascii_letters + string.digits + " "
_MAX_SAMPLE_LENGTH = 40  # characters
_CODE_POINTS = 0x110000  # of Unicode


class _Characters(frozenset[str]):
    """Every character of Unicode, as a set and as a list by code point."""

    def __len__(self) -> int:
        return _CODE_POINTS

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and len(value) == 1

    def __iter__(self) -> Iterator[str]:
        return map(chr, range(_CODE_POINTS))

    def __getitem__(self, index: int) -> str:
        return chr(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Characters)

    def __hash__(self) -> int:
        return _CODE_POINTS


_ALL_CHARACTERS = _Characters()


class UnicodeText(Text):
    """Strings of any characters, up to a length.

    Samples are short and made of ASCII letters, digits and spaces: hardly ever a command, and
    nothing that the time or a process id could change.
    """

    def __init__(self, max_length: int, *, seed: int | numpy.random.Generator | None = None):
        super().__init__(max_length, min_length=0, charset=_SAMPLE_CHARACTERS, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short text; masks have no meaning over so many characters.

        Raises:
            ValueError: there is a mask.
        """
        if mask is not None or probability is not None:
            raise ValueError("text of any characters is sampled without a mask")
        length = int(self.np_random.integers(0, min(self.max_length, _MAX_SAMPLE_LENGTH) + 1))
        return "".join(self.np_random.choice(list(_SAMPLE_CHARACTERS), size=length))

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    @property
    def character_set(self) -> frozenset[str]:
        """Every character."""
        return _ALL_CHARACTERS

    @property
    def character_list(self) -> tuple[str, ...]:
        """Every character, by its code point."""
        return cast("tuple[str, ...]", _ALL_CHARACTERS)

    def character_index(self, char: str) -> numpy.int32:
        """Return the code point."""
        index: numpy.int32 = numpy.int32(ord(char))
        return index

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"


def clipped(text: str, length: int) -> str:
    """Leave out the middle of a text that is too long, and say how much of it.

    Args:
        text: the text.
        length: characters that may be left.
    """
    if len(text) <= length:
        return text
    note = f"\n[... {len(text)} characters, the middle is left out ...]\n"
    if length <= len(note):
        return text[:length]
    head = (length - len(note)) * 3 // 4
    tail = length - len(note) - head
    return text[:head] + note + text[len(text) - tail :]
