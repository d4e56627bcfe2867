"""The HTTP server of a gateway and its client of the real APIs, on aiohttp and one event loop.

A request is served if it has the token of a session, is one of the routes, and asks for nothing
that is refused. It then goes to the one address that is configured for its route, with a body that
is written anew from what was checked and with headers of our own. The path, the host and the
credentials that a client sends lead nowhere.

Imports aiohttp, so it is imported only when a session is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.request import getproxies, proxy_bypass

from aiohttp import (
    ClientError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
    web,
)
from yarl import URL

from pytest_intercode.gateway.apis import (
    ROUTES,
    Route,
    error_body,
    hosted_tools,
    is_answer,
    stop_status,
)
from pytest_intercode.gateway.exchange import NOTHING, Exchange, TokenUsage
from pytest_intercode.gateway.prices import price_of
from pytest_intercode.gateway.recording import NotRecorded, Recorded
from pytest_intercode.gateway.session import Session
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.streams import Event, Splitter, StreamTooLong, assembler
from pytest_intercode.gateway.usage import estimate, read_usage

__all__ = ["Server"]

_THREADS = "intercode-gateway"
_LARGEST = 50 * 1024 * 1024  # bytes of a request's body
_LARGE = 4 * 1024 * 1024  # bytes from which a body is one of the few that are read at a time
_LARGE_AT_A_TIME = 2
_MOST_PARTS = 2_000_000  # characters that may begin a part of a body, which takes memory
_LARGEST_ANSWER = 64 * 1024 * 1024
_AT_A_TIME = 16  # requests of a session that run at once
_WAITING = 128  # requests of a session that wait for their turn
_CONNECTIONS = 512  # of one listener
_FIRST = 30.0  # seconds until a connection has sent its first request
_BODY = 60.0  # seconds that a body may pause
_CONNECT = 20.0  # seconds for a connection to the real server
_IDLE = 75.0  # seconds that a connection is kept between requests
_KEPT = 4.0  # the same for those to the real server, some of which close them after five
_FORWARDED = ("accept", "anthropic-beta", "anthropic-version", "openai-beta", "user-agent")
_RETURNED = ("retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id")
_FINAL = frozenset({400, 401, 402, 403, 404, 405, 410, 413, 422})  # nothing changes by trying again
_STREAM = "text/event-stream"

_log = logging.getLogger("pytest_intercode.gateway")
_log.disabled = True  # what clients send is no matter of the user's logs


class _Refused(Exception):
    """A request is not served."""

    def __init__(self, status: int, message: str, code: str, *, note: bool = True) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.note = status, message, code, note


class _Failed(Exception):
    """The real server did not answer as it should."""

    def __init__(self, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.message, self.status = message, status


class _ClientGone(Exception):
    """The client closed its connection in the middle of an answer."""


@dataclass(eq=False)
class _State:
    """What the server knows of a session."""

    session: Session
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_A_TIME))
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LARGE_AT_A_TIME))
    waiting: int = 0
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    writes: set[asyncio.Future[None]] = field(default_factory=set)
    listener: asyncio.AbstractServer | None = None
    socket: Path | None = None


@dataclass(eq=False)
class _Connection:
    """A connection: whose it is, where that is known, and whether a request has come."""

    owner: _State | None
    opened: float = 0.0
    used: bool = False


@dataclass
class _Answer:
    """What the real server answers, before its body was read."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]


@dataclass
class _Call:
    """One request that is served."""

    state: _State
    route: Route
    number: int
    body: dict[str, Any]
    sent: bytes
    headers: Mapping[str, str]
    hide_usage: bool
    began: float = field(default_factory=time.perf_counter)
    charged: bool = False

    @property
    def session(self) -> Session:
        return self.state.session

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))


