"""The server of shims, and what anybody may send to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence

import pytest

from pytest_intercode.projects import shim_server
from pytest_intercode.projects.shim_server import (
    Endpoint,
    ShimServer,
    pack_fields,
    unpack_fields,
)


async def echo(fields: Sequence[bytes]) -> Sequence[bytes]:
    return fields


@pytest.fixture
def server() -> Iterator[ShimServer]:
    with contextlib.closing(ShimServer()) as server:
        yield server


def send(endpoint: Endpoint, message: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
        client.settimeout(20)
        client.connect(str(endpoint.path))
        with contextlib.suppress(OSError):
            client.sendall(message)
            client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))
    return b""


def ask(endpoint: Endpoint, *fields: bytes) -> list[bytes]:
    return unpack_fields(send(endpoint, pack_fields([endpoint.secret.encode(), *fields])))


def test_fields_come_back_as_they_are() -> None:
    fields = [b"", b"a", bytes(range(256)), b"x" * 70_000]
    assert unpack_fields(pack_fields(fields)) == fields
    assert unpack_fields(b"") == []


@pytest.mark.parametrize(
    "message",
    [
        b"\0",
        b"\0\0\0\1",
        b"\xff\xff\xff\xff",
        pack_fields([b"a"]) + b"\0\0",
        pack_fields([b""] * 70_001),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["short", "empty", "long", "more", "many", "http"],
)
def test_rubbish_is_not_a_message(message: bytes) -> None:
    assert unpack_fields(message) == []


def test_rubbish_ends_its_own_connection_alone(server: ShimServer) -> None:
    endpoint = server.open(echo)
    secret = endpoint.secret.encode()
    too_long = pack_fields([secret, b"x" * shim_server._MAX_MESSAGE])
    for message in (b"", b"\0", os.urandom(5000), pack_fields([b"wrong", b"a"]), too_long):
        assert send(endpoint, message) == b""
    assert ask(endpoint, b"a", b"b") == [b"a", b"b"]


def test_an_episode_takes_no_message_with_the_secret_of_another(server: ShimServer) -> None:
    first, second = server.open(echo), server.open(echo)
    assert send(second, pack_fields([first.secret.encode(), b"a"])) == b""
    assert ask(second, b"b") == [b"b"]


def test_those_that_say_nothing_do_not_stay(
    server: ShimServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_server, "_READ_TIMEOUT", 0.2)
    endpoint = server.open(echo)
    with contextlib.ExitStack() as stack:
        for _ in range(3 * shim_server._MAX_EXCHANGES):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(endpoint.path))
            client.send(struct.pack(">I", 1000))
        assert ask(endpoint, b"a") == [b"a"]


def test_a_handler_that_waits_ends_with_its_episode(server: ShimServer) -> None:
    waiting = threading.Event()

    async def wait(fields: Sequence[bytes]) -> Sequence[bytes]:
        waiting.set()
        await asyncio.sleep(3600)
        return fields

    endpoint, other = server.open(wait), server.open(echo)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(endpoint.path))
        client.sendall(pack_fields([endpoint.secret.encode()]))
        client.shutdown(socket.SHUT_WR)
        assert waiting.wait(20)
        assert ask(other, b"a") == [b"a"]
        server.end(endpoint)
        assert client.recv(1) == b""
    assert not endpoint.path.exists()
    server.end(endpoint)


def test_the_thread_runs_while_an_episode_does(server: ShimServer) -> None:
    def runs() -> bool:
        return any(thread.name == shim_server._THREAD for thread in threading.enumerate())

    assert not runs()
    first, second = server.open(echo), server.open(echo)
    server.end(first)
    assert runs()
    server.end(second)
    assert not runs()
    assert ask(server.open(echo), b"a") == [b"a"]
    folder = server.sockets
    server.close()
    assert not runs()
    assert not folder.exists()
