"""Passes an answer from the real server to the client, in one piece or event by event.

An answer is metered before the client can know that it is complete; keys in it are masked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import ClientError, web

from pytest_intercode.gateway.apis import (
    error_body,
    error_message,
    is_answer,
    is_blocked,
    parse_object,
)
from pytest_intercode.gateway.call import Call
from pytest_intercode.gateway.exchange import usage_of
from pytest_intercode.gateway.frames import FRAMES, FrameSplitter
from pytest_intercode.gateway.framing import Framing, framing_of
from pytest_intercode.gateway.recording import RecordedAnswer
from pytest_intercode.gateway.streams import Event, Splitter, StreamBroken, assembler
from pytest_intercode.gateway.upstream import STREAM, Answer, Upstream, UpstreamError, cause

__all__ = ["relay"]

_MAX_ANSWER_SIZE = 64 * 1024 * 1024  # bytes of an answer in one piece
_UNREAD_TIMEOUT = 600.0  # seconds to read a stream after its client has gone; models may think long
_MAX_UNREAD_SIZE = 64 * 1024 * 1024  # bytes of a stream to read after its client has gone
_FINAL = frozenset({400, 401, 402, 403, 404, 405, 410, 413, 422})  # a retry would not help


async def relay(
    request: web.BaseRequest, call: Call, answer: Answer, upstream: Upstream
) -> web.StreamResponse:
    """Pass an answer on, meter it, and record it.

    Raises:
        UpstreamError: it is not an answer of its API, and nothing was sent to the client.
    """
    if answer.status == 200 and answer.content_type in (STREAM, FRAMES):
        return await _relay_stream(request, call, answer, upstream)
    return await _relay_body(call, answer, upstream)


async def _relay_body(call: Call, answer: Answer, upstream: Upstream) -> web.StreamResponse:
    """Pass on an answer that comes in one piece."""
    data = bytearray()
    async for piece in answer.pieces:
        data += piece
        if len(data) > _MAX_ANSWER_SIZE:
            raise UpstreamError("the answer has more than 64 MiB", unpaid=answer.status != 200)
    status, server = answer.status, call.server
    raw = upstream.mask(bytes(data))  # mask before parsing, as the parsed answer is recorded
    content = parse_object(raw)
    if 300 <= status < 400:
        raise UpstreamError(f"{server} redirects, which is not followed", unpaid=True)
    if status == 200 and (content is None or not is_answer(call.api, content)):
        problem = "is not JSON" if content is None else "is not an answer of this API"
        start = raw[:80].decode("utf-8", "replace")
        raise UpstreamError(f"{server} sent what {problem}: {start!r}", unpaid=True)
    headers = {**answer.headers}
    if status != 200:
        message = error_message(content) or raw[:200].decode("utf-8", "replace")
        call.session.note(f"{server} answered {status}: {message}")
        if content is None:
            words = f"the server answered {status}: {message}"
            raw = json.dumps(error_body(call.vendor, status, words, "upstream_error")).encode()
        if status in _FINAL:
            headers.setdefault("x-should-retry", "false")
    text = raw.decode("utf-8", "replace")
    answered = content
    if call.reader is not None and content is not None and status == 200:
        client_content = call.reader.take(content)
        if client_content is not None and client_content is not content:
            content, raw = client_content, json.dumps(client_content).encode("ascii")
    await call.settle(status, content or {}, usage_of(content or {}))
    await call.record(answered, RecordedAnswer(status, "application/json", (text,)))
    return web.Response(status=status, body=raw, headers=headers, content_type="application/json")


async def _relay_stream(
    request: web.BaseRequest, call: Call, answer: Answer, upstream: Upstream
) -> web.StreamResponse:
    """Pass on a stream, event by event as they arrive.

    A stream whose client has gone is read to its end, as a running request: it must be paid for,
    and only its end says how much it costs. The end of the session ends it, like all requests.
    """
    stream = _Stream(call, answer.content_type, upstream)
    client = _Client(request, answer, framing_of(call.target.framing))
    complete = True
    try:
        async for piece in answer.pieces:
            if client.gives_up(len(piece)):
                break
            await client.write(await stream.feed(piece))
        remaining_events = stream.rest()
        complete = not stream.is_metered or stream.is_answered
        if complete:
            await stream.settle()
        await client.write(remaining_events)
        if not complete:
            name = (
                "a stream that its client had left" if client.gone else "the stream of the server"
            )
            call.session.note(f"{name} ended before the answer was complete")
    except (UpstreamError, StreamBroken, ClientError, asyncio.TimeoutError) as error:
        complete = False
        if not client.started:
            await stream.settle(complete=False)
            if isinstance(error, StreamBroken):
                raise UpstreamError(str(error)) from None
            raise  # Upstream.open() describes errors of the connection
        message = error.message if isinstance(error, UpstreamError) else cause(error)
        call.session.note(f"the stream of the server broke off: {message}")
    except asyncio.CancelledError:
        # The client may already have a complete answer, and have ended the episode after it.
        complete = stream.is_answered if client.gone else stream.has_ended
        await stream.settle(complete=complete)
        if complete:
            await stream.record(complete=True)
        client.abort()
        raise
    await stream.settle(complete=complete)
    await stream.record(complete=complete)
    return await client.end(complete)


class _Stream:
    """A streamed answer in transit: splits it into events, meters, records, and delays them.

    Args:
        call: the request that it answers.
        content_type: the media type of the stream.
        upstream: masks its own key in each event.
    """

    def __init__(self, call: Call, content_type: str, upstream: Upstream) -> None:
        self._call = call
        self._parts = assembler(call.api) if call.api is not None else None
        self._splitter = (FrameSplitter if content_type == FRAMES else Splitter)(upstream.mask)
        self._pieces: list[bytes] = []  # as the server sent them, for a recording
        self._held_events: list[Event] = []  # delayed until the answer is complete and metered

    @property
    def is_metered(self) -> bool:
        """Whether its API is one whose answers can be parsed."""
        return self._parts is not None

    @property
    def has_ended(self) -> bool:
        """Whether the event that ends the answer was received."""
        return self._parts is not None and self._parts.complete

    @property
    def is_answered(self) -> bool:
        """Whether the answer is complete, even if the event that should end it is missing."""
        return self.has_ended or (self._parts is not None and _is_finished(self._parts.answer()))

    async def feed(self, piece: bytes) -> list[Event]:
        """Return the events that the client may get now.

        A complete answer is metered first, so that the client's next request cannot come earlier.

        Raises:
            StreamBroken: it is not such a stream.
        """
        events: list[Event] = []
        parts = self._parts
        for as_sent in self._splitter.feed(piece):
            if self._call.session.recorder is not None:
                self._pieces.append(as_sent.raw)
            event = _without_tokens(as_sent, self._call)
            if event is None:
                continue
            if parts is not None:
                parts.feed(event)
                if parts.complete and not self._call.charged:
                    await self.settle(complete=not parts.answer().get("error"))
            if not (self._call.hide_usage and _is_usage_alone(event)):
                self._held_events.append(event)
            if parts is None or not parts.ending or parts.complete:
                events += self._held_events
                self._held_events.clear()
        return events

    def rest(self) -> list[Event]:
        """Return the events that the client has not received yet, at the end of the stream."""
        remainder = self._splitter.rest()
        if remainder:
            self._pieces.append(remainder)
            self._held_events.append(Event(remainder))
        return self._held_events

    async def settle(self, *, complete: bool = True) -> None:
        """Meter the answer if it is one that costs tokens."""
        parts = self._parts
        if parts is not None:
            usage, length = parts.usage, parts.length
            await self._call.settle(200, parts.answer(), usage, complete=complete, length=length)

    async def record(self, *, complete: bool) -> None:
        """Record the answer."""
        texts = tuple(raw.decode("utf-8", "replace") for raw in self._pieces)
        content = self._parts.answer() if self._parts else None
        await self._call.record(content, RecordedAnswer(200, STREAM, texts, complete))


class _Client:
    """The client's side of a stream; the headers are sent with the first event.

    Attributes:
        started: whether something was sent.
        gone: whether the client closed its connection in the middle of the answer.
    """

    def __init__(self, request: web.BaseRequest, answer: Answer, framing: Framing) -> None:
        self._request = request
        self._framing = framing
        self._response = web.StreamResponse(
            headers={
                **answer.headers,
                "content-type": framing.content_type,
                "cache-control": "no-cache",
            }
        )
        self.started = False
        self.gone = False
        self._unread_size = 0
        self._unread_end = 0.0  # the loop's time

    async def write(self, events: Sequence[Event]) -> None:
        """Send events in one write; do nothing if there are none or the client has gone."""
        if self.gone or not events:
            return
        data = b"".join(map(self._framing.encode, events))
        try:
            if not self.started:
                self.started = True
                await self._response.prepare(self._request)
            await self._response.write(data)
        except (ConnectionError, RuntimeError):
            self.gone = True
            self._unread_end = asyncio.get_running_loop().time() + _UNREAD_TIMEOUT

    def gives_up(self, size: int) -> bool:
        """Return whether the client has gone and enough was read since then.

        Args:
            size: the size of the next piece, in bytes.
        """
        if not self.gone:
            return False
        self._unread_size += size
        late = asyncio.get_running_loop().time() > self._unread_end
        return late or self._unread_size > _MAX_UNREAD_SIZE

    async def end(self, complete: bool) -> web.StreamResponse:
        """End the stream; a stream that broke off also breaks off for the client."""
        try:
            if not self.started:
                self.started = True
                await self._response.prepare(self._request)
            if complete:
                await self._response.write_eof(self._framing.end())
            else:
                self.abort()
        except (ConnectionError, RuntimeError):
            pass  # the client is gone
        return self._response

    def abort(self) -> None:
        """Close the connection."""
        transport = self._request.transport
        if transport is not None:
            transport.close()


def _is_finished(answer: Mapping[str, Any]) -> bool:
    """Whether an answer is complete although the event that should end it is missing."""
    choices = answer.get("choices")
    if isinstance(choices, list):
        return bool(choices) and all(choice.get("finish_reason") for choice in choices)
    candidates = answer.get("candidates")
    if isinstance(candidates, list):
        return all(map(_has_ended, candidates)) if candidates else is_blocked(answer)
    return bool(answer.get("stop_reason") or answer.get("stopReason"))


def _has_ended(candidate: Mapping[str, Any]) -> bool:
    return bool(candidate.get("finishReason"))


def _without_tokens(event: Event, call: Call) -> Event | None:
    """Read an event's tokens; return the event without them, or None if nothing remains."""
    if call.reader is None or event.data is None:
        return event
    data = call.reader.take(event.data)
    if data is None or data is event.data:
        return None if data is None else event
    return Event(b"data: " + json.dumps(data).encode("ascii") + b"\n\n")


def _is_usage_alone(event: Event) -> bool:
    data = event.data
    return data is not None and data.get("choices") == [] and bool(data.get("usage"))
