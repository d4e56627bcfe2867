"""The oracle never fails by chance: gold solves its task as often as it is played."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.campaigns.verdicts import Verdicts, busy, play

pytestmark = pytest.mark.usefixtures("bubblewrap")


def check(folder: Path, tasks: list[Task], times: int, *options: str) -> None:
    """Play all tasks, and check that each that may be expected to is always solved."""
    verdicts = Verdicts()
    records = play(folder, "oracle", times, "bubblewrap", *options)
    verdicts.add("oracle", records, {task.id for task in tasks if task.xfail})
    assert verdicts.wrong == []
    # What is not played is skipped: this machine lacks its programs, or its suite says so.
    played = Counter(record.task.id for record in records)
    assert len(played) > len(tasks) / 2
    assert {count for name, count in played.items() if name not in _xfail(tasks)} == {times}


def _xfail(tasks: list[Task]) -> set[str]:
    return {task.id for task in tasks if task.xfail}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("env", BUILTIN_ENVIRONMENTS)
def test_on_bundled_suites(env: str, tmp_path: Path) -> None:
    suite = load_suite(bundled_folder("tasks") / f"{env}.yaml")
    check(tmp_path, list(suite.tasks), 10, f"--intercode-env={env}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_on_nl2bash(tmp_path: Path, data: Path) -> None:
    suite = load_suite(bundled_folder("tasks") / "datasets" / "nl2bash.yaml", data)
    options = ("--intercode-dataset=nl2bash", f"--intercode-data={data}")
    check(tmp_path, list(suite.tasks), 10, *options)


@pytest.mark.slow
def test_under_load(tmp_path: Path) -> None:
    """The campaign in short: two tasks, by gold and by doing nothing."""
    verdicts = Verdicts()
    with busy(1):
        for agent in ("oracle", "idle"):
            (tmp_path / agent).mkdir()
            options = ("--intercode-env=sql", "--intercode-limit=2")
            verdicts.add(agent, play(tmp_path / agent, agent, 2, "bubblewrap", *options), set())
    assert verdicts.wrong == []
    assert verdicts.episodes == 8
