"""The client's side of a process that holds one SQLite database.

Speaks to it, and says when it is lost. What it sends is taken apart with care: an agent's SQL runs
in it.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pytest_intercode.databases.protocol import Cell, ResultSet
from pytest_intercode.databases.sqlite.forks import SqliteForks
from pytest_intercode.databases.sqlite.worker import (
    ANSWER,
    EXECUTE,
    FAILED,
    HAS_RESULT,
    IN_TRANSACTION,
    OPEN,
    REQUEST,
    RESULT,
    TRUNCATED,
)

__all__ = ["Ended", "Lost", "Reply", "SqliteProcess"]

Ended: TypeAlias = Literal["itself", "timeout", "cancelled"]

_NONSENSE = "SQLite's process gave an answer that is none"
_GRACE = 1.0  # seconds that an interrupted statement has, before its process is killed
_TRANSFER = 60.0  # seconds for an answer that has begun to arrive
_SLACK = 64 * 1024**2  # bytes that an answer may be longer than its cells


class Lost(Exception):
    """The process was killed or has died; ``ended`` says why."""

    def __init__(self, ended: Ended, said: str = "") -> None:
        super().__init__(said or "SQLite's process has ended")
        self.ended: Ended = ended


@dataclass(frozen=True)
class Reply:
    """What the process says of one statement.

    Attributes:
        result: its rows, or None.
        affected: rows that it changed.
        error: SQLite's message, or the empty string.
        code: SQLite's number of the error, or None.
        in_transaction: a transaction is open after it.
        ended: how it ended.
    """

    result: ResultSet | None
    affected: int
    error: str
    code: int | None
    in_transaction: bool
    ended: Ended


class SqliteProcess:
    """One process.

    Args:
        forks: where it comes from.

    Raises:
        SandboxError: it cannot be started.
    """

    def __init__(self, forks: SqliteForks) -> None:
        self._forks = forks
        self._fork = forks.start()
        self._woken, self._wake = os.pipe()
        self._number = 0
        self._busy = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._fork.pid

    def open(self, source: int, data: bytes, *, writes: bool, memory: int, timeout: float) -> Reply:
        """Load a database; see :mod:`sqlite_worker` for the sources.

        Raises:
            Lost: the process ended, or was too slow.
        """
        return self._ask(b"O", OPEN.pack(source, writes, memory), data, timeout, len(data))

    def execute(
        self, statement: str, timeout: float, *, max_rows: int, max_bytes: int, heed: bool = True
    ) -> Reply:
        """Run one statement.

        Args:
            statement: the statement.
            timeout: seconds, after which it is interrupted and, if it goes on, killed.
            max_rows: rows that are fetched at most.
            max_bytes: bytes of cells that are fetched at most.
            heed: let ``interrupt`` end it.

        Raises:
            Lost: the process ended with the statement.
            UnicodeEncodeError: the statement holds what is no character.
        """
        header = EXECUTE.pack(timeout, max_rows, max_bytes)
        return self._ask(b"X", header, statement.encode(), timeout, max_bytes, heed)

    def batch(
        self, statements: Sequence[str], timeout: float, *, max_rows: int, max_bytes: int
    ) -> list[Reply]:
        """Run several statements of ours, each of them whatever becomes of the others.

        Args:
            statements: they hold no NUL.
            timeout: seconds for all of them; what has not ended then is interrupted.
            max_rows: rows that are fetched of each at most.
            max_bytes: bytes of cells that are fetched of each at most.

        Raises:
            Lost: the process ended with them.
        """
        header = EXECUTE.pack(timeout, max_rows, max_bytes)
        data = "\0".join(statements).encode()
        most = max_bytes * len(statements)
        answers, ended = self._exchange(b"B", header, data, timeout, most, False)
        try:
            cursor = _Cursor(answers, 0)
            return [_decode(cursor.block(), ended) for _ in statements]
        except (struct.error, IndexError, ValueError) as error:
            raise Lost(ended, f"{_NONSENSE}: {error}") from None

    def image(self, timeout: float) -> bytes:
        """Return the database as the bytes of its file.

        Raises:
            Lost: the process ended.
        """
        answer, ended = self._exchange(b"I", b"", b"", timeout, 2**40, False)
        if ended != "itself":
            raise Lost(ended)
        return answer

    def interrupt(self) -> None:
        """End the running statement, and every later one that heeds it, from another thread."""
        with self._closing:
            if not self._closed:
                os.write(self._wake, b"!")

    def close(self) -> None:
        """Kill the process; may be called twice."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._forks.kill(self._fork)
        with self._busy:  # whoever waits for an answer has it from the kill that there is none
            self._forks.end(self._fork)
            for number in (self._woken, self._wake):
                os.close(number)

    # -- the conversation

    def _ask(
        self, op: bytes, header: bytes, data: bytes, timeout: float, most: int, heed: bool = False
    ) -> Reply:
        answer, ended = self._exchange(op, header, data, timeout, most, heed)
        try:
            return _decode(answer, ended)
        except (struct.error, IndexError, ValueError) as error:
            raise Lost(ended, f"{_NONSENSE}: {error}") from None

    def _exchange(
        self, op: bytes, header: bytes, data: bytes, timeout: float, most: int, heed: bool
    ) -> tuple[bytes, Ended]:
        """Send a request and return its answer's payload."""
        with self._busy:
            if self._closed:
                raise Lost("cancelled")
            return self._exchange_now(op, header, data, timeout, most, heed)

    def _exchange_now(
        self, op: bytes, header: bytes, data: bytes, timeout: float, most: int, heed: bool
    ) -> tuple[bytes, Ended]:
        self._number += 1
        ended: Ended = "itself"
        length = len(header) + len(data)
        self._send(REQUEST.pack(op, self._number, length) + header, data)
        answers = self._fork.answers
        waiting = select.poll()
        waiting.register(answers, select.POLLIN)
        if self._fork.ended is not None:
            waiting.register(self._fork.ended, select.POLLIN)
        if heed:
            waiting.register(self._woken, select.POLLIN)
        until = time.monotonic() + timeout
        while True:
            ready = dict(waiting.poll(max(0.0, until - time.monotonic()) * 1000))
            if answers in ready:
                break
            if self._fork.ended in ready:
                raise Lost(ended)
            if ended != "itself":
                raise Lost(ended)
            ended = "cancelled" if self._woken in ready else "timeout"
            if ended == "cancelled":
                waiting.unregister(self._woken)
            until = time.monotonic() + _GRACE
            with contextlib.suppress(OSError):
                os.write(self._fork.control, self._number.to_bytes(8, "little"))
        until = time.monotonic() + _TRANSFER
        number, length = ANSWER.unpack(self._receive(ANSWER.size, until, ended))
        if number != self._number or length > 3 * most + _SLACK:
            raise Lost(ended, _NONSENSE)
        return self._receive(length, until, ended), ended

    def _send(self, *parts: bytes) -> None:
        try:
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[os.write(self._fork.requests, view) :]
        except OSError:
            raise Lost("itself") from None

    def _receive(self, size: int, until: float, ended: Ended) -> bytes:
        waiting = select.poll()
        waiting.register(self._fork.answers, select.POLLIN)
        received = bytearray()
        while len(received) < size:
            if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
                raise Lost(ended, "SQLite's process stopped in the middle of an answer")
            part = os.read(self._fork.answers, min(size - len(received), 1024**2))
            if not part:
                raise Lost(ended)
            received += part
        return bytes(received)


