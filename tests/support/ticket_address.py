"""An MCP server with an address, by the SDK: it counts tickets, as ``ticket_server.py`` does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

__all__ = ["serve_tickets"]


@contextlib.contextmanager
def serve_tickets(transport: str) -> Iterator[str]:
    """Serve on this machine by ``http`` or ``sse``; yield the address, as tasks have it."""
    import uvicorn
    from mcp.server.mcpserver import MCPServer

    tickets = MCPServer("tickets")

    @tickets.tool()
    def count_tickets() -> str:
        """Count the open tickets."""
        return "41 tickets"

    app = tickets.sse_app() if transport == "sse" else tickets.streamable_http_app()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            yield f"sse+{address}/sse" if transport == "sse" else f"{address}/mcp"
        finally:
            server.should_exit = True
            thread.join()
