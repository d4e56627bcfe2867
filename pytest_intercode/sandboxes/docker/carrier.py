"""Forwards a port of a container to a Unix socket here, for engines that share no folder with us.

A process in the container listens on its loopback (``carrier.pl``). The engine starts it, and all
connections travel over the streams that the engine attaches to that process. No network is
involved, and whatever comes out of the container goes to this one socket only.

Each frame has a letter, the number of a connection, and a count, both of four bytes, big-endian:

====== ================ ==========================================================================
letter who sends it     meaning
====== ================ ==========================================================================
``L``  the process      it listens; once, at the beginning
``O``  the process      a connection came; they are numbered from 1 on
``D``  both             so many bytes of a connection, which follow
``E``  both             there are no more bytes of a connection from this side
``A``  both             so many bytes of a connection were passed on, and as many more may come
``C``  both             a connection is closed, in both directions
``Q``  we               the process is to end
====== ================ ==========================================================================

For each connection, at most ``_WINDOW`` bytes are in transit in either direction. So a slow reader
holds up its own connection and no other, and neither end stores more than that.

An agent may have replaced the process, and write anything. Invalid frames end all connections of
this container, and so does a process that leaves too much unread. The connections of another
session have a thread of their own, and share nothing with these.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.errors import CommandFailed, SandboxError
from pytest_intercode.sandboxes.docker.errors import client_errors, plain
from pytest_intercode.sandboxes.docker.streams import AttachedStreams
from pytest_intercode.sandboxes.transport import ChannelClosed
from pytest_intercode.system.forks import close_in_children

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Carrier"]

_HEADER = struct.Struct(">cII")
_WINDOW = 128 * 1024  # bytes
_MAX_CONNECTIONS = 128  # at a time; more wait in the container
_MAX_REFUSED = 1000  # connections in total that come when there are too many, or nothing listens
_MAX_FRAME = 64 * 1024  # bytes of data in a frame
_MAX_QUEUED = 1024**2  # bytes that wait for the engine, in addition to what windows allow
# Frames that are read in one go. Then the other threads of this process get their turn, as an agent
# may write only small frames; for frames of a real carrier, this is some megabytes.
_MAX_BURST = 256
_BURST_INTERVAL = 0.001  # seconds
_MAX_REASON = 400  # bytes of the message of a process that cannot start
_START_TIMEOUT = 30.0  # seconds for the process to listen, on a busy machine
_END_TIMEOUT = 2.0  # seconds for the process to end


@cache
def _program() -> str:
    folder = resources.files("pytest_intercode.sandboxes.docker")
    return folder.joinpath("carrier.pl").read_text("utf-8")


class _Nonsense(Exception):
    """The process writes what ours never would: an agent has replaced it."""


class _Connection:
    """One connection to our socket, for a connection in the container.

    Attributes:
        socket: our end.
        output: bytes from the container that our socket has not taken yet.
        credit: how many bytes may still be sent to the container.
        allowance: how many bytes may still come from it.
        is_read: nothing more comes from our socket.
        is_ended: nothing more comes from the container.
    """

    def __init__(self, outside: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.output = bytearray()
        self.credit = self.allowance = _WINDOW
        self.is_read = self.is_ended = False
        try:
            self.socket.setblocking(False)
            # This never waits, as it is a Unix socket: if its queue is full, it refuses.
            self.socket.connect(os.fspath(outside))
        except BaseException:
            self.socket.close()
            raise

    def flush(self) -> int:
        """Write what our socket accepts now; return how many bytes that was.

        Raises:
            OSError: the socket's other end is closed.
        """
        count = 0
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while self.output:
                size = self.socket.send(self.output)
                del self.output[:size]
                count += size
        if self.is_ended and not self.output:
            self.socket.shutdown(socket.SHUT_WR)
        return count

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes from either side."""
        return self.is_read and self.is_ended and not self.output


