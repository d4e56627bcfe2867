"""One SQLite session: a process with a copy of the database, which is replaced if it is killed.

The statements that the session committed are kept, and repeated in a new process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_intercode.databases.protocol import Answer, ResultSet, State
from pytest_intercode.databases.scan import split
from pytest_intercode.databases.sqlite.process import Lost, OutOfMemory, Reply, SqliteProcess
from pytest_intercode.databases.sqlite.state import read_state
from pytest_intercode.errors import SandboxError

__all__ = ["SqliteSession"]

_REPEAT_TIMEOUT = 60.0  # seconds to repeat a session's changes
_STATE_TIMEOUT = 30.0  # seconds to read the end state
_TABLE_TIMEOUT = 10.0  # seconds to read its tables, or one view
_MAX_STATE_ROWS = 1_000_000  # of all tables and views
_MAX_STATE_BYTES = 256 * 1024**2  # of the worker's answers
_ASKING = ("SELECT", "VALUES", "EXPLAIN", "WITH")


class SqliteSession:
    """See :class:`~pytest_intercode.databases.protocol.Session`.

    Args:
        start: returns a process that has loaded the database.
        writes: the session may change the database.
        on_close: called when the session is closed.

    Attributes:
        host: empty, because its process is on this machine.
    """

    host = ""

    def __init__(
        self,
        start: Callable[[], SqliteProcess],
        *,
        writes: bool,
        on_close: Callable[[SqliteSession], None],
    ) -> None:
        self._start = start
        self._writes = writes
        self._on_close = on_close
        self._stopped = self._abandoned = False
        self._committed: list[str] = []  # the committed statements
        self._pending: list[str] = []  # the statements of the open transaction
        self._in_transaction = False
        self._process: SqliteProcess | None = start()
        self._reading: SqliteProcess | None = None  # a second one, from which a state is read

    def execute(self, statement: str, timeout: float, *, max_rows: int, max_bytes: int) -> Answer:
        """Run one statement."""
        if self._stopped:
            return Answer(error="interrupted", ended="cancelled")
        began = time.monotonic()
        try:
            reply = self._live().execute(statement, timeout, max_rows=max_rows, max_bytes=max_bytes)
        except Lost as lost:
            message = self._replace(lost)
            seconds = time.monotonic() - began
            return Answer(error=message, ended=lost.ended, lost=True, seconds=seconds)
        except UnicodeEncodeError as error:
            return Answer(error=f"not SQL: it holds {error.object[error.start]!r}")
        rolled_back = self._in_transaction and bool(reply.error) and not reply.in_transaction
        self._remember(statement, reply)
        message = reply.error + ("; the open transaction was rolled back" if rolled_back else "")
        return replace(reply, error=message, seconds=time.monotonic() - began)

    def state(self) -> State:
        """Return the committed state; an open transaction stays open.

        What the agent made may be unreadable: an endless view, a table that fills the memory. The
        state then shows it as something that no gold leaves behind.
        """
        try:
            process = self._live()
            if not self._in_transaction:
                return _read(process)
            reader = self._reading = self._start()
            try:
                self._check_wanted()
                self._repeat(reader)
                state = _read(reader)
            finally:
                self._reading = None
                reader.close()
            return replace(state, uncommitted=True)
        except Lost as lost:
            return State(unreadable=str(lost))

    def interrupt(self) -> None:
        """End the running statement from another thread; later ones are not run."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.interrupt()

    def abandon(self) -> None:
        """End a reading from another thread; nothing is read or repeated from now on."""
        self._stopped = self._abandoned = True
        for process in (self._process, self._reading):
            if process is not None:
                process.close()

    def close(self) -> None:
        """End the session."""
        process, self._process = self._process, None
        self._stopped = True
        if process is not None:
            process.close()
        self._on_close(self)

    # -- a session that outlives its process

    def _live(self) -> SqliteProcess:
        if self._process is None:
            raise SandboxError("the session is closed")
        return self._process

    def _remember(self, statement: str, reply: Reply) -> None:
        """Record a statement that changed something, to repeat it if the process is lost."""
        self._in_transaction = reply.in_transaction
        if not self._writes:
            return
        scanned = split(statement, "sqlite")[:1]
        keyword = scanned[0].keyword if scanned else ""
        if reply.error and not reply.in_transaction:
            self._pending.clear()  # SQLite rolls some transactions back on its own
        only_asks = keyword in _ASKING and scanned[0].queries
        if reply.ended == "itself" and keyword and not only_asks:
            self._pending.append(statement)
        if reply.in_transaction:
            return
        if keyword != "ROLLBACK":
            self._committed += self._pending
        self._pending.clear()

    def _replace(self, lost: Lost) -> str:
        """Replace a lost process by a new one; return a message about what the agent has now."""
        self._live().close()
        self._process = None
        reason = {
            "timeout": "the statement did not stop when its time was up, and was killed",
            "cancelled": "the statement did not stop when the episode was over, and was killed",
        }.get(lost.ended, "the session was lost with the statement")
        if isinstance(lost, OutOfMemory):
            reason = "out of memory"
        if self._abandoned or (self._stopped and not self._writes):
            return reason
        self._process = self._start()
        self._pending.clear()
        self._in_transaction = False
        if not self._writes:
            return f"{reason}; a new session has no temporary tables and no settings of the old one"
        try:
            self._repeat(self._process)
        except Lost:
            self._process.close()
            self._process = self._start()
            self._committed.clear()
            return f"{reason}; a new session has the database as it was at the start"
        return f"{reason}; a new session has the database as it was last committed"

    def _repeat(self, process: SqliteProcess) -> None:
        deadline = time.monotonic() + _REPEAT_TIMEOUT
        for statement in self._committed:
            self._check_wanted()
            remaining = max(0.0, deadline - time.monotonic())
            reply = process.execute(statement, remaining, max_rows=0, max_bytes=0, stoppable=False)
            if reply.ended != "itself":
                raise Lost(reply.ended)

    def _check_wanted(self) -> None:
        """Check that no thread has abandoned the session while a new process was starting.

        Raises:
            Lost: a thread has.
        """
        if self._abandoned:
            raise Lost("cancelled")


def _read(process: SqliteProcess) -> State:
    deadline = time.monotonic() + _STATE_TIMEOUT
    rows, size = _MAX_STATE_ROWS, _MAX_STATE_BYTES

    def ask(queries: Sequence[str]) -> list[ResultSet]:
        nonlocal rows, size
        remaining = min(max(0.0, deadline - time.monotonic()), _TABLE_TIMEOUT)
        replies = process.batch(queries, remaining, max_rows=rows, max_bytes=size)
        results = [reply.result or ResultSet((), (), truncated=True) for reply in replies]
        rows = max(0, rows - sum(len(result.rows) for result in results))
        size = max(0, size - process.received)
        return results

    state = read_state(ask)
    if rows == 0 or size == 0:
        return State(unreadable="it holds more than what is read")
    return state
