"""The proxy: a process that connects sandboxes to the hosts that they may reach, and to no others.

There is one for each process that starts sandboxes. It holds the sockets that were opened in the
sandboxes' namespaces, and uses the host's network itself. When its client goes, for whatever
reason, its channel ends, and the proxy ends immediately. If root starts it, it first becomes
nobody; it opens no file and starts no program.

The input from a sandbox was written by an agent. Each sandbox has limits for connections, waiting
bytes, time, lookups and remembered names. Beyond them, that sandbox waits or is refused, and no
other one. A name is resolved once for each connection, its addresses are checked, and the
connection goes to an address that was checked.

Its text, with that of the modules it imports from our package, is given to a Python with nothing
but the standard library. The argument is the descriptor of its channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ipaddress
import os
import resource
import socket
import struct
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

if sys.platform != "linux":
    raise ImportError("networks of sandboxes are limited on Linux only")

from pytest_intercode.core.hosts import Address, AllowedHosts, normal_name
from pytest_intercode.sandboxes.egress.dns import REFUSED, answer
from pytest_intercode.sandboxes.egress.plan import DNS, PROXY, Names
from pytest_intercode.sandboxes.egress.traffic import HttpRequest, authority, parse_request
from pytest_intercode.sandboxes.egress.uplink import (
    BLOCK_SIZE,
    Refused,
    Unreachable,
    Uplink,
    address_of,
    format_target,
    open_streams,
)
from pytest_intercode.sandboxes.messages import receive

__all__ = ["main"]

_MAX_CONNECTIONS = 64  # of one sandbox at a time; others wait
_MAX_REFUSALS = 100  # refusals that are reported for one sandbox between two requests
_MAX_REFUSAL_LENGTH = 280  # characters of a refusal: the longest name, and a reason
_MAX_PACKETS = 2000  # packets that are read in a row, more than the kernel keeps

_REQUEST_TIMEOUT = 30.0  # seconds within which a client of the HTTP proxy has to send its request
_REFUSED_CLIENT_TIMEOUT = 1.0  # seconds for a client to end after it was refused
_ACCEPT_RETRY_INTERVAL = 0.1  # seconds, if no descriptor is free
_MAX_RESOLVER_THREADS = 64
_THREAD_STACK_SIZE = 512 * 1024  # bytes

_NOBODY = 65534
_NO_NEW_PRIVILEGES = 38
_MAX_MEMORY = 2 << 30  # bytes: the sum of the limits of many sandboxes, with room to spare
_RESET = struct.pack("ii", 1, 0)  # for SO_LINGER: end a connection as refused, not as finished
_IP_4 = 0x0800


class Gate:
    """Serves one sandbox.

    Args:
        control: the client closes it when the sandbox ends; a byte on it asks what was refused.
        sockets: the sockets that were opened in the sandbox's namespace.
        hosts: the hosts that the sandbox may reach.
        own_name: the sandbox's own name; looking it up is not reported.
    """

    def __init__(
        self, control: socket.socket, sockets: list[socket.socket], hosts: list[str], own_name: str
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._control = control
        self._sockets = sockets
        self._allowed = AllowedHosts(hosts)
        self._names = Names(self._allowed)
        self._own_names = {"localhost", own_name.lower()}
        self._refused: dict[str, None] = {}
        self._connection_slots = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._uplink = Uplink(self._allowed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._packet_sockets: list[socket.socket] = []

    def begin(self) -> None:
        """Serve until the client closes its end."""
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._answer_client)
        for sock in self._sockets:
            sock.setblocking(False)
            if sock.family == socket.AF_PACKET:
                self._packet_sockets.append(sock)
            elif sock.type == socket.SOCK_DGRAM:
                self._loop.add_reader(sock, self._resolve_for, sock)
            else:
                self._start(self._accept(sock))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the client

    def _answer_client(self) -> None:
        try:
            question = self._control.recv(1)
        except BlockingIOError:
            return
        except OSError:
            question = b""
        if not question:
            self.end()
            return
        self._record_refused_packets()
        report = "\n".join(self._refused).encode()
        self._refused.clear()
        with contextlib.suppress(OSError):
            self._control.send(b"." + report)

    def end(self) -> None:
        """End every connection, and close the sockets."""
        self._loop.remove_reader(self._control)
        for task in list(self._tasks):
            task.cancel()
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self._control.close()

    def _record_refusal(self, refusal: str) -> None:
        """Remember something that was refused; an agent's text is made harmless."""
        if len(self._refused) < _MAX_REFUSALS:
            text = "".join(c if " " <= c <= "~" else "?" for c in refusal[:_MAX_REFUSAL_LENGTH])
            self._refused[text] = None
        elif len(self._refused) == _MAX_REFUSALS:
            self._refused["and more"] = None

    def _record_refused_packets(self) -> None:
        """Note the packets to addresses and ports without a listener, which the kernel refused."""
        for packet_socket in self._packet_sockets:
            for _ in range(_MAX_PACKETS):
                try:
                    packet, sender = packet_socket.recvfrom(128)
                except OSError:
                    break
                address, port, kind = _parse_destination(packet, sender[1] == _IP_4)
                name = self._names.name_of(str(address))
                if name:
                    is_allowed = self._allowed.allows(name, port)
                else:
                    is_allowed = self._allowed.allows_address(address, port)
                if kind == "UDP":
                    self._record_refusal(f"{format_target(name or str(address), port)} (UDP)")
                elif not is_allowed:
                    self._record_refusal(format_target(name or str(address), port))

    # -- names

    def _resolve_for(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            query, client = server.recvfrom(4096)
            response = answer(query, self._lookup)
            if response:
                server.sendto(response, client)

    def _lookup(self, query_name: str) -> str | None:
        name = normal_name(query_name)
        if name and self._allowed.knows(name):
            address = self._names.address_of(name)
            if not address:
                self._record_refusal("too many names")
            return address or REFUSED
        if query_name.lower() not in self._own_names and not query_name.lower().endswith(".arpa"):
            self._record_refusal(query_name)
        return REFUSED

    async def _resolve_for_stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            size = int.from_bytes(
                await asyncio.wait_for(reader.readexactly(2), _REQUEST_TIMEOUT), "big"
            )
            query = await asyncio.wait_for(reader.readexactly(size), _REQUEST_TIMEOUT)
            response = answer(query, self._lookup)
            if not response:
                return
            writer.write(len(response).to_bytes(2, "big") + response)
            await writer.drain()

    # -- connections

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listener)
            except OSError:  # no descriptor is left, or the client has gone
                await asyncio.sleep(_ACCEPT_RETRY_INTERVAL)
                continue
            try:
                # Here and not in `_serve`: while no slot is free, nothing more is accepted, so it
                # waits in the kernel.
                await self._connection_slots.acquire()
            except BaseException:
                connection.close()
                raise
            self._start(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        try:
            address, port = connection.getsockname()[:2]
            reader, writer = await open_streams(connection)
        except OSError:
            connection.close()
            self._connection_slots.release()
            return
        try:
            await self._serve_stream(reader, writer, address, port)
        except Refused as refusal:
            self._record_refusal(str(refusal))
            _reset(connection)
        except (Unreachable, OSError, EOFError, asyncio.TimeoutError):
            _reset(connection)
        finally:
            writer.transport.abort()
            self._connection_slots.release()

    async def _serve_stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, port: int
    ) -> None:
        if (address, port) == DNS:
            await self._resolve_for_stream(reader, writer)
        elif (address, port) == PROXY:
            await self._serve_proxy(reader, writer)
        else:
            name = self._names.name_of(address) or address
            remote = await self._uplink.connect(name, port)
            await self._uplink.relay(reader, writer, remote, name, port)

    async def _serve_proxy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_TIMEOUT)
        except asyncio.LimitOverrunError:
            await _send_error(
                reader, writer, "431 Request Header Fields Too Large", "the head is too long"
            )
            return
        request = parse_request(head)
        if request is None:
            await _send_error(
                reader, writer, "400 Bad Request", "this is not a readable request of HTTP/1"
            )
            return
        try:
            await self._serve_request(request, reader, writer)
        except Refused as refusal:
            self._record_refusal(str(refusal))
            reason = f"{refusal} is refused: this sandbox may reach {self._allowed}"
            await _send_error(reader, writer, "403 Refused by the sandbox's network", reason)
        except Unreachable as problem:
            await _send_error(reader, writer, "502 Bad Gateway", str(problem))

    async def _serve_request(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        target = request.target.decode("latin-1")
        tunnel = request.method == b"CONNECT"
        scheme, separator, rest = ("", "", target) if tunnel else target.partition("://")
        if not tunnel and (not separator or scheme.lower() != "http"):
            problem = "a URL of http:// is needed here; for https:// use CONNECT"
            await _send_error(reader, writer, "400 Bad Request", problem)
            return
        netloc, slash, path = rest.partition("/")
        netloc, question, query = netloc.partition("?")
        host, port = authority(netloc, 0 if tunnel else 80)
        if not host or (tunnel and (slash or question)):
            await _send_error(reader, writer, "400 Bad Request", "the target is not a host")
            return
        name = address_of(host) or normal_name(host)
        if not name:
            raise Refused(format_target(host, port))
        remote = await self._uplink.connect(name, port)
        if tunnel:
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await self._uplink.relay(reader, writer, remote, name, port)
        else:
            path = f"/{path}" if slash else f"/{question}{query}"
            remote[1].write(request.forwarded(path.encode("latin-1"), netloc))
            await self._uplink.relay(reader, writer, remote)


async def _send_error(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: str, reason: str
) -> None:
    body = f"{reason}\n".encode("latin-1", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await asyncio.wait_for(writer.drain(), _REQUEST_TIMEOUT)
    writer.write_eof()
    # Input that is not read yet would reset the connection, and the answer would be lost.
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_read_all(reader), _REFUSED_CLIENT_TIMEOUT)


async def _read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(BLOCK_SIZE):
        pass


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def _parse_destination(packet: bytes, is_ipv4: bool) -> tuple[Address, int, str]:
    """Return the destination of a packet, and its protocol; the kernel made the packet whole."""
    header = (packet[0] & 15) * 4 if is_ipv4 else 40
    address = ipaddress.ip_address(packet[16:20] if is_ipv4 else packet[24:40])
    kind = "UDP" if packet[9 if is_ipv4 else 6] == socket.IPPROTO_UDP else "TCP"
    return address, int.from_bytes(packet[header + 2 : header + 4], "big"), kind


# -- the process


def _give_up_rights() -> None:
    maximum = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (_MAX_MEMORY, _MAX_MEMORY))
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if os.geteuid() == 0:
        # The user comes last, as that user may not change groups any more.
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)


async def _serve(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    finished = loop.create_future()
    threading.stack_size(_THREAD_STACK_SIZE)
    loop.set_default_executor(ThreadPoolExecutor(_MAX_RESOLVER_THREADS))
    channel.setblocking(False)

    def take() -> None:
        try:
            message, descriptors = receive(channel)
        except BlockingIOError:
            return
        except OSError:
            message, descriptors = None, []
        if message is None:
            finished.set_result(None)
            return
        received_sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if (
            len(received_sockets) != message["count"]
        ):  # no descriptor is left, which the client will notice
            for sock in received_sockets:
                sock.close()
            return
        control, *sockets = received_sockets
        Gate(control, sockets, message["hosts"], message["own"]).begin()

    loop.add_reader(channel, take)
    await finished
    os._exit(0)  # threads that resolve names may take a long time


def main() -> None:
    """Serve until the client goes."""
    "x".encode("idna")  # loads a module that could not be read later, without rights
    socket.getaddrinfo("localhost", 1)
    channel = socket.socket(fileno=int(sys.argv[1]))
    _give_up_rights()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(channel))


if __name__ == "__main__":
    main()
