"""A server beside us with a small repository, which now and then does not answer as it should."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import unquote

from pytest_intercode.suites.upstream import RemoteFile

CONTENT = {
    "data/python/mbpp/ic_mbpp.json": b'[{"query": "q"}]\n' * 20_000,
    "data/ctf/ic_ctf.json": b"[]\n",
    "data/ctf/task_assets/11/run me.sh": b"#!/bin/sh\n",
    "data/ctf/task_assets/12/.placeholder": b"",
}
"""A small repository; what the table of the package says of the real one is not needed here."""


AGAIN = "/again"
"""A path that leads to itself."""


class Server(http.server.ThreadingHTTPServer):
    """Serves a repository, and now and then does not.

    Attributes:
        asked: the paths of all requests.
        faults: called instead of an answer, first come first served.
        always: called instead of every answer.
    """

    daemon_threads = True

    def __init__(self, content: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.asked: list[str] = []
        self.faults: list[Callable[[Handler, bytes], None]] = []
        self.always: Callable[[Handler, bytes], None] | None = None
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path == AGAIN:
            turning(self, b"")
            return
        self.server.asked.append(self.path)
        content = self.server.content.get(unquote(self.path).lstrip("/"), b"")
        if self.server.always is not None:
            self.server.always(self, content or bytes(20_000))
        elif self.server.faults:
            self.server.faults.pop(0)(self, content)
        elif not content:
            self.send_error(404)
        else:
            self.answer(content)

    def answer(self, content: bytes, size: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) if size is None else size))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


def broken_off(handler: Handler, content: bytes) -> None:
    """Send half and hang up."""
    handler.answer(content[: len(content) // 2], len(content))


def hung_up(handler: Handler, content: bytes) -> None:
    """Close the connection without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def busy(handler: Handler, content: bytes) -> None:
    handler.send_error(503)


def too_many(handler: Handler, content: bytes) -> None:
    handler.send_response(429)
    handler.send_header("Retry-After", "1")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def other(handler: Handler, content: bytes) -> None:
    """Send a page, as a network does that wants a login."""
    handler.answer(b"<html>please log in</html>")


def changed(handler: Handler, content: bytes) -> None:
    """Send as much as there is, but for its last byte."""
    handler.answer(content[:-1] + b"?")


def shorter(handler: Handler, content: bytes) -> None:
    """Send less, and call it the whole."""
    handler.answer(content[:-1])


def endless(handler: Handler, content: bytes) -> None:
    """Send the file, and go on."""
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        handler.wfile.write(content)
        while True:
            handler.wfile.write(bytes(65536))


def bomb(handler: Handler, content: bytes) -> None:
    """Send eight megabytes in eight kilobytes, which clients unpack."""
    data = gzip.compress(bytes(8 * 1024**2))
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    with suppress(OSError):
        handler.wfile.write(data)


def stalled(handler: Handler, content: bytes) -> None:
    """Send one byte, then nothing more for as long as the client waits."""
    with suppress(OSError):
        handler.answer(content[:1], len(content))
        handler.connection.recv(1)


def turning(handler: Handler, content: bytes) -> None:
    """Send to another place, which sends to itself."""
    handler.send_response(302)
    handler.send_header("Location", AGAIN)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@contextmanager
def serving(content: Mapping[str, bytes]) -> Iterator[Server]:
    """Run a server on a thread."""
    with Server(content) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def table_of(content: Mapping[str, bytes]) -> tuple[RemoteFile, ...]:
    """Return what the package's table would say of a repository."""
    return tuple(
        RemoteFile(
            path,
            hashlib.sha256(data).hexdigest(),
            len(data),
            0o755 if path.endswith(".sh") else 0o644,
        )
        for path, data in content.items()
    )
