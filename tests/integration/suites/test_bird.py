"""BIRD's two layouts, on a small development set of our own making, through a real run."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.environments.sql.fields import database_of
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.conftest import results

MANIFEST = bundled_folder("tasks") / "datasets" / "bird.yaml"
DATABASES = {
    "harbour": """
        CREATE TABLE boat (id INTEGER PRIMARY KEY, name TEXT, metres REAL, kind TEXT);
        INSERT INTO boat VALUES (1, 'Gull', 9.5, 'S'), (2, 'Tern', 12, 'M'), (3, 'Skua', 7, 'S');
    """,
    "orchard": """
        CREATE TABLE tree (id INTEGER PRIMARY KEY, fruit TEXT, planted TEXT);
        INSERT INTO tree VALUES (1, 'apple', '2001-04-01'), (2, 'pear', NULL), (3, 'apple', NULL);
    """,
}
ROWS: list[dict[str, Any]] = [
    {
        "question_id": 0,
        "db_id": "harbour",
        "question": "How long is the longest sailing boat?",
        "evidence": "sailing boats have kind = 'S'",
        "SQL": "SELECT max(metres) FROM boat WHERE kind = 'S'",
        "difficulty": "simple",
    },
    {
        "question_id": 1,
        "db_id": "orchard",
        "question": "Which fruits grow there? Most trees first.",
        "evidence": "",
        "SQL": "SELECT fruit FROM tree GROUP BY fruit ORDER BY count(*) DESC",
        "difficulty": "moderate",
    },
    {
        "question_id": 2,
        "db_id": "quarry",
        "question": "Is there a database?",
        "evidence": "",
        "SQL": "SELECT 1",
        "difficulty": "challenging",
    },
]


def _databases(folder: Path) -> None:
    for name, script in DATABASES.items():
        (folder / name).mkdir(parents=True)
        connection = sqlite3.connect(folder / name / f"{name}.sqlite")
        connection.executescript(script)
        connection.close()


@pytest.fixture
def own_layout(tmp_path: Path) -> Path:
    """BIRD's development set as it is unpacked."""
    folder = tmp_path / "dev"
    _databases(folder / "dev_databases")
    (folder / "dev.json").write_text(json.dumps(ROWS))
    return folder


@pytest.fixture
def intercodes_layout(tmp_path: Path) -> Path:
    """InterCode's data folder, with BIRD's databases put beside its tasks."""
    folder = tmp_path / "data"
    _databases(folder / "sql" / "bird" / "dev_databases")
    rows = [
        {**row, "query": row["question"], "gold": row["SQL"], "db": row["db_id"]} for row in ROWS
    ]
    (folder / "sql" / "bird" / "ic_bird.json").write_text(json.dumps(rows))
    return folder


def test_tasks_of_the_own_layout(own_layout: Path) -> None:
    first, second, third = load_suite(MANIFEST, own_layout).tasks
    assert (first.id, first.dataset, first.env) == ("bird-dev-00000", "bird-dev", "sql")
    assert first.query == (
        "How long is the longest sailing boat?\nHint: sailing boats have kind = 'S'"
    )
    assert second.query == "Which fruits grow there? Most trees first."
    assert [task.hardness for task in (first, second, third)] == [
        "simple",
        "moderate",
        "challenging",
    ]
    assert first.gold == (ROWS[0]["SQL"],)
    assert (database_of(first).engine, database_of(first).name) == ("sqlite", "harbour")
    view = first.view()
    assert (view.engine, view.database) == ("sqlite", "harbour")
    assert "max(metres)" not in repr(view)
    assert (first.skip, second.skip) == (None, None)
    assert third.skip == (
        f"database: {own_layout}/dev_databases/quarry/quarry.sqlite is not a file"
    )


def test_tasks_of_intercodes_layout(intercodes_layout: Path) -> None:
    tasks = load_suite(MANIFEST, intercodes_layout).tasks
    assert [(task.id, task.dataset) for task in tasks] == [
        ("bird-00000", "bird"),
        ("bird-00001", "bird"),
        ("bird-00002", "bird"),
    ]
    assert tasks[0].query.endswith("\nHint: sailing boats have kind = 'S'")
    assert [task.skip is None for task in tasks] == [True, True, False]


def test_a_folder_with_neither(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"has none of sql/bird/ic_bird\.json, dev\.json"):
        load_suite(MANIFEST, tmp_path)


def _content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("layout", ["own_layout", "intercodes_layout"])
def test_a_run(
    pytester: pytest.Pytester,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    folder: Path = request.getfixturevalue(layout)
    before = _content(folder)
    name = "bird-dev" if layout == "own_layout" else "bird"
    arguments = (f"--intercode-dataset={name}", f"--intercode-data={folder}", "-rs")
    result = pytester.runpytest(
        *arguments, "--intercode-agent=oracle", "--intercode-results=r.jsonl"
    )
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["*quarry/quarry.sqlite is not a file"])
    assert [row["reward"] for row in results(pytester.path / "r.jsonl")] == [1.0, 1.0]
    pytester.makepyfile(
        idle="def act(observation):\n    return 'submit'\n",
        wrong="def act(observation):\n    return 'submit SELECT fruit FROM tree ORDER BY fruit'\n",
    )
    for agent in ("idle:act", "wrong:act"):
        result = pytester.runpytest(*arguments, f"--intercode-agent={agent}")
        result.assert_outcomes(failed=2, skipped=1)
    assert _content(folder) == before
