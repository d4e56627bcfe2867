"""What rows fill in, what may be missing, and the databases and hidden tests of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Database
from pytest_intercode.environments.fields import CallTest, CodeTest, ProgramTest
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.sql.fields import database_of
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.loader import Suite, load_suite

Write = Callable[..., Suite]


@pytest.fixture
def load(tmp_path: Path) -> Write:
    """Write a suite and its rows (``rows.json``), and load it."""

    def write_and_load(text: str, rows: list[dict[str, Any]] | None = None) -> Suite:
        (tmp_path / "suite.yaml").write_text(text, encoding="utf-8")
        if rows is not None:
            (tmp_path / "rows.json").write_text(json.dumps(rows))
        return load_suite(tmp_path / "suite.yaml")

    return write_and_load


def test_each_fills_the_fields_of_a_row(load: Write, tmp_path: Path) -> None:
    (tmp_path / "assets" / "7").mkdir(parents=True)
    (task,) = load(
        """\
env: bash
rows:
  path: rows.json
  query: "{query} (hint: {hint})"
  each:
    workdir: "/ctf/{number}"
    tags: ["t{number}"]
    archive: {path: "assets/{number}", at: "/ctf/{number}"}
    max_turns: 3
""",
        [{"query": "Find it.", "hint": "look", "gold": "g", "number": 7}],
    ).tasks
    assert task.query == "Find it. (hint: look)"
    assert (task.workdir, task.tags, task.max_turns) == ("/ctf/7", ("t7",), 3)
    assert task.archive is not None
    assert (task.archive.path, task.archive.at) == (tmp_path / "assets" / "7", "/ctf/7")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "each: {workdir: '/{nmber}'}",
            "each: the pattern '/{nmber}' names a field that does not exist",
        ),
        ("query: '{hnt}'", "the query pattern '{hnt}' names a field that does not exist: 'hnt'."),
        ("each: {workdri: x}", "workdri: there is no such field. Did you mean 'workdir'?"),
        ("each: {workdir: '{number}'}", "workdir: an absolute path is needed"),
    ],
)
def test_mistakes_in_each(load: Write, tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(
            f"env: bash\nrows: {{path: rows.json, {source}}}\n",
            [{"query": "q", "gold": "g", "number": 7}],
        )
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'rows.json'}, row 0: {message}")
    assert len(said.splitlines()) == 1


def test_optional_sources_may_be_missing_but_not_all(load: Write, tmp_path: Path) -> None:
    text = """\
env: bash
rows:
  - {path: rows.json, optional: true}
  - {path: others.json, optional: true}
"""
    assert len(load(text, [{"query": "q", "gold": "g"}]).tasks) == 1
    (tmp_path / "rows.json").unlink()
    with pytest.raises(SuiteError, match=r"has none of rows\.json, others\.json"):
        load(text)


def test_a_task_whose_optional_archive_is_missing_is_skipped(load: Write, tmp_path: Path) -> None:
    text = "env: bash\ntasks: [{{id: a, query: q, gold: g, archive: {{path: x, optional: {}}}}}]\n"
    (task,) = load(text.format("true")).tasks
    assert task.skip == f"archive: {tmp_path / 'x'} is not a file"
    with pytest.raises(SuiteError, match=r"task .a.: archive: .* is not a file"):
        load(text.format("false"))


_SQL = "env: sql\ntasks:\n  - {{id: a, query: q, gold: select 1, database: {{{}}}}}\n"


def test_databases(load: Write, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("create table t(x);")
    (tmp_path / "b.sql").write_text("")
    (tmp_path / "c.sqlite").write_bytes(b"")
    made = [
        database_of(load(_SQL.format(fields)).tasks[0])
        for fields in (
            "name: shop, script: a.sql",
            "name: shop, engine: mysql, script: [a.sql, b.sql], writes: true",
            "name: shop, file: c.sqlite",
        )
    ]
    assert made == [
        Database("sqlite", "shop", (tmp_path / "a.sql",)),
        Database("mysql", "shop", (tmp_path / "a.sql", tmp_path / "b.sql"), writes=True),
        Database("sqlite", "shop", file=tmp_path / "c.sqlite"),
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("script: a.sql", "task 'a': database.name: this field is missing"),
        ("name: x", "task 'a': database: give either script (SQL that makes the database) or file"),
        ("name: x, script: a.sql, file: b", "task 'a': database: give either script"),
        ("name: x, engine: mysql, file: b", "task 'a': database: a file is for the engine sqlite"),
        ("name: x, engine: oracle, script: a", "task 'a': database.engine: 'oracle' is not one of"),
        ("name: x, script: absent.sql", "task 'a': database: "),
    ],
)
def test_mistakes_in_databases(load: Write, tmp_path: Path, fields: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(_SQL.format(fields))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_tests_of_code(load: Write) -> None:
    (task,) = load(
        """\
env: python
tasks:
  - id: a
    query: q
    gold: "def f(x): return x"
    entry: f
    test_setup: import math
    tests:
      - assert f(1) == 1
      - {input: "3\\n", output: "9\\n"}
      - {arguments: [1, [2]], result: {a: null}}
"""
    ).tasks
    assert PythonFields.of(task).tests == (
        CodeTest("assert f(1) == 1"),
        ProgramTest("3\n", "9\n"),
        CallTest((1, [2]), {"a": None}),
    )
    assert (PythonFields.of(task).entry, PythonFields.of(task).test_setup) == ("f", "import math")
    assert not any(hasattr(task.view(), name) for name in ("tests", "gold", "solution", "entry"))
