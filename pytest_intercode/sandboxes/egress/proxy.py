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
    first_words,
    parse_request,
    server_name,
)
from pytest_intercode.sandboxes.messages import receive

__all__ = ["main"]

_CONNECTIONS = 64  # of one sandbox at a time; others wait
_LOOKUPS = 4  # of one sandbox at a time, as each takes a thread
_BLOCK = 64 * 1024  # bytes of one direction of a connection that are read ahead
_HEAD = 32 * 1024  # bytes in which a client has to say whom it means
_FIRST_LINE = 8 * 1024
_WINDOW = 1 << 20  # bytes that a side may send before they are read
_REMEMBERED = 100  # things refused that are told of, of one sandbox between two questions
_SHOWN = 280  # characters of each: the longest name, and a reason
_AT_ONCE = 2000  # packets looked at in a row, more than the kernel keeps

_CONNECTING = 15.0  # seconds for all addresses of a name
_SPEAKING = 30.0  # seconds in which a client of the HTTP proxy has to say what it wants
_IDLE = 300.0  # seconds without a byte after which a connection is ended
_CLOSING = 30.0  # the same where one side has ended
_FAREWELL = 1.0  # seconds for a client to end after it was refused
_PAUSE = 0.1
_RESOLVERS = 64  # threads
_STACK = 512 * 1024

