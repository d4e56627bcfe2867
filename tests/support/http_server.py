"""An HTTP server of a test, on a thread of its own."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TypeVar

__all__ = ["HttpServer"]

ServerType = TypeVar("ServerType", bound="HttpServer")


class HttpServer:
    """The server; it runs between ``with`` and the end of the block.

    Args:
        handler: what answers.
        name: the name of its thread, which tells it from what an agent leaves behind.

    Attributes:
        address: its address, without a path.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler], name: str) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name=name, daemon=True
        )

    def __enter__(self: ServerType) -> ServerType:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
