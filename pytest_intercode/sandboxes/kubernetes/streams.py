"""What is attached to a pod's first process, as a transport for the command channel.

One WebSocket carries all streams, by the subprotocol ``v5.channel.k8s.io`` or the older ``v4``. The
first byte of a message is its channel: 0 for the input, 1 and 2 for the two outputs, 3 for a status
in JSON at the end; in v5, a message to 255 closes the channel that its second byte names.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from pytest_intercode.sandboxes.docker.streams import AttachedStreams
from pytest_intercode.sandboxes.transport import ChannelClosed, Chunk

__all__ = ["SUBPROTOCOLS", "PodStreams"]

SUBPROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")

_STDIN, _STDOUT, _STDERR, _CLOSE = 0, 1, 2, 255
_CONTINUATION, _TEXT, _BINARY, _HANG_UP, _PING, _PONG = 0, 1, 2, 8, 9, 10  # RFC 6455, 5.2
_MAX_MESSAGE = 32768  # bytes, as kubectl sends them
# Seconds without a word after which the kernel asks whether the other end is there, and between
# two questions; and how many are asked. A machine that went away says nothing.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class _Frame(NamedTuple):
    """A frame of a WebSocket.

    Attributes:
        opcode: what it is.
        payload: what it carries.
        end: where the next one begins.
    """

    opcode: int
    payload: bytes
    end: int


def _parse_frame(buffer: bytearray, start: int) -> _Frame | None:
    """Return the frame that begins at ``start``; None while it is not whole. A server masks none.

    Raises:
        ChannelClosed: that cannot be one.
    """
    if len(buffer) - start < 2:
        return None
    if buffer[start] & 0x70 or buffer[start + 1] & 0x80:
        raise ChannelClosed("the connection to the sandbox carries what is not a WebSocket's")
    size, begin = buffer[start + 1], start + 2
    width = {126: 2, 127: 8}.get(size, 0)
    if width:
        if len(buffer) < begin + width:
            return None
        size, begin = int.from_bytes(buffer[begin : begin + width], "big"), begin + width
    if len(buffer) < begin + size:
        return None
    return _Frame(buffer[start] & 0x0F, bytes(buffer[begin : begin + size]), begin + size)


class PodStreams(AttachedStreams):
    """A WebSocket that is attached to a container's stdin, stdout and stderr.

    Args:
        attached: a ``websocket.WebSocket`` whose handshake is over; only its socket is used.
    """

    def __init__(self, attached: Any) -> None:
        super().__init__(attached.sock)
        self._closes_channels = attached.subprotocol == SUBPROTOCOLS[0]
        self._channel: int | None = None  # of the message whose frames arrive
        self._in_use = threading.RLock()  # while something is sent or received: pings come between
        with contextlib.suppress(OSError):  # behind a proxy it may be something else
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, data: bytes) -> None:
        """Queue bytes and write as many as the socket takes now."""
        for start in range(0, len(data), _MAX_MESSAGE):
            self._queue(_BINARY, bytes([_STDIN]) + data[start : start + _MAX_MESSAGE])
        self._flush()

    def ping(self) -> None:
        """Send a ping: what lies in between may end a connection on which nothing is said."""
        with contextlib.suppress(ChannelClosed), self._in_use:
            if not self._closed and not self._outgoing:
                self._queue(_PING, b"")
                self._flush()

    def close(self) -> None:
        """Close the keeper's input, with which the sandbox ends, and the connection."""
        with contextlib.suppress(ChannelClosed, ValueError), self._in_use:
            if not self._closed and not self._outgoing:
                if self._closes_channels:
                    self._queue(_BINARY, bytes([_CLOSE, _STDIN]))
                self._queue(_HANG_UP, (1000).to_bytes(2, "big"))
                self._flush()
        super().close()

    def _queue(self, opcode: int, payload: bytes) -> None:
        from websocket import ABNF

        frame = ABNF.create_frame(payload, opcode).format()
        with self._in_use:
            self._outgoing += frame

    def _flush(self) -> None:
        with self._in_use:
            super()._flush()

    def _read(self) -> bytes:
        with self._in_use:
            return super()._read()

    def _take_frames(self) -> list[Chunk]:
        return [chunk for frame in self._frames() for chunk in self._take(frame)]

    def _frames(self) -> Iterator[_Frame]:
        """Take the whole frames out of what arrived."""
        end = 0
        while (frame := _parse_frame(self._incoming, end)) is not None:
            end = frame.end
            yield frame
        del self._incoming[:end]

    def _take(self, frame: _Frame) -> Iterator[Chunk]:
        if frame.opcode == _PING:
            self._queue(_PONG, frame.payload)
        if frame.opcode not in (_CONTINUATION, _TEXT, _BINARY):
            return  # what hangs up closes the connection, too
        data = frame.payload
        if frame.opcode != _CONTINUATION:
            self._channel = None
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if self._channel == _STDOUT and data:
            yield Chunk("output", data)
        elif self._channel == _STDERR and data:
            yield Chunk("answers", data)
