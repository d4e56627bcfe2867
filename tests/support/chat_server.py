"""A real HTTP server on loopback that speaks the chat completions API with scripted answers.

::

    script = ["ls", Reply(status=429, headers={"Retry-After": "0"}), calls(("submit", {}))]
    with ChatServer(script) as server:
        ...  # base_url=server.url
    server.requests[0].body["messages"]

A script is a list, one answer to each request in order, or a callable that is given the request.
An answer is a text or a :class:`Reply`. When a list is over, further requests are refused with
status 400, which no client tries again.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

__all__ = ["ChatServer", "Reply", "Request", "Script", "calls", "warm_up"]


@dataclass(frozen=True)
class Request:
    """One request as the server got it; the names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def last(self) -> str:
        """The content of the last message."""
        return str(self.body["messages"][-1]["content"])


@dataclass(frozen=True)
class Reply:
    """One answer.

    Attributes:
        text: the message's content; None for a message that has none.
        calls: tool calls as (name, arguments); arguments that are a str go out as they are.
        usage: input and output tokens; None for a server that reports none.
        status: an error when it is not 200.
        body: the whole body in place of a message; a str goes out as it is.
        headers: further headers.
        stall: send nothing more, before the ``headers`` or in the middle of the ``body``, until
            either side closes the connection.
        drop: close the connection, before the ``headers`` or in the middle of the ``body``.
        finish_reason: as the API has it.
    """

    text: str | None = None
    calls: Sequence[tuple[str, Any]] = ()
    usage: tuple[int, int] | None = (100, 10)
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    stall: Literal["", "headers", "body"] = ""
    drop: Literal["", "headers", "body"] = ""
    finish_reason: str = "stop"


Script = Sequence["str | Reply"] | Callable[[Request], "str | Reply"]


def calls(*wanted: tuple[str, Any], text: str | None = None, **more: Any) -> Reply:
    """Return an answer with tool calls, each a name and its arguments."""
    return Reply(text=text, calls=wanted, finish_reason="tool_calls", **more)


class ChatServer:
    """The server; it runs between ``with`` and the end of the block.

    Attributes:
        url: the base URL that a client is given, with ``/v1``.
        requests: what was asked so far.
        stalled: is set when an answer has stalled.
        left: is set when a client has gone away from a stalled answer.
    """

    def __init__(self, script: Script) -> None:
        self.requests: list[Request] = []
        self.stalled = threading.Event()
        self.left = threading.Event()
        self._script = script
        self._lock = threading.Lock()
        self._number = 0
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(0.02,),
            name="intercode-chat-server",
            daemon=True,
        )
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def answer(self, request: Request) -> Reply:
        """Return what the script says to a request."""
        with self._lock:
            self.requests.append(request)
            self._number += 1
            number = self._number
        if callable(self._script):
            try:
                reply = self._script(request)
            except Exception as error:
                reply = Reply(status=400, body=_error(f"the script raised {error!r}", "script"))
        elif number > len(self._script):
            reply = Reply(status=400, body=_error("the script of the test is over", "script"))
        else:
            reply = self._script[number - 1]
        return Reply(text=reply) if isinstance(reply, str) else reply


class _Server(ThreadingHTTPServer):
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()
        self._connections: list[threading.Thread] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        # As one of ours by name, or it is taken for what an agent leaves behind.
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="intercode-chat-server",
            daemon=True,
        )
        self._connections.append(thread)
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away

    def hang_up(self) -> None:
        """End all connections that are still open, and wait for their threads."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it ended by itself
        for thread in self._connections:
            thread.join()


def _handler(chat: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one piece: nobody waits for a delayed acknowledgement

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.path, headers, json.loads(data))
            if self.path != "/v1/chat/completions":
                self._send(Reply(status=404, body=_error(f"no {self.path} here", "not_found")))
                return
            self._send(chat.answer(request), request.body.get("model"))

        def _send(self, reply: Reply, model: str | None = None) -> None:
            body = reply.body if reply.body is not None else _completion(reply, model)
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            if reply.stall == "headers":
                return self._stall()
            if reply.drop == "headers":
                return self._drop()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if reply.stall or reply.drop:
                self.wfile.write(data[: len(data) // 2])
                self.wfile.flush()
                return self._stall() if reply.stall else self._drop()
            self.wfile.write(data)
            return None

        def _stall(self) -> None:
            self.close_connection = True
            chat.stalled.set()
            try:
                self.connection.recv(1)  # until either side hangs up
            except OSError:
                pass
            chat.left.set()

        def _drop(self) -> None:
            self.close_connection = True
            # To linger for 0 s is to reset the connection.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _completion(reply: Reply, model: str | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for number, (name, arguments) in enumerate(reply.calls, 1)
        ]
    completion: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
    }
    if reply.usage is not None:
        input_tokens, output_tokens = reply.usage
        completion["usage"] = {
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        }
    return completion


def warm_up() -> None:
    """Import all that a request imports.

    What a run of pytester imports first is forgotten after it, and a half of a library that does
    not know the other half's exceptions is left. So a test with runs inside its own process, and
    with a chat agent in them, calls this before.
    """
    from pytest_intercode.agents.chat.arguments import ChatArguments
    from pytest_intercode.agents.chat.client import Caller, ChatClient

    with ChatServer([""]) as server:
        client = ChatClient(ChatArguments("any", base_url=server.url))
        Caller(client).ask({"messages": []})
        client.close()


def _error(message: str, kind: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}
