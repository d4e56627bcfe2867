"""A Docker engine that says what it is asked for, and of itself what a test wants.

It is the real engine behind a socket of the tests' own. Each request goes there unchanged; in the
answers to ``/info`` and ``/version`` some facts may be others.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

__all__ = ["ARM64", "RecordingEngine"]

ARM64 = {"Architecture": "aarch64", "Arch": "arm64"}
"""The facts by which an engine is of another processor."""

_MAX_HEAD = 64 * 1024
_FACTS = re.compile(r"(?:/v[\d.]+)?/(?:info|version)")


class RecordingEngine:
    """Serves until it is closed.

    Args:
        path: the socket of the real engine.
        facts: what it says of itself in place of what the real engine says.

    Attributes:
        address: where it is, as ``DOCKER_HOST`` has it.
        requests: what it was asked for: the method and the path, and the parameters by name.
    """

    def __init__(self, path: str, facts: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._facts = facts or {}
        self._folder = tempfile.mkdtemp(prefix="proxy-")  # the paths of sockets are short
        place = Path(self._folder, "socket")
        self.address = f"unix://{place}"
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(place))
        self._socket.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def asked(self, path: str) -> list[dict[str, str]]:
        """Return the parameters of each request for a path, such as ``POST /build``."""
        return [parameters for name, parameters in self.requests if name == path]

    def close(self) -> None:
        """Serve no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        shutil.rmtree(self._folder)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        engine = socket.socket(socket.AF_UNIX)
        with client, engine, contextlib.suppress(OSError):
            engine.connect(self._path)
            head, body = _read_head(client)
            if not head:
                return
            method, target, _ = head.split("\r\n", 1)[0].split(" ")
            parts = urlsplit(target)
            name = re.sub(r"^/v[\d.]+", "", parts.path)
            parameters = {key: values[0] for key, values in parse_qs(parts.query).items()}
            self.requests.append((f"{method} {name}", parameters))
            # One request for each connection, so that all of them are seen.
            if "\r\nupgrade:" not in head.lower():
                head = re.sub(r"(?i)\r\nconnection:[^\r]*", "", head)
                head = head.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
            engine.sendall(head.encode("latin-1") + body)
            if _FACTS.fullmatch(parts.path):
                client.sendall(_with_facts(b"".join(_chunks(engine)), self._facts))
                return
            upwards = threading.Thread(target=_copy, args=(client, engine), daemon=True)
            upwards.start()
            _copy(engine, client)


def _read_head(client: socket.socket) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _MAX_HEAD:
        chunk = client.recv(_MAX_HEAD)
        if not chunk:
            break
        data += chunk
    head, separator, body = data.partition(b"\r\n\r\n")
    return (head + separator).decode("latin-1"), body


def _chunks(source: socket.socket) -> Iterator[bytes]:
    while chunk := source.recv(_MAX_HEAD):
        yield chunk


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for chunk in _chunks(source):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)


def _with_facts(answer: bytes, others: Mapping[str, str]) -> bytes:
    """Return an answer in which facts that are there are others."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        body = _dechunk(body)
    facts = json.loads(body)
    facts |= {name: value for name, value in others.items() if name in facts}
    body = json.dumps(facts).encode()
    lines = [
        line
        for line in head.split(b"\r\n")
        if not line.lower().startswith((b"content-length:", b"transfer-encoding:"))
    ]
    lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _dechunk(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole, body = whole + body[:length], body[length + 2 :]
        if not length:
            break
    return whole
