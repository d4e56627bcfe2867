"""How the events of a stream are sent to a client. Pure.

Inside the gateway, every stream consists of server-sent events, whatever formats its server and
client use: it is metered, masked and recorded in this form.
"""

from __future__ import annotations

import json

from pytest_intercode.gateway.apis import FramingName
from pytest_intercode.gateway.frames import FRAMES, encode_frame
from pytest_intercode.gateway.streams import Event

__all__ = ["Framing", "framing_of"]


class Framing:
    """Server-sent events, unchanged."""

    content_type = "text/event-stream; charset=utf-8"

    def encode(self, event: Event) -> bytes:
        """Return the bytes of an event."""
        return event.raw

    def end(self) -> bytes:
        """Return the bytes that follow the last event of a complete stream."""
        return b""


class _Array(Framing):
    """A JSON array, whose elements are sent one by one: Gemini's form without ``alt=sse``."""

    content_type = "application/json; charset=utf-8"

    def __init__(self) -> None:
        self._separator = b"["

    def encode(self, event: Event) -> bytes:
        if event.data is None:
            return b""
        separator, self._separator = self._separator, b",\r\n"
        return separator + json.dumps(event.data).encode("ascii")

    def end(self) -> bytes:
        return b"[]" if self._separator == b"[" else b"]"


class _Frames(Framing):
    """The binary frames of AWS.

    Args:
        is_chunk: whether each frame wraps an event of another API.
    """

    content_type = FRAMES

    def __init__(self, is_chunk: bool) -> None:
        self._is_chunk = is_chunk

    def encode(self, event: Event) -> bytes:
        if event.data is None:
            return b""
        return encode_frame(event.kind, event.data, is_chunk=self._is_chunk)


def framing_of(name: FramingName) -> Framing:
    """Return a new framing for one stream."""
    if name in ("frames", "chunks"):
        return _Frames(name == "chunks")
    return _Array() if name == "array" else Framing()
