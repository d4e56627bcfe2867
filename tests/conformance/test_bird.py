"""InterCode's BIRD tasks: they are read, and skipped where their databases are not there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pytest_intercode.databases.scan import split
from pytest_intercode.environments.sql.fields import database_of
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder


def test_tasks(data: Path) -> None:
    tasks = load_suite(bundled_folder("tasks") / "datasets" / "bird.yaml", data).tasks
    assert len([task for task in tasks if task.dataset == "bird"]) == 338
    hardness = Counter(task.hardness for task in tasks if task.dataset == "bird")
    assert hardness == {"simple": 200, "moderate": 88, "challenging": 50}
    for task in tasks:
        file = database_of(task).file
        assert file is not None
        assert (task.skip is None) is file.is_file()
        assert [statement.queries for statement in split(task.gold[0], "sqlite")] == [True]
        assert "Hint: " not in task.query or not task.query.rstrip().endswith("Hint:")