_NOBODY = 65534
_NO_NEW_PRIVILEGES = 38
_MEMORY = 2 << 30  # bytes: what the limits of many sandboxes come to, with room to spare
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
        own: the sandbox's own name, which it may look for without a word.
    """

    def __init__(
        self, control: socket.socket, sockets: list[socket.socket], hosts: list[str], own: str
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._control = control
        self._sockets = sockets
        self._allowed = AllowedHosts(hosts)
        self._names = Names(self._allowed)
        self._own = {"localhost", own.lower()}
        self._refused: dict[str, None] = {}
        self._free = asyncio.Semaphore(_CONNECTIONS)
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._seeing: list[socket.socket] = []

    def begin(self) -> None:
        """Serve until the client closes its end."""
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._asked)
        for each in self._sockets:
            each.setblocking(False)
            if each.family == socket.AF_PACKET:
                self._seeing.append(each)
            elif each.type == socket.SOCK_DGRAM:
                self._loop.add_reader(each, self._resolve_for, each)
            else:
                self._start(self._accept(each))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the client

    def _asked(self) -> None:
        try:
            question = self._control.recv(1)
        except BlockingIOError:
            return
        except OSError:
            question = b""
        if not question:
            self.end()
            return
        self._look()
        told = "\n".join(self._refused).encode()
        self._refused.clear()
        with contextlib.suppress(OSError):
            self._control.send(b"." + told)

    def end(self) -> None:
        """End every connection, and let go of the sockets."""
        self._loop.remove_reader(self._control)
        for task in list(self._tasks):
            task.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._control.close()

    def _note(self, what: str) -> None:
        """Remember something that was refused; what was written by an agent is made harmless."""
        if len(self._refused) < _REMEMBERED:
            shown = "".join(each if " " <= each <= "~" else "?" for each in what[:_SHOWN])
            self._refused[shown] = None
        elif len(self._refused) == _REMEMBERED:
            self._refused["and more"] = None

    def _look(self) -> None:
        """Note the packets to addresses and ports that are nobody's; the kernel refused them."""
        for seeing in self._seeing:
            for _ in range(_AT_ONCE):
                try:
                    packet, about = seeing.recvfrom(128)
                except OSError:
                    break
                address, port, kind = _destination(packet, about[1] == _IP_4)
                name = self._names.name_of(str(address))
                if name:
                    allowed = self._allowed.allows(name, port)
                else:
                    allowed = self._allowed.allows_address(address, port)
                if kind == "UDP":
                    self._note(f"{_shown(name or str(address), port)} (UDP)")
                elif not allowed:
                    self._note(_shown(name or str(address), port))

    # -- names

    def _resolve_for(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            query, client = server.recvfrom(4096)
            said = answer(query, self._lookup)
            if said:
                server.sendto(said, client)

    def _lookup(self, written: str) -> str | None:
        name = normal_name(written)
        if name and self._allowed.knows(name):
            address = self._names.address_of(name)
            if not address:
                self._note("too many names")
            return address or REFUSED
        if written.lower() not in self._own and not written.lower().endswith(".arpa"):
            self._note(written)
        return REFUSED

    async def _resolve_for_stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            size = int.from_bytes(await asyncio.wait_for(reader.readexactly(2), _SPEAKING), "big")
            query = await asyncio.wait_for(reader.readexactly(size), _SPEAKING)
            said = answer(query, self._lookup)
            if not said:
                return
            writer.write(len(said).to_bytes(2, "big") + said)
            await writer.drain()

    # -- connections

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listener)
            except OSError:  # no descriptor is left, or the client was faster
                await asyncio.sleep(_PAUSE)
                continue
            try:
                await self._free.acquire()
            except BaseException:
                connection.close()
                raise
            self._start(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        try:
            address, port = connection.getsockname()[:2]
            reader, writer = await _streams(connection)
        except OSError:
            connection.close()
            self._free.release()
            return
        try:
            await self._serve_stream(reader, writer, address, port)
        except Refused as refusal:
            self._note(str(refusal))
            _reset(connection)
        except (Unreachable, OSError, EOFError, asyncio.TimeoutError):
            _reset(connection)
        finally:
            writer.transport.abort()
            self._free.release()

    async def _serve_stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, port: int
    ) -> None:
        if (address, port) == DNS:
            await self._resolve_for_stream(reader, writer)
        elif (address, port) == PROXY:
            await self._serve_proxy(reader, writer)
        else:
            name = self._names.name_of(address) or address
            there = await self._connect(name, port)
            await self._relay(reader, writer, there, name, port)

    async def _serve_proxy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _SPEAKING)
        except asyncio.LimitOverrunError:
            await _say(
                reader, writer, "431 Request Header Fields Too Large", "the head is too long"
            )
            return
        request = parse_request(head)
        if request is None:
            await _say(
                reader, writer, "400 Bad Request", "this is no request of HTTP/1 that can be read"
            )
            return
        try:
            await self._serve_request(request, reader, writer)
        except Refused as refusal:
            self._note(str(refusal))
            why = f"{refusal} is refused: this sandbox may reach {self._allowed}"
            await _say(reader, writer, "403 Refused by the sandbox's network", why)
        except Unreachable as problem:
            await _say(reader, writer, "502 Bad Gateway", str(problem))

    async def _serve_request(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        target = request.target.decode("latin-1")
        tunnel = request.method == b"CONNECT"
        scheme, found, rest = ("", "", target) if tunnel else target.partition("://")
        if not tunnel and (not found or scheme.lower() != "http"):
            problem = "a URL of http:// is needed here; for https:// use CONNECT"
            await _say(reader, writer, "400 Bad Request", problem)
            return
        place, slash, path = rest.partition("/")
        place, question, query = place.partition("?")
        host, port = authority(place, 0 if tunnel else 80)
        if not host or (tunnel and (slash or question)):
            await _say(reader, writer, "400 Bad Request", "the target is no host")
            return
        name = _address_of(host) or normal_name(host)
        if not name:
            raise Refused(_shown(host, port))
        there = await self._connect(name, port)
        if tunnel:
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await self._relay(reader, writer, there, name, port)
        else:
            path = f"/{path}" if slash else f"/{question}{query}"
            there[1].write(request.forwarded(path.encode("latin-1"), place))
            await self._relay(reader, writer, there)

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
                raise Refused(_shown(name, port))
            places = [literal]
        else:
            if not self._allowed.allows(name, port):
                raise Refused(_shown(name, port))
            places = await self._checked_addresses(name, port)
        until = self._loop.time() + _CONNECTING
        problem = "there is no address"
        for number, place in enumerate(places):
            left = max(0.1, (until - self._loop.time()) / (len(places) - number))
            try:
                return await asyncio.wait_for(_open(place, port), left)
            except asyncio.TimeoutError:
                problem = "no answer"
            except OSError as error:
                problem = error.strerror or str(error)
        raise Unreachable(f"{_shown(name, port)} cannot be reached: {problem}")

    async def _checked_addresses(self, name: str, port: int) -> list[str]:
        """Resolve a name, once; return those of its addresses that may be reached."""
        await self._lookups.acquire()
        work = self._loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        lookup = self._loop.create_task(work)
        lookup.add_done_callback(lambda _: self._lookups.release())  # its thread goes on till then
        try:
            found = await asyncio.wait_for(asyncio.shield(lookup), _CONNECTING)
        except asyncio.TimeoutError:
            raise Unreachable(f"{name} has no address: no answer") from None
        except OSError as error:
            raise Unreachable(f"{name} has no address: {error.strerror}") from None
        addresses = list(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found))
        good = [each for each in addresses if self._may_reach(each, port)]
        if addresses and not good:
            why = f"its address {addresses[0]} is no public one, and is not allowed itself"
            raise Refused(f"{_shown(name, port)} ({why})")
        return good[:8]

    def _may_reach(self, written: str, port: int) -> bool:
        address = ipaddress.ip_address(written)
        if self._allowed.allows_address(address, port):
            return True
        return is_public(address) and not _is_of_this_machine(written)

    # -- what is carried

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        name: str = "",
        port: int = 0,
    ) -> None:
        """Carry bytes both ways until both sides have ended.

        With a name, what the client says of whom it means has to be that, or allowed as well.
        """
        their_reader, their_writer = there
        active = _Activity()
        try:
            downward = self._loop.create_task(_carry(their_reader, writer, active))
            upward = self._loop.create_task(
                self._carry_checked(reader, their_writer, active, name, port)
            )
            both = {downward, upward}
            try:
                while both:
                    limit = active.limit()
                    done, both = await asyncio.wait(
                        both, timeout=limit, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        task.result()
                        active.closing = True
                    if not done and active.limit() <= 0:
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
        active: _Activity,
        name: str,
        port: int,
    ) -> None:
        if name and not _address_of(name):
            writer.write(await self._checked_words(reader, name, port))
            active.touch()
        await _carry(reader, writer, active)

    async def _checked_words(self, reader: asyncio.StreamReader, name: str, port: int) -> bytes:
        """Return what a client says first, as it may be sent on."""
        data = await reader.read(_BLOCK)
        while data:
            kind = first_words(data, _FIRST_LINE)
            said: str | None = MORE
            if kind == "other":
                return data
            if kind == "tls":
                try:
                    said = server_name(data)
                except ValueError:
                    raise Refused(f"{_shown(name, port)} (its TLS cannot be read)") from None
                if said is not MORE:
                    self._check_meant(said or name, name, port, "TLS")
                    return data
            elif kind == "http" and b"\r\n\r\n" in data:
                head, end, body = data.partition(b"\r\n\r\n")
                request = parse_request(head + end)
                if request is None or request.target[:1] not in b"/*":
                    raise Refused(f"{_shown(name, port)} (its HTTP cannot be read)")
                host = request.host()
                self._check_meant(authority(host, port)[0] or name, name, port, "HTTP")
                return request.forwarded(request.target, host or name) + body
            if len(data) > _HEAD:
                raise Refused(f"{_shown(name, port)} (it does not say whom it means)")
            more = await reader.read(_BLOCK)
            if not more:
                break
            data += more
        return data

    def _check_meant(self, meant: str, name: str, port: int, how: str) -> None:
        """See that a host that is meant within a connection may be reached as well."""
        host = normal_name(meant)
        if host != name and not (host and self._allowed.allows(host, port)):
            raise Refused(f"{_shown(meant, port)} ({how} on a connection to {_shown(name, port)})")


