"""Gold of the sql environment: find out what it returns or changes, before the agent begins.

Gold runs in sessions that never run an agent's statements. A gold that only queries runs in a
session that is kept for other episodes; a gold that changes the database has its own copy of it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from unicodedata import combining, normalize

from pytest_intercode.core.task import Database, Limits, Task
from pytest_intercode.databases.ordering import Ordered, show_order
from pytest_intercode.databases.protocol import Answer, Engine, ResultSet, Session, State
from pytest_intercode.databases.scan import Statement, split
from pytest_intercode.environments.gold import attribute_to_gold
from pytest_intercode.environments.sql.fields import database_of
from pytest_intercode.errors import GoldError, GoldRefused, SandboxError
from pytest_intercode.rewards.sql_changes import Changes, changes_between
from pytest_intercode.rewards.sql_rows import Canonical, Row, canonical_rows
from pytest_intercode.rewards.sql_strict import Rows, Run, accepts

__all__ = [
    "MAX_BYTES",
    "MAX_ROWS",
    "STATELESS",
    "KeptSessions",
    "SqlGold",
    "gold_statements",
    "grouped_answer",
    "play_gold",
    "writes",
]

MAX_ROWS = 100_000
"""The most rows of one result that are fetched and compared."""

MAX_BYTES = 64 * 1024**2
"""The most bytes of one result's cells that are fetched and compared."""

STATELESS = ("SELECT", "WITH", "VALUES", "TABLE", "EXPLAIN", "SHOW", "DESCRIBE", "DESC")
"""The first words of statements that do not change the state of a session."""

_MAX_KEPT_SESSIONS = {"sqlite": 8, "mysql": 64}  # each is a process, or a connection
_MAX_KEPT_STATES = 8
_MAX_KEPT_ROWS = 100_000  # of a database whose first state is kept
_ROWS_BEYOND_LIMIT = 200  # rows after gold's LIMIT that are checked for ties, before all of them


@dataclass(frozen=True)
class SqlGold:
    """What gold returned or changed.

    Attributes:
        rows: its result, if the task asks for one.
        exact: the rows are compared one by one although gold orders them, because the ties in its
            order could not be found.
        before: the state that both sides start from, if the task changes the database.
        changes: what gold changed in the database.
        last: the answer to its last statement.
    """

    rows: Rows | None = None
    exact: bool = False
    before: State | None = None
    changes: Changes | None = None
    last: Answer = field(default_factory=Answer)


def gold_statements(task: Task) -> list[Statement]:
    """Return the statements of a task's gold."""
    dialect = database_of(task).engine
    return [statement for text in task.gold for statement in split(text, dialect)]


def writes(task: Task) -> bool:
    """Whether a task is meant to change its database."""
    database = database_of(task)
    if database.writes is not None:
        return database.writes
    return not all(statement.queries for statement in gold_statements(task))


class KeptSessions:
    """What golds share: sessions that only query, and the first states of databases.

    A session serves one gold at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[tuple[Database, Limits, Session]] = []  # the least recently used first
        self._before: dict[Database, State] = {}
        self._closed = False

    @contextlib.contextmanager
    def session(
        self, engine: Engine, database: Database, limits: Limits, *, keep: bool
    ) -> Iterator[Session]:
        """Lend a session.

        Args:
            engine: the database's engine.
            database: the database.
            limits: the task's limits, as for the agent's session.
            keep: gold does not change the session's state, so it can be lent again.
        """
        session = self._take(database, limits)
        if session is None:
            session = engine.session(database, writes=False, limits=limits)
        fit = False
        try:
            yield session
            fit = keep
        finally:
            surplus: Session | None = session
            with self._lock:
                if fit and not self._closed:
                    self._free.append((database, limits, session))
                    alike = [
                        n
                        for n, (free_database, *_) in enumerate(self._free)
                        if free_database.engine == database.engine
                    ]
                    too_many = len(alike) > _MAX_KEPT_SESSIONS[database.engine]
                    surplus = self._free.pop(alike[0])[2] if too_many else None
            # Outside of the lock, so that no other gold waits until it has ended.
            if surplus is not None:
                surplus.close()

    def before(self, database: Database, session: Session) -> State:
        """Return the first state of a database.

        Args:
            database: the database.
            session: a session on it that has not changed anything yet.
        """
        with self._lock:
            state = self._before.get(database)
        if state is None:
            # Outside of the lock: two threads that read it in parallel only take longer.
            state = session.state()
            if state.unreadable:
                return state
            if sum(len(table.rows) for table in state.tables.values()) <= _MAX_KEPT_ROWS:
                with self._lock:
                    self._before[database] = state
                    if len(self._before) > _MAX_KEPT_STATES:
                        del self._before[next(iter(self._before))]
        return state

    def close(self) -> None:
        """End every session."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for _, _, session in free:
            session.close()

    def _take(self, database: Database, limits: Limits) -> Session | None:
        with self._lock:
            for index, (free_database, free_limits, session) in enumerate(self._free):
                if (free_database, free_limits) == (database, limits):
                    del self._free[index]
                    return session
        return None