class Carrier:
    """Carries connections until it is closed, or the process is gone or writes nonsense.

    Args:
        api: the engine's client.
        container_id: the container.
        port: the port of the container's loopback on which the process listens.
        outside: the path of our socket.

    Raises:
        CommandFailed: the process does not start in this container; the message is the process's.
        SandboxError: the engine does not start the process.
    """

    def __init__(self, api: APIClient, container_id: str, port: int, outside: Path) -> None:
        self._outside = outside
        self._input = bytearray()
        self._connections: dict[int, _Connection] = {}
        self._last = 0  # number of the last connection
        self._frames = 0
        self._refused = 0  # connections
        self._closing = self._is_abandoned = False
        self._waker, self._wakened = socket.socketpair()
        try:
            self._streams = _start_process(api, container_id, port)
        except BaseException:
            self._waker.close()
            self._wakened.close()
            raise
        close_in_children(self)
        try:
            self._await_start()
        except BaseException:
            self._close_all()
            raise
        self._thread = threading.Thread(target=self._serve, name="intercode-carrier", daemon=True)
        self._thread.start()

    def _await_start(self) -> None:
        """Wait until the process listens."""
        reason = bytearray()
        deadline = time.monotonic() + _START_TIMEOUT
        try:
            while len(self._input) < _HEADER.size:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise SandboxError(f"nothing listens in it within {_START_TIMEOUT:g} seconds")
                for chunk in self._streams.receive(remaining):
                    if chunk.stream == "output":
                        self._input += chunk.data
                    reason += chunk.data[:_MAX_REASON]
        except ChannelClosed:
            pass
        start = _HEADER.pack(b"L", 0, 0)
        if self._input[: len(start)] != start:
            words = " ".join(reason[:_MAX_REASON].decode("utf-8", "replace").split())
            raise CommandFailed(words or "what carries its connections has ended")
        del self._input[: len(start)]

    # -- the thread

    def _serve(self) -> None:
        try:
            with contextlib.suppress(_Nonsense, SandboxError, OSError, ValueError):
                self._carry()
        finally:
            self._close_all()

    def _carry(self) -> None:
        quit_at = 0.0
        while not self._is_abandoned:
            for chunk in self._streams.receive(0):
                if chunk.stream == "output":  # the other stream is ignored from now on
                    self._input += chunk.data
                    self._read_frames()
            # Windows limit the data, but nothing limits our answers to frames of a process that
            # never reads.
            if self._streams.queued_bytes > _MAX_QUEUED + self._count_outstanding():
                raise _Nonsense
            if self._closing and not quit_at:
                quit_at = time.monotonic() + _END_TIMEOUT
                self._tell(b"Q", 0)
            if quit_at and time.monotonic() > quit_at:
                return
            self._wait(bool(quit_at))

    def _wait(self, is_ending: bool) -> None:
        """Wait until something can be carried, and carry what comes from our side."""
        poll = select.poll()
        events = select.POLLIN | (select.POLLOUT if self._streams.queued else 0)
        poll.register(self._streams.fileno(), events)
        if not is_ending:
            poll.register(self._wakened.fileno(), select.POLLIN)
        numbers: dict[int, int] = {}
        for number, connection in self._connections.items():
            events = select.POLLIN if connection.credit and not connection.is_read else 0
            events |= select.POLLOUT if connection.output else 0
            if events:  # else poll would report an end again and again
                numbers[connection.socket.fileno()] = number
                poll.register(connection.socket, events)
        for descriptor, events in poll.poll(_END_TIMEOUT * 1000 if is_ending else None):
            if descriptor in numbers:
                self._carry_from_here(numbers[descriptor], events)

    def _carry_from_here(self, number: int, events: int) -> None:
        connection = self._connections[number]
        try:
            if connection.output or events == select.POLLOUT:
                self._acknowledge(number, connection.flush())
            # An end or an error that poll reports shows here as well, in the result of `recv`.
            if events != select.POLLOUT and connection.credit and not connection.is_read:
                data = connection.socket.recv(min(_MAX_FRAME, connection.credit))
                connection.credit -= len(data)
                connection.is_read = not data
                self._tell(b"D" if data else b"E", number, data)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._tell(b"C", number)
            self._forget(number)
            return
        if connection.is_over:
            self._forget(number)

    def _count_outstanding(self) -> int:
        """Return how many bytes were sent to the container and not yet acknowledged."""
        return sum(_WINDOW - connection.credit for connection in self._connections.values())

    def _tell(self, kind: bytes, number: int, data: bytes = b"", count: int = 0) -> None:
        self._streams.send(_HEADER.pack(kind, number, count or len(data)) + data)

    def _acknowledge(self, number: int, count: int) -> None:
        if count:
            self._connections[number].allowance += count
            self._tell(b"A", number, count=count)

    def _forget(self, number: int) -> None:
        self._connections.pop(number).socket.close()

    # -- what comes out of the container

    def _read_frames(self) -> None:
        while len(self._input) >= _HEADER.size:
            self._frames += 1
            if not self._frames % _MAX_BURST:
                time.sleep(_BURST_INTERVAL)
            kind, number, count = _HEADER.unpack_from(self._input)
            end = _HEADER.size
            if kind == b"D":
                if not 0 < count <= _MAX_FRAME:
                    raise _Nonsense
                end += count
                if len(self._input) < end:
                    return
            data = bytes(self._input[_HEADER.size : end])
            del self._input[:end]
            self._read_frame(kind, number, count, data)

    def _read_frame(self, kind: bytes, number: int, count: int, data: bytes) -> None:
        if kind == b"O" and number == self._last + 1 and not count:
            self._last = number
            self._open(number)
            return
        if kind not in (b"D", b"E", b"A", b"C") or not 0 < number <= self._last:
            raise _Nonsense
        connection = self._connections.get(number)
        if connection is None:  # it was closed here, and the other end does not know yet
            return
        if kind == b"A":
            connection.credit += count
            if not count or connection.credit > _WINDOW:
                raise _Nonsense
        elif kind == b"C":
            self._forget(number)
        else:
            if connection.is_ended or len(data) > connection.allowance:
                raise _Nonsense
            connection.allowance -= len(data)
            connection.output += data
            connection.is_ended = kind == b"E"
            self._carry_from_here(number, select.POLLOUT)

    def _open(self, number: int) -> None:
        """Connect to our socket, if there is room."""
        try:
            if len(self._connections) >= _MAX_CONNECTIONS:
                raise OSError
            self._connections[number] = _Connection(self._outside)
        except OSError:  # or its session is over, and nothing listens any more
            self._refused += 1
            if self._refused > _MAX_REFUSED:
                raise _Nonsense from None
            self._tell(b"C", number)

    # -- the end

    def close(self, *, wait: bool = True) -> None:
        """End all connections, and the process; can be called twice and from any thread.

        Args:
            wait: return only when the process is gone, so that it is not graded; if false, the
                container is about to end, and the process with it.
        """
        self._closing = True
        self._is_abandoned = self._is_abandoned or not wait
        with contextlib.suppress(OSError):  # the thread has closed it
            self._waker.send(b".")
        if wait:
            self._thread.join(2 * _END_TIMEOUT)

    def _close_all(self) -> None:
        self._streams.close()
        self.close_copies()

    def close_copies(self) -> None:
        """Close our sockets, also in a forked child; the streams close their own copies."""
        for connection in list(self._connections.values()):
            connection.socket.close()
        self._waker.close()
        self._wakened.close()


def _start_process(api: APIClient, container_id: str, port: int) -> AttachedStreams:
    words = ["perl", "-e", _program(), str(port), str(_WINDOW), str(_MAX_CONNECTIONS)]
    try:
        process = api.exec_create(container_id, words, stdin=True, user="0:0")
        return AttachedStreams(api.exec_start(process["Id"], socket=True))
    except client_errors(OSError) as error:
        raise SandboxError(f"its connections cannot be carried: {plain(error)}") from None
