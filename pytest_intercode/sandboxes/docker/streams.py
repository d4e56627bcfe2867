"""Streams attached to a container's process, as a transport for the command channel.

Docker frames what a container without a terminal writes: one byte for the stream (1 stdout, 2
stderr), three of padding, four for the length (big-endian), then the bytes. The data passes through
three processes. If we may open the descriptors of the container's first process, we use pipes to it
instead (:func:`own_pipes`); the attached streams then only keep the container alive.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from typing import Any

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.pipes import PipeStreams
from pytest_intercode.sandboxes.transport import ChannelClosed, Chunk
from pytest_intercode.system.forks import close_in_children
from pytest_intercode.system.platform import hung_up, open_pipe

__all__ = ["AttachedStreams", "own_pipes"]

_STDOUT, _STDERR = 1, 2
# With TLS, a socket that is ready according to poll might not have a whole record yet.
_NOT_READY = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# The keeper's bash makes two pipes, and keeps the ends that we open until we have opened them. No
# process that it starts later inherits them, and no other process may look into it.
_MAKE_PIPES = (
    b"exec 210< <(:) 211< <(:) 3>&2 1>/proc/self/fd/210 2>/proc/self/fd/211; echo made >&3\n"
)
_LEAVE_PIPES = b"exec 3>&- 210<&- 211<&-\n"
_PIPES_TIMEOUT = 30.0  # seconds, on a busy machine


def _read_ahead(attached: Any) -> bytes:
    """Return what arrived together with the head of the engine's answer.

    The HTTP client reads the head through a buffer, and may have read more than the head. What a
    process writes immediately after its start is then only in the buffer, not on the socket.
    """
    response = getattr(attached, "_response", None)
    answer = getattr(getattr(response, "raw", None), "_fp", None)
    peek = getattr(getattr(answer, "fp", None), "peek", None)
    if peek is None:  # not from docker's client, or it reads without a buffer
        return b""
    with contextlib.suppress(*_NOT_READY):  # with an empty buffer, it reads the socket
        return bytes(peek())
    return b""


class AttachedStreams:
    """A socket that is attached to a container's stdin, stdout and stderr.

    Args:
        attached: the result of ``docker.APIClient.attach_socket``. It claims to be read-only, so
            the socket below it is used; both must be closed, or the container stays.
    """

    def __init__(self, attached: Any) -> None:
        self._attached = attached
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.setblocking(False)
        self._outgoing = bytearray()
        self._incoming = bytearray(_read_ahead(attached))
        self._closing = threading.Lock()
        self._closed = False
        close_in_children(self)

    def send(self, data: bytes) -> None:
        """Queue bytes, and write as many as the socket accepts now."""
        self._outgoing += data
        self._flush()

    def receive(self, timeout: float) -> list[Chunk]:
        """Wait for frames, and write what is queued in the meantime."""
        chunks = self._take_frames()
        if chunks:
            return chunks
        if self._closed:
            raise ChannelClosed("the sandbox has ended")
        pending = getattr(self._socket, "pending", None)  # TLS may hold bytes that poll cannot see
        if not (pending and pending()):
            events = select.POLLIN | (select.POLLOUT if self._outgoing else 0)
            poll = select.poll()
            try:
                poll.register(self._socket, events)
            except ValueError as error:  # another thread closed it just now
                raise ChannelClosed("the sandbox has ended") from error
            # Round up: less than a millisecond would be no wait at all, again and again.
            ready = poll.poll(max(0, int(timeout * 1000 + 0.999)))
            if not ready:
                return []
            if ready[0][1] & select.POLLOUT:
                self._flush()
            if not ready[0][1] & ~select.POLLOUT:
                return []
        try:
            data = self._read()
        except _NOT_READY:
            return []
        except OSError as error:
            raise ChannelClosed(f"the sandbox has ended ({error})") from error
        if not data:
            raise ChannelClosed("the sandbox has ended")
        self._incoming += data
        return self._take_frames()

    def send_to_shell(self, data: bytes, new: bool) -> bool:
        """Return False: the engine carries everything."""
        return False

    def read_output(self) -> None:
        """Return None: the engine carries what the container writes."""

    def _take_frames(self) -> list[Chunk]:
        chunks = []
        start = 0
        buffer = self._incoming
        while len(buffer) - start >= 8:
            end = start + 8 + int.from_bytes(buffer[start + 4 : start + 8], "big")
            if len(buffer) < end:
                break
            data = bytes(buffer[start + 8 : end])
            if buffer[start] == _STDOUT:
                chunks.append(Chunk("output", data))
            elif buffer[start] == _STDERR:
                chunks.append(Chunk("answers", data))
            start = end
        del buffer[:start]
        return chunks

    def _read(self) -> bytes:
        return self._socket.recv(262144)

    def _flush(self) -> None:
        try:
            while self._outgoing:
                count = self._socket.send(self._outgoing[:262144])
                del self._outgoing[:count]
        except _NOT_READY:
            pass
        except OSError as error:
            raise ChannelClosed(f"the sandbox has ended ({error})") from error

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    @property
    def queued(self) -> bool:
        """Whether some bytes could not be sent yet."""
        return bool(self._outgoing)

    @property
    def queued_bytes(self) -> int:
        """How many bytes could not be sent yet."""
        return len(self._outgoing)

    def hung_up(self) -> bool:
        """Whether the other end is closed, even if some of its data is not read yet."""
        return self._closed or hung_up(self._socket)

    def close_copies(self) -> None:
        """Close the copy of the socket in a forked child; the container remains its parent's.

        If a copy stayed open, the container would outlive a parent that is killed.
        """
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                os.close(self._socket.detach())

    def close(self) -> None:
        """Close both layers; the keeper's input ends, and with it the container."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()
        with contextlib.suppress(OSError, ValueError):
            self._attached.close()
        response = getattr(self._attached, "_response", None)
        if response is not None:
            with contextlib.suppress(OSError, ValueError):
                response.close()


