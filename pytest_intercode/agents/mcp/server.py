"""Serves episodes over MCP: one event loop on a thread of its own, one HTTP port for all episodes.

An episode is reached over HTTP by its token, and over a Unix socket in a folder that only this
user may open; ``stdio.py`` passes an agent's standard streams on to that. Imports the SDK and
uvicorn, so it is imported only when an episode is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

__all__ = ["Door", "Serving"]

_HOST = "127.0.0.1"
_PATH = "/mcp"
_PATIENCE = 10.0  # seconds for the loop to do what it is asked
_LONGEST_LINE = 16 * 1024 * 1024  # bytes of a message over stdio

_T = TypeVar("_T")


class Door:
    """The way into one episode.

    Attributes:
        token: the bearer token; none but requests with it reach the episode.
        url: where the streamable HTTP server is.
        socket: the Unix socket.
        used: whether an agent has come in.
    """

    def __init__(self, server: Server[Any], url: str, path: Path) -> None:
        self.token = secrets.token_urlsafe(32)
        self.url = url
        self.socket = path
        self.used = False
        self._server = server
        port = url.removeprefix(f"http://{_HOST}:").removesuffix(_PATH)
        self._http = StreamableHTTPSessionManager(
            server,
            stateless=True,
            # A page in a browser sends its Origin, and a rebound name sends itself as the Host.
            security_settings=TransportSecuritySettings(
                allowed_hosts=[f"{_HOST}:{port}", f"localhost:{port}"], allowed_origins=[]
            ),
        )
        self._connections: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hosting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Let agents in."""
        self._hosting = asyncio.create_task(self._host())
        await asyncio.wait([self._opened, self._hosting], return_when=asyncio.FIRST_COMPLETED)
        if self._hosting.done():
            await self._hosting

    async def close(self) -> None:
        """Let nobody in any more, and end what is open."""
        self._closing.set()
        if self._hosting is not None:
            await self._hosting

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that has shown the token."""
        self.used = True
        await self._http.handle_request(scope, receive, send)

    async def _host(self) -> None:
        async with self._http.run():
            unix = await asyncio.start_unix_server(
                self._connect, path=self.socket, limit=_LONGEST_LINE
            )
            try:
                if not self._opened.done():
                    self._opened.set_result(None)
                await self._closing.wait()
            finally:
                unix.close()
                for connection in self._connections:
                    connection.cancel()
                await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one stdio server's process until it ends."""
        self.used = True
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # Any pair of streams will do for it, although it is annotated with files.
            async with stdio_server(
                cast("anyio.AsyncFile[str]", _Lines(reader)),
                cast("anyio.AsyncFile[str]", _Out(writer)),
            ) as (incoming, outgoing):
                await self._server.run(
                    incoming, outgoing, self._server.create_initialization_options()
                )
        except asyncio.CancelledError:
            pass  # the episode is over; asyncio would complain of a cancelled connection
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _Lines:
    """The lines of a connection, as text."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def __aiter__(self) -> AsyncIterator[str]:
        with contextlib.suppress(OSError, ValueError):  # a line without end
            while line := await self._reader.readline():
                yield line.decode("utf-8", "replace")


class _Out:
    """The other direction of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        self._writer.write(text.encode("utf-8"))

    async def flush(self) -> None:
        with contextlib.suppress(OSError):  # it is gone
            await self._writer.drain()


class Serving:
    """The event loop and the HTTP server of one pytest process.

    Attributes:
        url: where the streamable HTTP server is.
    """

    def __init__(self) -> None:
        self._doors: dict[str, Door] = {}
        self._loop = asyncio.new_event_loop()
        # With the protocol named, asyncio sends at once; else every answer takes 40 ms longer.
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listener.bind((_HOST, 0))
        self._listener.listen()
        self.url = f"http://{_HOST}:{self._listener.getsockname()[1]}{_PATH}"
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                self._answer,
                interface="asgi3",
                loop="none",
                http="h11",
                ws="none",
                lifespan="off",
                proxy_headers=False,
                log_config=None,  # loggers belong to whoever runs the tests
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._run, name="intercode-mcp", daemon=True)
        self._thread.start()

    def open(self, server: Server[Any], path: Path) -> Door:
        """Serve an episode.

        Args:
            server: its MCP server.
            path: where its Unix socket is to be.
        """

        async def make() -> Door:
            door = Door(server, self.url, path)
            await door.open()
            self._doors[door.token] = door
            return door

        return self._ask(make())

    def shut(self, door: Door) -> None:
        """Serve an episode no more; returns when nothing of it is open. May be called twice."""

        async def end() -> None:
            self._doors.pop(door.token, None)
            await door.close()

        if self._thread.is_alive():
            self._ask(end())

    def close(self) -> None:
        """End the server and its thread; may be called twice."""
        if not self._thread.is_alive():
            return
        for door in list(self._doors.values()):
            self.shut(door)
        self._uvicorn.should_exit = True
        self._thread.join(_PATIENCE)

    def _ask(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._uvicorn.serve(sockets=[self._listener]))
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
            self._listener.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request with the token of an episode through to it, and no other."""
        headers = dict(scope["headers"])
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        door = self._door(token.strip()) if kind.lower() == "bearer" else None
        if door is None:
            await _refuse(send, 401, "the bearer token of an episode is needed", b"Bearer")
        elif scope["path"] != _PATH:
            await _refuse(send, 404, f"there is only {_PATH}")
        elif scope["method"] != "POST":
            # Nothing is ever sent unasked, so there is no stream to GET and no session to DELETE.
            await _refuse(send, 405, "only POST is served")
        else:
            await door.answer(scope, receive, send)

    def _door(self, token: str) -> Door | None:
        given = token.encode("utf-8")
        found = None
        for known, door in self._doors.items():
            if hmac.compare_digest(known.encode(), given):
                found = door
        return found


async def _refuse(send: Send, status: int, why: str, challenge: bytes | None = None) -> None:
    headers = [(b"content-type", b"application/json")]
    if challenge:
        headers.append((b"www-authenticate", challenge))
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    body = json.dumps({"error": why}).encode()
    await send({"type": "http.response.body", "body": body})
