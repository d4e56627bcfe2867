"""Connections to a MySQL server: PyMySQL on our own socket, on which every wait has a limit.

PyMySQL waits for an answer without a limit. Here every wait ends in time: a :class:`Watch` first
kills the statement, then the connection, and then gives up on the server.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pymysql.connections import Connection
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

__all__ = ["FAILURES", "Kill", "NoAnswer", "Watch", "connect"]

FAILURES = (OSError, MySQLError)
"""The errors that a statement may raise: those of the connection, and those of the server."""

Kill: TypeAlias = Callable[[Literal["QUERY", "CONNECTION"]], None]
Reason: TypeAlias = Literal["", "timeout", "cancelled"]

_KILL_TIMEOUT = 2.0  # seconds for a kill to take effect
_POLL_INTERVAL = 0.05  # seconds between two checks whether the statement was cancelled
_CONNECT_TIMEOUT = 10.0  # seconds
_SEND_TIMEOUT = 10.0  # seconds


class NoAnswer(OSError):
    """The server does not even answer to a kill."""


class Watch:
    """The clock of one connection's statements.

    Args:
        kill: ends the statement or the connection, through another connection.

    Attributes:
        cancelled: the running statement and all later ones are cancelled.
        reason: why the statement was stopped; empty if it was not.
        received: bytes that arrived for the statement.
        flooded: more bytes arrived than allowed, and the connection was killed.
    """

    def __init__(self, kill: Kill) -> None:
        self._kill = kill
        self.cancelled = False
        self.begin(0.0, 0)
        self._on = False

    def begin(self, timeout: float, max_bytes: int) -> None:
        """Begin a statement, which has ``timeout`` seconds and may send ``max_bytes`` bytes."""
        self._due = time.monotonic() + timeout
        self._max_bytes = max_bytes
        self._kills = 0
        self.reason: Reason = ""
        self.received = 0
        self.flooded = False
        self._on = True

    def extend(self, timeout: float) -> None:
        """Give the statement, or what follows it, ``timeout`` seconds from now."""
        self._due = time.monotonic() + timeout

    def end(self) -> None:
        """End the statement; nothing may be read from now on."""
        self._on = False

    def cancel(self) -> None:
        """Cancel the statement and all that follow, from another thread."""
        self.cancelled = True

    @property
    def stopped(self) -> bool:
        """Whether a kill was sent."""
        return self._kills > 0

    @property
    def killed(self) -> bool:
        """Whether the connection itself was killed, so that it cannot be used again."""
        return self._kills > 1 or self.flooded

    def stop(self) -> None:
        """Stop the statement; the rest of its answer still has to be read."""
        if self._kills == 0:
            self._step()

    def wait(self) -> float:
        """Return the seconds to wait for the server now, after sending a kill if one is due.

        Raises:
            NoAnswer: it had its time, and two kills did not help.
        """
        if not self._on:
            raise NoAnswer("the server is not expected to say anything")
        instant = time.monotonic()
        if self.cancelled and not self.reason:
            self.reason = "cancelled"
            self.stop()
        elif instant >= self._due:
            self.reason = self.reason or "timeout"
            self._step()
        return min(_POLL_INTERVAL, max(0.001, self._due - instant))

    def arrived(self, size: int) -> None:
        """Count bytes that arrived; kill the connection if they exceed the statement's limit.

        Raises:
            OSError: the connection was killed.
        """
        self.received += size
        if self.received > self._max_bytes:
            self.flooded = True
            self._kill("CONNECTION")
            raise OSError("the result is too large")

    def _step(self) -> None:
        self._kills += 1
        if self._kills > 2:
            raise NoAnswer("the server does not answer")
        self._kill("QUERY" if self._kills == 1 else "CONNECTION")
        # Counted from now, because the kill itself may have waited for another or a busy server.
        self._due = time.monotonic() + _KILL_TIMEOUT


class _WatchedSocket(socket.socket):
    """A socket whose reads are watched."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._watch = watch
        self._poll = select.poll()
        self._poll.register(self.fileno(), select.POLLIN)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        while not self._poll.poll(self._watch.wait() * 1000):
            pass
        size = super().recv_into(buffer, nbytes, flags)
        self._watch.arrived(size)
        return size


def connect(path: Path, user: str, database: str | None, watch: Watch) -> Connection[Cursor]:
    """Connect to the server behind a socket; this begins a session in the server's own mode.

    Raises:
        OSError: no server listens there.
        pymysql.err.MySQLError: the server refuses the connection.
    """
    channel = _WatchedSocket(watch)
    watch.begin(_CONNECT_TIMEOUT, 1 << 20)
    try:
        channel.connect(str(path))
        connection = Connection(
            user=user,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
            write_timeout=_SEND_TIMEOUT,
            defer_connect=True,
        )
        connection.connect(channel)
        return connection
    except BaseException:
        channel.close()
        raise
    finally:
        watch.end()