def _decode(answer: bytes, ended: Ended) -> Reply:
    flags, affected, code, columns, rows, length = RESULT.unpack_from(answer)
    cursor = _Cursor(answer, RESULT.size)
    error = cursor.take(length).decode("utf-8", "replace")
    result = None
    if flags & HAS_RESULT:
        names = tuple(cursor.block().decode("utf-8", "replace") for _ in range(columns))
        cells = [_column(cursor, rows) for _ in range(columns)] if rows else []
        result = ResultSet(names, tuple(zip(*cells, strict=True)), bool(flags & TRUNCATED))
    if bool(flags & FAILED) != bool(error):
        raise ValueError("an error without words")
    if not error:
        ended = "itself"  # it was done before it could be interrupted
    return Reply(result, affected, error, code or None, bool(flags & IN_TRANSACTION), ended)


class _Cursor:
    """Takes an answer apart from its start to its end, and never past it."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError("it is too short")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def block(self) -> bytes:
        return self.take(*struct.unpack("<Q", self.take(8)))

    def numbers(self, count: int, code: str) -> tuple[Cell, ...]:
        return struct.unpack(f"<{count}{code}", self.take(8 * count))


def _column(cursor: _Cursor, rows: int) -> list[Cell]:
    """Read one column: the kind of each cell, then the cells of each kind."""
    tags = cursor.take(rows)
    integers = cursor.numbers(tags.count(1), "q")
    floats = cursor.numbers(tags.count(2), "d")
    texts = [
        cursor.take(size).decode("utf-8", "backslashreplace")
        for size in cursor.numbers(tags.count(3), "Q")
    ]
    blobs = [cursor.take(size) for size in cursor.numbers(tags.count(4), "Q")]
    kinds = [iter([None] * rows), iter(integers), iter(floats), iter(texts), iter(blobs)]
    return [next(kinds[tag]) for tag in tags]