def own_pipes(attached: AttachedStreams, process: int) -> PipeStreams | None:
    """Return pipes to a bash that has just started as a container's first process.

    Args:
        attached: the streams attached to it. The pipes end as soon as these do.
        process: a descriptor of its folder in ``/proc``.

    Returns:
        The pipes; None if we may not open them, and then nothing was sent to the process.

    Raises:
        SandboxError: it makes no pipes, or has ended.
    """
    ends: list[int] = []
    try:
        if not _open_pipe(0, os.O_WRONLY, process, ends):
            return None
        attached.send(_MAKE_PIPES)
        reply, deadline = b"", time.monotonic() + _PIPES_TIMEOUT
        while not reply.endswith(b"\n") and (remaining := deadline - time.monotonic()) > 0:
            reply += b"".join(chunk.data for chunk in attached.receive(remaining))
        opened = (_open_pipe(number, os.O_RDONLY, process, ends) for number in (210, 211))
        if reply != b"made\n" or not all(opened):
            raise SandboxError(f"the keeper makes no pipes: {reply!r:.200}")
    except BaseException as error:
        for descriptor in ends:
            os.close(descriptor)
        if isinstance(error, PermissionError) and not ends:
            return None
        if isinstance(error, OSError):
            raise ChannelClosed(f"the sandbox has ended ({error.strerror})") from None
        raise
    streams = PipeStreams((ends[0], ends[1], ends[2]), lifeline=attached.fileno())
    streams.send(_LEAVE_PIPES)
    return streams


def _open_pipe(number: int, mode: int, process: int, ends: list[int]) -> bool:
    """Open an end of a process's pipe; False if the descriptor is not a pipe.

    An image may bring its own bash, and a device.
    """
    end = open_pipe(process, number, mode)
    if end is not None:
        ends.append(end)
    return end is not None
