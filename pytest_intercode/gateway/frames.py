"""Converts binary streams of AWS (``application/vnd.amazon.eventstream``) from and to events. Pure.

A frame has a length, headers, a payload and two checksums. Inside the gateway, its event is a
server-sent event of the same name. The padding that AWS adds to hide lengths is removed.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Callable
from typing import Any

from pytest_intercode.gateway.apis import parse_object
from pytest_intercode.gateway.streams import Event, StreamBroken

__all__ = ["FRAMES", "FrameSplitter", "encode_frame", "make_event"]

FRAMES = "application/vnd.amazon.eventstream"
"""The media type of such a stream."""

_MAX_FRAME_SIZE = 24 * 1024 * 1024  # bytes; the limit of AWS
_MAX_HEADERS_SIZE = 128 * 1024
_PRELUDE, _CHECKSUM = struct.Struct("!III"), struct.Struct("!I")
_TEXT = 7  # the type of a text header
# The length of a header's value by type; None if the two bytes before the value contain it.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: None, _TEXT: None, 8: 8, 9: 16}
_CHUNK = "chunk"  # the event in InvokeModel's streams that contains another event


class FrameSplitter:
    """Splits a binary stream into events.

    Args:
        mask: the function that masks the bytes of each event.
    """

    def __init__(self, mask: Callable[[bytes], bytes] = bytes) -> None:
        self._mask = mask
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[Event]:
        """Add a piece of the stream; return the events that are now complete.

        Raises:
            StreamBroken: it is not such a stream.
        """
        self._rest += piece
        events = []
        while len(self._rest) >= _PRELUDE.size:
            size, headers_size, checksum = _PRELUDE.unpack_from(self._rest)
            # The lengths have their own checksum: do not wait for a frame of a wrong length.
            is_whole = binascii.crc32(self._rest[:8]) == checksum
            if not is_whole or not 16 + headers_size <= size <= _MAX_FRAME_SIZE:
                raise StreamBroken("a frame of its stream is broken")
            if len(self._rest) < size:
                break
            frame = bytes(self._rest[:size])
            del self._rest[:size]
            events.append(self._read(frame, headers_size))
        return events

    def rest(self) -> bytes:
        """Return nothing, as an incomplete frame is of no use."""
        return b""

    def _read(self, frame: bytes, headers_size: int) -> Event:
        [checksum] = _CHECKSUM.unpack_from(frame, len(frame) - 4)
        if binascii.crc32(frame[:-4]) != checksum or headers_size > _MAX_HEADERS_SIZE:
            raise StreamBroken("a frame of its stream is broken")
        headers = _read_headers(frame[12 : 12 + headers_size])
        payload = parse_object(frame[12 + headers_size : -4]) or {}
        payload.pop("p", None)
        kind = headers.get(":event-type") or headers.get(":exception-type") or "error"
        if headers.get(":message-type") not in ("event", "exception"):
            payload.setdefault("message", headers.get(":error-message", ""))
            kind = "internalServerException"
        elif kind == _CHUNK:
            try:
                data = base64.b64decode(str(payload.get("bytes", "")), validate=True)
            except ValueError:
                raise StreamBroken("a frame of its stream has no event") from None
            payload = parse_object(data) or {}
            kind = str(payload.get("type") or _CHUNK)
        return Event(self._mask(make_event(kind, payload)))


def make_event(kind: str, data: Any) -> bytes:
    """Return a server-sent event."""
    name = "".join(character for character in kind if character.isalnum() or character in "_.-")
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode("ascii", "replace")


def _read_headers(data: bytes) -> dict[str, str]:
    """Return the text headers."""
    headers: dict[str, str] = {}
    position = 0
    try:
        while position < len(data):
            end = position + 1 + data[position]
            name, kind = data[position + 1 : end].decode(), data[end]
            position = end + 1
            size = _SIZES[kind]
            if size is None:
                [size] = struct.unpack_from("!H", data, position)
                position += 2
            if kind == _TEXT:
                headers[name] = data[position : position + size].decode()
            position += size
    except (IndexError, KeyError, ValueError, struct.error):
        raise StreamBroken("a frame of its stream has broken headers") from None
    return headers


def encode_frame(kind: str, data: Any, *, is_chunk: bool = False) -> bytes:
    """Return the frame of an event.

    Args:
        kind: its name; the name of an error ends in ``Exception``.
        data: its data.
        is_chunk: whether to wrap it into another event, as in InvokeModel's streams.
    """
    is_error = kind.endswith("Exception")
    if is_chunk and not is_error:
        inner = base64.b64encode(json.dumps(data).encode("ascii")).decode("ascii")
        kind, data = _CHUNK, {"bytes": inner}
    headers = {
        ":exception-type" if is_error else ":event-type": kind,
        ":content-type": "application/json",
        ":message-type": "exception" if is_error else "event",
    }
    head = b"".join(_write_header(name, value) for name, value in headers.items())
    payload = json.dumps(data).encode("ascii")
    size = 16 + len(head) + len(payload)
    prelude = struct.pack("!II", size, len(head))
    frame = prelude + _CHECKSUM.pack(binascii.crc32(prelude)) + head + payload
    return frame + _CHECKSUM.pack(binascii.crc32(frame))


def _write_header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack("!B", len(key)) + key + struct.pack("!BH", _TEXT, len(text)) + text
