"""The proxy: a process that connects sandboxes to the hosts that they may reach, and to no other.

One for each process that starts sandboxes. It holds the sockets that were opened in the sandboxes'
namespaces, and has the host's network itself. When its client goes, however it goes, its channel
ends, and it ends at once. Started by root it becomes nobody first; it opens no file and starts no
program.

What a sandbox sends is an agent's. For each sandbox there are limits of connections, bytes that
wait, time, lookups and names that are remembered; beyond them a sandbox waits or is refused, and no
other one is. A name is resolved once for each connection, the addresses are checked, and the
connection goes to an address that was checked.

Its text, with that of the modules it imports from our package, is given to a Python with nothing
but the standard library; its argument is the descriptor of its channel.
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
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pytest_intercode.core.hosts import Address, AllowedHosts, is_public, normal_name
from pytest_intercode.sandboxes.egress.dns import REFUSED, answer
from pytest_intercode.sandboxes.egress.plan import DNS, PROXY, Names
from pytest_intercode.sandboxes.egress.traffic import (
    MORE,
    HttpRequest,
    authority,
    detect_protocol,
    parse_request,
    server_name,
)
from pytest_intercode.sandboxes.messages import receive

__all__ = ["main"]

_MAX_CONNECTIONS = 64  # of one sandbox at a time; others wait
_MAX_LOOKUPS = 4  # of one sandbox at a time, as each takes a thread
_BLOCK_SIZE = 64 * 1024  # bytes of one direction of a connection that are read ahead
_MAX_HEAD = 32 * 1024  # bytes in which a client has to say whom it means
_MAX_FIRST_LINE = 8 * 1024  # bytes
_WINDOW_SIZE = 1 << 20  # bytes that a side may send before they are read
_MAX_REFUSALS = 100  # refusals that are reported of one sandbox between two questions
_MAX_REFUSAL_LENGTH = 280  # characters of each: the longest name, and a reason
_MAX_PACKETS = 2000  # packets looked at in a row, more than the kernel keeps

_CONNECT_TIMEOUT = 15.0  # seconds for all addresses of a name
_REQUEST_TIMEOUT = 30.0  # seconds in which a client of the HTTP proxy has to say what it wants
_IDLE_TIMEOUT = 300.0  # seconds without a byte after which a connection is ended
_CLOSING_TIMEOUT = 30.0  # the same where one side has ended
_REFUSED_CLIENT_TIMEOUT = 1.0  # seconds for a client to end after it was refused
_ACCEPT_RETRY_INTERVAL = 0.1  # seconds, where no descriptor is free
_MAX_RESOLVER_THREADS = 64
_THREAD_STACK_SIZE = 512 * 1024  # bytes

_NOBODY = 65534
_NO_NEW_PRIVILEGES = 38
_MAX_MEMORY = 2 << 30  # bytes: what the limits of many sandboxes come to, with room to spare
_RESET = struct.pack("ii", 1, 0)  # for SO_LINGER: end a connection as refused, not as finished
_IP_4 = 0x0800
_UNSENT_BYTES = 25  # TCP_NOTSENT_LOWAT


class Refused(Exception):
    """Something that a sandbox may not reach; the text says what, and why."""


class Unreachable(Exception):
    """An allowed host that cannot be reached now."""


class Gate:
    """Serves one sandbox.

    Args:
        control: closed by the client when the sandbox ends; a byte on it asks what was refused.
        sockets: what was opened in the sandbox's namespace.
        hosts: what it may reach.
        own_name: the sandbox's own name, which it may look for without a word.
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
        self._lookup_slots = asyncio.Semaphore(_MAX_LOOKUPS)
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
        """End every connection, and let go of the sockets."""
        self._loop.remove_reader(self._control)
        for task in list(self._tasks):
            task.cancel()
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self._control.close()

    def _record_refusal(self, refusal: str) -> None:
        """Remember something that was refused; what an agent wrote is made harmless."""
        if len(self._refused) < _MAX_REFUSALS:
            text = "".join(c if " " <= c <= "~" else "?" for c in refusal[:_MAX_REFUSAL_LENGTH])
            self._refused[text] = None
        elif len(self._refused) == _MAX_REFUSALS:
            self._refused["and more"] = None

    def _record_refused_packets(self) -> None:
        """Note the packets to addresses and ports that are nobody's; the kernel refused them."""
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
                    self._record_refusal(f"{_format_target(name or str(address), port)} (UDP)")
                elif not is_allowed:
                    self._record_refusal(_format_target(name or str(address), port))

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
            except OSError:  # no descriptor is left, or the client was faster
                await asyncio.sleep(_ACCEPT_RETRY_INTERVAL)
                continue
            try:
                await self._connection_slots.acquire()
            except BaseException:
                connection.close()
                raise
            self._start(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        try:
            address, port = connection.getsockname()[:2]
            reader, writer = await _open_streams(connection)
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
            remote = await self._connect(name, port)
            await self._relay(reader, writer, remote, name, port)

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
        name = _address_of(host) or normal_name(host)
        if not name:
            raise Refused(_format_target(host, port))
        remote = await self._connect(name, port)
        if tunnel:
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await self._relay(reader, writer, remote, name, port)
        else:
            path = f"/{path}" if slash else f"/{question}{query}"
            remote[1].write(request.forwarded(path.encode("latin-1"), netloc))
            await self._relay(reader, writer, remote)

    # -- the way out

    async def _connect(
        self, name: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of a name or an address, if it may be reached.

        Raises:
            Refused: it may not.
            Unreachable: there is no connection.
        """
        literal = _address_of(name)
        if literal:
            if not self._allowed.allows_address(ipaddress.ip_address(literal), port):
                raise Refused(_format_target(name, port))
            addresses = [literal]
        else:
            if not self._allowed.allows(name, port):
                raise Refused(_format_target(name, port))
            addresses = await self._resolve_allowed(name, port)
        deadline = self._loop.time() + _CONNECT_TIMEOUT
        problem = "there is no address"
        for number, address in enumerate(addresses):
            timeout = max(0.1, (deadline - self._loop.time()) / (len(addresses) - number))
            try:
                return await asyncio.wait_for(_connect_to(address, port), timeout)
            except asyncio.TimeoutError:
                problem = "no answer"
            except OSError as error:
                problem = error.strerror or str(error)
        raise Unreachable(f"{_format_target(name, port)} cannot be reached: {problem}")

    async def _resolve_allowed(self, name: str, port: int) -> list[str]:
        """Resolve a name, once; return those of its addresses that may be reached."""
        await self._lookup_slots.acquire()
        work = self._loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        lookup = self._loop.create_task(work)
        # Its thread goes on till then.
        lookup.add_done_callback(lambda _: self._lookup_slots.release())
        try:
            address_infos = await asyncio.wait_for(asyncio.shield(lookup), _CONNECT_TIMEOUT)
        except asyncio.TimeoutError:
            raise Unreachable(f"{name} has no address: no answer") from None
        except OSError as error:
            raise Unreachable(f"{name} has no address: {error.strerror}") from None
        addresses = list(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in address_infos))
        good = [address for address in addresses if self._may_reach(address, port)]
        if addresses and not good:
            reason = f"its address {addresses[0]} is not public, and is not allowed itself"
            raise Refused(f"{_format_target(name, port)} ({reason})")
        return good[:8]

    def _may_reach(self, literal: str, port: int) -> bool:
        address = ipaddress.ip_address(literal)
        if self._allowed.allows_address(address, port):
            return True
        return is_public(address) and not _is_of_this_machine(literal)

    # -- what is carried

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        remote: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        name: str = "",
        port: int = 0,
    ) -> None:
        """Carry bytes both ways until both sides have ended.

        With a name, what the client says of whom it means has to be that, or allowed as well.
        """
        their_reader, their_writer = remote
        activity = _Activity()
        try:
            downward = self._loop.create_task(_carry(their_reader, writer, activity))
            upward = self._loop.create_task(
                self._carry_checked(reader, their_writer, activity, name, port)
            )
            pending = {downward, upward}
            try:
                while pending:
                    limit = activity.limit()
                    finished, pending = await asyncio.wait(
                        pending, timeout=limit, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in finished:
                        task.result()
                        activity.closing = True
                    if not finished and activity.limit() <= 0:
                        raise asyncio.TimeoutError
            finally:
                for task in (downward, upward):
                    task.cancel()
                await asyncio.gather(downward, upward, return_exceptions=True)
        finally:
            their_writer.transport.abort()

    async def _carry_checked(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        activity: _Activity,
        name: str,
        port: int,
    ) -> None:
        if name and not _address_of(name):
            writer.write(await self._read_checked_head(reader, name, port))
            activity.touch()
        await _carry(reader, writer, activity)

    async def _read_checked_head(self, reader: asyncio.StreamReader, name: str, port: int) -> bytes:
        """Return what a client says first, as it may be sent on."""
        data = await reader.read(_BLOCK_SIZE)
        while data:
            kind = detect_protocol(data, _MAX_FIRST_LINE)
            hostname: str | None = MORE
            if kind == "other":
                return data
            if kind == "tls":
                try:
                    hostname = server_name(data)
                except ValueError:
                    raise Refused(
                        f"{_format_target(name, port)} (its TLS cannot be read)"
                    ) from None
                if hostname is not MORE:
                    self._check_hostname(hostname or name, name, port, "TLS")
                    return data
            elif kind == "http" and b"\r\n\r\n" in data:
                head, end, body = data.partition(b"\r\n\r\n")
                request = parse_request(head + end)
                if request is None or request.target[:1] not in b"/*":
                    raise Refused(f"{_format_target(name, port)} (its HTTP cannot be read)")
                host = request.host()
                self._check_hostname(authority(host, port)[0] or name, name, port, "HTTP")
                return request.forwarded(request.target, host or name) + body
            if len(data) > _MAX_HEAD:
                raise Refused(f"{_format_target(name, port)} (it does not say whom it means)")
            block = await reader.read(_BLOCK_SIZE)
            if not block:
                break
            data += block
        return data

    def _check_hostname(self, hostname: str, name: str, port: int, protocol: str) -> None:
        """See that a host that is meant within a connection may be reached as well."""
        host = normal_name(hostname)
        if host != name and not (host and self._allowed.allows(host, port)):
            target = _format_target(name, port)
            raise Refused(
                f"{_format_target(hostname, port)} ({protocol} on a connection to {target})"
            )


class _Activity:
    """When bytes were carried last."""

    def __init__(self) -> None:
        self.closing = False
        self._last = time.monotonic()

    def touch(self) -> None:
        """Note that some were carried now."""
        self._last = time.monotonic()

    def limit(self) -> float:
        """Return the remaining seconds."""
        return self._last + (_CLOSING_TIMEOUT if self.closing else _IDLE_TIMEOUT) - time.monotonic()


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, activity: _Activity
) -> None:
    """Carry bytes one way; what cannot be written yet keeps more from being read."""
    while True:
        data = await reader.read(_BLOCK_SIZE)
        if not data:
            break
        writer.write(data)
        activity.touch()
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _connect_to(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an address."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, (address, port))
        return await _open_streams(sock)
    except BaseException:
        sock.close()
        raise


async def _open_streams(sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection as streams; a ``drain`` waits until everything is with the kernel."""
    # The kernel keeps bytes as well, which count for nobody.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, _WINDOW_SIZE)
    sock.setsockopt(socket.IPPROTO_TCP, _UNSENT_BYTES, _BLOCK_SIZE)
    reader, writer = await asyncio.open_connection(sock=sock, limit=_MAX_HEAD)
    writer.transport.set_write_buffer_limits(0)
    return reader, writer


async def _send_error(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: str, reason: str
) -> None:
    body = f"{reason}\n".encode("latin-1", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await asyncio.wait_for(writer.drain(), _REQUEST_TIMEOUT)
    writer.write_eof()
    # What is not read yet would reset the connection, and what was said would be lost.
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_read_all(reader), _REFUSED_CLIENT_TIMEOUT)


async def _read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(_BLOCK_SIZE):
        pass


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def _address_of(name: str) -> str:
    """Return an address in its one form; empty for a name."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return ""


def _format_target(name: str, port: int) -> str:
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _parse_destination(packet: bytes, is_ipv4: bool) -> tuple[Address, int, str]:
    """Return where a packet goes, and its protocol; it is whole, as the kernel has made it."""
    header = (packet[0] & 15) * 4 if is_ipv4 else 40
    address = ipaddress.ip_address(packet[16:20] if is_ipv4 else packet[24:40])
    kind = "UDP" if packet[9 if is_ipv4 else 6] == socket.IPPROTO_UDP else "TCP"
    return address, int.from_bytes(packet[header + 2 : header + 4], "big"), kind


def _is_of_this_machine(address: str) -> bool:
    """Whether an address is one of the host's own; connecting a UDP socket sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0]).partition("%")[0] == address
    return False


# -- the process


def _give_up_rights() -> None:
    maximum = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (_MAX_MEMORY, _MAX_MEMORY))
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if os.geteuid() == 0:
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
        ):  # no descriptor is left; the client hears of it
            for sock in received_sockets:
                sock.close()
            return
        control, *sockets = received_sockets
        Gate(control, sockets, message["hosts"], message["own"]).begin()

    loop.add_reader(channel, take)
    await finished
    os._exit(0)  # threads that resolve names may take long


def main() -> None:
    """Serve until the client goes."""
    "x".encode("idna")  # loads what else would be looked for without the right to
    socket.getaddrinfo("localhost", 1)
    channel = socket.socket(fileno=int(sys.argv[1]))
    _give_up_rights()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(channel))


if __name__ == "__main__":
    main()
