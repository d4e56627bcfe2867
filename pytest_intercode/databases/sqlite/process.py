"""The client's side of the processes that hold one SQLite database each.

It starts them, communicates with them, and reports when one is lost. Their answers are parsed with
care, because an agent's SQL runs there.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_intercode.databases.protocol import Answer, Cell, Ended, ResultSet
from pytest_intercode.databases.sqlite.worker import (
    ANSWER,
    EXECUTE,
    FAILED,
    HAS_RESULT,
    IN_TRANSACTION,
    MAPPED_PAGES,
    OPEN,
    REQUEST,
    RESULT,
    TRUNCATED,
    open_pidfd,
    write_all,
)
from pytest_intercode.errors import SandboxError
from pytest_intercode.system import platform

__all__ = ["Lost", "OutOfMemory", "Reply", "SqliteForks", "SqliteProcess"]

_INVALID = "SQLite's process gave an invalid answer"
_GRACE_PERIOD = 1.0  # seconds for an interrupted statement to end, before its process is killed
_TRANSFER_TIMEOUT = 60.0  # seconds for an answer that has begun to arrive
_MAX_OVERHEAD = 64 * 1024**2  # bytes that an answer may have in addition to its cells
_MEMORY_INTERVAL = 0.05  # seconds between two checks of a process's memory
_MEMORY_SLACK = (
    256 * 1024**2
)  # additional bytes that it may have, because SQLite's own limit should be reached first


# The package's folder is last in the path, so that nothing in it hides the standard library.
_START = (
    "import sys; sys.path.append(sys.argv[3]); "
    "from pytest_intercode.databases.sqlite.worker import main; main()"
)
_FORK_TIMEOUT = 30.0  # seconds for a fork to start, or to end after a kill


class Lost(Exception):
    """The process was killed or has died; ``ended`` says why."""

    def __init__(self, ending: Ended, message: str = "") -> None:
        super().__init__(message or "SQLite's process has ended")
        self.ended: Ended = ending


class OutOfMemory(Lost):
    """The process was killed because it used more memory than allowed."""


@dataclass(frozen=True)
class Reply(Answer):
    """The process's answer to one statement; ``in_transaction``: a transaction is open now."""

    in_transaction: bool = False


@dataclass(frozen=True)
class _Fork:
    """One process: its id, our ends of its three pipes, and its pidfd, readable at its end."""

    pid: int
    requests: int
    answers: int
    control: int
    pidfd: int | None  # macOS and Linux before 5.3 do not have any


