"""The first bytes of a connection: the host that a client names in them.

This is pure code: its input was written by an agent. Its text runs in the proxy, so it imports only
the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["MORE", "HttpRequest", "authority", "detect_protocol", "parse_request", "server_name"]

MORE = None
"""The result if more bytes are needed."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
# The beginning of a request for the most lenient server: any method, even after empty lines.
_BEGINNING = re.compile(rb"\s*(?:%b+(?:[^\S\n][^\n]*)?)?" % _TOKEN)
_FIRST_LINE = re.compile(rb"\s*%b+[^\S\n][^\n]*HTTP/1[^\n]*\n" % _TOKEN)
_REQUEST_LINE = re.compile(rb"([A-Z-]{3,16}) (\S{1,8000}) HTTP/1\.([01])")
_FIELD = re.compile(rb"(%b{1,256}):[ \t]*([^\r\n\0]*?)[ \t]*" % _TOKEN)
_PORT = re.compile(r"[0-9]{1,5}")
# For one connection only, or for a proxy (RFC 9110, 7.6.1).
_CONNECTION_FIELDS = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
    *(b"proxy-connection", b"te", b"upgrade", b"http2-settings"),
}

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


class HttpRequest:
    """The head of a request of HTTP/1.

    Attributes:
        method: the method.
        target: the target of the request.
        fields: names and values, in order.
    """

    def __init__(self, method: bytes, target: bytes, fields: list[tuple[bytes, bytes]]) -> None:
        self.method = method
        self.target = target
        self.fields = fields

    def host(self) -> str:
        """Return the value of its one Host field; empty without one, or with several."""
        hosts = [value for name, value in self.fields if name.lower() == b"host"]
        return hosts[0].decode("latin-1") if len(hosts) == 1 else ""

    def forwarded(self, target: bytes, host: str) -> bytes:
        """Return the head that is sent on: for this host, and without a second request."""
        connection_fields = {
            word.strip().lower()
            for name, value in self.fields
            if name.lower() == b"connection"
            for word in value.split(b",")
        }
        dropped = (
            _CONNECTION_FIELDS
            | (connection_fields - {b"content-length", b"transfer-encoding"})
            | {b"host"}
        )
        fields = [(name, value) for name, value in self.fields if name.lower() not in dropped]
        lines = [b"%b %b HTTP/1.1" % (self.method, target), b"Host: " + host.encode("latin-1")]
        lines += [b"%b: %b" % field for field in fields]
        return b"\r\n".join([*lines, b"Connection: close", b"", b""])


def parse_request(head: bytes) -> HttpRequest | None:
    """Return a request's head, which ends with an empty line; None if it is not valid.

    A head that servers could read in two ways is not valid.
    """
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    fields = [_FIELD.fullmatch(line) for line in lines]
    if match is None or not all(fields):
        return None
    pairs = [(field[1], field[2]) for field in fields if field is not None]
    names = [name.lower() for name, _ in pairs]
    lengths = names.count(b"content-length") + names.count(b"transfer-encoding")
    if lengths > 1 or names.count(b"host") > 1:
        return None
    return HttpRequest(match[1], match[2], pairs)


def authority(text: str, port: int) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[address]:port``; an empty host for neither."""
    host, colon, port_text = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, port_text = text, str(port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if any(character in host for character in "[]@/") or (":" in host and not text.startswith("[")):
        return "", 0
    if not _PORT.fullmatch(port_text) or not 0 < int(port_text) < 65536:
        return "", 0
    return host, int(port_text)


def detect_protocol(data: bytes) -> str | None:
    """Return the protocol of a connection: ``tls``, ``http`` or ``other``; or :data:`MORE`.

    Args:
        data: its first bytes, at least one.
    """
    if data[0] == _HANDSHAKE:
        return "tls"
    if _FIRST_LINE.match(data):
        return "http"
    return MORE if _BEGINNING.fullmatch(data) else "other"


def server_name(data: bytes) -> str | None:
    """Return the server name in a TLS hello; empty for none, :data:`MORE` if it may follow.

    Raises:
        ValueError: the hello cannot be read.
    """
    hello = bytearray()
    offset = 0
    while True:
        if len(data) < offset + 5:
            return MORE
        if data[offset] != _HANDSHAKE:
            raise ValueError("the hello is cut by something else")
        size = int.from_bytes(data[offset + 3 : offset + 5], "big")
        if size == 0:
            raise ValueError("an empty record")
        hello += data[offset + 5 : offset + 5 + size]
        if len(data) < offset + 5 + size:
            return MORE
        offset += 5 + size
        if len(hello) >= 4:
            if hello[0] != _CLIENT_HELLO:
                raise ValueError("not a hello")
            whole = 4 + int.from_bytes(hello[1:4], "big")
            if len(hello) >= whole:
                return _read_server_name(_Reader(bytes(hello[4:whole])))


class _Reader:
    """Takes fields of a known size from bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        """Return the next bytes; raise ValueError if there are fewer."""
        if size > len(self.data):
            raise ValueError("a field is longer than what it is in")
        content, self.data = self.data[:size], self.data[size:]
        return content

    def vector(self, width: int) -> _Reader:
        """Return the next field, which is preceded by its length."""
        return _Reader(self.take(int.from_bytes(self.take(width), "big")))


def _read_server_name(hello: _Reader) -> str:
    hello.take(2 + 32)  # the version and a random number
    for width in (1, 2, 1):  # the session, ciphers, compressions
        hello.vector(width)
    if not hello.data:
        return ""
    names = [
        name
        for kind, content in _read_extensions(hello.vector(2))
        if kind == _SERVER_NAME
        for name in _read_names(content.vector(2))
    ]
    if len(names) > 1:
        raise ValueError("two names")
    return names[0] if names else ""


def _read_extensions(reader: _Reader) -> Iterator[tuple[int, _Reader]]:
    while reader.data:
        kind = int.from_bytes(reader.take(2), "big")
        yield kind, reader.vector(2)


def _read_names(reader: _Reader) -> Iterator[str]:
    while reader.data:
        kind = reader.take(1)[0]
        name = reader.vector(2)
        if kind == _HOST_NAME:
            yield name.data.decode("latin-1")
