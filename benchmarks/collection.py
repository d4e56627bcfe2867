"""Collecting 10,000 tasks, against pytest collecting 10,000 parametrized empty tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measuring import Scale, in_turn, seconds
from benchmarks.runs import temporary_folder
from benchmarks.table import Bound, Part, against


def measure(scale: Scale) -> Part:
    """Measure both, as whole processes."""
    tasks = scale.pick(10_000, 100)
    with temporary_folder() as folder:
        empty_tests(folder.path, tasks)
        task_rows(folder.path, tasks)
        times = in_turn(
            {
                "empty": lambda: pytest_process(folder.path, "--co", "test_empty.py"),
                "ours": lambda: pytest_process(folder.path, "--co", "suite.yaml"),
            },
            scale.pick(5, 1),
        )
    part = Part("collection")
    name, reference = f"collecting {tasks:,} tasks (JSONL)", f"{tasks:,} empty tests"
    bound = Bound("at most", 2)
    part.rows.append(against(name, times["ours"], reference, times["empty"], bound))
    return part


def empty_tests(folder: Path, count: int) -> None:
    """Write ``test_empty.py``, with many tests that do nothing."""
    (folder / "test_empty.py").write_text(
        f"import pytest\n@pytest.mark.parametrize('n', range({count}))\n"
        "def test_nothing(n):\n    pass\n"
    )


def task_rows(folder: Path, count: int) -> None:
    """Write ``suite.yaml``, with many tasks in a file of rows."""
    with (folder / "rows.jsonl").open("w") as rows:
        for n in range(count):
            row = {"query": f"Print {n}.", "gold": f"echo {n}", "tags": ["print"]}
            rows.write(json.dumps(row) + "\n")
    (folder / "suite.yaml").write_text("env: bash\nrows: {path: rows.jsonl}\n")


def pytest_process(folder: Path, *arguments: str) -> float:
    """Return how many seconds a pytest process takes."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    variables = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return seconds(
        lambda: subprocess.run(
            command, cwd=folder, env=variables, check=True, stdout=subprocess.DEVNULL
        )
    )
