"""The server that shims ask: a Unix socket for each episode, on one thread of this process.

A connection carries one message and its answer: fields, each after its length (four bytes,
big-endian), up to the end of the stream. The first field is the secret of the episode. Agents may
send anything, from any of their processes, and as often as they like. So there are limits of bytes
and seconds for reading a message, only a limited number is read at a time, and the others wait in
the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from pytest_intercode.system.forks import MakingProcess, close_in_children
from pytest_intercode.system.loop_thread import LoopThread
from pytest_intercode.system.platform import peer_network
from pytest_intercode.system.private_folder import PrivateFolder

__all__ = ["Endpoint", "Handler", "ShimServer", "pack_fields", "unpack_fields"]

__tracebackhide__ = True  # a report shows the line of the test that asked

Handler: TypeAlias = "Callable[[Sequence[bytes]], Awaitable[Sequence[bytes]]]"
"""Returns the answer's fields for a message's, without the secret; no fields for no answer."""

_THREAD = "intercode-shims"
_LENGTH = struct.Struct(">I")
_MAX_MESSAGE = 600 * 1024  # bytes; a shim sends less (shim.pl)
_MAX_FIELDS = 70_000  # a shim sends at most one word for every four bytes
_MAX_EXCHANGES = 16  # of an episode at a time
_MAX_WAITING = 512  # connections that the kernel keeps until it is their turn
_READ_TIMEOUT = 10.0  # seconds for a message to arrive
_WRITE_TIMEOUT = 30.0  # seconds for an answer to be read
_ACCEPT_INTERVAL = 0.1  # seconds until the next try when this process has no descriptor left
_STOP_TIMEOUT = 10.0  # seconds


def pack_fields(fields: Iterable[bytes]) -> bytes:
    """Return a message with these fields."""
    return b"".join(_LENGTH.pack(len(field)) + field for field in fields)


def unpack_fields(message: bytes) -> list[bytes]:
    """Return the fields of a message; none if it is malformed."""
    fields: list[bytes] = []
    start = 0
    while start < len(message):
        if len(message) - start < _LENGTH.size or len(fields) >= _MAX_FIELDS:
            return []
        end = start + _LENGTH.size + _LENGTH.unpack_from(message, start)[0]
        if end > len(message):
            return []
        fields.append(message[start + _LENGTH.size : end])
        start = end
    return fields


class Endpoint:
    """The socket of one episode.

    Args:
        path: its path.
        handle: answers messages, on the server's thread.

    Attributes:
        path: its path.
        secret: the first field of every message.
    """

    def __init__(self, path: Path, handle: Handler) -> None:
        self.path = path
        self.secret = secrets.token_hex(16)
        self._handle = handle
        self._network = 0  # the sandbox's network namespace, once it is known
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.setblocking(False)
            self._listener.bind(os.fspath(path))
            path.chmod(0o666)  # sandboxes have their own accounts
            self._listener.listen(_MAX_WAITING)
        except BaseException:
            self._listener.close()
            raise
        close_in_children(self)

    def close_copies(self) -> None:
        """Close a forked child's copy of the socket."""
        self._listener.close()

    # -- on the server's thread

    async def start(self) -> None:
        """Start to serve."""
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    async def stop(self) -> None:
        """End all exchanges, and stop listening."""
        tasks = [task for task in (self._serving, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        slots = asyncio.Semaphore(_MAX_EXCHANGES)

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            slots.release()

        while True:
            # Before the connection is accepted, so that waiting ones stay in the kernel.
            await slots.acquire()
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:
                slots.release()
                await asyncio.sleep(_ACCEPT_INTERVAL)
                continue
            except BaseException:
                slots.release()
                raise
            task = loop.create_task(self._exchange(connection))
            self._tasks.add(task)
            task.add_done_callback(end)

    async def _exchange(self, connection: socket.socket) -> None:
        """Read a message, and answer it."""
        loop = asyncio.get_running_loop()
        with connection, contextlib.suppress(OSError, asyncio.TimeoutError):
            connection.setblocking(False)
            peer = peer_network(connection)
            if self._network and peer and peer != self._network:
                return  # root in a sandbox may find the sockets of other sandboxes
            message = await asyncio.wait_for(_read(connection), _READ_TIMEOUT)
            secret, *fields = unpack_fields(message) or [b""]
            if not hmac.compare_digest(secret, self.secret.encode()):
                return
            # Only for a peer that knew the secret, so that no other sandbox can be the first.
            self._network = self._network or peer
            answer = await self._handle(fields)
            data = pack_fields(answer)
            await asyncio.wait_for(loop.sock_sendall(connection, data), _WRITE_TIMEOUT)


async def _read(connection: socket.socket) -> bytes:
    """Return what arrives until the end of the stream; nothing if it is too much."""
    loop = asyncio.get_running_loop()
    message = bytearray()
    while data := await loop.sock_recv(connection, 65536):
        message += data
        if len(message) > _MAX_MESSAGE:
            return b""
    return bytes(message)


class ShimServer:
    """Serves the shims of all episodes of one process; its thread runs while any is open.

    It also keeps the folders that their sandboxes see, until :meth:`close`. Sandboxes with the same
    programs see the same folder, so their specs are equal, and a remote engine needs only one copy.

    Attributes:
        process: the process that made it.
    """

    def __init__(self) -> None:
        self.process = MakingProcess("these shims belong")
        self._lock = threading.Lock()
        self._private: PrivateFolder | None = None
        self._sockets: Path | None = None
        self._folders: dict[tuple[tuple[str, bytes], ...], Path] = {}
        self._thread: LoopThread | None = None
        self._endpoints: set[Endpoint] = set()

    @property
    def sockets(self) -> Path:
        """The folder of the sockets; sandboxes see it, and only root can list it."""
        self.process.check()
        with self._lock:
            if self._sockets is None:
                self._sockets = self._make_folder(0o711)
            return self._sockets

    def programs(self, files: Iterable[tuple[str, bytes]]) -> Path:
        """Return a folder with these programs, which are given by their paths in it."""
        self.process.check()
        key = tuple(sorted(files))
        with self._lock:
            if key not in self._folders:
                folder = self._make_folder(0o755)
                for name, content in key:
                    path = folder / name
                    path.parent.mkdir(exist_ok=True)
                    path.parent.chmod(0o755)
                    path.write_bytes(content)
                    path.chmod(0o755)
                self._folders[key] = folder
            return self._folders[key]

    def _make_folder(self, mode: int) -> Path:
        if self._private is None:
            self._private = PrivateFolder()
        folder = self._private.make()
        folder.chmod(mode)
        return folder

    def open(self, handle: Handler) -> Endpoint:
        """Open a socket for an episode.

        Raises:
            OSError: it cannot be made.
        """
        # Before taking the lock, which the property ``sockets`` takes itself.
        endpoint = Endpoint(self.sockets / secrets.token_hex(8), handle)
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread(_THREAD)
            self._endpoints.add(endpoint)
            self._thread.begin(endpoint.start()).result()
        return endpoint

    def end(self, endpoint: Endpoint) -> None:
        """Close the socket of an episode; may be called twice."""
        if not self.process.is_this:
            return
        with self._lock:
            if endpoint not in self._endpoints or self._thread is None:
                return
            self._endpoints.remove(endpoint)
            with contextlib.suppress(Exception):
                self._thread.begin(endpoint.stop()).result(_STOP_TIMEOUT)
            if not self._endpoints:
                self._thread.stop(_STOP_TIMEOUT)
                self._thread = None

    def close(self) -> None:
        """Close all sockets, and remove the folders."""
        if not self.process.is_this:
            return
        for endpoint in list(self._endpoints):
            self.end(endpoint)
        with self._lock:
            if self._private is not None:
                self._private.close()
            self._private = self._sockets = None
            self._folders.clear()
