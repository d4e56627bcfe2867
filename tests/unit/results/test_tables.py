"""The tables at the end of a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.results.format import from_row
from pytest_intercode.results.tables import detailed_table, markdown, table
from pytest_intercode.results.tries import counted_tries, key_of

_numbers = itertools.count()


def _row(
    dataset: str = "set", hardness: str = "", outcome: str = "solved", **more: Any
) -> dict[str, Any]:
    executed = more.pop("executed", [True])
    return {
        "environment": "ic_bash",
        "task_id": str(next(_numbers)),
        "dataset": dataset,
        "hardness": hardness,
        "outcome": outcome,
        "reward": 1.0 if outcome == "solved" else 0.0,
        "seconds": 1.0,
        "turn_history": {"actions": ["ls"] * len(executed), "valid_action": executed},
        **more,
    }


def _counted(rows: Iterable[dict[str, Any]]) -> list[EpisodeRecord]:
    return counted_tries(map(from_row, rows))


def _table(*rows: dict[str, Any]) -> list[str]:
    return table(_counted({**row, "task_id": str(at)} for at, row in enumerate(rows)))


def _cells(line: str) -> list[str]:
    return line.replace("failed actions", "failed-actions").replace("95% int", "95%-int").split()


def test_what_each_submission_solved_is_said() -> None:
    lines = _table(
        _row(submissions=1),
        _row(submissions=2),
        _row(outcome="failed", submissions=2),
        _row(outcome="failed", submissions=1),
        _row(),  # of a task that allows one
        _row(outcome="task-error", submissions=1),
    )
    assert "solved by submission: 1: 1 (25.0%), 2: 2 (50.0%)" in lines
    assert not [line for line in _table(_row()) if "submission" in line]
    lines = _table(_row(agent="a", submissions=1), _row(agent="b", submissions=2))
    assert "solved by submission of b: 1: 0 (0.0%), 2: 1 (100.0%)" in lines


def test_headings_and_one_group() -> None:
    lines = _table(_row())
    assert _cells(lines[0]) == [
        "env",
        "dataset",
        "hardness",
        "tasks",
        "solved",
        "rate",
        "95%-interval",
        "reward",
        "turns",
        "failed-actions",
        "seconds",
    ]
    assert _cells(lines[1]) == _cells("bash set - 1 1 100.0% 21-100% 1.000 1.0 0.0% 1.00")
    assert lines[2:] == ["outcomes: 1 solved"]


def test_numbers() -> None:
    lines = _table(
        _row(executed=[True, False, True], seconds=2.0),
        _row(outcome="failed", executed=[False], reward=0.5, seconds=0.5),
        _row(outcome="out-of-budget", executed=[True] * 4, reward=0.25),
    )
    assert _cells(lines[1]) == _cells("bash set - 3 1 33.3% 6-79% 0.583 2.7 25.0% 1.17")


def test_order_and_total() -> None:
    hardness = ["zebra", "extra", "hard", "", "medium", "easy", "alpha"]
    lines = _table(
        *(_row("b", name) for name in hardness),
        _row("a", "hard", "failed"),
        _row("a", "easy", environment="ic_sql"),
    )
    assert [tuple(_cells(line)[:3]) for line in lines[1:-2]] == [
        ("bash", "a", "hard"),
        ("bash", "b", "easy"),
        ("bash", "b", "medium"),
        ("bash", "b", "hard"),
        ("bash", "b", "extra"),
        ("bash", "b", "-"),
        ("bash", "b", "alpha"),
        ("bash", "b", "zebra"),
        ("sql", "a", "easy"),
    ]
    assert _cells(lines[-2])[:4] == ["all", "9", "8", "88.9%"]
    assert lines[-1] == "outcomes: 8 solved, 1 failed"


def test_infrastructure_never_counts_against_the_agent() -> None:
    broken = _row(outcome="infrastructure-error", executed=[], seconds=99.0)
    lines = _table(_row(), _row(outcome="failed"), broken, broken, broken)
    assert _cells(lines[1]) == _cells("bash set - 5 1 50.0% 9-91% 0.500 1.0 0.0% 1.00")
    assert lines[-1] == "outcomes: 3 infrastructure-error, 1 solved, 1 failed"


def test_a_task_error_never_counts_against_the_agent() -> None:
    lines = _table(_row(), _row(outcome="task-error", executed=[], seconds=99.0))
    assert _cells(lines[1]) == _cells("bash set - 2 1 100.0% 21-100% 1.000 1.0 0.0% 1.00")
    assert lines[-1] == "outcomes: 1 solved, 1 task-error"


def test_nothing_was_graded() -> None:
    lines = _table(_row(outcome="infrastructure-error", executed=[]))
    assert _cells(lines[1]) == _cells("bash set - 1 0 - - - - - -")
    no_turns = _table(_row(outcome="failed", executed=[]))
    assert _cells(no_turns[1]) == _cells("bash set - 1 0 0.0% 0-79% 0.000 0.0 - 1.00")


def test_columns_line_up() -> None:
    lines = _table(_row("short", "easy"), _row("a-much-longer-name", "medium"))[:-1]
    assert [line.index("easy") for line in lines if "easy" in line] == [lines[0].index("hardness")]
    assert len({len(line) for line in lines}) == 1
    assert all(line == line.rstrip() for line in lines)


def test_markdown_is_the_same_table() -> None:
    rows = [_row("a|b", "easy"), _row("a|b", "hard", "failed")]
    lines = markdown(_counted(rows))
    assert lines[0].startswith("| env | dataset | hardness | tasks | solved | rate |")
    assert lines[1].startswith("| --- | --- | --- | ---: |")
    assert lines[2].startswith("| bash | a\\|b | easy | 1 | 1 | 100.0% | 21-100% |")
    assert lines[4].startswith("| all |  |  | 2 | 1 | 50.0% |")


def test_tries_are_told_from_tasks() -> None:
    rows = [{**_row(outcome=each), "task_id": "t", "repeat": n} for n, each in _THREE]
    assert _cells(table(_counted(rows))[0])[3:6] == ["tasks", "tries", "solved"]
    assert _cells(table(_counted(rows))[1])[3:7] == ["1", "3", "2", "66.7%"]
    assert _cells(detailed_table(_counted(rows))[1])[:4] == ["all", "1", "3", "66.7%"]
    assert _cells(detailed_table(_counted(rows))[1])[5:8] == ["66.7%", "100.0%", "0.0%"]


_THREE = ((1, "solved"), (2, "failed"), (3, "solved"))


@pytest.mark.parametrize("less", [EpisodeRecord.without_trajectory, EpisodeRecord.for_statistics])
def test_records_without_trajectory_make_the_same_tables(
    less: Callable[[EpisodeRecord], EpisodeRecord],
) -> None:
    parts = {"files": 1.0, "gold_alone": 0.5}
    rows = [
        _row("a", tags=["x"], usage={"input_tokens": 3}, reward_parts=parts, seconds=1.234),
        _row("b", "hard", "failed"),
    ]
    full = _counted({**row, "end_state": {"agent": "much"}} for row in rows)
    bare = [less(record) for record in full]
    assert not bare[0].state
    assert table(bare) == table(full)
    assert detailed_table(bare) == detailed_table(full)
    assert [(key_of(each), each.task) for each in bare] == [
        (key_of(each), each.task) for each in full
    ]


def test_tokens_of_caches_are_named() -> None:
    spent = {"requests": 2, "input_tokens": 3000, "output_tokens": 40}
    rows = [_row("a", usage={**spent, "cached_tokens": 2500}), _row("b", usage=spent)]
    assert table(_counted(rows))[-1] == "spent: 4 requests, 6,080 tokens (2,500 cached)"
    assert table(_counted(rows[1:]))[-1] == "spent: 2 requests, 3,040 tokens"


def test_what_gold_by_itself_would_say() -> None:
    alone = [
        _row(reward_parts={"files": 1.0, "gold_alone": 1.0}),
        _row(reward_parts={"files": 1.0, "gold_alone": 0.5}),
        _row(outcome="failed", reward_parts={"files": 0.0, "gold_alone": 0.0}),
        _row(reward_parts={"files": 1.0}),
        _row(outcome="infrastructure-error"),
    ]
    said = "by gold alone, without its alternatives: 2 solved, 50.0%"
    assert said in _table(*alone)
    assert not [line for line in _table(alone[3], alone[4]) if "gold" in line]


def test_one_try_has_no_pass_at_k() -> None:
    rows = [_row("a", "easy", tags=["x", "y"]), _row("a", "hard", "failed", tags=["x"])]
    heading, *lines = map(_cells, detailed_table(_counted(rows)))
    assert heading[:5] == ["by", "value", "tasks", "tries", "rate"]
    assert not [cell for cell in heading if "pass" in cell]
    assert [line[:2] for line in lines] == [
        ["all", "2"],
        ["hardness", "easy"],
        ["hardness", "hard"],
        ["tag", "x"],
        ["tag", "y"],
    ]
