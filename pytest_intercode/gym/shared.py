"""Text in the memory that Gymnasium's vectors share with their worker processes.

``AsyncVectorEnv`` reads that memory once, when it is made, and has what it read copied after each
step: an array is a view of the memory and so up to date, a string is what was there before the
first step. Here a batch of texts is a view too, and its copy is the texts of the moment. Importing
this module registers that with Gymnasium.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy
from gymnasium.vector.utils import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from pytest_intercode.gym.text import UnicodeText

__all__ = ["SharedTexts"]

_ENCODING = "utf-32-le"  # one number for each character, lone surrogates included


class SharedTexts(Sequence[str]):
    """One text for each environment, as it is in shared memory now.

    Args:
        memory: for each text its length and its code points.
        length: characters that a text may have.
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
        """Put a text in its place."""
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
