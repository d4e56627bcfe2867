"""What a database engine is: the contract between the sql environment and the engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from pytest_intercode.core.task import Database, Limits

__all__ = ["Answer", "Cell", "Ended", "Engine", "ResultSet", "Session", "State", "Table"]

Cell: TypeAlias = Any
"""None, bool, int, float, Decimal, str, bytes, or a date, time, datetime or timedelta."""

Ended: TypeAlias = Literal["itself", "timeout", "cancelled"]
"""How a statement ended: by itself, by the clock, or by the episode being called off."""


@dataclass(frozen=True)
class ResultSet:
    """The rows of one statement, as the driver gives them.

    Attributes:
        columns: their names, which need not be unique.
        rows: the rows, in the engine's order.
        truncated: there were more rows or bytes than were asked for.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    truncated: bool = False


@dataclass(frozen=True)
class Answer:
    """What became of one statement.

    Attributes:
        result: its result set, or None if it has none.
        affected: rows that it inserted, changed or deleted, where the engine counts them.
        error: the engine's message, or the empty string.
        code: the engine's number of the error, or None.
        ended: see :data:`Ended`.
        lost: the session was lost with the statement, and a new one is in its place.
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
        uncommitted: a transaction was open, whose work is not in it.
        unreadable: why nothing of it could be read, in the time and the room that there is for it;
            empty if it could.
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
        """Run one statement; it is stopped, and its work undone, after ``timeout`` seconds.

        Args:
            statement: one statement.
            timeout: seconds.
            max_rows: rows that are fetched at most.
            max_bytes: bytes of cells that are fetched at most.
        """

    def state(self) -> State:
        """Return the committed state of the whole database; works after ``interrupt`` too.

        It takes at most half a minute, and :meth:`abandon` ends it.
        """

    def interrupt(self) -> None:
        """End the running statement from another thread; later ones are not run.

        They are answered as ``cancelled``.
        """

    def abandon(self) -> None:
        """End what is being read from another thread; the session can only be closed then."""

    def close(self) -> None:
        """End the session; may be called twice, never raises."""


class Engine(Protocol):
    """Opens sessions; one for each engine and process."""

    def session(self, database: Database, *, writes: bool, limits: Limits) -> Session:
        """Open a session on a database.

        Args:
            database: the database.
            writes: the session may change the database, and has one to itself; else it may only
                query, and make temporary tables.
            limits: the task's limits, as far as they can be held for one session.

        Raises:
            TaskError: the database cannot be made.
            InfrastructureError: the engine cannot be started.
        """

    def close(self) -> None:
        """End every session and server."""