def play_gold(sessions: KeptSessions, engine: Engine, task: Task, timeout: float) -> SqlGold:
    """Run a task's gold.

    Args:
        sessions: the source of sessions for queries.
        engine: the engine of the task's database.
        task: the task.
        timeout: seconds for each statement.

    Raises:
        GoldRefused: the engine does not accept one of its statements.
        GoldError: it did not end in time, returns no rows, or changes nothing.
    """
    statements = gold_statements(task)
    if not statements:
        raise GoldError(f"{task.source}: task {task.id!r}: gold holds no statement")
    if writes(task):
        return _play_changes(sessions, engine, task, statements, timeout)
    keep = all(statement.keyword in STATELESS for statement in statements)
    with sessions.session(engine, database_of(task), task.limits, keep=keep) as session:
        last = _run(session, task, statements, timeout, writing=False)
        if last.result is None:
            raise GoldError(
                f"{task.source}: task {task.id!r}: gold's last statement gives no rows, and the "
                "task does not say database.writes: true"
            )
        rows, exact = grouped_answer(session, task, statements[-1], last.result, timeout)
        return SqlGold(rows, exact, last=last)


def _run(
    session: Session, task: Task, statements: list[Statement], timeout: float, *, writing: bool
) -> Answer:
    answer = Answer()
    for statement in statements:
        answer = session.execute(statement.text, timeout, max_rows=MAX_ROWS, max_bytes=MAX_BYTES)
        prefix = f"{task.source}: task {task.id!r}"
        excerpt = f"{' '.join(statement.text.split())[:200]}"
        if answer.lost and answer.ended == "itself":  # another session may have ended the server
            raise SandboxError(f"{prefix}: gold's session was lost: {answer.error}: {excerpt}")
        if answer.ended != "itself" or answer.lost:
            reason = (
                f"did not end within {timeout:g} s" if answer.ended == "timeout" else answer.error
            )
            raise GoldError(f"{prefix}: gold {reason}: {excerpt}")
        if answer.error and not writing and not statement.queries:
            raise GoldError(
                f"{prefix}: gold may only query (database.writes): {answer.error}: {excerpt}"
            )
        if answer.error:
            raise GoldRefused(f"{prefix}: the engine refuses gold: {answer.error}")
    return answer


def _play_changes(
    sessions: KeptSessions, engine: Engine, task: Task, statements: list[Statement], timeout: float
) -> SqlGold:
    database = database_of(task)
    session = engine.session(database, writes=True, limits=task.limits)
    try:
        state_before = sessions.before(database, session)
        with attribute_to_gold():
            last = _run(session, task, statements, timeout, writing=True)
            state_after = session.state()
    finally:
        session.close()
    changes = changes_between(state_before, state_after)
    problem = ""
    if changes.unreadable:
        problem = f"leaves a database that cannot be graded: {changes.unreadable}"
    elif state_after.uncommitted:
        problem = "leaves a transaction open"
    elif not (changes.added or changes.removed):
        problem = "is to change the database (database.writes), but leaves it as it was"
    elif changes.too_many or any(table.truncated for table in state_before.tables.values()):
        problem = "changes more rows, or a larger database, than can be compared"
    if problem:
        raise GoldError(f"{task.source}: task {task.id!r}: gold {problem}")
    return SqlGold(before=state_before, changes=changes, last=last)


def grouped_answer(
    session: Session, task: Task, statement: Statement, result: ResultSet, timeout: float
) -> tuple[Rows, bool]:
    """Return gold's rows; those whose order gold leaves open are grouped.

    Returns:
        The rows, and whether the ties in gold's order could not be found.
    """
    width, rows = len(result.columns), canonical_rows(result.rows)
    single_runs = tuple(Run((row,)) for row in rows)
    row_order = task.reward.rows
    runs: tuple[Run, ...] | None = None
    if row_order != "in-order" and statement.orders:
        runs = _runs(session, statement, result, rows, timeout)
    exact = row_order != "in-order" and statement.orders and runs is None
    ordered = row_order == "in-order" or (row_order == "when-gold-orders" and statement.orders)
    if runs is None:
        runs = single_runs if ordered else (Run(rows),)
    return Rows(width, runs, ordered, result.truncated), exact


