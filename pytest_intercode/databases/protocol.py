"""The contract between the sql environment and the database engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from pytest_intercode.core.task import Database, Limits

__all__ = ["Answer", "Cell", "Ended", "Engine", "ResultSet", "Session", "State", "Table"]

Cell: TypeAlias = Any
"""None, bool, int, float, Decimal, str, bytes, or a date, time, datetime or timedelta."""

Ended: TypeAlias = Literal["itself", "timeout", "cancelled"]
"""How a statement ended: on its own, at its timeout, or because the episode was cancelled."""


@dataclass(frozen=True)
class ResultSet:
    """The rows of one statement, as the driver returns them.

    Attributes:
        columns: the names of the columns, which need not be unique.
        rows: the rows, in the engine's order.
        truncated: there were more rows or bytes than were requested.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    truncated: bool = False


@dataclass(frozen=True)
class Answer:
    """The outcome of one statement.

    Attributes:
        result: its result set; None if it has none.
        affected: the number of rows that it inserted, changed or deleted, if the engine counts
            them.
        error: the engine's error message; empty for none.
        code: the engine's number of the error; None for none.
        ended: see :data:`Ended`.
        lost: the session was lost with the statement, and a new one replaces it.
        seconds: wall time.
    """

    result: ResultSet | None = None
    affected: int = 0
    error: str = ""
    code: int | None = None
    ended: Ended = "itself"
    lost: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Table:
    """The end state of a table, or of a view.

    Attributes:
        columns: pairs of name and declaration (type, NOT NULL, default, key), in order.
        rows: its rows, in any order.
        truncated: there are more rows, or they cannot be read.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]
    truncated: bool = False


@dataclass(frozen=True)
class State:
    """The committed state of a database.

    Attributes:
        tables: its tables by name.
        others: everything else by kind and name, such as ``view recent``: views, triggers,
            indexes, routines and keys, with their definitions in a form that does not depend on
            how they were typed.
        uncommitted: a transaction was open; its work is not in the state.
        unreadable: why the state could not be read within the limits of time and size; empty if it
            could.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    uncommitted: bool = False
    unreadable: str = ""


class Session(Protocol):
    """One connection to a database, for one episode or for its gold.

    Methods raise :class:`~pytest_intercode.errors.SandboxError` when the engine is gone for good.
    """

    @property
    def host(self) -> str:
        """The Docker host of its server; empty for this machine."""

    def execute(self, statement: str, timeout: float, *, max_rows: int, max_bytes: int) -> Answer:
        """Run one statement; after ``timeout`` seconds, stop it and undo its work.

        Args:
            statement: one statement.
            timeout: seconds.
            max_rows: the most rows that are fetched.
            max_bytes: the most bytes of cells that are fetched.
        """

    def state(self) -> State:
        """Return the committed state of the whole database; also works after ``interrupt``.

        It takes at most half a minute, and :meth:`abandon` ends it.
        """

    def interrupt(self) -> None:
        """End the running statement from another thread.

        Later statements do not run; their answers are ``cancelled``.
        """

    def abandon(self) -> None:
        """End a reading of the state from another thread; then the session can only be closed."""

    def close(self) -> None:
        """End the session; may be called twice, never raises."""


class Engine(Protocol):
    """Opens sessions; a process has one instance for each engine."""

    def session(self, database: Database, *, writes: bool, limits: Limits) -> Session:
        """Open a session on a database.

        Args:
            database: the database.
            writes: the session may change the database, of which it has its own copy. Otherwise it
                may only query, and create temporary tables.
            limits: the task's limits, as far as they can be enforced for one session.

        Raises:
            TaskError: the database cannot be made.
            InfrastructureError: the engine cannot be started.
        """

    def close(self) -> None:
        """End every session and server."""
