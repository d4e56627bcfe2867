"""The connections from a sandbox to the hosts that it may reach, and the data on them.

The input from a sandbox was written by an agent. A name is resolved once for each connection, its
addresses are checked, and the connection goes to an address that was checked.

The text of this module runs in the proxy, so it imports only the standard library and modules whose
text is there, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
import sys
import time

if sys.platform != "linux":
    raise ImportError("networks of sandboxes are limited on Linux only")

from pytest_intercode.core.hosts import AllowedHosts, is_public, normal_name
from pytest_intercode.sandboxes.egress.traffic import (
    MORE,
    authority,
    detect_protocol,
    parse_request,
    server_name,
)

__all__ = [
    "BLOCK_SIZE",
    "Refused",
    "Unreachable",
    "Uplink",
    "address_of",
    "format_target",
    "open_streams",
]

BLOCK_SIZE = 64 * 1024
"""Bytes that are read ahead in one direction of a connection."""

_MAX_LOOKUPS = 4  # of one sandbox at a time, as each uses a thread
_MAX_HEAD = 32 * 1024  # bytes within which a client has to name the host
_WINDOW_SIZE = 1 << 20  # bytes that a side may send before they are read
_CONNECT_TIMEOUT = 15.0  # seconds for all addresses of a name
_IDLE_TIMEOUT = 300.0  # seconds without data after which a connection is ended
_CLOSING_TIMEOUT = 30.0  # the same, if one side has ended
_UNSENT_BYTES = 25  # TCP_NOTSENT_LOWAT
_HEAD_END = re.compile(rb"\n\r?\n")  # as lenient servers recognize it


class Refused(Exception):
    """A sandbox may not reach something; the text describes what, and why."""


class Unreachable(Exception):
    """An allowed host that cannot be reached now."""


class _Activity:
    """The time when bytes were last carried."""

    def __init__(self) -> None:
        self.closing = False
        self._last = time.monotonic()

    def touch(self) -> None:
        """Note that bytes were carried now."""
        self._last = time.monotonic()

    def limit(self) -> float:
        """Return the remaining seconds."""
        return self._last + (_CLOSING_TIMEOUT if self.closing else _IDLE_TIMEOUT) - time.monotonic()


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, activity: _Activity
) -> None:
    """Carry bytes in one direction; read no more while some cannot be written yet."""
    while True:
        data = await reader.read(BLOCK_SIZE)
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
        return await open_streams(sock)
    except BaseException:
        sock.close()
        raise


async def open_streams(sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection as streams; ``drain`` waits until the kernel has everything."""
    # The kernel stores bytes as well, which no limit of ours counts.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, _WINDOW_SIZE)
    sock.setsockopt(socket.IPPROTO_TCP, _UNSENT_BYTES, BLOCK_SIZE)
    reader, writer = await asyncio.open_connection(sock=sock, limit=_MAX_HEAD)
    writer.transport.set_write_buffer_limits(0)
    return reader, writer


def address_of(name: str) -> str:
    """Return an address in its canonical form; empty for a name."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return ""


def format_target(name: str, port: int) -> str:
    """Return a name or an address with its port, for messages."""
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _is_of_this_machine(address: str) -> bool:
    """Whether an address is one of this host's; connecting a UDP socket sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0]).partition("%")[0] == address
    return False


class Uplink:
    """Connects one sandbox to the hosts that it may reach, and carries the data of both sides.

    Args:
        allowed: the hosts that it may reach.
    """

    def __init__(self, allowed: AllowedHosts) -> None:
        self._loop = asyncio.get_running_loop()
        self._allowed = allowed
        self._lookup_slots = asyncio.Semaphore(_MAX_LOOKUPS)

    async def connect(
        self, name: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of a name or an address, if it may be reached.

        Raises:
            Refused: it may not be reached.
            Unreachable: no connection can be made.
        """
        literal = address_of(name)
        if literal:
            if not self._allowed.allows_address(ipaddress.ip_address(literal), port):
                raise Refused(format_target(name, port))
            addresses = [literal]
        else:
            if not self._allowed.allows(name, port):
                raise Refused(format_target(name, port))
            addresses = await self._resolve_allowed(name, port)
        deadline = self._loop.time() + _CONNECT_TIMEOUT
        problem = "there is no address"
        for number, address in enumerate(addresses):
            # Use an equal part of the remaining time, so that an address that never answers leaves
            # time for the others.
            timeout = max(0.1, (deadline - self._loop.time()) / (len(addresses) - number))
            try:
                return await asyncio.wait_for(_connect_to(address, port), timeout)
            except asyncio.TimeoutError:
                problem = "no answer"
            except OSError as error:
                problem = error.strerror or str(error)
        raise Unreachable(f"{format_target(name, port)} cannot be reached: {problem}")

    async def _resolve_allowed(self, name: str, port: int) -> list[str]:
        """Resolve a name, once; return those addresses that may be reached."""
        await self._lookup_slots.acquire()
        work = self._loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        lookup = self._loop.create_task(work)
        # Its thread keeps running until then.
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
            raise Refused(f"{format_target(name, port)} ({reason})")
        return good[:8]

    def _may_reach(self, literal: str, port: int) -> bool:
        address = ipaddress.ip_address(literal)
        if self._allowed.allows_address(address, port):
            return True
        return is_public(address) and not _is_of_this_machine(literal)

    async def relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        remote: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        name: str = "",
        port: int = 0,
    ) -> None:
        """Carry bytes in both directions until both sides have ended.

        If a name is given, a host that the client names in its data must be the same, or allowed.
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
                    # Check again, as bytes may have been carried since the limit was read.
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
        if name and not address_of(name):
            writer.write(await self._read_checked_head(reader, name, port))
            activity.touch()
        await _carry(reader, writer, activity)

    async def _read_checked_head(self, reader: asyncio.StreamReader, name: str, port: int) -> bytes:
        """Return the first data of a client, in the form in which it may be sent on."""
        data = await reader.read(BLOCK_SIZE)
        while data:
            kind = detect_protocol(data)
            hostname: str | None = MORE
            if kind == "other":
                return data
            if kind == "tls":
                try:
                    hostname = server_name(data)
                except ValueError:
                    raise Refused(f"{format_target(name, port)} (its TLS cannot be read)") from None
                if hostname is not MORE:
                    self._check_hostname(hostname or name, name, port, "TLS")
                    return data
            elif kind == "http" and (end := _HEAD_END.search(data)):
                head, body = data[: end.end()], data[end.end() :]
                request = parse_request(head)
                if request is None or request.target[:1] not in b"/*":
                    raise Refused(f"{format_target(name, port)} (its HTTP cannot be read)")
                host = request.host()
                self._check_hostname(authority(host, port)[0] or name, name, port, "HTTP")
                return request.forwarded(request.target, host or name) + body
            is_too_long = len(data) > _MAX_HEAD
            block = b"" if is_too_long else await reader.read(BLOCK_SIZE)
            if is_too_long or not (block or kind is MORE):
                raise Refused(f"{format_target(name, port)} (it does not say whom it means)")
            if not block:
                break
            data += block
        return data

    def _check_hostname(self, hostname: str, name: str, port: int, protocol: str) -> None:
        """Check that a host that is named within a connection may be reached as well."""
        host = normal_name(hostname)
        if host != name and not (host and self._allowed.allows(host, port)):
            target = format_target(name, port)
            raise Refused(
                f"{format_target(hostname, port)} ({protocol} on a connection to {target})"
            )
