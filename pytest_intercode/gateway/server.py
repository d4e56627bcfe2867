"""The HTTP server of a gateway: listens, assigns connections to sessions, and queues requests.

A request is served if it has the token of a session, matches a route, and asks for nothing that is
refused. It then goes to the one address that is configured for its route, with a body that is
serialized again from the checked one, and with our own headers. The path, the host and the
credentials that a client sends have no effect on where it goes.

Everything runs on one event loop. ``request`` reads the client's request, ``upstream`` asks the
real server, ``relay`` passes the answer on, and ``call`` meters it. This module imports aiohttp, so
it is imported only when a session is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from aiohttp import web

from pytest_intercode.gateway.apis import Route, Target, find_target, model_list, stop_status
from pytest_intercode.gateway.call import Call
from pytest_intercode.gateway.exchange import Exchange
from pytest_intercode.gateway.recording import NotRecorded
from pytest_intercode.gateway.relay import relay
from pytest_intercode.gateway.request import (
    RefusedRequest,
    check_body,
    digest_of,
    error_answer,
    parse_body,
    read_body,
    tokens_of,
    vendor_of,
    write_body,
)
from pytest_intercode.gateway.session import Session
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.tokens import TokenReader, TokenServer, asking_for_tokens
from pytest_intercode.gateway.upstream import (
    KEY_REFUSED,
    Answer,
    LimitReached,
    Upstream,
    UpstreamError,
    replayed,
)
from pytest_intercode.gateway.vendors import VENDORS
from pytest_intercode.system.platform import peer_network

__all__ = ["Server"]

_THREADS = "intercode-gateway"
_LARGE_BODY = 4 * 1024 * 1024  # bytes; only a few bodies of this size are read simultaneously
_MAX_LARGE_BODIES = 2  # of a session that are read simultaneously
_MAX_RUNNING = 16  # requests of a session that run simultaneously
_MAX_WAITING = 128  # requests of a session that wait for their turn
_MAX_CONNECTIONS = 512  # of one listener
_FIRST_REQUEST_TIMEOUT = 30.0  # seconds until a connection has sent its first request
_KEEPALIVE_TIMEOUT = 75.0  # seconds that a connection is kept between requests

_log = logging.getLogger("pytest_intercode.gateway")
_log.disabled = True  # errors that clients cause do not belong in the user's logs


@dataclass(eq=False)
class _State:
    """The server's state of a session."""

    session: Session
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_RUNNING))
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_LARGE_BODIES))
    waiting: int = 0
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    writes: set[asyncio.Future[None]] = field(default_factory=set)
    listener: asyncio.AbstractServer | None = None
    socket: Path | None = None


@dataclass(eq=False)
class _Connection:
    """A connection: its session, if that is known, and whether it has sent a request.

    ``peer`` is the network namespace of the process that opened it, 0 if that is not known.
    """

    owner: _State | None
    opened: float = 0.0
    served: bool = False
    peer: int = 0


