"""What tries come to, over rows made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.results.format import from_row
from pytest_intercode.results.summary import groups, summarise
from pytest_intercode.results.tries import counted_tries, key_of
from pytest_intercode.statistics.rates import bootstrap_mean, wilson


def _row(task: str, outcome: str = "solved", repeat: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "environment": "ic_bash",
        "dataset": "set",
        "task_id": task,
        "turn_history": {"actions": ["ls", "submit"]},
        "summary": {"turns_taken": 2},
        "outcome": outcome,
        "reward": 1.0 if outcome == "solved" else 0.25,
        "seconds": 3.0,
        "suite": "suite",
        "hardness": "easy",
        "tags": [],
        "repeat": repeat,
        **more,
    }


def _tries(*rows: dict[str, Any]) -> list[EpisodeRecord]:
    return counted_tries(map(from_row, rows))


def test_one_try_a_task() -> None:
    made = summarise(_tries(_row("a"), _row("b"), _row("c", "failed", seconds=6.0)))
    assert (made.tasks, made.tries, made.graded, made.infrastructure_errors, made.solved) == (
        3,
        3,
        3,
        0,
        2,
    )
    assert made.rate == pytest.approx(2 / 3)
    assert made.rate_interval == pytest.approx(wilson(2, 3))
    assert made.reward == pytest.approx(0.75)
    assert made.reward_interval == bootstrap_mean([[1.0], [1.0], [0.25]])
    assert made.pass_at == made.pass_hat == {1: pytest.approx(2 / 3)}
    assert (made.turns, made.seconds, made.tokens, made.cost) == (2, 4, 0, None)


def test_repeats() -> None:
    made = summarise(
        _tries(
            *(_row("a", "solved", n) for n in (1, 2, 3)),
            *(_row("b", "solved" if n == 2 else "out-of-budget", n) for n in (1, 2, 3)),
        )
    )
    assert (made.tasks, made.tries, made.solved) == (2, 6, 4)
    assert made.rate == made.pass_at[1] == made.pass_hat[1] == pytest.approx(4 / 6)
    assert made.pass_at == {
        1: pytest.approx(2 / 3),
        2: pytest.approx((1 + 2 / 3) / 2),
        3: pytest.approx(1.0),
    }
    assert made.pass_hat == {1: pytest.approx(2 / 3), 2: pytest.approx(0.5), 3: pytest.approx(0.5)}
    # The tries of a task are alike: six of them tell less than six tasks.
    assert made.rate_interval is not None
    alone = wilson(4, 6)
    assert made.rate_interval.low < alone.low
    assert made.rate_interval.high > alone.high


def test_infrastructure_counts_in_nothing_but_what_was_spent() -> None:
    broken = _row("b", "infrastructure-error", reward=0.0, seconds=99.0)
    spent = {"input_tokens": 10, "output_tokens": 5, "cost": 0.5}
    made = summarise(_tries(_row("a", usage=spent), {**broken, "usage": spent}))
    assert (made.tasks, made.tries, made.graded, made.infrastructure_errors) == (2, 2, 1, 1)
    assert (made.rate, made.reward, made.seconds) == (1.0, 1.0, 3.0)
    assert made.rate_interval == wilson(1, 1)
    assert (made.tokens, made.cost) == (30, 1.0)


def test_a_task_error_is_not_the_infrastructures() -> None:
    made = summarise(_tries(_row("a"), _row("b", "task-error"), _row("c", "infrastructure-error")))
    assert (made.graded, made.infrastructure_errors, made.task_errors, made.rate) == (1, 1, 1, 1.0)


def test_a_failed_try_lowers_k_and_not_the_rate() -> None:
    made = summarise(
        _tries(
            *(_row("a", "solved", n) for n in (1, 2, 3)),
            _row("b", "solved", 1),
            _row("b", "infrastructure-error", 2),
            _row("b", "failed", 3),
        )
    )
    assert made.pass_at == {1: pytest.approx(0.75), 2: 1.0}
    assert made.rate == pytest.approx(4 / 5)


def test_nothing_graded_and_nothing_at_all() -> None:
    made = summarise(_tries(_row("a", "infrastructure-error")))
    assert (made.tasks, made.graded, made.rate, made.rate_interval) == (1, 0, None, None)
    assert (made.reward, made.reward_interval, made.turns, made.seconds) == (None,) * 4
    assert made.pass_at == made.pass_hat == {}
    assert summarise([]).tasks == 0


def test_rows_of_intercode() -> None:
    row = {
        "environment": "ic_sql",
        "dataset": "spider.json",
        "task_id": 4,
        "query": "",
        "turn_history": {"actions": ["a", "b", "c"]},
        "summary": {"max_reward": 1.0},
    }
    made = summarise(_tries(row))
    assert (made.rate, made.turns, made.seconds, made.cost) == (1.0, 3, None, None)


def test_groups() -> None:
    tries = _tries(
        _row("a", tags=["x", "y"]),
        _row("b", tags=["y"], hardness="", environment="ic_sql"),
        _row("c", tags=[], hardness="hard", dataset=""),
    )
    found = {
        by: {
            name: [key_of(each).task for each in those] for name, those in groups(tries, by).items()
        }
        for by in ("env", "dataset", "hardness", "tag")
    }
    assert found == {
        "env": {"bash": ["a", "c"], "sql": ["b"]},
        "dataset": {"set": ["a", "b"], "-": ["c"]},
        "hardness": {"easy": ["a"], "-": ["b"], "hard": ["c"]},
        "tag": {"x": ["a"], "y": ["a", "b"], "-": ["c"]},
    }