class SqliteForks:
    """Starts the processes of an engine, all forked from one that is started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forker: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._closed = False

    def start(self) -> _Fork:
        """Start and return a new process, or raise SandboxError."""
        with self._lock:
            if self._closed:
                raise SandboxError("SQLite has been closed")
            if self._forker is not None and self._forker.poll() is not None:
                self._stop()
            try:
                return self._fork()
            except OSError as error:
                message = self._stop()
                raise SandboxError(
                    f"SQLite's process cannot be started: {message or error}"
                ) from None

    def kill(self, fork: _Fork) -> None:
        """Kill a process, and wait for its end."""
        if fork.pidfd is None:
            self._have_killed(fork)
            return
        platform.kill_by_pidfd(fork.pidfd)
        waiting = select.poll()
        waiting.register(fork.pidfd, select.POLLIN)
        waiting.poll(_FORK_TIMEOUT * 1000)

    def _have_killed(self, fork: _Fork) -> None:
        """Let the forking process kill one: only its parent knows that the id is still its own.

        If the forking process is gone, the other one ends on its own.
        """
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.sendall(b"K" + fork.pid.to_bytes(8, "little"))
                self._socket.recv(8)

    def end(self, fork: _Fork) -> None:
        """Close the pipes of a process that was killed, and reap it."""
        with self._lock, contextlib.suppress(OSError):
            # Without a pidfd, the kill has already reaped it.
            if self._socket is not None and fork.pidfd is not None:
                self._socket.sendall(b"R" + fork.pid.to_bytes(8, "little"))
        for number in (fork.requests, fork.answers, fork.control, fork.pidfd):
            if number is not None:
                os.close(number)

    def close(self) -> None:
        """End the forking process; the processes must have ended before."""
        with self._lock:
            self._closed = True
            self._stop()

    # -- inside

    def _fork(self) -> _Fork:
        channel = self._socket or self._begin()
        requests, answers, control = [os.pipe() for _ in range(3)]
        worker_ends = [requests[0], answers[1], control[0]]
        try:
            socket.send_fds(channel, [b"F"], worker_ends)
            answer = channel.recv(8)
            if len(answer) < 8:
                raise OSError("it ended at once")
        except OSError:
            for number in (requests[1], answers[0], control[1]):
                os.close(number)
            raise
        finally:
            for number in worker_ends:
                os.close(number)
        pid = int.from_bytes(answer, "little")
        return _Fork(pid, requests[1], answers[0], control[1], open_pidfd(pid))

    def _begin(self) -> socket.socket:
        """Start the forker."""
        client_socket, forker_socket = socket.socketpair()
        with forker_socket:
            folder = Path(__file__).parents[3]
            self._forker = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", _START),
                    *(str(forker_socket.fileno()), str(os.getpid()), folder),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(forker_socket.fileno(),),
                env={"MALLOC_ARENA_MAX": "1"},  # one arena per thread would reserve memory
                cwd="/",
                start_new_session=True,  # Ctrl-C is only for the client, which ends this process
            )
        client_socket.settimeout(_FORK_TIMEOUT)
        self._socket = client_socket
        return client_socket

    def _stop(self) -> str:
        """End the forking process; return the last line of its error output."""
        forker, self._forker = self._forker, None
        channel, self._socket = self._socket, None
        if channel is not None:
            channel.close()
        if forker is None:
            return ""
        with forker:
            forker.kill()
            assert forker.stderr is not None
            error_output = forker.stderr.read().decode("utf-8", "replace").strip()
        return error_output.splitlines()[-1] if error_output else ""


class SqliteProcess:
    """One process; the constructor raises SandboxError if it cannot be started."""

    def __init__(self, forks: SqliteForks) -> None:
        self._forks = forks
        self._fork = forks.start()
        self._woken, self._wake = os.pipe()
        self._number = 0
        self.received = 0  # bytes of the last answer
        self._max_memory: int | None = None  # bytes, if the system does not limit them
        self._busy = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._fork.pid

    def open(self, source: int, data: bytes, *, writes: bool, memory: int, timeout: float) -> Reply:
        """Load a database; ``source`` is the kind of the data (``IMAGE`` and so on)."""
        reply = self._ask(b"O", OPEN.pack(source, writes, memory), data, timeout, len(data))
        if not MAPPED_PAGES.exists():
            self._max_memory = platform.memory_of(self.pid) + memory + _MEMORY_SLACK
        return reply

    def execute(
        self,
        statement: str,
        timeout: float,
        *,
        max_rows: int,
        max_bytes: int,
        stoppable: bool = True,
    ) -> Reply:
        """Run one statement; see :meth:`Session.execute` of the protocol.

        Args:
            statement: the statement.
            timeout: seconds, after which it is interrupted and, if it does not end, killed.
            max_rows: the most rows that are fetched.
            max_bytes: the most bytes of cells that are fetched.
            stoppable: whether ``interrupt`` ends it.

        Raises:
            Lost: the process ended with the statement.
            UnicodeEncodeError: the statement holds a lone surrogate.
        """
        header = EXECUTE.pack(timeout, max_rows, max_bytes)
        return self._ask(b"X", header, statement.encode(), timeout, max_bytes, stoppable)

    def batch(
        self, statements: Sequence[str], timeout: float, *, max_rows: int, max_bytes: int
    ) -> list[Reply]:
        """Run several statements without NULs, even if some fail; they share the limits.

        Raises:
            Lost: the process ended with them.
        """
        header = EXECUTE.pack(timeout, max_rows, max_bytes)
        data = "\0".join(statements).encode()
        answers, ending = self._exchange(b"B", header, data, timeout, max_bytes + len(data), False)
        try:
            cursor = _Cursor(answers, 0)
            return [_decode(cursor.block(), ending) for _ in statements]
        except (struct.error, IndexError, ValueError) as error:
            raise Lost(ending, f"{_INVALID}: {error}") from None

    def image(self, timeout: float) -> bytes:
        """Return the database as the bytes of its file."""
        answer, ending = self._exchange(b"I", b"", b"", timeout, 2**40, False)
        if ending != "itself":
            raise Lost(ending)
        return answer

    def interrupt(self) -> None:
        """End the running statement, and every later one that is stoppable."""
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
        with self._busy:  # the kill has ended a wait for an answer
            self._forks.end(self._fork)
            for number in (self._woken, self._wake):
                os.close(number)

    # -- the channel

    def _ask(
        self,
        op: bytes,
        header: bytes,
        data: bytes,
        timeout: float,
        max_bytes: int,
        stoppable: bool = False,
    ) -> Reply:
        answer, ending = self._exchange(op, header, data, timeout, max_bytes, stoppable)
        try:
            return _decode(answer, ending)
        except (struct.error, IndexError, ValueError) as error:
            raise Lost(ending, f"{_INVALID}: {error}") from None

    def _exchange(
        self, op: bytes, header: bytes, data: bytes, timeout: float, max_bytes: int, stoppable: bool
    ) -> tuple[bytes, Ended]:
        """Send a request; return the payload of its answer, and how it ended."""
        with self._busy:
            if self._closed:
                raise Lost("cancelled")
            self._number += 1
            ending: Ended = "itself"
            length = len(header) + len(data)
            self._send(REQUEST.pack(op, self._number, length) + header, data)
            answers = self._fork.answers
            waiting = select.poll()
            waiting.register(answers, select.POLLIN)
            if self._fork.pidfd is not None:
                waiting.register(self._fork.pidfd, select.POLLIN)
            if stoppable:
                waiting.register(self._woken, select.POLLIN)
            deadline = time.monotonic() + timeout
            while True:
                ready = self._wait(waiting, deadline)
                if answers in ready:
                    break
                if self._fork.pidfd in ready or ending != "itself":
                    raise Lost(ending)
                ending = "cancelled" if self._woken in ready else "timeout"
                if ending == "cancelled":
                    # It stays readable, and would immediately end each further wait.
                    waiting.unregister(self._woken)
                deadline = time.monotonic() + _GRACE_PERIOD
                with contextlib.suppress(OSError):
                    os.write(self._fork.control, self._number.to_bytes(8, "little"))
            deadline = time.monotonic() + _TRANSFER_TIMEOUT
            number, length = ANSWER.unpack(self._receive(ANSWER.size, deadline, ending))
            if number != self._number or length > 3 * max_bytes + _MAX_OVERHEAD:
                raise Lost(ending, _INVALID)
            self.received = length
            return self._receive(length, deadline, ending), ending

    def _wait(self, waiting: select.poll, deadline: float) -> dict[int, int]:
        """Return what is ready before the deadline, and watch the process's memory until then."""
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            if self._max_memory is None:
                return dict(waiting.poll(remaining * 1000))
            ready = dict(waiting.poll(min(remaining, _MEMORY_INTERVAL) * 1000))
            if ready or remaining == 0.0:
                return ready
            if platform.memory_of(self.pid) > self._max_memory:
                self._forks.kill(self._fork)
                raise OutOfMemory("itself", "out of memory")

    def _send(self, *parts: bytes) -> None:
        try:
            write_all(self._fork.requests, *parts)
        except OSError:
            raise Lost("itself") from None

    def _receive(self, size: int, deadline: float, ending: Ended) -> bytes:
        waiting = select.poll()
        waiting.register(self._fork.answers, select.POLLIN)
        received = bytearray()
        while len(received) < size:
            if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise Lost(ending, "SQLite's process stopped in the middle of an answer")
            part = os.read(self._fork.answers, min(size - len(received), 1024**2))
            if not part:
                raise Lost(ending)
            received += part
        return bytes(received)


def _decode(answer: bytes, ending: Ended) -> Reply:
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
        ending = "itself"  # it was complete before the interrupt
    in_transaction = bool(flags & IN_TRANSACTION)
    return Reply(result, affected, error, code or None, ending, in_transaction=in_transaction)


class _Cursor:
    """Reads an answer from its start, and never beyond its end."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    def take(self, size: int) -> bytes:
        end = self._offset + size
        if end > len(self._data):
            raise ValueError("it is too short")
        chunk = self._data[self._offset : end]
        self._offset = end
        return chunk

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