class Server:
    """The server; everything but the constructor runs on the event loop.

    Args:
        settings: the gateway's.
        note: keeps a line on what was refused and belongs to no session.
    """

    def __init__(self, settings: GatewaySettings, note: Callable[[str], None]) -> None:
        self._settings = settings
        self._note = note
        self._states: dict[bytes, _State] = {}
        self._ended: set[bytes] = set()  # tokens of sessions that are over
        self._connections: dict[Any, _Connection] = {}
        self._listeners: list[asyncio.AbstractServer] = []
        self._socket: Path | None = None
        self._http: web.Server | None = None
        self._client: ClientSession | None = None
        self._pool = ThreadPoolExecutor(4, thread_name_prefix=_THREADS)
        self._keys = tuple(key.encode() for key in settings.keys.values() if key)

    async def start(self, path: Path | None) -> int:
        """Listen; return the port on 127.0.0.1.

        Args:
            path: of a Unix socket to listen on, too.

        Raises:
            OSError: it cannot listen there.
        """
        loop = asyncio.get_running_loop()
        loop.set_default_executor(self._pool)
        self._http = web.Server(self._handle, access_log=None, keepalive_timeout=_IDLE, logger=_log)
        self._client = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=_KEPT),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(
                total=None, sock_connect=_CONNECT, sock_read=self._settings.silence
            ),
        )
        # With the protocol named, asyncio sends at once; else answers may take 40 ms longer.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        self._listeners.append(
            await loop.create_server(self._factory(None), sock=listener, backlog=256)
        )
        if path is not None:
            self._listeners.append(await self._listen(path, None))
            self._socket = path
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Cancel what runs, and close everything."""
        for listener in self._listeners:
            listener.close()
        for state in list(self._states.values()):
            await self.remove(state.session)
        if self._http is not None:
            await self._http.shutdown(1.0)
        if self._client is not None:
            await self._client.close()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
        self._pool.shutdown(wait=True)

    async def add(self, session: Session, path: Path | None) -> None:
        """Serve a session, also on a Unix socket of its own.

        Raises:
            OSError: it cannot listen there.
        """
        state = _State(session)
        if path is not None:
            state.listener = await self._listen(path, state)
            state.socket = path
        self._states[_digest(session.token)] = state

    async def remove(self, session: Session) -> None:
        """End a session; its token stays known, and is refused with the words that stop clients."""
        session.end("the episode is over")
        token = _digest(session.token)
        state = self._states.pop(token, None)
        if state is None:
            return
        self._ended.add(token)
        mine = asyncio.current_task()
        tasks = [task for task in state.tasks if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*state.writes, return_exceptions=True)
        if state.listener is not None:
            state.listener.close()
            state.listener = None
            if state.socket is not None:
                state.socket.unlink(missing_ok=True)
            for protocol, connection in self._connections.items():
                if connection.owner is state and protocol.transport is not None:
                    protocol.transport.close()

    # -- connections

    async def _listen(self, path: Path, owner: _State | None) -> asyncio.AbstractServer:
        path.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        listener = await loop.create_unix_server(self._factory(owner), path=path, backlog=256)
        path.chmod(0o666)  # sandboxes have accounts of their own
        return listener

    def _factory(self, owner: _State | None) -> Callable[[], asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()

        def make() -> asyncio.BaseProtocol:
            assert self._http is not None
            known = self._connections
            now = loop.time()
            # It has no transport yet in its first moments, and none any more at its end.
            for each in [each for each in known if each.transport is None]:
                if now - known[each].opened > 1.0:
                    del known[each]
            if sum(each.owner is owner for each in known.values()) >= _CONNECTIONS:
                return _Full()
            protocol = self._http()
            connection = known[protocol] = _Connection(owner, now)

            def check() -> None:
                if not connection.used and protocol.transport is not None:
                    protocol.transport.abort()

            loop.call_later(_FIRST, check)
            return cast(asyncio.BaseProtocol, protocol)

        return make

    # -- requests

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        connection = self._connections.get(request.protocol) or _Connection(None)
        connection.used = True
        path, _, query = request.raw_path.partition("?")
        route = ROUTES.get((request.method, path))
        tokens = _tokens_of(request)
        known = (self._states.get(token) for token in tokens)
        owner = connection.owner
        state = next((each for each in known if each and owner in (None, each)), None)
        if state is None and not self._ended.isdisjoint(tokens):
            status = stop_status(route.api if route else None)
            return _error(request, route, status, "the episode is over", "budget_exhausted")
        if state is None:
            what = f"{request.method} {request.raw_path:.120}: no token of an episode"
            if owner is not None:
                owner.session.note(what)
            else:
                self._note(what)
            return _error(
                request, route, 401, "this is no token of an episode that runs", "invalid_api_key"
            )
        task = asyncio.current_task()
        assert task is not None
        state.tasks.add(task)
        try:
            return await self._serve(request, route, query, state)
        except _Refused as refused:
            if refused.note:
                state.session.note(f"{request.method} {request.raw_path:.120}: {refused.message}")
            return _error(request, route, refused.status, refused.message, refused.code)
        except _Failed as failed:
            state.session.note(failed.message)
            return _error(
                request, route, failed.status, failed.message, "upstream_error", final=False
            )
        except Exception as error:  # ours, and no reason for a client to wait for ever
            what = f"{request.method} {request.raw_path:.120}: {type(error).__name__}: {error}"
            state.session.note(f"the gateway failed at {what}")
            return _error(request, route, 500, "the gateway failed", "gateway_error", final=False)
        finally:
            state.tasks.discard(task)

    async def _serve(
        self, request: web.BaseRequest, route: Route | None, query: str, state: _State
    ) -> web.StreamResponse:
        session = state.session
        if route is None:
            path = request.raw_path.partition("?")[0]
            if "upgrade" in request.headers and ("POST", path) in ROUTES:
                # A client that would rather have a WebSocket falls back at once.
                raise _Refused(426, "there is no WebSocket here; use POST", "upgrade", note=False)
            raise _Refused(404, "the gateway does not serve this", "not_found")
        if over := session.over():
            await _keep_last(request, route, session)
            raise _Refused(stop_status(route.api), over, "budget_exhausted")
        if state.waiting >= _WAITING:
            raise _Refused(429, "too many requests at a time", "rate_limit_exceeded")
        state.waiting += 1
        try:
            await state.slots.acquire()
        finally:
            state.waiting -= 1
        try:
            if over := session.over():  # used up while it waited
                await _keep_last(request, route, session)
                raise _Refused(stop_status(route.api), over, "budget_exhausted")
            if route.method == "POST" and (request.content_length or _LARGE) >= _LARGE:
                async with state.large:
                    return await self._read_and_answer(request, route, query, state)
            return await self._read_and_answer(request, route, query, state)
        finally:
            state.slots.release()

    async def _read_and_answer(
        self, request: web.BaseRequest, route: Route, query: str, state: _State
    ) -> web.StreamResponse:
        body = _parsed(await _read(request)) if route.method == "POST" else {}
        self._check(route, body)
        vendor = route.vendor or _vendor(request, None)
        if not route.vendor and self._settings.models:
            return web.json_response(_models(vendor, self._settings.models))
        return await self._answer(request, route, vendor, query, state, body)

    def _check(self, route: Route, body: Mapping[str, Any]) -> None:
        """Refuse a request that asks for what is not allowed."""
        settings = self._settings
        if route.method != "POST":
            return
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise _Refused(400, "the request names no model", "invalid_request")
        if settings.models and model not in settings.models:
            allowed = ", ".join(settings.models)
            status = 400 if route.api == "responses" else 404
            raise _Refused(
                status,
                f"the gateway serves no model {model!r:.80}; allowed: {allowed:.300}",
                "model_not_found",
            )
        if route.api == "responses" and body.get("background"):
            raise _Refused(400, "background responses are not served", "not_supported")
        if not settings.hosted_tools and (hosted := hosted_tools(body)):
            raise _Refused(
                400,
                f"hosted tools are not allowed, as they leave the sandbox through the provider: "
                f"{', '.join(hosted):.200}; --intercode-gateway-hosted-tools allows them",
                "hosted_tool",
            )

    async def _answer(
        self,
        request: web.BaseRequest,
        route: Route,
        vendor: str,
        query: str,
        state: _State,
        body: dict[str, Any],
    ) -> web.StreamResponse:
        """Get the answer, and pass it on."""
        session = state.session
        sent, hide = body, False
        if route.api == "chat" and body.get("stream"):
            options = body.get("stream_options")
            options = options if isinstance(options, dict) else {}
            hide = not options.get("include_usage")
            sent = {**body, "stream_options": {**options, "include_usage": True}}
        call = _Call(
            *(state, route, session.begin(), body),
            sent=_written(sent),
            headers=self._headers(request, vendor),
            hide_usage=hide,
        )
        with_beta = vendor == "anthropic" and query == "beta=true"
        address = self._settings.address(vendor, route.path) + ("?beta=true" if with_beta else "")
        try:
            async with self._open(call, vendor, address) as answer:
                if answer.status == 200 and answer.content_type == _STREAM:
                    return await self._stream(request, call, answer)
                return await self._plain(request, call, vendor, answer)
        except asyncio.CancelledError:
            # The session ends; its request was sent, and is paid for.
            await self._settle(call, 200, {}, None, complete=False)
            raise

    @contextlib.asynccontextmanager
    async def _open(self, call: _Call, vendor: str, address: str) -> AsyncIterator[_Answer]:
        """Send a request to the real server, or look its answer up in the recording."""
        session, route = call.session, call.route
        if session.replayer is not None:
            try:
                found = session.replayer.answer(route.method, route.path, call.body, session.token)
            except NotRecorded as missing:
                session.fail(f"the recording lacks a request: {missing}")
                status = stop_status(route.api)
                raise _Refused(status, str(missing), "not_recorded", note=False) from None
            yield _Answer(found.status, found.content_type, {}, _again(found))
            return
        assert self._client is not None
        server = f"the server {self._settings.upstream(vendor)}"
        try:
            async with self._client.request(
                route.method,
                URL(address, encoded=True),
                data=_payload(call.sent) if route.method == "POST" else None,
                headers=call.headers,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                allow_redirects=False,
                proxy=_proxy(address),
            ) as response:
                yield _Answer(
                    response.status,
                    response.content_type,
                    {name: v for name in _RETURNED if (v := response.headers.get(name))},
                    response.content.iter_any(),
                )
        except asyncio.TimeoutError as error:
            if isinstance(error, ConnectionTimeoutError):
                raise _Failed(f"{server} cannot be reached in {_CONNECT:g} s", 504) from None
            seconds = self._settings.silence
            raise _Failed(f"{server} was silent for {seconds:g} s", 504) from None
        except ClientError as error:
            raise _Failed(f"{server} cannot be used: {_cause(error)}") from None

    def _headers(self, request: web.BaseRequest, vendor: str) -> dict[str, str]:
        """Return the headers of a request to the real server."""
        headers = {name: v for name in _FORWARDED if (v := request.headers.get(name))}
        headers["accept-encoding"] = "identity"  # the usage is read from the answer
        if request.method == "POST":
            headers["content-type"] = "application/json"
        key = self._settings.keys.get(vendor)
        if key and vendor == "anthropic":
            headers["x-api-key"] = key
        elif key:
            headers["authorization"] = f"Bearer {key}"
        return headers

    # -- answers

    async def _plain(
        self, request: web.BaseRequest, call: _Call, vendor: str, answer: _Answer
    ) -> web.StreamResponse:
        """Pass an answer on that is in one piece."""
        data = bytearray()
        async for piece in answer.pieces:
            data += piece
            if len(data) > _LARGEST_ANSWER:
                raise _Failed("the answer has more than 64 MiB")
        status, route = answer.status, call.route
        parsed = _object(data)
        if 300 <= status < 400:
            raise _Failed(f"{self._settings.upstream(vendor)} redirects, which is not followed")
        if status == 200 and (parsed is None or not is_answer(route.api, parsed)):
            what = "is no JSON" if parsed is None else "is no answer of this API"
            start = data[:80].decode("utf-8", "replace")
            raise _Failed(f"{self._settings.upstream(vendor)} sent what {what}: {start!r}")
        raw = self._masked(bytes(data))
        headers = {**answer.headers}
        if status != 200:
            said = _message(parsed) or raw[:200].decode("utf-8", "replace")
            call.session.note(f"{self._settings.upstream(vendor)} answered {status}: {said}")
            if parsed is None:
                words = f"the server answered {status}: {said}"
                raw = json.dumps(error_body(vendor, status, words, "upstream_error")).encode()
            if status in _FINAL:
                headers.setdefault("x-should-retry", "false")
        text = raw.decode("utf-8", "replace")
        await self._settle(call, status, parsed or {}, (parsed or {}).get("usage"))
        await self._record(call, parsed, Recorded(status, "application/json", (text,)))
        return web.Response(
            status=status, body=raw, headers=headers, content_type="application/json"
        )

    async def _stream(
        self, request: web.BaseRequest, call: _Call, answer: _Answer
    ) -> web.StreamResponse:
        """Pass a stream on, event by event as they come."""
        api = call.route.api
        parts = assembler(api) if api is not None else None
        relay = _Relay(request, answer)
        recorded = call.session.recorder is not None
        splitter, kept = Splitter(), []
        complete = True
        try:
            async for piece in answer.pieces:
                out = b""
                for event in splitter.feed(piece):
                    if recorded:
                        kept.append(event.raw)
                    if parts is not None:
                        parts.feed(event)
                        if parts.ended and not call.charged:
                            # Before the client knows that it is over, and asks the next.
                            whole = parts.answer()
                            good = not whole.get("error")
                            await self._settle(call, 200, whole, parts.usage, complete=good)
                    if not (call.hide_usage and _is_usage_alone(event)):
                        out += event.raw
                if out:
                    await relay.write(self._masked(out))
            rest = splitter.rest()
            if rest:
                kept.append(rest)
                await relay.write(self._masked(rest))
            complete = parts is None or parts.ended or _finished(parts.answer())
            if not complete:
                call.session.note("the stream of the server ended before the answer was complete")
        except _ClientGone:
            complete = parts is not None and parts.ended
        except (_Failed, StreamTooLong, ClientError, asyncio.TimeoutError) as error:
            complete = False
            if not relay.begun:
                if isinstance(error, (ClientError, asyncio.TimeoutError)):
                    raise  # in the words of whoever opened it
                raise error if isinstance(error, _Failed) else _Failed(str(error)) from None
            said = error.message if isinstance(error, _Failed) else _cause(error)
            call.session.note(f"the stream of the server broke off: {said}")
        except asyncio.CancelledError:
            if parts is not None:
                await self._settle(call, 200, parts.answer(), parts.usage, complete=False)
            relay.cut()
            raise
        if parts is not None:
            await self._settle(call, 200, parts.answer(), parts.usage, complete=complete)
        texts = tuple(raw.decode("utf-8", "replace") for raw in kept)
        await self._record(
            call, parts.answer() if parts else None, Recorded(200, _STREAM, texts, complete)
        )
        return await relay.end(complete)

    # -- what is left of an exchange

    async def _settle(
        self,
        call: _Call,
        status: int,
        answer: Mapping[str, Any],
        usage: Any,
        *,
        complete: bool = True,
    ) -> None:
        """Meter an exchange and keep it; once for each."""
        api = call.route.api
        if call.charged or api is None:
            return
        call.charged = True
        tokens = NOTHING
        if status == 200:
            tokens = _tokens(read_usage(api, usage), estimate(len(call.sent), answer), complete)
        model = str(answer.get("model") or call.model)
        price = price_of(self._settings.prices, model, call.model)
        cost = price.cost(tokens) if price is not None and tokens != NOTHING else None
        seconds = time.perf_counter() - call.began

        def keep() -> None:
            exchange = Exchange(
                api=api,
                model=model,
                request=call.session.kept(call.body),
                answer=answer,
                status=status,
                usage=tokens,
                cost=cost,
                seconds=seconds,
                complete=complete,
            )
            call.session.add(call.number, exchange)
            call.session.charge(exchange)

        await self._aside(call.state, keep)

    async def _record(
        self, call: _Call, answer: Mapping[str, Any] | None, recorded: Recorded
    ) -> None:
        recorder = call.session.recorder
        if recorder is None:
            return

        def write() -> None:
            recorder.write(
                call.number,
                method=call.route.method,
                path=call.route.path,
                request=call.body,
                token=call.session.token,
                answer=answer,
                recorded=recorded,
            )

        try:
            await self._aside(call.state, write)
        except OSError as error:
            call.session.note(f"an exchange could not be recorded: {error.strerror}")

    async def _aside(self, state: _State, work: Callable[[], None]) -> None:
        """Do what may wait, for a file or its lock, on another thread, and to its end."""
        future = asyncio.get_running_loop().run_in_executor(None, work)
        state.writes.add(future)
        future.add_done_callback(state.writes.discard)
        await asyncio.shield(future)

    def _masked(self, data: bytes) -> bytes:
        """Return what a server sent, without the key, which some repeat in their errors."""
        for key in self._keys:
            if key in data:
                data = data.replace(key, b"***")
        return data


class _Relay:
    """The client's side of a stream; its head goes out with the first event."""

    def __init__(self, request: web.BaseRequest, answer: _Answer) -> None:
        self._request = request
        self._response = web.StreamResponse(
            headers={
                **answer.headers,
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
            }
        )
        self.begun = False

    async def write(self, data: bytes) -> None:
        """Send bytes at once."""
        try:
            if not self.begun:
                self.begun = True
                await self._response.prepare(self._request)
            await self._response.write(data)
        except (ConnectionError, RuntimeError):
            raise _ClientGone from None

    async def end(self, complete: bool) -> web.StreamResponse:
        """End the stream; one that broke off breaks off for the client, too."""
        try:
            if not self.begun:
                self.begun = True
                await self._response.prepare(self._request)
            if complete:
                await self._response.write_eof()
            else:
                self.cut()
        except (ConnectionError, RuntimeError):
            pass  # the client is gone
        return self._response

    def cut(self) -> None:
        """Close the connection."""
        transport = self._request.transport
        if transport is not None:
            transport.close()


