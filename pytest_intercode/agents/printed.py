"""What a program prints beside: read at once, so that it never waits, and kept within bounds."""

from __future__ import annotations

import codecs
import os
import threading
from collections import deque
from typing import IO

__all__ = ["Printed"]

_KEPT = 16 * 1024  # characters kept of the beginning and of the end
_PIECE = 64 * 1024


class Printed:
    """Reads one pipe; threads may share it.

    Args:
        pipe: where the program prints to.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._file = pipe.fileno()
        os.set_blocking(self._file, False)
        self._lock = threading.Lock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._closed = False
        self._clear()

    def fileno(self) -> int:
        """Return the pipe's number, for whoever waits for it."""
        return self._file

    def _clear(self) -> None:
        self._head = ""
        self._tail: deque[str] = deque()
        self._in_tail = 0
        self._forgotten = 0

    def read(self) -> bool:
        """Take what is there; False at the end of the pipe."""
        with self._lock:
            return self._read()

    def take(self) -> str:
        """Return what came since the last time, to the very last byte; of much, not the middle."""
        with self._lock:
            self._read()
            tail = "".join(self._tail)
            forgotten = self._forgotten + max(0, len(tail) - _KEPT)
            notice = f"\n[... {forgotten} characters ...]\n" if forgotten else ""
            text = f"{self._head}{notice}{tail[-_KEPT:]}"
            self._clear()
            return text

    def close(self) -> None:
        """Read no more; the pipe itself is its owner's."""
        with self._lock:
            self._closed = True  # the number may be another file's soon

    def _read(self) -> bool:
        for _ in range(64):  # it may print faster than this reads
            if self._closed:
                return False
            try:
                piece = os.read(self._file, _PIECE)
            except BlockingIOError:
                return True
            if not piece:
                return False
            self._add(self._decoder.decode(piece))
        return True

    def _add(self, text: str) -> None:
        room = _KEPT - len(self._head)
        self._head += text[:room]
        if not (text := text[room:]):
            return
        self._tail.append(text)
        self._in_tail += len(text)
        while self._in_tail - len(self._tail[0]) >= _KEPT:
            gone = len(self._tail.popleft())
            self._in_tail -= gone
            self._forgotten += gone
