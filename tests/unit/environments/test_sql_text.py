"""What an agent sees of its statements, and what it may type that is no SQL."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from pytest_intercode.databases.protocol import Answer, ResultSet
from pytest_intercode.databases.scan import Dialect, split
from pytest_intercode.environments.sql.text import not_run, show, translate


def _shown(
    answer: Answer,
    statement: str = "select 1",
    *,
    dialect: Dialect = "sqlite",
    max_bytes: int = 10_000,
) -> str:
    (scanned,) = split(statement, dialect)
    return show(scanned, answer, dialect, max_bytes, 10.0)


def _rows(*rows: tuple[Any, ...], columns: tuple[str, ...] = ("a", "b")) -> Answer:
    return Answer(ResultSet(columns, rows))


def test_a_table() -> None:
    rows = _rows((1, "x"), (None, 2.5), (Decimal("3.10"), b"\0\xff"), (date(2024, 1, 31), "l\nm"))
    assert _shown(rows) == (
        "a | b\n1 | x\nNULL | 2.5\n3.10 | x'00ff'\n2024-01-31 | l\\nm\n(4 rows)"
    )
    assert _shown(_rows((timedelta(hours=30), True))) == "a | b\n30:00:00 | True\n(1 row)"
    assert _shown(_rows()) == "a | b\n(0 rows)"


def test_a_single_column_keeps_its_lines() -> None:
    assert _shown(_rows(("a\nb",), columns=("sql",))) == "sql\na\nb\n(1 row)"


def test_only_so_many_rows_are_shown() -> None:
    text = _shown(_rows(*((n, "x") for n in range(1000))))
    assert text.count("\n") == 201
    assert text.endswith(
        "199 | x\n[... only the first 200 rows are shown; the result has 1000 rows ...]"
    )
    cut = Answer(ResultSet(("a",), ((1,),), truncated=True))
    assert _shown(cut).endswith(
        "[... only the first row is shown; the result has more than 1 rows ...]"
    )


def test_only_so_many_bytes_are_shown() -> None:
    rows = _rows(*((n, "é" * 100) for n in range(100)))
    text = _shown(rows, max_bytes=2000)
    assert len(text.encode()) < 2200
    assert "the result has 100 rows ...]" in text
    long = _shown(_rows(("x" * 10_000, 1)), max_bytes=50_000)
    assert "x[... 8000 more characters ...] | 1" in long
    assert len(_shown(_rows(("x" * 10_000, 1)), max_bytes=100)) < 250


@pytest.mark.parametrize(
    ("statement", "affected", "text"),
    [
        ("insert into t values (1)", 1, "OK, 1 row affected"),
        ("update t set a = 1", 0, "OK, 0 rows affected"),
        ("delete from t", 2, "OK, 2 rows affected"),
        ("create table t (a)", 0, "OK"),
        ("begin", 0, "OK"),
    ],
)
def test_statements_without_rows(statement: str, affected: int, text: str) -> None:
    assert _shown(Answer(affected=affected), statement) == text


def test_errors() -> None:
    assert _shown(Answer(error="no such table: x")) == "Error: no such table: x"
    late = Answer(error="interrupted", ended="timeout")
    assert _shown(late) == "Error: stopped after 10 s (interrupted)"
    lost = Answer(error="killed; a new session is there", ended="timeout", lost=True)
    assert _shown(lost) == "Error: killed; a new session is there"
    assert not_run(0) == []
    assert not_run(1) == ["[the statement after it was not run]"]
    assert not_run(2) == ["[the 2 statements after it were not run]"]


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("SHOW TABLES", ".tables lists the tables"),
        ("describe t", ".schema NAME or PRAGMA table_info(NAME)"),
        ("desc t", ".schema NAME"),
        ("use shop", "there is one database"),
        (".headers on", "only .tables and .schema [NAME] are known"),
    ],
)
def test_hints_for_habits_from_elsewhere(statement: str, hint: str) -> None:
    assert hint in _shown(Answer(error="syntax error"), statement)
    assert hint not in _shown(Answer(error="syntax error"), statement, dialect="mysql")


@pytest.mark.parametrize("action", [".tables", "  .tables ; ", ".tables\n"])
def test_tables(action: str) -> None:
    assert "sqlite_master" in translate(action, "sqlite")
    assert translate(action, "mysql") == action


@pytest.mark.parametrize(
    ("action", "part"),
    [
        (".schema", "IS NOT NULL ORDER"),
        (".schema t", "lower('t')"),
        ('.schema "my table";', "lower('my table')"),
        (".schema it's", "lower('it''s')"),
    ],
)
def test_schema(action: str, part: str) -> None:
    assert part in translate(action, "sqlite")


@pytest.mark.parametrize("action", ["", "select 1", ".tables x", ".quit", "-- .tables", ".schemas"])
def test_other_actions_stay_as_they_are(action: str) -> None:
    assert translate(action, "sqlite") == action
