"""One MySQL server in a sandbox of its own, reached through a socket in a shared folder.

The sandbox does not have a network. Its keeper ends it when this process ends in any way.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from pytest_intercode.core.task import Limits
from pytest_intercode.databases.mysql.wire import FAILURES, Watch, connect
from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["Mode", "MySqlServer"]

Mode = Literal["reading", "writing"]

_MAX_SESSIONS = 200  # of a reading server; each one has its own account (see load.sh)
_INSIDE = "/run/intercode"
_SOCKET = "mysql.sock"
_LOG = "/srv/intercode/error.log"
_START = (
    # A server that died leaves its socket behind.
    "rm -f {inside}/{socket}*; "
    "setsid bash /opt/intercode/serve.sh {mode} </dev/null >>{log} 2>&1 & "
    "echo $! >/srv/intercode/started"
)
_RUNS = 'kill -0 "$(cat /srv/intercode/started)"'
_THREADS = 100  # of the server itself
_MEMORY = 1024**3  # bytes; a row of 60 MB takes half of that in addition to the server's own
_START_TIMEOUT = 60.0  # seconds for a server to accept connections
_ADMIN_TIMEOUT = 30.0  # seconds for a command in its sandbox
_QUERY_TIMEOUT = 5.0  # seconds for a statement that root runs
_MAX_ANSWER = 16 * 1024**2  # bytes that such a statement may return

# Statements that increase a counter of AUTO_INCREMENT, even if they fail or are rolled back.
_INSERTS = (
    *("Com_insert", "Com_insert_select", "Com_load", "Com_replace", "Com_replace_select"),
    *("Com_update", "Com_update_multi", "Com_call_procedure"),
)


class MySqlServer:
    """A server that is up when the constructor returns.

    Args:
        provider: where the sandbox comes from.
        image: the image, with the databases in it.
        limits: the limits of the sandbox. Those of processes and network are not the task's, and
            its memory is at least 1 GiB.
        mode: ``reading``, in which nothing can be changed, or ``writing``.
        folder: a folder for its socket, to which every account can write.

    Attributes:
        host: its Docker host; empty for this machine's own engine.

    Raises:
        SandboxError: it does not start.
    """

    def __init__(
        self, provider: SandboxProvider, image: str, limits: Limits, mode: Mode, folder: Path
    ) -> None:
        self.mode: Mode = mode
        self._path = folder / _SOCKET
        self._lock = threading.RLock()
        self._root: Connection[Cursor] | None = None
        self._watch = Watch(lambda _: None)
        self._free = list(range(_MAX_SESSIONS, 0, -1))
        self._retired = False
        spec = SandboxSpec(
            image=image,
            limits=Limits(
                memory=max(limits.memory, _MEMORY),
                cpus=limits.cpus,
                pids=_MAX_SESSIONS + _THREADS,
                file_size=limits.file_size,
            ),
            hostname="mysql",
            mounts=((str(folder), _INSIDE),),
        )
        self._sandbox = provider.acquire(spec)
        self.host = self._sandbox.host
        try:
            self._sandbox.lead_to(f"{_INSIDE}/{_SOCKET}", self._path)
            self._start()
            self._mark = self._traces() if mode == "writing" else ()
        except BaseException:
            self.close()
            raise

    # -- accounts

    def lease(self) -> str:
        """Return an account for one session; empty if none is free."""
        if self.mode == "writing":
            return "agent"
        with self._lock:
            usable = self._free and not self._retired
            return f"agent{self._free.pop():03d}" if usable else ""

    def give_back(self, account: str) -> None:
        """Take an account back."""
        with self._lock:
            if account != "agent":
                self._free.append(int(account.removeprefix("agent")))
                self._free.sort(reverse=True)

    def retire(self) -> None:
        """Accept no further sessions, because one has left something behind."""
        self._retired = True

    @property
    def sessions(self) -> int:
        """How many sessions it has."""
        return _MAX_SESSIONS - len(self._free)

    @property
    def spent(self) -> bool:
        """Whether it accepts no further sessions and has none."""
        return self._retired and len(self._free) == _MAX_SESSIONS

    def connect(self, user: str, database: str | None, watch: Watch) -> Connection[Cursor]:
        """Open a connection; see :func:`~pytest_intercode.databases.mysql.wire.connect`."""
        return connect(self._path, user, database, watch)

    # -- statements as root

    def kill(self, connection: int, target: Literal["QUERY", "CONNECTION"]) -> None:
        """End a connection's statement, or the connection."""
        with contextlib.suppress(*FAILURES):  # the connection or the server may be gone already
            self._ask(f"KILL {target} {connection}")

    def wait_for_end(self, connection: int, timeout: float = 2.0) -> bool:
        """Wait until the server has removed a connection, its locks and its uncommitted work."""
        deadline = time.monotonic() + timeout
        query = f"SELECT 1 FROM information_schema.processlist WHERE id = {connection}"
        while self._ask(query):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def databases(self) -> list[str]:
        """Return the names of the databases that the scripts made."""
        own_names = "'mysql', 'sys', 'information_schema', 'performance_schema'"
        rows = self._ask(
            "SELECT schema_name FROM information_schema.schemata "
            f"WHERE schema_name NOT IN ({own_names}) ORDER BY schema_name"
        )
        return [str(name) for (name,) in rows]

    def unchanged(self) -> bool:
        """Whether nothing was changed since the start; no session may be open.

        An unchanged binary log shows that no row and no schema changed, because accounts only have
        rights on the suite's databases. Counters of AUTO_INCREMENT are not in the log.
        """
        return self._traces() == self._mark

    def _traces(self) -> tuple[Any, ...]:
        names = ", ".join(f"'{name}'" for name in _INSERTS)
        inserts = self._ask(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")
        try:
            position = self._ask("SHOW BINARY LOG STATUS")
        except FAILURES:
            position = self._ask("SHOW MASTER STATUS")  # MariaDB, and MySQL before 8.2
        return position[0][:2], inserts

    def _ask(self, statement: str) -> Sequence[tuple[Any, ...]]:
        with self._lock:
            for attempt in (1, 2):
                try:
                    if self._root is None or not self._root.open:
                        self._root = self.connect("root", None, self._watch)
                    self._watch.begin(_QUERY_TIMEOUT, _MAX_ANSWER)
                    with self._root.cursor() as cursor:
                        cursor.execute(statement)
                        return cursor.fetchall()
                except FAILURES:
                    # If the server has ended, the connection is closed; a server that was started
                    # since accepts a new one.
                    if attempt == 2 or (self._root is not None and self._root.open):
                        raise
                finally:
                    self._watch.end()
        raise AssertionError

    # -- lifecycle

    def gone(self) -> bool:
        """Whether its sandbox has ended, and not only the server in it."""
        try:
            self._sandbox.admin("true", _ADMIN_TIMEOUT)
        except SandboxError:
            return True
        return False

    def restart(self) -> None:
        """Start the server again if it has died; it keeps its databases."""
        with self._lock:
            try:
                self._ask("DO 0")
            except FAILURES:
                self._sandbox.admin('kill -KILL "$(cat /srv/intercode/started)"', _ADMIN_TIMEOUT)
                self._start()

    def _start(self) -> None:
        self._sandbox.admin(
            _START.format(inside=_INSIDE, socket=_SOCKET, mode=self.mode, log=_LOG), _ADMIN_TIMEOUT
        )
        deadline = time.monotonic() + _START_TIMEOUT
        next_check = time.monotonic() + 1.0
        while True:
            try:
                self._ask("DO 0")
                return
            except FAILURES as error:
                problem = error
            if time.monotonic() > next_check:
                self._check_start()
                next_check = time.monotonic() + 1.0
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"the MySQL server does not start: {problem}. {self._last_log_lines()}"
                )
            time.sleep(0.005)

    def _check_start(self) -> None:
        """Raise an error if the server cannot become available any more."""
        if self._sandbox.admin(_RUNS, _ADMIN_TIMEOUT)[0] != 0:
            raise SandboxError(f"the MySQL server ended while it started. {self._last_log_lines()}")
        inside, _ = self._sandbox.admin(f"test -S {_INSIDE}/{_SOCKET}", _ADMIN_TIMEOUT)
        if inside == 0 and not self._path.exists():
            raise SandboxError(
                f"the MySQL server runs, but its socket does not show up in {self._path.parent}: "
                "the Docker engine does not share this machine's folders (is it remote, or are we "
                "in a container ourselves?). Set TMPDIR to a folder that both see at the same path"
            )

    def _last_log_lines(self) -> str:
        _, log = self._sandbox.admin(f"tail -n 5 {_LOG}", _ADMIN_TIMEOUT)
        return "It said: " + " / ".join(log.decode("utf-8", "replace").splitlines())

    def close(self) -> None:
        """End the server and its sandbox; may be called twice."""
        self._sandbox.close()
        root, self._root = self._root, None
        if root is not None:
            with contextlib.suppress(Exception):
                root.close()
