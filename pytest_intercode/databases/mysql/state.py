"""The end state of a MySQL database: rows and definitions, as the server's root sees them.

The agent's session cannot influence the reading, neither by variables nor by a temporary table that
hides another one. Only the rows of views are read with the agent's account, because a view may call
routines of the agent.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pymysql.connections import Connection

from pytest_intercode.databases.mysql.server import MySqlServer
from pytest_intercode.databases.mysql.wire import FAILURES, Watch
from pytest_intercode.databases.protocol import Cell, State, Table
from pytest_intercode.databases.scan import Definitions

__all__ = ["TooMuch", "read_state"]

_STATE_TIMEOUT = 30.0  # seconds to read the whole state
_VIEW_TIMEOUT = 5.0  # seconds to read one view, which may call routines
_MAX_ROWS = 200_000  # of one table or view
_MAX_BYTES = 64 * 1024**2
_MAX_ALL_ROWS = 1_000_000  # of all tables and views
_MAX_ALL_BYTES = 256 * 1024**2
_MAX_WIRE_BYTES = 1024**3  # that the server may send for the whole state

_Facts = list[dict[str, Any]]


class TooMuch(Exception):
    """A database exceeds the limits of time or size; the message says which."""


def read_state(
    server: MySqlServer,
    account: str,
    database: str,
    *,
    uncommitted: bool,
    on_begin: Callable[[Watch], None],
) -> State:
    """Return the committed state of a database that the session of an account has used.

    Args:
        server: the server.
        account: the session's account.
        database: the database.
        uncommitted: the session has a transaction open.
        on_begin: called with the watch that can end the reading from another thread.

    Raises:
        TooMuch: the state exceeds the limits.
        OSError, pymysql.err.MySQLError: it cannot be read.
    """
    with _connected(server, "root", None) as (root, watch):
        try:
            on_begin(watch)
            watch.begin(_STATE_TIMEOUT, _MAX_WIRE_BYTES)
            with root.cursor() as cursor:
                cursor.execute("SET SESSION lock_wait_timeout = 1")
            return _Reader(server, account, database, root, watch).state(uncommitted)
        except FAILURES as error:
            if watch.reason == "timeout":
                raise TooMuch(f"reading it takes more than {_STATE_TIMEOUT:g} s") from error
            if watch.reason:
                raise TooMuch("the reading was ended") from error
            if watch.flooded:
                raise TooMuch(f"it holds more than {_MAX_WIRE_BYTES} bytes") from error
            raise
        except (ValueError, LookupError) as error:  # such as a character set outside of Unicode
            raise TooMuch(f"what it holds cannot be decoded: {error}") from error


@contextlib.contextmanager
def _connected(
    server: MySqlServer, account: str, database: str | None
) -> Iterator[tuple[Connection[Any], Watch]]:
    """Connect to a server with a watch, which the caller has to begin."""
    number = 0
    watch = Watch(lambda target: server.kill(number, target))
    connection = server.connect(account, database, watch)
    try:
        number = int(connection.thread_id())  # type: ignore[no-untyped-call]
        yield connection, watch
    finally:
        watch.end()
        with contextlib.suppress(Exception):
            connection.close()


class _Reader:
    def __init__(
        self,
        server: MySqlServer,
        account: str,
        database: str,
        root: Connection[Any],
        watch: Watch,
    ) -> None:
        self._watch = watch
        self._server = server
        self._account = account
        self._database = database
        self._root = root
        self._definitions = Definitions("mysql")
        self._rows, self._bytes = _MAX_ALL_ROWS, _MAX_ALL_BYTES
        self._deadline = time.monotonic() + _STATE_TIMEOUT

    def _count(self, rows: int, size: int) -> None:
        """Count rows and bytes of tables and views against the limits."""
        self._rows -= rows
        self._bytes -= size
        if self._rows < 0 or self._bytes < 0:
            raise TooMuch(f"it holds more than {_MAX_ALL_ROWS} rows or {_MAX_ALL_BYTES} bytes")
        if time.monotonic() > self._deadline or self._watch.cancelled:
            raise TooMuch(f"reading it takes more than {_STATE_TIMEOUT:g} s")

    def state(self, uncommitted: bool) -> State:
        columns: dict[str, _Facts] = defaultdict(list)
        for row in _sorted(self._about("columns", "table_schema"), "ordinal_position"):
            columns[row["table_name"]].append(row)
        tables: dict[str, Table] = {}
        definitions_by_name: dict[str, str] = {}
        for row in self._about("tables", "table_schema"):
            name = row["table_name"]
            if row["table_type"] == "BASE TABLE":
                tables[name] = self._table(name, columns[name])
            else:
                rows = self._view(name)
                view_columns = tuple((column["column_name"], "") for column in columns[name])
                tables[name] = Table(view_columns, rows or (), truncated=rows is None)
                definitions_by_name[f"view {name}"] = ""
        definitions_by_name.update(self._keys())
        definitions_by_name.update(self._programs())
        if self._definitions.remaining < 0:
            raise TooMuch("its definitions are longer than what is read")
        return State(tables, definitions_by_name, uncommitted)

    def _view(self, view: str) -> tuple[tuple[Cell, ...], ...] | None:
        """Return a view's rows for the agent's account; None if they cannot be read in time."""
        self._count(0, 0)
        try:
            with _connected(self._server, self._account, self._database) as (connection, watch):
                watch.begin(_VIEW_TIMEOUT, 4 * _MAX_BYTES)
                with connection.cursor() as cursor:
                    cursor.execute(f"SELECT * FROM {_quoted(view)} LIMIT {_MAX_ROWS + 1}")
                    rows = cursor.fetchall()
                self._count(len(rows), watch.received)
                return None if len(rows) > _MAX_ROWS or watch.stopped else tuple(rows)
        except (*FAILURES, UnicodeDecodeError):
            return None

    def _table(self, name: str, columns: _Facts) -> Table:
        declared = tuple((row["column_name"], _declaration(row)) for row in columns)
        full = ".".join(_quoted(part) for part in (self._database, name))
        lengths = [
            f"COALESCE(SUM(OCTET_LENGTH({_quoted(row['column_name'])})), 0)"
            for row in columns
            if row["character_octet_length"] is not None or row["data_type"] == "json"
        ]
        [size] = self._ask(f"SELECT COUNT(*) AS n, {' + '.join(['0', *lengths])} AS b FROM {full}")
        if size["n"] > _MAX_ROWS or size["b"] > _MAX_BYTES:
            return Table(declared, (), truncated=True)
        self._count(int(size["n"]), int(size["b"]))
        with self._root.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {full}")
            return Table(declared, tuple(cursor.fetchall()))

    def _keys(self) -> Mapping[str, str]:
        """Return indexes, foreign keys and checks; the names of keys are left out."""
        definitions: dict[str, str] = {}
        rules = {
            (row["table_name"], row["constraint_name"]): (row["update_rule"], row["delete_rule"])
            for row in self._about("referential_constraints", "constraint_schema")
        }
        foreign: dict[tuple[str, str], list[tuple[str, ...]]] = defaultdict(list)
        for row in _sorted(self._about("key_column_usage", "table_schema"), "ordinal_position"):
            if row["referenced_table_name"] is not None:
                foreign[row["table_name"], row["constraint_name"]].append(
                    (
                        row["column_name"],
                        row["referenced_table_name"],
                        row["referenced_column_name"],
                        *rules.get((row["table_name"], row["constraint_name"]), ()),
                    )
                )
        for (table, _), links in foreign.items():
            definitions[f"foreign key of {table}: {links}"] = ""
        # Foreign keys come with an index, whose name the server may have chosen.
        foreign_columns = {
            (table, tuple(link[0] for link in links)) for (table, _), links in foreign.items()
        }
        indexes: dict[tuple[str, str], _Facts] = defaultdict(list)
        for row in _sorted(self._about("statistics", "table_schema"), "seq_in_index"):
            indexes[row["table_name"], row["index_name"]].append(row)
        for (table, name), parts in indexes.items():
            columns = ", ".join(map(_part, parts))
            unique = "" if parts[0]["non_unique"] else "unique "
            if name == "PRIMARY":
                definitions[f"primary key of {table}: {columns}"] = ""
            elif (table, tuple(row["column_name"] for row in parts)) in foreign_columns:
                definitions[f"{unique}index on {table}: {columns}"] = ""
            else:
                definitions[f"{unique}{parts[0]['index_type']} index {name} on {table}"] = columns
        for row in self._ask(
            "SELECT * FROM information_schema.table_constraints JOIN "
            "information_schema.check_constraints USING (constraint_schema, constraint_name) "
            "WHERE constraint_schema = %s",
            self._database,
        ):
            definitions[f"check of {row['table_name']}: {row['check_clause']}"] = ""
        return definitions

    def _programs(self) -> Mapping[str, str]:
        """Return triggers, routines and events."""
        definitions: dict[str, str] = {}
        normalise = self._definitions.normalised
        for row in self._about("triggers", "trigger_schema"):
            definitions[f"trigger {row['trigger_name']} on {row['event_object_table']}"] = (
                normalise(
                    f"{row['action_timing']} {row['event_manipulation']} {row['action_statement']}"
                )
            )
        parameters: dict[tuple[str, str], list[str]] = defaultdict(list)
        for row in _sorted(self._about("parameters", "specific_schema"), "ordinal_position"):
            words = row["parameter_mode"], row["parameter_name"], row["dtd_identifier"]
            called = row["routine_type"], row["specific_name"]
            parameters[called].append(" ".join(str(word) for word in words if word))
        for row in self._about("routines", "routine_schema"):
            takes = ", ".join(parameters[row["routine_type"], row["specific_name"]])
            definitions[f"{row['routine_type'].lower()} {row['routine_name']}"] = normalise(
                f"({takes}) {row['routine_definition']}"
            )
        for row in self._about("events", "event_schema"):
            schedule = row["interval_value"], row["interval_field"], row["execute_at"]
            definitions[f"event {row['event_name']}"] = normalise(
                f"{' '.join(str(word) for word in schedule if word)} {row['event_definition']}"
            )
        return definitions

    def _about(self, view: str, schema: str) -> _Facts:
        return self._ask(
            f"SELECT * FROM information_schema.{view} WHERE {schema} = %s", self._database
        )

    def _ask(self, statement: str, *values: Any) -> _Facts:
        with self._root.cursor() as cursor:
            cursor.execute(statement, values or None)
            names = [str(column[0]).lower() for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _declaration(row: Mapping[str, Any]) -> str:
    """Return a column's declaration, without the keys that it is in."""
    words = [str(row["column_type"])]
    if row["collation_name"]:
        words.append(f"COLLATE {row['collation_name']}")
    if row["is_nullable"] == "NO":
        words.append("NOT NULL")
    if row["column_default"] not in (None, "NULL"):  # MariaDB writes NULL as text
        words.append(f"DEFAULT {row['column_default']}")
    if row["extra"]:
        words.append(str(row["extra"]))
    if row.get("generation_expression"):
        words.append(f"AS {row['generation_expression']}")
    return " ".join(words)


def _part(row: Mapping[str, Any]) -> str:
    length = f"({row['sub_part']})" if row["sub_part"] else ""
    order = " DESC" if row["collation"] == "D" else ""
    return f"{row['column_name'] or row.get('expression')}{length}{order}"


def _sorted(rows: Iterable[dict[str, Any]], by: str) -> _Facts:
    return sorted(rows, key=lambda row: int(row[by]))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
