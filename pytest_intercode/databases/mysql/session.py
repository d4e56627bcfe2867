"""One session on a MySQL server: statements with timeouts, results within limits."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any, Literal

from pymysql.connections import Connection
from pymysql.cursors import SSCursor
from pymysql.err import MySQLError

from pytest_intercode.databases.mysql.server import MySqlServer
from pytest_intercode.databases.mysql.state import TooMuch, read_state
from pytest_intercode.databases.mysql.wire import FAILURES, Watch
from pytest_intercode.databases.protocol import Answer, Cell, ResultSet, State
from pytest_intercode.errors import SandboxBroken, SandboxError, TaskError

__all__ = ["MySqlSession"]

# Bytes of a statement; max_allowed_packet in server.cnf is larger.
_MAX_STATEMENT = 4 * 1024**2 - 1024
_CHUNK = 256  # rows
_MAX_ROW = 32 * 1024**2  # bytes beyond a result's own limit, after which reading stops
_SYNC_TIMEOUT = 2.0  # seconds for the server to get ready for the next statement
_STATELESS = re.compile(
    r"\s*(?:\(\s*)?(?:select|show|desc|describe|explain|with)\b[^@]*", re.I | re.S
)

_NO_DATABASE = (1044, 1049)
_REFUSALS = (1040, 1045)
_INTERRUPTED = 1317, "Query execution was interrupted"
_NEVER_SENT = 2006
_LOCKED = 1205
_IN_TRANSACTION = 1  # a flag of the status that comes with an answer
# After these, the server closes the connection: shutdown, packet too long, killed, idle.
_CLOSING = (1053, 1153, 1927, 4031)
_LOST = 2013, "Lost connection to MySQL server during query"

Find = Callable[["MySqlServer | None"], "tuple[MySqlServer, str]"]
Release = Callable[[MySqlServer, str, "set[int]"], None]


class MySqlSession:
    """A connection with an account that no other session uses.

    Args:
        find: returns a server and an account on it. It is called again, with the server, when the
            server is lost.
        database: the database that the session starts in.
        release: called at the end with the server, the account, and the connections that must have
            ended before the next session, because they may still hold locks.

    Raises:
        TaskError: there is no such database.
        SandboxError: no server is available.
    """

    def __init__(self, find: Find, database: str, release: Release) -> None:
        self._find = find
        self._database = database
        self._release = release
        self._connection: Connection[Any] | None = None
        self._id = 0
        self._ids: set[int] = set()
        self._interrupted = False
        self._closed = False
        self._holds = False  # it has state to lose: variables, a transaction, another database
        self._watch = Watch(self._kill)
        self._abandoned = False
        self._reading: Watch | None = None  # of a reading of the state
        self._server, self._account = find(None)
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    @property
    def host(self) -> str:
        """The Docker host of its server; empty for this machine's own engine."""
        return self._server.host

    # -- statements

    def execute(self, statement: str, timeout: float, *, max_rows: int, max_bytes: int) -> Answer:
        """Run one statement; see :class:`~pytest_intercode.databases.protocol.Session`.

        A statement that is stopped at its timeout has no result, whatever the server reports: an
        interrupted ``SLEEP`` reports success.
        """
        began = time.monotonic()
        facts: dict[str, Any]
        if self._interrupted:
            facts = {"ended": "cancelled", "error": _INTERRUPTED[1]}
        elif fault := _unsendable(statement):
            facts = {"error": fault}
        else:
            had_state = self._holds
            facts = self._execute(statement, timeout, max_rows, max_bytes)
            reads = not had_state and _STATELESS.fullmatch(statement) is not None
            if facts.get("code") == _NEVER_SENT or (reads and self._lost_its_sandbox(facts)):
                # Another session ended the server between two statements. Or its sandbox was killed
                # from outside, which no statement can do, while this statement only read.
                facts = self._execute(statement, timeout, max_rows, max_bytes)
                # The state of the session was lost with the previous connection.
                facts["lost"] = facts["lost"] or had_state
        return Answer(seconds=time.monotonic() - began, **facts)

    def _lost_its_sandbox(self, facts: dict[str, Any]) -> bool:
        """Whether the sandbox of a shared server has ended during a statement."""
        ended_itself = facts.get("ended", "itself") == "itself"
        connection_lost = ended_itself and facts.get("code") == _LOST[0]
        return connection_lost and self._server.mode == "reading" and self._server.gone()

    def _execute(
        self, statement: str, timeout: float, max_rows: int, max_bytes: int
    ) -> dict[str, Any]:
        connection = self._connected()
        if "lock" in statement.lower():
            self._ids.add(self._id)  # GET_LOCK: its connection must end before the next session
        if self._id in self._ids or not _STATELESS.fullmatch(statement):
            self._holds = True
        facts: dict[str, Any] = {}
        watch = self._watch
        watch.begin(timeout, 4 * max_bytes + _MAX_ROW)
        cursor = connection.cursor(SSCursor)
        try:
            cursor.execute(statement)
            if cursor.description is None:
                facts["affected"] = max(0, cursor.rowcount)
            else:
                facts["result"] = self._fetch(cursor, max_rows, max_bytes)
            if not watch.stopped:
                while cursor.nextset():  # additional results of a routine
                    while cursor.fetchmany(_CHUNK):
                        pass
        except MySQLError as problem:
            facts["code"], facts["error"] = _code_and_message(problem)
        except UnicodeDecodeError:
            facts["error"] = "the result is not in utf8mb4, which this client reads"
            watch.stop()
        except (OSError, ValueError, LookupError, RuntimeError):
            facts["code"], facts["error"] = _LOST  # the answer violates the protocol
            connection.close()
        is_lost = not self._settle(connection, cursor, facts.get("code"))
        watch.end()
        if watch.flooded:
            facts = {"error": f"the result has a row that is too large ({watch.received} bytes)"}
        if watch.reason:  # an interrupted SLEEP reports success
            error = facts.get("error") or _INTERRUPTED[1]
            facts = {"ended": watch.reason, "code": facts.get("code"), "error": error}
        if is_lost:
            self._connection = None
            self._holds = False
            self._ids.add(self._id)
        return {**facts, "lost": is_lost}

    def _fetch(self, cursor: SSCursor, max_rows: int, max_bytes: int) -> ResultSet:
        """Read a result up to its limits."""
        columns = tuple(str(column[0]) for column in cursor.description)
        rows: list[tuple[Cell, ...]] = []
        measured_rows = size = 0
        truncated = False
        while not truncated and (row := cursor.fetchone()) is not None:
            rows.append(row)
            truncated = len(rows) > max_rows
            if self._watch.received > max_bytes:  # otherwise the cells cannot exceed the limit
                size += sum(_size(cell) for row in rows[measured_rows:] for cell in row)
                measured_rows = len(rows)
                truncated = truncated or size > max_bytes
        if truncated:
            del rows[-1]
            self._watch.stop()
        return ResultSet(columns, tuple(rows), truncated)

    def _settle(self, connection: Connection[Any], cursor: SSCursor, code: int | None) -> bool:
        """Read the rest of an answer; return whether the connection can still be used."""
        if connection.open:
            with contextlib.suppress(*FAILURES):  # as expected if the statement was interrupted
                cursor.close()
        result = getattr(cursor, "_result", None)
        if result is not None:
            result.unbuffered_active = False  # or it would go on reading when garbage-collected
        if connection.open and (self._watch.stopped or code in _CLOSING):
            # A kill that came too late for its statement would end the next one.
            for _ in range(3):
                self._watch.extend(_SYNC_TIMEOUT)
                try:
                    connection.query("DO 0")
                    break
                except FAILURES as problem:
                    if problem.args[:1] != _INTERRUPTED[:1]:
                        connection.close()
                        break
        if connection.open and self._watch.killed:  # the answer was on its way before the kill
            connection.close()
        return bool(connection.open)

    # -- the connection

    def _connected(self) -> Connection[Any]:
        """Return the connection, a new one if the last was lost."""
        if self._closed:
            raise SandboxError("the session is closed")
        if self._connection is None:
            self._restart_server()
            return self._connect()
        return self._connection

    def _restart_server(self) -> None:
        """Start the server again if it has died, or take another one.

        Raises:
            SandboxBroken: it is the session's own server, and the session keeps it from starting.
            SandboxError: what was written is lost with the server's sandbox.
        """
        try:
            self._server.restart()
        except SandboxError as error:
            if self._server.mode == "writing" and not self._server.gone():
                raise SandboxBroken(str(error)) from None
            self._server, self._account = self._find(self._server)

    def _connect(self) -> Connection[Any]:
        database: str | None = self._database
        was_restarted = False
        while True:
            try:
                connection = self._server.connect(self._account, database, self._watch)
                break
            except FAILURES as error:
                code, message = _code_and_message(error)
                if code in _NO_DATABASE and self._id and database is not None:  # it was dropped
                    database = None
                    continue
                # Before the first connection, no session can have dropped it.
                if code in _NO_DATABASE and not self._id:
                    raise TaskError(
                        f"the scripts make no database {self._database!r}; they make: "
                        f"{', '.join(self._server.databases())}"
                    ) from None
                if was_restarted or code in _REFUSALS:
                    reason = f"the MySQL server refuses a session: {message}"
                    # For example, the session has changed the password of its own account.
                    if self._id and self._server.mode == "writing" and not self._server.gone():
                        raise SandboxBroken(reason) from None
                    raise SandboxError(reason) from None
            self._restart_server()  # another session's statement may have ended it
            was_restarted = True
        self._connection = connection
        self._id = int(connection.thread_id())  # type: ignore[no-untyped-call]
        return connection

    def _kill(self, target: Literal["QUERY", "CONNECTION"]) -> None:
        if self._connection is not None:
            self._server.kill(self._id, target)

    def state(self) -> State:
        """Return the committed state of the session's first database."""
        connection = self._connection
        status = 0 if connection is None else int(getattr(connection, "server_status", 0))
        for attempt in (1, 2):
            try:
                return read_state(
                    self._server,
                    self._account,
                    self._database,
                    uncommitted=bool(status & _IN_TRANSACTION),
                    on_begin=self._begin_reading,
                )
            except TooMuch as error:  # on its own server, the session is the cause
                return State(unreadable=str(error))
            except FAILURES as error:
                locked = error.args[:1] == (_LOCKED,)
                if attempt == 2:
                    if locked:
                        return State(unreadable="it is locked")
                    if self._server.gone():
                        raise SandboxError(f"the state cannot be read: {error}") from None
                    message = _code_and_message(error)[1]
                    return State(unreadable=f"the server cannot read it: {message}")
            if locked and connection is not None:
                self._unlock(connection)
            else:
                self._restart_server()
        raise AssertionError

    def _begin_reading(self, watch: Watch) -> None:
        self._reading = watch
        if self._abandoned:
            watch.cancel()

    def abandon(self) -> None:
        """End a reading of the state from another thread."""
        self._abandoned = True
        reading = self._reading
        if reading is not None:
            reading.cancel()
        self.interrupt()

    def _unlock(self, connection: Connection[Any]) -> None:
        """Release the session's table locks; its uncommitted work stays uncommitted."""
        if self._interrupted:
            connection.close()
            self._server.wait_for_end(self._id)
            return
        self._watch.begin(_SYNC_TIMEOUT, _MAX_ROW)
        with contextlib.suppress(*FAILURES):
            connection.query("UNLOCK TABLES")
        self._watch.end()

    def interrupt(self) -> None:
        """End the running statement from another thread; later ones are not run."""
        self._interrupted = True
        self._watch.cancel()

    def close(self) -> None:
        """End the session; may be called twice, never raises."""
        if self._closed:
            return
        self._closed = True
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
        if self._server.mode == "writing":
            self._ids.add(self._id)
        self._release(self._server, self._account, self._ids)


def _unsendable(statement: str) -> str:
    """Return why a statement cannot be sent to a server; empty if it can."""
    if "\0" in statement:
        return "not run: a statement cannot hold a NUL character"
    try:
        size = len(statement.encode("utf-8"))
    except UnicodeEncodeError as error:
        return f"not run: a statement cannot hold the lone surrogate {statement[error.start]!r}"
    if size > _MAX_STATEMENT:
        return f"not run: the statement has {size} bytes, and at most {_MAX_STATEMENT} are sent"
    return ""


def _code_and_message(problem: Exception) -> tuple[int | None, str]:
    """Return an error's number and the server's message."""
    code, message, *_ = (*problem.args, None, "")
    if isinstance(code, int) and code:
        return code, str(message)
    return _LOST


def _size(cell: Cell) -> int:
    return len(cell) if isinstance(cell, (str, bytes)) else 8
