"""Trajectories packed for the page: JSON in blocks, with gzip and as base64.

The page opens a block when one of its episodes is looked at. What is in a block can neither end
the script element that holds it nor be run: it is letters, digits and three signs.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from typing import Any, NamedTuple

__all__ = ["Blocks", "Place", "packed"]

_SIZE = 192 * 1024  # characters of JSON, from which on a block is full


class Place(NamedTuple):
    """Where an episode lies: the number of its block, and its number there."""

    block: int
    at: int


class Blocks:
    """Collects episodes into blocks; ``texts`` holds those that are full, after :meth:`close`."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._open: list[str] = []
        self._size = 0

    def add(self, episode: dict[str, Any]) -> Place:
        """Add an episode and say where it will be."""
        place = Place(len(self.texts), len(self._open))
        text = _json(episode)
        self._open.append(text)
        self._size += len(text)
        if self._size >= _SIZE:
            self.close()
        return place

    def close(self) -> None:
        """Pack what is not packed yet."""
        if self._open:
            self.texts.append(_pack(f"[{','.join(self._open)}]"))
        self._open, self._size = [], 0


def packed(value: Any) -> str:
    """Return a value as the page reads it."""
    return _pack(_json(value))


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    except ValueError:  # Python reads and writes NaN, which is no JSON
        return _json(_finite(value))


def _finite(value: Any) -> Any:
    """Return a value without the numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value


def _pack(text: str) -> str:
    # Without the time, so that the same run gives the same page.
    return base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode("ascii")