class Server:
    """The server; everything except the constructor runs on the event loop.

    Args:
        settings: the gateway's settings.

    Attributes:
        upstream: the real servers.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._states: dict[bytes, _State] = {}
        self._ended_tokens: set[bytes] = set()  # tokens of sessions that are over
        self._connections: dict[Any, _Connection] = {}
        self._listener: asyncio.AbstractServer | None = None
        self._http: web.Server | None = None
        self.upstream = Upstream(settings)
        self._pool = ThreadPoolExecutor(4, thread_name_prefix=_THREADS)

    async def start(self) -> int:
        """Listen; return the port on 127.0.0.1.

        Raises:
            OSError: it cannot listen there.
        """
        loop = asyncio.get_running_loop()
        loop.set_default_executor(self._pool)
        self._http = web.Server(
            self._handle, access_log=None, keepalive_timeout=_KEEPALIVE_TIMEOUT, logger=_log
        )
        self.upstream.start()
        # With the protocol given, asyncio disables Nagle's algorithm, which may delay by 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        self._listener = await loop.create_server(self._factory(None), sock=listener, backlog=256)
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Cancel running requests, and close everything."""
        if self._listener is not None:
            self._listener.close()
        for state in list(self._states.values()):
            await self.remove(state.session)
        if self._http is not None:
            await self._http.shutdown(1.0)
        await self.upstream.stop()
        self._pool.shutdown(wait=True)

    async def add(self, session: Session, path: Path | None) -> None:
        """Serve a session, on its own Unix socket as well if it has a path for one.

        Raises:
            OSError: it cannot listen there.
        """
        state = _State(session, socket=path)
        if path is not None:
            path.unlink(missing_ok=True)
            loop = asyncio.get_running_loop()
            state.listener = await loop.create_unix_server(
                self._factory(state), path=path, backlog=256
            )
            path.chmod(0o666)  # sandboxes have their own accounts
        self._states[digest_of(session.token)] = state

    async def remove(self, session: Session) -> None:
        """End a session; remember its token, to refuse it with the status that stops clients."""
        session.end("the episode is over")
        token = digest_of(session.token)
        state = self._states.pop(token, None)
        if state is None:
            return
        self._ended_tokens.add(token)
        current_task = asyncio.current_task()
        tasks = [task for task in state.tasks if task is not current_task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*state.writes, return_exceptions=True)  # cancelling does not stop them
        if state.listener is not None:
            state.listener.close()
            state.listener = None
            if state.socket is not None:
                state.socket.unlink(missing_ok=True)
            for protocol, connection in self._connections.items():
                if connection.owner is state and protocol.transport is not None:
                    protocol.transport.close()

    # -- connections

    def _factory(self, owner: _State | None) -> Callable[[], asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()

        def make() -> asyncio.BaseProtocol:
            assert self._http is not None
            connections = self._connections
            opened = loop.time()
            # A connection has no transport in its first moments, nor after its end.
            for entry in [entry for entry in connections if entry.transport is None]:
                if opened - connections[entry].opened > 1.0:
                    del connections[entry]
            count = sum(entry.owner is owner and not entry.peer for entry in connections.values())
            if count >= _MAX_CONNECTIONS:
                return _Full()
            protocol = self._http()
            connection = connections[protocol] = _Connection(owner, opened)

            def check() -> None:
                if not connection.served and protocol.transport is not None:
                    protocol.transport.abort()

            def identify() -> None:
                # A sandbox may find the sockets of others, and must not use up their connections.
                if protocol.transport is None:
                    return
                peer = peer_network(protocol.transport.get_extra_info("socket"))
                connection.peer = peer
                peers = [
                    entry.owner
                    for address, entry in connections.items()
                    if peer and entry.peer == peer and address.transport is not None
                ]
                if peers.count(owner) > _MAX_CONNECTIONS or len(peers) > 2 * _MAX_CONNECTIONS:
                    protocol.transport.abort()

            loop.call_later(_FIRST_REQUEST_TIMEOUT, check)
            if owner is not None:  # the transport exists once the callbacks already scheduled ran
                loop.call_soon(loop.call_soon, identify)
            return cast(asyncio.BaseProtocol, protocol)

        return make

    # -- requests

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        connection = self._connections.get(request.protocol) or _Connection(None)
        connection.served = True
        path, _, query = request.raw_path.partition("?")
        target = find_target(request.method, path, query)
        route = target.route if target else None
        tokens = tokens_of(request)
        states = (self._states.get(token) for token in tokens)
        owner = connection.owner
        state = next(
            (candidate for candidate in states if candidate and owner in (None, candidate)), None
        )
        if state is None and not self._ended_tokens.isdisjoint(tokens):
            status = stop_status(route.api if route else None)
            return error_answer(request, route, status, "the episode is over", "budget_exhausted")
        if state is None:
            if owner is not None:
                owner.session.note(
                    f"{request.method} {request.raw_path:.120}: no token of an episode"
                )
            return error_answer(
                request, route, 401, "unknown or expired episode token", "invalid_api_key"
            )
        task = asyncio.current_task()
        assert task is not None
        state.tasks.add(task)
        try:
            return await self._serve(request, target, state)
        except RefusedRequest as refused:
            if refused.note:
                state.session.note(f"{request.method} {request.raw_path:.120}: {refused.message}")
            return error_answer(request, route, refused.status, refused.message, refused.code)
        except LimitReached as reached:
            state.session.fail(reached.message)
            status = stop_status(route.api if route else None)
            return error_answer(request, route, status, reached.message, "usage_limit_reached")
        except UpstreamError as failed:
            state.session.note(failed.message)
            if failed.unreached:
                state.session.record_obstacle(failed.message)
            else:
                state.session.record_answer()
            return error_answer(
                request, route, failed.status, failed.message, "upstream_error", final=False
            )
        except Exception as error:  # our own error; a client must not wait forever because of it
            line = f"{request.method} {request.raw_path:.120}: {type(error).__name__}: {error}"
            state.session.note(f"the gateway failed at {line}")
            return error_answer(
                request, route, 500, "the gateway failed", "gateway_error", final=False
            )
        finally:
            state.tasks.discard(task)

    async def _serve(
        self, request: web.BaseRequest, target: Target | None, state: _State
    ) -> web.StreamResponse:
        session = state.session
        if target is None:
            path = request.raw_path.partition("?")[0]
            if "upgrade" in request.headers and find_target("POST", path):
                # A client that prefers a WebSocket then falls back immediately.
                raise RefusedRequest(
                    426, "there is no WebSocket here; use POST", "upgrade", note=False
                )
            raise RefusedRequest(404, "the gateway does not serve this", "not_found")
        route = target.route
        await _check_open(request, target, session)
        if state.waiting >= _MAX_WAITING:
            raise RefusedRequest(429, "too many requests at a time", "rate_limit_exceeded")
        state.waiting += 1
        try:
            await state.slots.acquire()
        finally:
            state.waiting -= 1
        try:
            await _check_open(request, target, session)  # a budget may be used up in the meantime
            size = request.content_length or _LARGE_BODY
            is_large = route.method == "POST" and size >= _LARGE_BODY
            async with state.large if is_large else contextlib.nullcontext():
                return await self._read_and_answer(request, target, state)
        finally:
            state.slots.release()

    async def _read_and_answer(
        self, request: web.BaseRequest, target: Target, state: _State
    ) -> web.StreamResponse:
        route = target.route
        content = parse_body(await read_body(request)) if route.method == "POST" else {}
        body = target.body(content)
        check_body(self._settings, target, body, state.session.answers)
        vendor = route.vendor or vendor_of(request, None)
        if route.method == "GET" and self._settings.models:
            return web.json_response(model_list(vendor, self._settings.models))
        return await self._answer(request, target, vendor, state, body)

    async def _answer(
        self,
        request: web.BaseRequest,
        target: Target,
        vendor: str,
        state: _State,
        body: dict[str, Any],
    ) -> web.StreamResponse:
        """Get the answer and pass it on."""
        server = self._settings.tokens if state.session.keep is not None else None
        server_body, hide = _upstream_body(target, body, server)
        number, payload = state.session.begin(), write_body(server_body)
        # A replayed answer may have been recorded with tokens.
        may_have_tokens = server is not None or state.session.replayer is not None
        call = Call(
            *(state.session, target, vendor, self.upstream.name(vendor), number),
            *(body, server_body, len(payload), hide),
            prices=self._settings.prices_of(vendor),
            writes=state.writes,
            reader=TokenReader(body) if may_have_tokens and _has_tokens(target) else None,
        )
        try:
            async with self._open(request, call, payload) as answer:
                return await relay(request, call, answer, self.upstream)
        except (asyncio.CancelledError, UpstreamError) as ended:
            # The session ends, or the server did not finish an accepted request, which costs.
            if not (isinstance(ended, UpstreamError) and ended.unpaid):
                await call.settle(200, {}, None, complete=False)
            raise

    @contextlib.asynccontextmanager
    async def _open(
        self, request: web.BaseRequest, call: Call, payload: bytes
    ) -> AsyncIterator[Answer]:
        """Send a request to the real server, or look up its answer in the recording."""
        session, target, vendor = call.session, call.target, call.vendor
        route, posts = target.route, target.route.method == "POST"
        if session.replayer is not None:
            try:
                recorded = session.replayer.answer(route, call.body, session.token)
            except NotRecorded as missing:
                session.fail(f"the recording lacks a request: {missing}")
                status = stop_status(route.api)
                raise RefusedRequest(status, str(missing), "not_recorded", note=False) from None
            yield replayed(recorded)
            return
        if self._settings.offline:
            message = "--intercode-record=none lets no model be called"
            session.fail(message)
            raise RefusedRequest(stop_status(route.api), message, "not_recorded", note=False)
        _check_configured(self._settings, route, vendor)
        headers, omitted = self.upstream.headers(request.headers, vendor, has_body=posts)
        for name in omitted:
            session.note(
                f"the beta {name:.60} was not passed on; --intercode-gateway-allow={name:.60} does"
            )
        async with self.upstream.open(
            *(route.method, target.path(self._settings.account), vendor),
            headers=headers,
            body=payload if posts else None,
            query=target.query,
        ) as answer:
            if answer.status in KEY_REFUSED:
                session.record_obstacle(
                    f"the server {call.server} refuses the key: status {answer.status}"
                )
            else:
                session.record_answer()
            yield answer


class _Full(asyncio.Protocol):
    """Aborts a connection that exceeds the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


def _has_tokens(target: Target) -> bool:
    """Whether a server may return token ids with the answers of a route."""
    return target.route.vendor == "openai" and target.route.api == "chat"


def _upstream_body(
    target: Target, body: Mapping[str, Any], server: TokenServer | None
) -> tuple[dict[str, Any], bool]:
    """Return the body to send, and whether it asks for a usage that the client did not ask for.

    Args:
        target: the target of the request.
        body: the client's body.
        server: the kind of server that is asked for token ids; None for none.
    """
    upstream_body = target.upstream_body(body)
    if server is not None and _has_tokens(target):
        upstream_body = asking_for_tokens(server, upstream_body)
    if target.route.api != "chat" or not body.get("stream"):
        return upstream_body, False
    options = body.get("stream_options")
    options = options if isinstance(options, dict) else {}
    upstream_body["stream_options"] = {**options, "include_usage": True}
    return upstream_body, not options.get("include_usage")


def _check_configured(settings: GatewaySettings, route: Route, vendor: str) -> None:
    """Refuse a request for which no server is configured."""
    login = settings.login_vendors.get(vendor)
    message = ""
    if vendor == "vertex" and not settings.account:
        message = "GOOGLE_CLOUD_PROJECT is not set: no server has this API"
    elif not settings.upstream(vendor):
        message = f"{VENDORS[vendor].address_variable} is not set: no server has this API"
    elif login is not None and login.responses_alone and route.api != "responses":
        message = f"the login of {login.program} serves the responses API alone"
    if message:
        raise RefusedRequest(stop_status(route.api), message, "not_configured")


async def _check_open(request: web.BaseRequest, target: Target, session: Session) -> None:
    """Refuse a request if its session serves no more requests.

    The first refused request is kept, as it has the results of the last tool calls.
    """
    reason = session.refusal_reason()
    if not reason:
        return
    route = target.route
    status = stop_status(route.api)
    if route.method == "POST" and route.api and session.claim_last():
        with contextlib.suppress(RefusedRequest):
            body = target.body(parse_body(await read_body(request)))
            model = str(body.get("model", ""))
            exchange = Exchange(route.api, model, session.deduplicate(body), {}, status)
            session.add(session.begin(), exchange)
    raise RefusedRequest(status, reason, "budget_exhausted")
