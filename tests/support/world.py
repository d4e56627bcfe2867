"""A network of the tests' own: two namespaces, one with us and one with servers, and its own DNS.

What is made by a thread that has entered our side is there: sockets, processes, threads. The real
network is neither needed nor reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

__all__ = ["GOOD", "METADATA", "OTHER", "PRIVATE", "SIX", "World", "made_world", "obstacle"]

GOOD, OTHER = "93.184.216.34", "93.184.216.35"
"""Public addresses; who serves there is one of ours."""
PRIVATE, METADATA = "10.66.0.5", "169.254.169.254"
SIX = "2a00:1450::34"

_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_QUESTION = 12

Result = TypeVar("Result")


@cache
def obstacle() -> str:
    """Return why there can be no such network here, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces of our own need root"
    for program in ("ip", "openssl", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode:
        return "network namespaces cannot be made here"
    if not _nameserver():
        return "no name server in /etc/resolv.conf"
    return ""


def _nameserver() -> str:
    with contextlib.suppress(OSError):
        match = re.search(r"^nameserver\s+([0-9.]+)", Path("/etc/resolv.conf").read_text(), re.M)
        return match[1] if match else ""
    return ""


def _call(name: str, *arguments: int) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


class _Namespace:
    """A network namespace, and a thread that lives in it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(_call, "unshare", _NEWNET).result()
        self.descriptor = self.do(lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY))

    def do(self, work: Callable[[], Result]) -> Result:
        return self._thread.submit(work).result()

    def ip(self, *words: str) -> None:
        for word in words:
            self.do(lambda word=word: subprocess.run(["ip", *word.split()], check=True))  # type: ignore[misc]

    def close(self) -> None:
        self._thread.shutdown()
        os.close(self.descriptor)


class World:
    """The network, with what its servers saw.

    Attributes:
        names: what names resolve to: addresses, one answer after the other; the last one stays.
        asked: the names that were asked for outside of a sandbox, IPv4 only.
        met: the addresses and ports that were connected to.
    """

    def __init__(self) -> None:
        self.names: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []
        self.met: list[tuple[str, int]] = []
        self._ours, self._theirs = _Namespace(), _Namespace()
        self._servers: list[socketserver.BaseServer] = []
        holder = self._theirs.do(lambda: subprocess.Popen(["sleep", "60"]))
        try:
            self._ours.ip(
                "link set lo up",
                f"link add ours type veth peer name theirs netns {holder.pid}",
                "addr add 10.77.0.1/24 dev ours",
                "addr add 2a00:1450:77::1/64 dev ours nodad",
                "link set ours up",
            )
        finally:
            holder.kill()
            holder.wait()
        self._theirs.ip(
            "link set lo up",
            "addr add 10.77.0.2/24 dev theirs",
            "addr add 2a00:1450:77::2/64 dev theirs nodad",
            "link set theirs up",
            *(f"addr add {address}/32 dev lo" for address in (GOOD, OTHER, PRIVATE, METADATA)),
            f"addr add {SIX}/128 dev lo nodad",
        )
        self._ours.ip("route add default via 10.77.0.2", "route add default via 2a00:1450:77::2")
        server = _nameserver()
        if not server.startswith("127."):
            self._ours.ip(f"addr add {server}/32 dev lo")
        self._ours.do(lambda: self._serve(_Names, server, 53, socketserver.ThreadingUDPServer))

    def serve(self, handler: type[socketserver.BaseRequestHandler], port: int) -> None:
        """Serve a port of all addresses of the other side."""
        self._theirs.do(lambda: self._serve(handler, "::", port, _Server))

    def serve_here(
        self, handler: type[socketserver.BaseRequestHandler], address: str, port: int
    ) -> None:
        """Serve a port of our own side."""
        self._ours.do(lambda: self._serve(handler, address, port, _Server4))

    def _serve(
        self,
        handler: type[socketserver.BaseRequestHandler],
        address: str,
        port: int,
        kind: type[socketserver.BaseServer],
    ) -> None:
        server = kind((address, port), handler)
        server.world = self  # type: ignore[attr-defined]
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be on our side; with this thread, and what it starts."""
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _call("setns", self._ours.descriptor, _NEWNET)
            yield
        finally:
            _call("setns", namespace, _NEWNET)
            os.close(namespace)

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._ours.close()
        self._theirs.close()


class _Server(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 256

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Server4(socketserver.ThreadingTCPServer):
    daemon_threads = True


class _Names(socketserver.BaseRequestHandler):
    """The name server outside."""

    server: socketserver.ThreadingUDPServer

    def handle(self) -> None:
        world: World = self.server.world  # type: ignore[attr-defined]
        query, back = self.request
        labels, offset = [], _QUESTION
        while query[offset]:
            labels.append(query[offset + 1 : offset + 1 + query[offset]].decode())
            offset += 1 + query[offset]
        name, question = ".".join(labels).lower(), query[_QUESTION : offset + 5]
        (kind,) = struct.unpack_from("!H", query, offset + 1)
        answers = b""
        count = 0
        addresses = world.names.get(name)
        if kind == 1:
            world.asked.append(name)
        for address in addresses[0] if addresses else []:
            six = ":" in address
            if kind == (28 if six else 1):
                packed = socket.inet_pton(socket.AF_INET6 if six else socket.AF_INET, address)
                answers += struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(packed)) + packed
                count += 1
        if addresses and kind == 28 and len(addresses) > 1:  # asked for last
            addresses.pop(0)
        code = 0x8180 if addresses else 0x8183
        header = query[:2] + struct.pack("!5H", code, 1, count, 0, 0)
        back.sendto(header + question + answers, self.client_address)


class _Met(socketserver.StreamRequestHandler):
    server: socketserver.ThreadingTCPServer

    def setup(self) -> None:
        address = str(self.request.getsockname()[0]).removeprefix("::ffff:")
        self.place = (address, int(self.request.getsockname()[1]))
        world: World = self.server.world  # type: ignore[attr-defined]
        world.met.append(self.place)
        super().setup()


class Http(_Met):
    """Says who it is and what it was asked; ``/to/URL`` redirects, ``/big/N`` sends N bytes."""

    def handle(self) -> None:
        while True:
            line = self.rfile.readline(65536).decode("latin-1").split()
            if len(line) < 3:
                return
            fields = {}
            while field := self.rfile.readline(65536).decode("latin-1").strip():
                name, _, value = field.partition(":")
                fields[name.lower()] = value.strip()
            body = self.rfile.read(int(fields.get("content-length", 0)))
            status, location = "200 OK", ""
            text = f"{self.place[0]}:{self.place[1]} {line[0]} {line[1]} for {fields.get('host')}"
            text += f" with {len(body)} bytes\n"
            if line[1].startswith("/to/"):
                status, location = "302 Found", f"Location: {line[1][4:]}\r\n"
            if line[1].startswith("/big/"):
                text = "x" * int(line[1][5:])
            head = f"HTTP/1.1 {status}\r\n{location}Content-Length: {len(text)}\r\n\r\n"
            self.wfile.write((head + text).encode())
            if fields.get("connection", "").lower() == "close":
                return


class Echo(_Met):
    """Speaks first, and then says every line twice."""

    def handle(self) -> None:
        self.wfile.write(b"hello\n")
        for line in self.rfile:
            self.wfile.write(line.strip() + line)


class Tls(Http):
    """The same as :class:`Http`, over TLS."""

    context: ssl.SSLContext

    def handle(self) -> None:
        with (
            contextlib.suppress(OSError),
            self.context.wrap_socket(self.request, server_side=True) as tls,
            tls.makefile("rb", -1) as self.rfile,
            tls.makefile("wb", 0) as self.wfile,  # type: ignore[assignment]
        ):
            super().handle()


def _certificate(context: ssl.SSLContext) -> None:
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = f"{folder}/key", f"{folder}/made"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        words += [
            "-nodes",
            "-keyout",
            key,
            "-out",
            certificate,
            "-subj",
            "/CN=good.test",
            "-days",
            "2",
        ]
        subprocess.run(words, check=True, capture_output=True)
        context.load_cert_chain(certificate, key)


@contextlib.contextmanager
def made_world() -> Iterator[World]:
    """Make the network, with web servers (80, 443, 8080) and one that speaks first (22).

    The last is also on our own side, on port 9999 of loopback.
    """
    world = World()
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _certificate(context)
        world.serve(Http, 80)
        world.serve(Http, 8080)
        world.serve(Echo, 22)
        world.serve_here(Echo, "127.0.0.1", 9999)
        world.serve(type("Tls", (Tls,), {"context": context}), 443)
        yield world
    finally:
        world.close()
