"""The MySQL engine: assigns servers to sessions.

Sessions that only read share a server for each set of scripts, on which nothing can be changed. A
session that writes has its own server, which is used again only if its binary log shows that
nothing was changed; the server for the next session is started in advance.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from pytest_intercode.core.task import Database, ImageSource, Limits
from pytest_intercode.databases.mysql.server import Mode, MySqlServer
from pytest_intercode.databases.mysql.session import MySqlSession
from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.files import bundled_folder
from pytest_intercode.system.private_folder import PrivateFolder

__all__ = ["MySqlEngine", "image_source"]

_MAX_STOCK = 2  # writing servers that wait for their sessions
_Key = tuple[tuple[Path, ...], Limits]


def image_source(scripts: Sequence[Path]) -> ImageSource:
    """Return the source of the image of a server that has the databases of some scripts."""
    context = tuple(
        (f"scripts/{number:03d}-{script.name}", script) for number, script in enumerate(scripts, 1)
    )
    return ImageSource(bundled_folder("dockerfiles") / "mysql.Dockerfile", context=context)


class MySqlEngine:
    """Opens sessions; each process has one instance.

    Args:
        provider: where images and sandboxes come from.

    Raises:
        InfrastructureError: no folder for sockets can be made.
    """

    def __init__(self, provider: SandboxProvider) -> None:
        self._provider = provider
        self._folder = PrivateFolder()
        self._lock = threading.RLock()
        self._reading: dict[_Key, list[MySqlServer]] = {}
        self._waiting: dict[_Key, deque[Future[MySqlServer]]] = {}
        self._servers: set[MySqlServer] = set()
        self._closed = False

    def session(self, database: Database, *, writes: bool, limits: Limits) -> MySqlSession:
        """Open a session; see :class:`~pytest_intercode.databases.protocol.Engine`."""
        # The limits on an action's output and its processes do not apply to a server.
        server_limits = Limits(memory=limits.memory, cpus=limits.cpus, file_size=limits.file_size)
        key = database.scripts, server_limits
        if writes:
            return MySqlSession(
                partial(self._writer, key), database.name, partial(self._take_back_writer, key)
            )
        return MySqlSession(partial(self._reader, key), database.name, self._take_back_reader)

    # -- sessions that read

    def _reader(self, key: _Key, lost: MySqlServer | None) -> tuple[MySqlServer, str]:
        """Return a server with a free account, and the account."""
        with self._lock:
            servers = self._reading.setdefault(key, [])
            if lost in servers:
                servers.remove(lost)
                self._end(lost)
            idle = sorted(servers, key=lambda server: server.sessions)
            if idle and (idle[0].sessions == 0 or len(servers) >= self._provider.hosts):
                for server in idle:
                    account = server.lease()
                    if account:
                        return server, account
            server = self._start(key, "reading")
            servers.append(server)
            return server, server.lease()

    def _take_back_reader(self, server: MySqlServer, account: str, connections: set[int]) -> None:
        try:
            gone = all(server.wait_for_end(connection) for connection in connections)
        except Exception:
            gone = False
        with self._lock:
            if not gone:
                server.retire()
            server.give_back(account)
            if server.spent:
                for servers in self._reading.values():
                    if server in servers:
                        servers.remove(server)
                self._end(server)

    # -- sessions that write

    def _writer(self, key: _Key, lost: MySqlServer | None) -> tuple[MySqlServer, str]:
        """Return an unchanged server: it was not used, or its use left no trace."""
        if lost is not None:
            raise SandboxError("the MySQL server was lost, and what was written with it")
        with self._lock:
            stock = _MAX_STOCK if key in self._waiting else 1
            waiting = self._waiting.setdefault(key, deque())
            while len(waiting) <= stock:
                waiting.append(self._provider.background(lambda: self._start(key, "writing")))
            future = waiting.popleft()
        server = future.result()
        return server, server.lease()

    def _take_back_writer(
        self, key: _Key, server: MySqlServer, account: str, connections: set[int]
    ) -> None:
        with contextlib.suppress(Exception):
            gone = all(server.wait_for_end(connection) for connection in connections)
            if gone and server.unchanged():
                reusable: Future[MySqlServer] = Future()
                reusable.set_result(server)
                with self._lock:
                    waiting = self._waiting[key]
                    if not self._closed and len(waiting) <= _MAX_STOCK:
                        waiting.appendleft(reusable)
                        return
        self._end(server)

    # -- servers

    def _start(self, key: _Key, mode: Mode) -> MySqlServer:
        scripts, limits = key
        image = self._provider.image(image_source(scripts))
        server = MySqlServer(self._provider, image, limits, mode, self._folder.make())
        with self._lock:
            self._servers.add(server)
            if self._closed:
                self._end(server)
                raise SandboxError("the run is over")
        return server

    def _end(self, server: MySqlServer) -> None:
        with self._lock:
            self._servers.discard(server)
        server.close()

    def close(self) -> None:
        """End every server, and remove the sockets' folder."""
        with self._lock:
            self._closed = True
            servers = list(self._servers)
        for server in servers:
            self._end(server)
        self._folder.close()
