"""Streams attached to a pod's first process, as a transport for the command channel.

One WebSocket carries all streams, with the subprotocol ``v5.channel.k8s.io`` or the older ``v4``.
The first byte of a message is its channel: 0 for the input, 1 and 2 for the two outputs, 3 for a
status in JSON at the end. In v5, a message to 255 closes the channel in its second byte.
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
_MAX_MESSAGE = 32768  # bytes, as in kubectl
# Idle seconds after which the kernel checks whether the other end exists, seconds between two
# checks, and the number of checks. A machine that disappeared sends nothing.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class _Frame(NamedTuple):
    """A frame of a WebSocket.

    Attributes:
        opcode: the kind of frame.
        payload: its data.
        end: the index at which the next frame begins.
    """

    opcode: int
    payload: bytes
    end: int


def _parse_frame(buffer: bytearray, start: int) -> _Frame | None:
    """Return the frame at ``start``; None if it is not complete yet. Servers do not mask frames.

    Raises:
        ChannelClosed: this is not a valid frame.
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
        attached: a ``websocket.WebSocket`` after its handshake; only its socket is used.
    """

    def __init__(self, attached: Any) -> None:
        super().__init__(attached.sock)
        self._closes_channels = attached.subprotocol == SUBPROTOCOLS[0]
        self._channel: int | None = None  # of the message whose frames are arriving
        self._in_use = threading.RLock()  # for sending and receiving: pings come in between
        with contextlib.suppress(OSError):  # behind a proxy, the socket may be of another kind
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, data: bytes) -> None:
        """Queue bytes, and write as many as the socket accepts now."""
        for start in range(0, len(data), _MAX_MESSAGE):
            self._queue(_BINARY, bytes([_STDIN]) + data[start : start + _MAX_MESSAGE])
        self._flush()

    def ping(self) -> None:
        """Send a ping, as a proxy in between may end an idle connection."""
        with contextlib.suppress(ChannelClosed), self._in_use:
            if not self._closed and not self._outgoing:
                self._queue(_PING, b"")
                self._flush()

    def close(self) -> None:
        """Close the keeper's input, which ends the sandbox, and close the connection."""
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
        """Remove the complete frames from the received bytes."""
        end = 0
        while (frame := _parse_frame(self._incoming, end)) is not None:
            end = frame.end
            yield frame
        del self._incoming[:end]

    def _take(self, frame: _Frame) -> Iterator[Chunk]:
        if frame.opcode == _PING:
            self._queue(_PONG, frame.payload)
        if frame.opcode not in (_CONTINUATION, _TEXT, _BINARY):
            return  # a server that hangs up also closes the connection
        data = frame.payload
        if frame.opcode != _CONTINUATION:
            self._channel = None
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if self._channel == _STDOUT and data:
            yield Chunk("output", data)
        elif self._channel == _STDERR and data:
            yield Chunk("answers", data)
