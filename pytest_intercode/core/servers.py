"""MCP servers of a task, as tests, suites and task folders declare them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv6Address
from typing import NamedTuple

__all__ = ["STDIO", "TRANSPORTS", "ServerAddress", "address_of", "check_servers", "transport_of"]

STDIO = "stdio"
"""The transport of a server that the agent starts."""

TRANSPORTS = frozenset({STDIO, "http", "sse"})
"""The transports of servers: standard streams, MCP's streamable HTTP, or the older SSE."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")  # agents derive the names of tools from it
_IS_ADDRESS = re.compile(r"(?:sse\+)?https?://")
_ADDRESS = re.compile(
    r"(sse\+)?(https?://(?:[\w.-]+|\[([0-9A-Fa-f:.]+)\])(?::(\d{1,5}))?(?:[/?][!-\"$-~]*)?)",
    re.ASCII,
)
_MAX_PORT = 65535


class ServerAddress(NamedTuple):
    """The address of a server that is already running.

    Attributes:
        url: the address, as the agent's sandbox sees it.
        transport: ``http`` or ``sse``.
    """

    url: str
    transport: str


def address_of(server: str) -> ServerAddress | None:
    """Return the address of a server; None for a command line that starts one."""
    match = _ADDRESS.fullmatch(server)
    if match is None or not 0 < int(match[4] or 80) <= _MAX_PORT:
        return None
    try:
        IPv6Address(match[3] or "::1")
    except ValueError:
        return None
    return ServerAddress(match[2], "sse" if match[1] else "http")


def transport_of(server: str) -> str:
    """Return the transport of a server."""
    address = address_of(server)
    return STDIO if address is None else address.transport


def check_servers(servers: object) -> dict[str, str]:
    """Check MCP servers, and return the command line or the address of each, by its name.

    Raises:
        ValueError: they have another form; the message says what is needed.
    """
    if not isinstance(servers, Mapping):
        raise ValueError(
            f"mcp={servers!r:.60}: a mapping from a name to a command line or an address is "
            'needed, as in mcp={"tickets": "python server.py"}'
        )
    for name, server in servers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"mcp={{{name!r:.60}: ...}}: a name has up to 32 letters, digits, - and _, and "
                "begins with a letter or a digit"
            )
        if not isinstance(server, str) or not server.strip() or "\0" in server:
            raise ValueError(
                f"mcp={{{name!r}: {server!r:.60}}}: a command line is needed, for the sandbox's "
                "sh, or an address"
            )
        if _IS_ADDRESS.match(server) and address_of(server) is None:
            raise ValueError(
                f"mcp={{{name!r}: {server!r:.60}}}: an address must be http://HOST[:PORT][/PATH] "
                "or https://..., without user and fragment; sse+http://... for the older transport"
            )
    return dict(servers)