class _Full(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


def _digest(token: str) -> bytes:
    """Return what tokens are looked up by, so that no comparison tells how far one is right."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _tokens_of(request: web.BaseRequest) -> list[bytes]:
    """Return the digests of the tokens that a request has, in the places that clients use."""
    given = [request.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key")]
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        given.append(bearer.strip())
    return [_digest(token) for token in given if token]


def _vendor(request: web.BaseRequest, route: Route | None) -> str:
    """Return the vendor whose client has sent a request."""
    if route is not None and route.vendor:
        return route.vendor
    headers = request.headers
    anthropic = "x-api-key" in headers or "anthropic-version" in headers
    return "anthropic" if anthropic or "/messages" in request.raw_path else "openai"


def _error(
    request: web.BaseRequest,
    route: Route | None,
    status: int,
    message: str,
    code: str,
    final: bool = True,
) -> web.Response:
    """Return an error in the words of the client's vendor."""
    headers = {"x-should-retry": "false"} if final and status != 429 else {}
    body = error_body(_vendor(request, route), status, message, code)
    return web.json_response(body, status=status, headers=headers)


async def _keep_last(request: web.BaseRequest, route: Route, session: Session) -> None:
    """Keep the first request that is refused: it has the results of the last calls of tools."""
    if route.method != "POST" or not route.api or not session.keeps_last():
        return
    with contextlib.suppress(_Refused):
        body = _parsed(await _read(request))
        model = str(body.get("model", ""))
        status = stop_status(route.api)
        session.add(session.begin(), Exchange(route.api, model, session.kept(body), {}, status))


async def _read(request: web.BaseRequest) -> bytes:
    """Return the body of a request."""
    too_large = _Refused(413, "a request may have 50 MiB", "request_too_large")
    if (request.content_length or 0) > _LARGEST:
        raise too_large
    data = bytearray()
    try:
        while piece := await asyncio.wait_for(request.content.readany(), _BODY):
            data += piece
            if len(data) > _LARGEST:
                raise too_large
    except asyncio.TimeoutError:
        raise _Refused(408, "the request's body did not come", "timeout") from None
    except _Refused:
        raise
    except Exception as error:  # a body that is not encoded as it says
        raise _Refused(
            400, f"the request's body cannot be read: {type(error).__name__}", "invalid_request"
        ) from None
    return bytes(data)


def _parsed(data: bytes) -> dict[str, Any]:
    """Return the body of a request as what will be sent on."""
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_PARTS:
        raise _Refused(413, "the request's body has too many parts", "request_too_large")

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        body = json.loads(data.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise _Refused(
            400, f"the request's body is no JSON: {error!s:.100}", "invalid_request"
        ) from None
    if not isinstance(body, dict):
        raise _Refused(400, "the request's body is no JSON object", "invalid_request")
    return body


def _written(body: Mapping[str, Any]) -> bytes:
    """Return a body as it is sent: written anew, so that it can mean but what was checked."""
    try:
        text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):  # a number beyond all others
        raise _Refused(
            400, "the request's body cannot be sent as JSON", "invalid_request"
        ) from None
    return text.encode("ascii")


def _payload(data: bytes) -> bytes | io.BytesIO:
    """Return a body as the client sends it: a large one in pieces, so that others go on."""
    return data if len(data) < 512 * 1024 else io.BytesIO(data)


def _object(data: bytes | bytearray) -> dict[str, Any] | None:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _message(body: Mapping[str, Any] | None) -> str:
    """Return the message of an error's body, which is in different places."""
    error = (body or {}).get("error", body)
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail")
    return error if isinstance(error, str) else ""


def _tokens(said: TokenUsage | None, guessed: TokenUsage, complete: bool) -> TokenUsage:
    """Return the tokens of an answer: what its server says, or an estimate of what it left out."""
    if said is None:
        return guessed
    if complete or said.output >= guessed.output:
        return said
    # It broke off after a part of its usage: Anthropic's begins with an output of 1.
    return TokenUsage(
        said.input, guessed.output, said.cached, said.cache_write, said.reasoning, estimated=True
    )


def _finished(answer: Mapping[str, Any]) -> bool:
    """Whether an answer is whole, though the event that should end it is missing."""
    choices = answer.get("choices")
    if isinstance(choices, list):
        return bool(choices) and all(choice.get("finish_reason") for choice in choices)
    return bool(answer.get("stop_reason"))


def _is_usage_alone(event: Event) -> bool:
    data = event.data
    return data is not None and data.get("choices") == [] and bool(data.get("usage"))


async def _again(recorded: Recorded) -> AsyncIterator[bytes]:
    for piece in recorded.pieces:
        yield piece.encode("utf-8")
    if not recorded.complete:
        raise _Failed("it broke off when it was recorded")


def _models(vendor: str, models: tuple[str, ...]) -> dict[str, Any]:
    """Return a list of models as a vendor writes it."""
    if vendor == "anthropic":
        began = "1970-01-01T00:00:00Z"
        data: list[dict[str, Any]] = [
            {"type": "model", "id": name, "display_name": name, "created_at": began}
            for name in models
        ]
        ends = {"first_id": models[0], "last_id": models[-1]}
        return {"data": data, "has_more": False, **ends}
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "gateway"} for name in models]
    return {"object": "list", "data": data}


def _proxy(address: str) -> str | None:
    """Return the proxy that the machine's settings name for an address."""
    url = URL(address)
    host = url.host or ""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    return getproxies().get(url.scheme)


def _cause(error: BaseException) -> str:
    """Return why a connection failed, in a few words."""
    inner: BaseException | None = error
    found = str(error)
    while inner is not None:
        number = getattr(inner, "errno", None)
        if isinstance(inner, OSError) and isinstance(number, int) and number > 0:
            return os.strerror(number)
        inner = inner.__cause__ or inner.__context__ or getattr(inner, "os_error", None)
    return found or type(error).__name__
