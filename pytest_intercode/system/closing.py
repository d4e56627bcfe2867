"""A base class of objects that a ``with`` closes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

__all__ = ["Closing"]

_Closing = TypeVar("_Closing", bound="Closing")


class Closing:
    """An object that is closed at the end of the ``with`` that it is used in."""

    def __enter__(self: _Closing) -> _Closing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close it; may be called twice."""