def _runs(
    session: Session,
    statement: Statement,
    result: ResultSet,
    rows: tuple[Row, ...],
    timeout: float,
) -> tuple[Run, ...] | None:
    """Return the runs of tied rows; None if they cannot be found."""
    ordered_query = show_order(statement, result.columns)
    if ordered_query is None or result.truncated:
        return None
    width = len(result.columns)
    limits = (
        [None]
        if ordered_query.limit is None
        else [ordered_query.start + ordered_query.limit + _ROWS_BEYOND_LIMIT, None]
    )
    for limit in limits:
        answer = _ask(session, ordered_query.text, limit, timeout)
        if answer.error or answer.result is None:
            return None
        fetched, ranks = canonical_rows(answer.result.rows), None
        complete = not answer.result.truncated and (limit is None or len(fetched) < limit)
        if ordered_query.ranked and _may_be_tied(fetched, ordered_query.keys):
            ranked = _ask(session, ordered_query.ranked, limit, timeout).result
            if ranked is not None and len(ranked.rows) == len(fetched):
                *columns, ranks = zip(*canonical_rows(ranked.rows), strict=True)
                fetched = tuple(zip(*columns, strict=True))
        groups = _groups(fetched, ordered_query.keys, ranks)
        runs = _limited(ordered_query, groups, width, complete)
        if runs is not None:
            return runs if accepts(rows, Rows(width, runs, ordered=True)) else None
    return None


def _ask(session: Session, query: str, limit: int | None, timeout: float) -> Answer:
    text = query if limit is None else f"{query}\nLIMIT {limit}"
    return session.execute(text, timeout, max_rows=MAX_ROWS, max_bytes=MAX_BYTES)


def _may_be_tied(rows: Sequence[Row], keys: Sequence[int]) -> bool:
    """Whether adjacent rows have different keys that some collation does not distinguish."""
    all_keys = ([row[key] for key in keys] for row in rows)
    return any(a != b and _fold(a) == _fold(b) for a, b in pairwise(all_keys))


def _fold(key: Sequence[Canonical]) -> list[Canonical]:
    """Return a key without what collations may ignore: case, accents, trailing blanks."""
    return [_plain(cell) if isinstance(cell, str) else cell for cell in key]


def _plain(text: str) -> str:
    folded = normalize("NFKD", text.casefold())
    return "".join(character for character in folded if not combining(character)).rstrip()


def _groups(
    rows: Sequence[Row], keys: Sequence[int], ranks: Sequence[Canonical] | None
) -> list[list[Row]]:
    """Group rows by the keys that they are ordered by.

    Args:
        rows: the rows.
        keys: the indexes of the keys in a row.
        ranks: the engine's ranks of the rows. Keys that differ only in what a collation may ignore
            are equal if the engine gives them the same rank. None if there are no such keys.
    """
    groups: list[list[Row]] = []
    for index, row in enumerate(rows):
        key, last_key = ([r[k] for k in keys] for r in (row, rows[index - 1]))
        tied = key == last_key or (
            ranks is not None and ranks[index] == ranks[index - 1] and _fold(key) == _fold(last_key)
        )
        if not (groups and tied):
            groups.append([])
        groups[-1].append(row)
    return groups


def _limited(
    ordered_query: Ordered, groups: Sequence[Sequence[Row]], width: int, complete: bool
) -> tuple[Run, ...] | None:
    """Return the runs of gold's rows among groups; None if they cannot be found in the rows."""
    rows = [row for group in groups for row in group]
    if ordered_query.distinct and len({row[:width] for row in rows}) < len(rows):
        return None  # the additional columns have made several rows of one
    stop = len(rows) if ordered_query.limit is None else ordered_query.start + ordered_query.limit
    runs = []
    position = 0
    for group in groups:
        tied = [row[:width] for row in group]
        first, last = max(ordered_query.start - position, 0), max(stop - position, 0)
        position += len(tied)
        if position == len(rows) and last and not complete:
            return None  # rows that were not fetched may be tied with these
        if tied[first:last]:
            outside = (*tied[:first], *tied[last:])
            runs.append(Run(tuple(tied[first:last]), outside))
    return tuple(runs)
