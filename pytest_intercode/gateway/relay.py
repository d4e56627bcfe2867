"""The way of an answer from the real server to the client: in one piece, or event by event.

What a server sends is metered before the client can know that it is over; a key in it is masked.
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
from pytest_intercode.gateway.streams import Assembler, Event, Splitter, StreamBroken, assembler
from pytest_intercode.gateway.upstream import STREAM, Answer, Upstream, UpstreamError, cause

__all__ = ["relay"]

_MAX_ANSWER_SIZE = 64 * 1024 * 1024  # bytes of an answer in one piece
_UNREAD_TIMEOUT = 600.0  # seconds that a stream is read after its client has gone, as models think
_MAX_UNREAD_SIZE = 64 * 1024 * 1024  # bytes of it that are read after that
_FINAL = frozenset({400, 401, 402, 403, 404, 405, 410, 413, 422})  # nothing changes by trying again


async def relay(
    request: web.BaseRequest, call: Call, answer: Answer, upstream: Upstream
) -> web.StreamResponse:
    """Pass an answer on, meter it, and record it.

    Raises:
        UpstreamError: it is not an answer of its API, and nothing of it was sent on.
    """
    if answer.status == 200 and answer.content_type in (STREAM, FRAMES):
        return await _relay_stream(request, call, answer, upstream)
    return await _relay_body(call, answer, upstream)


async def _relay_body(call: Call, answer: Answer, upstream: Upstream) -> web.StreamResponse:
    """Pass an answer on that is in one piece."""
    data = bytearray()
    async for piece in answer.pieces:
        data += piece
        if len(data) > _MAX_ANSWER_SIZE:
            raise UpstreamError("the answer has more than 64 MiB", unpaid=answer.status != 200)
    status, server = answer.status, call.server
    raw = upstream.mask(bytes(data))  # before it is parsed: records show what was said
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
    """Pass a stream on, event by event as they come.

    One whose client has gone is read to its end, as a request that still runs: it costs what it
    costs, and only its end says how much. The end of the session ends it, like all that runs.
    """
    api = call.api
    parts = assembler(api) if api is not None else None
    client = _Client(request, answer, framing_of(call.target.framing))
    recorded = call.session.recorder is not None
    of_frames = answer.content_type == FRAMES
    splitter = (FrameSplitter if of_frames else Splitter)(upstream.mask)
    pieces: list[bytes] = []
    last_events: list[Event] = []  # until the stream is over, and metered
    complete = True
    try:
        async for piece in answer.pieces:
            if client.gives_up(len(piece)):
                break
            output: list[Event] = []
            for as_sent in splitter.feed(piece):
                if recorded:
                    pieces.append(as_sent.raw)
                event = _without_tokens(as_sent, call)
                if event is None:
                    continue
                if parts is not None:
                    parts.feed(event)
                    if parts.complete and not call.charged:
                        # Before the client knows that it is over, and asks the next.
                        await _settle(call, parts, complete=not parts.answer().get("error"))
                if not (call.hide_usage and _is_usage_alone(event)):
                    last_events.append(event)
                if parts is None or not parts.ending or parts.complete:
                    output += last_events
                    last_events.clear()
            if output:
                await client.write(output)
        rest = splitter.rest()
        if rest:
            pieces.append(rest)
            last_events.append(Event(rest))
        complete = parts is None or parts.complete or _is_finished(parts.answer())
        if complete:
            await _settle(call, parts)
        if last_events:
            await client.write(last_events)
        if not complete:
            stream = (
                "a stream that its client had left" if client.gone else "the stream of the server"
            )
            call.session.note(f"{stream} ended before the answer was complete")
    except (UpstreamError, StreamBroken, ClientError, asyncio.TimeoutError) as error:
        complete = False
        if not client.started:
            await _settle(call, parts, complete=False)
            if isinstance(error, (ClientError, asyncio.TimeoutError)):
                raise  # in the words of the one who opened it
            raise error if isinstance(error, UpstreamError) else UpstreamError(str(error)) from None
        message = error.message if isinstance(error, UpstreamError) else cause(error)
        call.session.note(f"the stream of the server broke off: {message}")
    except asyncio.CancelledError:
        # The client may have all that it needs, and have ended the episode since.
        finished = client.gone and parts is not None and _is_finished(parts.answer())
        complete = finished or (parts is not None and parts.complete)
        await _settle(call, parts, complete=complete)
        if complete:
            await _record_stream(call, parts, pieces, complete=True)
        client.abort()
        raise
    await _settle(call, parts, complete=complete)
    await _record_stream(call, parts, pieces, complete=complete)
    return await client.end(complete)


async def _settle(call: Call, parts: Assembler | None, *, complete: bool = True) -> None:
    """Meter a streamed answer, where it is one that costs."""
    if parts is not None:
        await call.settle(200, parts.answer(), parts.usage, complete=complete, length=parts.length)


async def _record_stream(
    call: Call, parts: Assembler | None, pieces: Sequence[bytes], *, complete: bool
) -> None:
    """Record a streamed answer."""
    texts = tuple(raw.decode("utf-8", "replace") for raw in pieces)
    await call.record(
        parts.answer() if parts else None, RecordedAnswer(200, STREAM, texts, complete)
    )


class _Client:
    """The client's side of a stream; its head goes out with the first event.

    Attributes:
        started: something was sent.
        gone: the client closed its connection in the middle of the answer.
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
        """Send events at once; nothing to a client that has gone."""
        if self.gone:
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
        """Return whether the client has gone, and enough was read without it.

        Args:
            size: of what comes next, in bytes.
        """
        if not self.gone:
            return False
        self._unread_size += size
        late = asyncio.get_running_loop().time() > self._unread_end
        return late or self._unread_size > _MAX_UNREAD_SIZE

    async def end(self, complete: bool) -> web.StreamResponse:
        """End the stream; one that broke off breaks off for the client, too."""
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
    """Whether an answer is whole, though the event that should end it is missing."""
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
    """Return an event as the client is to see it, once its tokens are read; None for nothing."""
    if call.reader is None or event.data is None:
        return event
    data = call.reader.take(event.data)
    if data is None or data is event.data:
        return None if data is None else event
    return Event(b"data: " + json.dumps(data).encode("ascii") + b"\n\n")


def _is_usage_alone(event: Event) -> bool:
    data = event.data
    return data is not None and data.get("choices") == [] and bool(data.get("usage"))
