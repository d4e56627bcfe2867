"""Read the state of a whole SQLite database through queries, for tasks that change one.

Tables and views are read with their rows; indexes, triggers and constraints as definitions, in a
form that does not depend on how they were typed. All names include the schema, so that an agent's
temporary tables do not hide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pytest_intercode.databases.protocol import Cell, ResultSet, State, Table
from pytest_intercode.databases.scan import Definitions, Token, is_word, normalised

__all__ = ["Ask", "read_state"]


Ask: TypeAlias = Callable[[Sequence[str]], "list[ResultSet]"]
"""Runs queries; one that fails has an empty, truncated result."""


def read_state(ask: Ask) -> State:
    """Return the state of the database ``main``."""
    listing, objects = ask(
        ["PRAGMA main.table_list", "SELECT type, name, tbl_name, sql FROM main.sqlite_master"]
    )
    shadows = {row[1] for row in listing.rows if row[2] == "shadow"}  # of virtual tables
    tables: dict[str, Table] = {}
    definitions_by_name: dict[str, str] = {}
    table_scripts: dict[str, str] = {}
    definitions = Definitions("sqlite")
    for kind, name, table, sql in objects.rows:
        if name.startswith("sqlite_") or name in shadows:
            continue
        if kind == "table":
            table_scripts[name] = sql or ""
        elif kind == "view":
            (view,) = ask([f"SELECT * FROM main.{_quoted(name)}"])
            view_columns = tuple((column, "") for column in view.columns)
            tables[name] = Table(view_columns, view.rows, view.truncated)
            definitions_by_name[f"view {name.casefold()}"] = ""
        elif sql is not None:
            definitions_by_name[f"{kind} {name.casefold()} on {table.casefold()}"] = (
                definitions.normalised(sql)
            )
    answers = (
        ask([query for name in table_scripts for query in _questions(name)])
        if table_scripts
        else []
    )
    answered = {
        name: answers[4 * index : 4 * index + 4] for index, name in enumerate(table_scripts)
    }
    primary = {name.casefold(): _primary(columns) for name, (columns, *_) in answered.items()}
    for name, (columns, rows, keys, indexes) in answered.items():
        tables[name] = Table(_columns(columns), rows.rows, rows.truncated)
        called = name.casefold()
        constraints = [f"foreign key of {called}: {key}" for key in _foreign_keys(keys, primary)]
        unique = [f"PRAGMA main.index_info({_quoted(index)})" for index in _unique(indexes)]
        for index in ask(unique) if unique else []:
            constraints.append(
                f"unique of {called}: {sorted(str(row[2]).casefold() for row in index.rows)}"
            )
        checks = _checks(definitions.tokens(table_scripts[name]))
        constraints += [f"check of {called}: {check}" for check in checks]
        definitions_by_name.update(dict.fromkeys(constraints, ""))
    if definitions.remaining < 0:
        return State(unreadable="its definitions are longer than what is read")
    return State(tables, definitions_by_name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _questions(name: str) -> list[str]:
    quoted = _quoted(name)
    return [
        f"PRAGMA main.table_xinfo({quoted})",
        f"SELECT * FROM main.{quoted}",
        f"PRAGMA main.foreign_key_list({quoted})",
        f"PRAGMA main.index_list({quoted})",
    ]


def _columns(answer: ResultSet) -> tuple[tuple[str, str], ...]:
    columns = []
    for _, column, declared, required, default, key, hidden in answer.rows:
        words = [_affinity(declared)]
        words += ["NOT NULL"] if required else []
        words += [f"DEFAULT {default}"] if default is not None else []
        words += [f"KEY {key}"] if key else []
        words += ["GENERATED"] if hidden in (2, 3) else []
        if hidden != 1:
            columns.append((column, " ".join(words)))
    return tuple(columns)


def _affinity(declared: str) -> str:
    """Return the affinity of a declared type in SQLite (its manual, "Datatypes", 3.1)."""
    declared = declared.upper()
    for affinity, words in (
        ("INTEGER", ("INT",)),
        ("TEXT", ("CHAR", "CLOB", "TEXT")),
        ("BLOB", ("BLOB",)),
        ("REAL", ("REAL", "FLOA", "DOUB")),
    ):
        if any(word in declared for word in words):
            return affinity
    return "NUMERIC" if declared else "BLOB"


def _primary(columns: ResultSet) -> list[str]:
    """Return the columns of a table's primary key, in the key's order."""
    return [row[1] for row in sorted(columns.rows, key=lambda row: int(row[5])) if row[5]]


def _foreign_keys(answer: ResultSet, primary: Mapping[str, list[str]]) -> list[str]:
    """Return a table's foreign keys; one without columns refers to the primary key."""
    keys: dict[Cell, list[tuple[Cell, ...]]] = {}
    for number, place, target, column, target_column, on_update, on_delete, *_rest in answer.rows:
        if target_column is None:
            target_column = dict(enumerate(primary.get(target.casefold(), []))).get(place)
        keys.setdefault(number, []).append((column, target, target_column, on_update, on_delete))
    return [str(sorted(key, key=repr)).casefold() for key in keys.values()]


def _unique(answer: ResultSet) -> list[str]:
    """Return the indexes that UNIQUE constraints of a table create."""
    return [row[1] for row in answer.rows if row[2] and row[3] == "u"]


def _checks(tokens: Sequence[Token]) -> list[str]:
    checks = []
    end = 0
    for index, token in enumerate(tokens[:-1]):
        if index >= end and is_word(token, "CHECK") and tokens[index + 1].text == "(":
            end = index + 2
            while end < len(tokens) and tokens[end].depth > token.depth:
                end += 1
            checks.append(normalised(tokens[index + 2 : end]))
    return checks
