"""MCP servers as suites and tests write them: command lines and addresses."""

from __future__ import annotations

import pytest

from pytest_intercode.core.servers import address_of, check_servers, transport_of


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("http://tickets:8000/mcp", ("http://tickets:8000/mcp", "http")),
        ("https://tickets.example", ("https://tickets.example", "http")),
        ("sse+http://tickets/sse?a=b", ("http://tickets/sse?a=b", "sse")),
        ("http://[::1]:65535/", ("http://[::1]:65535/", "http")),
        ("python3 http://tickets", None),
        ("httpd", None),
    ],
)
def test_an_address_is_told_from_a_command_line(
    server: str, address: tuple[str, str] | None
) -> None:
    assert address_of(server) == address
    assert transport_of(server) == ("stdio" if address is None else address[1])
    assert check_servers({"tickets": server}) == {"tickets": server}


@pytest.mark.parametrize(
    "server",
    [
        *("http://", "http://a b", "http://user:word@tickets", "sse+http:///x", "http://a/#part"),
        *("http://a:b", "http://a:65536", "http://a:0/", "http://[::1/", "http://$(id)/"),
        *("http://[1]/", "http://[:::]/mcp", "http://[1.2.3.4]/"),
    ],
)
def test_what_looks_like_an_address_has_to_be_one(server: str) -> None:
    with pytest.raises(ValueError, match=r"an address must be http://HOST\[:PORT\]\[/PATH\]"):
        check_servers({"tickets": server})
