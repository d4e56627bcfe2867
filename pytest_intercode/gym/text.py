"""Text of any characters as a Gymnasium space, which also works in shared memory.

Gymnasium's own ``Text`` keeps a table of its characters, but shells can print all of Unicode's 1.1
million. Here, a character's index is its code point, and the table is computed. Needs Gymnasium.

``AsyncVectorEnv`` reads the workers' shared memory only once, when it is created, and copies the
result after each step. An array is a view of the memory and so up to date, but a string would keep
the value from before the first step. Here, a batch of texts is a view too, and copying it gives the
current texts. Importing this module registers that with Gymnasium.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from typing import Any, cast, overload

import numpy
from gymnasium.spaces import Text
from gymnasium.vector.utils import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

__all__ = ["MAX_LENGTH", "SharedTexts", "UnicodeText", "clipped"]

MAX_LENGTH = 65536
"""The most characters of an action, and by default of an observation."""

_SAMPLE_CHARACTERS = string.ascii_letters + string.digits + " "
_MAX_SAMPLE_LENGTH = 40  # characters
_CODE_POINTS = 0x110000  # in Unicode
_ENCODING = "utf-32-le"  # one number for each character, including lone surrogates


class _Characters(frozenset[str]):
    """All characters of Unicode, as a set and as a list by code point."""

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
    """Strings of any characters, up to a maximum length.

    Samples are short and made of ASCII letters, digits and spaces. They are hardly ever valid
    commands, and their results do not depend on the time or a process id.
    """

    def __init__(self, max_length: int, *, seed: int | numpy.random.Generator | None = None):
        super().__init__(max_length, min_length=0, charset=_SAMPLE_CHARACTERS, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short random text; masks are not supported for so many characters.

        Raises:
            ValueError: a mask or a probability is given.
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
        """All characters."""
        return _ALL_CHARACTERS

    @property
    def character_list(self) -> tuple[str, ...]:
        """All characters, indexed by their code points."""
        return cast("tuple[str, ...]", _ALL_CHARACTERS)

    def character_index(self, char: str) -> numpy.int32:
        """Return a character's code point."""
        index: numpy.int32 = numpy.int32(ord(char))
        return index

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"


# -- in shared memory


class SharedTexts(Sequence[str]):
    """The current texts in shared memory, one for each environment.

    Args:
        memory: the length and the code points of each text.
        length: the most characters that a text may have.
    """

    def __init__(self, memory: numpy.ndarray[Any, Any], length: int) -> None:
        self._rows = memory.reshape((-1, length + 1))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        row = self._rows[index]
        codes: bytes = row[1 : 1 + row[0]].tobytes()
        return codes.decode(_ENCODING, "surrogatepass")

    def write(self, index: int, text: str) -> None:
        """Write the text at an index."""
        codes = numpy.frombuffer(text.encode(_ENCODING, "surrogatepass"), numpy.int32)
        self._rows[index][1 : 1 + len(codes)] = codes
        self._rows[index][0] = len(codes)

    def __deepcopy__(self, memo: object) -> tuple[str, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return repr(tuple(self))


def _texts(space: UnicodeText, shared: Any) -> SharedTexts:
    return SharedTexts(numpy.frombuffer(shared.get_obj(), numpy.int32), space.max_length)


@create_shared_memory.register(UnicodeText)
def _create(space: UnicodeText, n: int = 1, ctx: Any = None) -> Any:
    return ctx.Array("i", n * (space.max_length + 1))


@read_from_shared_memory.register(UnicodeText)
def _read(space: UnicodeText, shared_memory: Any, n: int = 1) -> Any:
    return _texts(space, shared_memory)


@write_to_shared_memory.register(UnicodeText)
def _write(space: UnicodeText, index: int, values: str, shared_memory: Any) -> None:
    _texts(space, shared_memory).write(index, values)


# -- observations


def clipped(text: str, length: int) -> str:
    """Replace the middle of a text that is too long with a note of the text's length.

    Args:
        text: the text.
        length: the most characters of the result.
    """
    if len(text) <= length:
        return text
    note = f"\n[... {len(text)} characters, the middle is left out ...]\n"
    if length <= len(note):
        return text[:length]
    head = (length - len(note)) * 3 // 4
    tail = length - len(note) - head
    return text[:head] + note + text[len(text) - tail :]
