"""The oracle never fails by chance: gold solves its task as often as it is played."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pytest_intercode.core.task import ENVIRONMENTS, Task
from pytest_intercode.results.files import read_results
from pytest_intercode.suites.loader import bundled_folder, load_suite

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("bubblewrap")]

TIMES = 10


def check(folder: Path, tasks: list[Task], *options: str) -> None:
    """Play all tasks ten times, eight at a time; each that may be expected to is always solved."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider"),
        *("--intercode-agent=oracle", "--intercode-sandbox=bubblewrap", "--tb=no"),
        *(f"--intercode-repeat={TIMES}", "--intercode-concurrency=8"),
        *("--intercode-results=r.jsonl", *options),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    rows = read_results(folder / "r.jsonl")
    solved = Counter(row["task_id"] for row in rows if row["outcome"] == "solved")
    played = {row["task_id"] for row in rows}
    # What is not played is skipped: this machine lacks its programs, or its suite says so.
    skipped = f"{TIMES * (len(tasks) - len(played))} skipped"
    assert len(played) > len(tasks) / 2, done.stdout[-3000:] + done.stderr[-3000:]
    assert len(played) == len(tasks) or skipped in done.stdout, done.stdout[-3000:]
    expected = [task.id for task in tasks if not task.xfail and task.id in played]
    reasons = {row["task_id"]: row["reason"] for row in rows if row["outcome"] != "solved"}
    failing = {
        name: f"{solved[name]} of {TIMES} solved: {reasons.get(name, 'it was not played')}"
        for name in expected
        if solved[name] != TIMES
    }
    assert failing == {}, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_on_bundled_suites(env: str, tmp_path: Path) -> None:
    suite = load_suite(bundled_folder("tasks") / f"{env}.yaml")
    check(tmp_path, list(suite.tasks), f"--intercode-env={env}")


def test_on_nl2bash(tmp_path: Path, data: Path) -> None:
    suite = load_suite(bundled_folder("tasks") / "datasets" / "nl2bash.yaml", data)
    options = ("--intercode-dataset=nl2bash", f"--intercode-data={data}")
    check(tmp_path, list(suite.tasks), *options)