class _Activity:
    """When bytes were carried last."""

    def __init__(self) -> None:
        self.closing = False
        self._last = time.monotonic()

    def touch(self) -> None:
        """Note that some were carried now."""
        self._last = time.monotonic()

    def limit(self) -> float:
        """Return the seconds that are left."""
        return self._last + (_CLOSING if self.closing else _IDLE) - time.monotonic()


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, active: _Activity
) -> None:
    """Carry bytes one way; what cannot be written yet keeps more from being read."""
    while True:
        data = await reader.read(_BLOCK)
        if not data:
            break
        writer.write(data)
        active.touch()
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _open(place: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an address."""
    loop = asyncio.get_running_loop()
    made = socket.socket(socket.AF_INET6 if ":" in place else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        await loop.sock_connect(made, (place, port))
        return await _streams(made)
    except BaseException:
        made.close()
        raise


async def _streams(made: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection as streams; a ``drain`` waits until everything is with the kernel."""
    # The kernel keeps bytes as well, which count for nobody.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, _WINDOW)
    made.setsockopt(socket.IPPROTO_TCP, _UNSENT_BYTES, _BLOCK)
    reader, writer = await asyncio.open_connection(sock=made, limit=_HEAD)
    writer.transport.set_write_buffer_limits(0)
    return reader, writer


async def _say(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: str, why: str
) -> None:
    body = f"{why}\n".encode("latin-1", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await asyncio.wait_for(writer.drain(), _SPEAKING)
    writer.write_eof()
    # What is not read yet would reset the connection, and what was said would be lost.
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_read_all(reader), _FAREWELL)


async def _read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(_BLOCK):
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


def _shown(name: str, port: int) -> str:
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _destination(packet: bytes, four: bool) -> tuple[Address, int, str]:
    """Return where a packet goes, and its protocol; it is whole, as the kernel has made it."""
    header = (packet[0] & 15) * 4 if four else 40
    address = ipaddress.ip_address(packet[16:20] if four else packet[24:40])
    kind = "UDP" if packet[9 if four else 6] == socket.IPPROTO_UDP else "TCP"
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
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)


async def _serve(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    threading.stack_size(_STACK)
    loop.set_default_executor(ThreadPoolExecutor(_RESOLVERS))
    channel.setblocking(False)

    def take() -> None:
        try:
            message, descriptors = receive(channel)
        except BlockingIOError:
            return
        except OSError:
            message, descriptors = None, []
        if message is None:
            over.set_result(None)
            return
        made = [socket.socket(fileno=each) for each in descriptors]
        if len(made) != message["count"]:  # no descriptor is left; the client hears of it
            for each in made:
                each.close()
            return
        control, *sockets = made
        Gate(control, sockets, message["hosts"], message["own"]).begin()

    loop.add_reader(channel, take)
    await over
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
