"""What the whole run has left, drawn on by threads and processes at a time."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path

import pytest

from pytest_intercode.core.usage import RunLimits, Usage
from pytest_intercode.rollouts.budgets import RunBudget


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (RunLimits(turns=3), "the run's 3 turns are used up"),
        (RunLimits(tokens=20), "the run's 20 tokens are used up"),
        (RunLimits(cost=0.4), "the run's budget of 0.4 in cost is used up"),
    ],
)
def test_the_budget_of_a_run(limits: RunLimits, said: str) -> None:
    budget = RunBudget(limits)
    said_so = [budget.charge(Usage(1, 5, 5, 0.2), turns=2) for _ in range(3)]
    assert said_so == ["", said, said]
    assert budget.charge() == said


def test_the_time_of_a_run() -> None:
    budget = RunBudget(RunLimits(seconds=60))
    assert 59 < (budget.seconds_left or 0) <= 60
    assert budget.charge() == ""
    late = RunBudget(RunLimits(seconds=60), began=time.time() - 61)
    assert late.seconds_left == 0
    assert late.charge() == "the run's 60 seconds are used up"
    assert RunBudget(RunLimits()).seconds_left is None


def _draw(path: str, times: int) -> None:
    budget = RunBudget(RunLimits(tokens=10**9), path=Path(path))
    for _ in range(times):
        budget.charge(Usage(1, 1, 1, 0.5), turns=1)
    limited = RunBudget(RunLimits(turns=300), path=Path(f"{path}.turns"))
    taken = 0
    while not limited.begin_turn():
        limited.end_turn(bool(taken % 7))
        with Path(f"{path}.taken").open("a") as file:
            file.write("x" * bool(taken % 7))
        taken += 1


def test_processes_draw_on_one_budget(tmp_path: Path) -> None:
    path = tmp_path / "budget"
    path.touch()
    (tmp_path / "budget.turns").touch()
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=_draw, args=(str(path), 200)) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join()
        assert other.exitcode == 0
    assert len((tmp_path / "budget.taken").read_text()) == 300
    assert RunBudget(RunLimits(turns=601), path=path).charge() == ""
    assert "600 turns" in RunBudget(RunLimits(turns=600), path=path).charge()
    assert "1,200 tokens" in RunBudget(RunLimits(tokens=1200), path=path).charge()
    assert "300 in cost" in RunBudget(RunLimits(cost=300), path=path).charge()


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_threads_take_no_turn_too_many(limit: int) -> None:
    budget = RunBudget(RunLimits(turns=limit))
    taken: list[int] = []
    under_way: list[int] = []

    def play() -> None:
        while not budget.begin_turn():
            under_way.append(1)
            assert len(under_way) <= limit
            time.sleep(0.0001)
            under_way.pop()
            taken.append(1)
            budget.end_turn(True)

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == limit


def test_a_turn_that_came_to_nothing_is_there_for_others() -> None:
    budget = RunBudget(RunLimits(turns=2))
    assert budget.begin_turn() == budget.begin_turn() == ""
    assert budget.begin_turn() == budget.charge() == "the run's 2 turns are used up"
    budget.end_turn(False)
    assert budget.charge() == budget.begin_turn() == ""
    budget.end_turn(True)
    assert budget.begin_turn()


@pytest.mark.parametrize(
    "limits", [RunLimits(tokens=20), RunLimits(cost=0.4), RunLimits(turns=9, tokens=20)]
)
def test_no_turn_begins_once_anything_is_used_up(limits: RunLimits) -> None:
    budget = RunBudget(limits)
    assert budget.begin_turn() == ""
    budget.end_turn(True)
    said = budget.charge(Usage(1, 10, 10, 0.4))
    assert budget.begin_turn() == said != ""
    late = RunBudget(RunLimits(turns=9, seconds=1), began=time.time() - 2)
    assert late.begin_turn() == "the run's 1 seconds are used up"
