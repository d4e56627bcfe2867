"""What a database engine is: the contract between the sql environment and the engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from pytest_intercode.suites.task import Database

__all__ = ["Answer", "Cell", "Engine", "ResultSet", "Session", "State", "Table"]

Cell: TypeAlias = Any
"""None, bool, int, float, Decimal, str, bytes, or a date, time, datetime or timedelta."""


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
        ended: by itself, by the clock, or by the episode being called off.
        lost: the session was lost with the statement, and a new one is in its place.
        seconds: wall time.
    """

    result: ResultSet | None = None
    affected: int = 0
    error: str = ""
    code: int | None = None
    ended: Literal["itself", "timeout", "cancelled"] = "itself"
    lost: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Table:
    """A table's end state.

    Attributes:
        columns: pairs of name and declared type, in order.
        rows: its rows, in any order.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class State:
    """The end state of a database.

    Attributes:
        tables: its tables by name.
        others: views, triggers, indexes and routines by kind and name, with their definitions.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)


class Session(Protocol):
    """One connection to a database, for one episode or for its gold.

    Methods raise :class:`~pytest_intercode.errors.SandboxError` when the engine is gone for good.
    """

    def execute(self, statement: str, timeout: float, *, max_rows: int, max_bytes: int) -> Answer:
        """Run one statement; it is stopped, and its work undone, after ``timeout`` seconds.

        Args:
            statement: one statement.
            timeout: seconds.
            max_rows: rows that are fetched at most.
            max_bytes: bytes of cells that are fetched at most.
        """

    def state(self) -> State:
        """Return the state of the whole database."""

    def interrupt(self) -> None:
        """End the running statement from another thread; later ones are not run."""

    def close(self) -> None:
        """End the session; may be called twice, never raises."""


class Engine(Protocol):
    """Opens sessions; one for each engine and process."""

    def session(self, database: Database, *, writes: bool) -> Session:
        """Open a session on a database.

        Args:
            database: the database.
            writes: the session may change the database, and has one to itself.

        Raises:
            InfrastructureError: the engine cannot be started, or the database not be made.
        """

    def close(self) -> None:
        """End every session and server."""
