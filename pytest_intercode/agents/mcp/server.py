"""The MCP server, on the official SDK: one event loop on a thread, one HTTP port for all episodes.

Each episode has an endpoint. It is reached over HTTP with its bearer token, or over a Unix socket
in a folder that only this user may open; ``stdio.py`` connects a client's standard streams to that
socket. This module imports the SDK and uvicorn, so it is imported only when an episode is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib.metadata
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import mcp.types as types
import uvicorn
from anyio.from_thread import start_blocking_portal
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pytest_intercode.agents.mcp import texts
from pytest_intercode.agents.mcp.calls import Calls, Reply
from pytest_intercode.agents.texts import (
    describe_answer,
    describe_code,
    describe_execute,
    describe_submit,
)
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.text import replace_surrogates

__all__ = ["Endpoint", "McpServer"]

_HOST = "127.0.0.1"
_PATH = "/mcp"
_SHUTDOWN_TIMEOUT = 10.0  # seconds for the HTTP server to end
_MAX_LINE_BYTES = 16 * 1024 * 1024  # of a message over stdio
_META = "pytest-intercode/result"


class Endpoint:
    """The endpoint at which the client of one episode finds its tools.

    Attributes:
        token: the bearer token; only requests with it reach the episode.
        url: the address of the HTTP server.
        socket: the path of the Unix socket.
        connected: whether a client has connected.
        tools_listed: whether it has asked for the list of tools.
    """

    def __init__(self, tools: Server[Any], url: str, path: Path) -> None:
        self.token = secrets.token_urlsafe(32)
        self.url = url
        self.socket = path
        self.connected = self.tools_listed = False
        self._tools = tools
        port = url.removeprefix(f"http://{_HOST}:").removesuffix(_PATH)
        self._http = StreamableHTTPSessionManager(
            tools,
            stateless=True,
            # Refuse browsers: a web page sends its Origin, and after DNS rebinding also its own
            # name as the Host.
            security_settings=TransportSecuritySettings(
                allowed_hosts=[f"{_HOST}:{port}", f"localhost:{port}"], allowed_origins=[]
            ),
        )
        self._connections: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve clients; close all their connections at the end of the context."""
        async with self._http.run():
            listener = await asyncio.start_unix_server(
                self._connect, path=self.socket, limit=_MAX_LINE_BYTES
            )
            try:
                yield
            finally:
                listener.close()
                for connection in self._connections:
                    connection.cancel()
                await asyncio.gather(*self._connections, return_exceptions=True)

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request that had the token."""
        self.connected = True
        await self._http.handle_request(scope, receive, send)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the Unix socket until it ends."""
        self.connected = True
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        # stdio_server is annotated with files, but uses only these methods of them.
        files = cast("anyio.AsyncFile[str]", _TextStream(reader, writer))
        try:
            async with stdio_server(files, files) as (incoming, outgoing):
                options = self._tools.create_initialization_options()
                await self._tools.run(incoming, outgoing, options)
        except asyncio.CancelledError:
            pass  # the episode is over; asyncio would log a cancelled connection
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _TextStream:
    """A connection as a text file that is read by lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def __aiter__(self) -> AsyncIterator[str]:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the line is too long
            while line := await self._reader.readline():
                yield line.decode("utf-8", "replace")

    async def write(self, text: str) -> None:
        self._writer.write(text.encode("utf-8"))

    async def flush(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            await self._writer.drain()


class McpServer:
    """The event loop and the HTTP server of one pytest process.

    Attributes:
        url: the address of the HTTP server.
    """

    def __init__(self) -> None:
        self._endpoints: dict[str, tuple[Endpoint, AbstractContextManager[None]]] = {}
        # With the protocol given, asyncio disables Nagle's algorithm, which would delay by 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind((_HOST, 0))
        listener.listen()
        self.url = f"http://{_HOST}:{listener.getsockname()[1]}{_PATH}"
        app: ASGIApp = RequireAuthMiddleware(self._handle_request, required_scopes=[])
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                AuthenticationMiddleware(app, BearerAuthBackend(self)),
                interface="asgi3",
                loop="none",
                http="h11",
                ws="none",
                lifespan="off",
                proxy_headers=False,
                log_config=None,  # loggers belong to the user's tests
                timeout_graceful_shutdown=1,
            )
        )
        self._open = ExitStack()
        self._open.callback(listener.close)
        self._portal = self._open.enter_context(start_blocking_portal(name="intercode-mcp"))
        self._serving = self._portal.start_task_soon(lambda: self._uvicorn.serve([listener]))

    def open(
        self, task: TaskView, calls: Calls, turns_left: Callable[[], int], path: Path
    ) -> Endpoint:
        """Serve an episode.

        Args:
            task: its task.
            calls: where the calls of its tools go.
            turns_left: returns how many turns the agent has left.
            path: where to create its Unix socket.
        """

        def note_listing() -> None:
            endpoint.tools_listed = True

        endpoint = Endpoint(_make_tools(task, calls, turns_left, note_listing), self.url, path)
        serving = self._portal.wrap_async_context_manager(endpoint.serve())
        serving.__enter__()
        self._endpoints[endpoint.token] = endpoint, serving
        return endpoint

    def shut(self, endpoint: Endpoint) -> None:
        """End an endpoint and wait until its connections are closed; may be called twice."""
        _, serving = self._endpoints.pop(endpoint.token, (None, None))
        if serving is not None:
            serving.__exit__(None, None, None)

    def close(self) -> None:
        """End the server and its thread; may be called twice."""
        for endpoint, _ in list(self._endpoints.values()):
            self.shut(endpoint)
        self._uvicorn.should_exit = True
        self._serving.result(_SHUTDOWN_TIMEOUT)
        self._open.close()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the access that a bearer token grants; called by the SDK."""
        received = token.strip().encode()
        for endpoint_token in list(self._endpoints):
            if hmac.compare_digest(endpoint_token.encode(), received):
                return AccessToken(token=endpoint_token, client_id=endpoint_token, scopes=[])
        return None

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request with a known token on to its endpoint."""
        endpoint, _ = self._endpoints.get(scope["user"].username, (None, None))
        if scope["path"] != _PATH or endpoint is None:
            response = PlainTextResponse(f"there is only {_PATH}", 404)
        elif scope["method"] != "POST":
            # The server sends only answers: there is no stream to GET and no session to DELETE.
            response = PlainTextResponse("only POST is served", 405, {"allow": "POST"})
        else:
            await endpoint.handle_request(scope, receive, send)
            return
        await response(scope, receive, send)


# -- the tools of an episode


def _make_tools(
    task: TaskView, calls: Calls, turns_left: Callable[[], int], note_listing: Callable[[], None]
) -> Server[Any]:
    """Return the SDK's server of one episode, with the tools ``execute`` and ``submit``."""

    async def on_list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        note_listing()
        return types.ListToolsResult(tools=_list_tools(task, turns_left()))

    async def on_call_tool(
        _context: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return _as_result(await _call_tool(calls, params.name, params.arguments or {}))

    return Server(
        "intercode",
        version=importlib.metadata.version("pytest-intercode"),
        title="pytest-intercode",
        instructions=texts.instructions(task),
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


def _list_tools(task: TaskView, turns_left: int) -> list[types.Tool]:
    # These hints are accurate, as everything happens in a sandbox. For tools with other hints,
    # clients ask their user.
    hints = types.ToolAnnotations(
        read_only_hint=False, destructive_hint=False, open_world_hint=False
    )

    def tool(name: str, description: str, arguments: dict[str, Any], **rules: Any) -> types.Tool:
        schema = {"type": "object", "properties": arguments, **rules, "additionalProperties": False}
        return types.Tool(
            name=name, description=description, input_schema=schema, annotations=hints
        )

    code = {"type": "string", "description": describe_code(task)}
    answer = {"type": "string", "description": describe_answer(task), "default": ""}
    return [
        tool("execute", describe_execute(task, turns_left), {"code": code}, required=["code"]),
        tool("submit", describe_submit(task), {"answer": answer}),
    ]


async def _call_tool(calls: Calls, name: str, arguments: dict[str, Any]) -> Reply:
    tools: dict[str, tuple[Literal["execute", "submit"], str, str | None]] = {
        "execute": ("execute", "code", None),
        "submit": ("submit", "answer", ""),
    }
    if name not in tools:
        return Reply((f"There is no tool {name!r}: there are execute and submit.",), error=True)
    tool, key, default = tools[name]
    unknown = next((argument for argument in arguments if argument != key), None)
    if unknown is not None:
        problem = f"{tool} takes {key} and nothing else; found {unknown!r}. Nothing was run."
        return Reply((problem,), error=True)
    text = arguments.get(key)
    if text is None:
        text = default  # some clients send null instead of omitting an argument
    if not isinstance(text, str):
        displayed = "nothing" if text is None else f"{text!r:.60}"
        problem = f"{tool} takes {key}, a string; found {displayed}. Nothing was run."
        return Reply((problem,), error=True)
    return await calls.ask(tool, text)


def _as_result(reply: Reply) -> types.CallToolResult:
    facts = {
        key: replace_surrogates(value) if isinstance(value, str) else value
        for key, value in reply.facts.items()
    }
    # _meta is not shown to models; structured content would be.
    return types.CallToolResult(
        content=[types.TextContent(text=replace_surrogates(text)) for text in reply.texts],
        is_error=reply.error,
        _meta={_META: facts} if facts else None,
    )
