"""What a connection begins with: TLS made by a real client, requests of HTTP, and neither."""

from __future__ import annotations

import random
import ssl

import pytest

from pytest_intercode.sandboxes.egress.traffic import (
    MORE,
    authority,
    detect_protocol,
    parse_request,
    server_name,
)


def hello(name: str | None) -> bytes:
    """Return what Python's own TLS says first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def in_records(data: bytes, size: int) -> bytes:
    """Cut a hello into records of a size."""
    body = data[5:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(data[:3] + len(part).to_bytes(2, "big") + part for part in parts)


def test_the_name_in_tls() -> None:
    assert server_name(hello("pypi.org")) == "pypi.org"
    assert server_name(hello(None)) == ""


@pytest.mark.parametrize("size", [1, 5, 100, 16384])
def test_a_hello_in_pieces(size: int) -> None:
    data = in_records(hello("pypi.org"), size)
    assert server_name(data) == "pypi.org"
    for end in range(0, len(data), 7):
        assert server_name(data[:end]) is MORE


def test_a_hello_that_is_none() -> None:
    data = hello("pypi.org")
    empty = data[:3] + b"\0\0" + data
    alert = data[:3] + b"\0\1" + data[5:6] + b"\x15\3\1\0\2\1\0"
    for bad in (empty, alert, data[:5] + b"\x02" + data[6:]):
        with pytest.raises(ValueError, match=r"."):
            server_name(bad)
    assert data.count(b"pypi.org") == 1
    chance = random.Random(1)
    for _ in range(2000):  # nothing else is ever raised
        mangled = bytearray(data)
        for _ in range(3):
            mangled[chance.randrange(5, len(data))] = chance.randrange(256)
        try:
            name = server_name(bytes(mangled))
        except ValueError:
            continue
        assert name is MORE or isinstance(name, str)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x16\x03\x01", "tls"),
        (b"G", MORE),
        (b"GET", MORE),
        (b"GET /", MORE),
        (b"GET / HTTP/1.1\r\n", "http"),
        (b"PROPFIND / HTTP/1.0\r\nA: b", "http"),
        (b"GET / HTTP/1.1\nHost: a", "http"),
        (b"\r\n\r\nGET / HTTP/1.1\r\n", "http"),
        (b"get\t/  HTTP/1.2 \n", "http"),
        (b"MKCOL / HTTP/1.1\r\n", "http"),
        (b"\r\n", MORE),
        (b"GET " + b"a" * 9000, MORE),
        (b"GET / HTTP/2.0\r\n", "other"),
        (b"GET /\r\n", "other"),
        (b"OPTIONS rtsp://a.test RTSP/1.0\r\n", "other"),
        (b"AMQP\0\0\t\1", "other"),
        (b"EHLO me\r\n", "other"),
        (b"SSH-2.0-x\r\n", "other"),
        (b"\0\0\0\x08", "other"),
    ],
)
def test_detect_protocol(data: bytes, kind: str | None) -> None:
    assert detect_protocol(data) == kind


def test_a_request_that_is_sent_on() -> None:
    head = (
        b"GET http://a.test/x HTTP/1.1\r\nHost: evil.test\r\nProxy-Connection: keep-alive\r\n"
        b"Connection: X-Own, content-length\r\nX-Own: 1\r\nContent-Length: 3\r\nAccept: */*\r\n"
        b"Upgrade: h2c\r\nProxy-Authorization: secret\r\n\r\n"
    )
    request = parse_request(head)
    assert request is not None
    assert request.host() == "evil.test"
    assert request.forwarded(b"/x", "a.test") == (
        b"GET /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nAccept: */*\r\n"
        b"Connection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        b"GET /\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\nHost: c\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\rHost: c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_request_that_can_be_read_in_two_ways(head: bytes) -> None:
    assert parse_request(head) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.test:80", ("a.test", 80)),
        ("a.test", ("a.test", 443)),
        ("[::1]:80", ("::1", 80)),
        ("[::1]", ("::1", 443)),
        ("::1", ("", 0)),
        ("::1:80", ("", 0)),
        ("a.test:", ("", 0)),
        ("a.test:0", ("", 0)),
        ("a.test:99999", ("", 0)),
        ("a.test:\uff18\uff10", ("", 0)),
        ("me@a.test:80", ("", 0)),
        ("[a.test:80", ("", 0)),
        ("", ("", 443)),
    ],
)
def test_host_and_port(text: str, found: tuple[str, int]) -> None:
    assert authority(text, 443) == found
