"""Which tries of a run count, and files that end in a truncated line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.files import read_results
from pytest_intercode.results.format import from_row
from pytest_intercode.results.tries import by_task, counted_tries, in_order_of_items, key_of


def _row(task: str = "t", outcome: str = "solved", **more: Any) -> dict[str, Any]:
    return {
        "environment": "ic_bash",
        "suite": "s",
        "task_id": task,
        "query": "q",
        "turn_history": {"actions": []},
        "outcome": outcome,
        "reward": float(outcome == "solved"),
        **more,
    }


def _counted(rows: list[dict[str, Any]]) -> list[EpisodeRecord]:
    return counted_tries(map(from_row, rows))


# -- tries


@pytest.mark.parametrize(
    ("places", "order"),
    [
        ([("a", "s", 2), ("b", "s", 0), ("c", "s", 1)], "bca"),
        ([("a", "s", None), ("b", "t", None), ("c", "s", None)], "abc"),  # as older files are
        ([("a", "s", 0), ("b", "s", None), ("c", "s", 1)], "acb"),
        ([("a", "t", 3), ("b", "s", 1), ("c", "t", 2), ("d", "s", 0)], "dbca"),
        # two shards, each of which counts its own items
        ([("a", "s", 0), ("b", "t", 1), ("c", "s", 0), ("d", "t", 1)], "acbd"),
    ],
)
def test_tries_in_the_order_of_their_items(
    places: list[tuple[str, str, int | None]], order: str
) -> None:
    tries = _counted([_row(task, suite=suite, item=item) for task, suite, item in places])
    assert "".join(each.task.id for each in in_order_of_items(tries)) == order


def test_the_last_row_of_a_try_counts() -> None:
    rows = [
        _row("a", "failed", superseded=True),
        _row("b"),
        _row("a", repeat=1),
        _row("a", "failed", repeat=2),
    ]
    tries = _counted(rows)
    assert [(key_of(each).task, each.task.repeat, each.outcome) for each in tries] == [
        ("b", 1, "solved"),
        ("a", 1, "solved"),
        ("a", 2, "failed"),
    ]
    assert {str(key): len(found) for key, found in by_task(tries).items()} == {"s/b": 1, "s/a": 2}


def test_tries_are_in_order_of_their_numbers() -> None:
    tries = _counted([_row(repeat=3), _row(repeat=1), _row(repeat=2)])
    assert [each.task.repeat for each in next(iter(by_task(tries).values()))] == [1, 2, 3]


def test_a_test_of_ones_own_is_another_try() -> None:
    rows = [
        _row(node_id="s.yaml::test_solves[t]"),
        _row(node_id="intercode/bash::test_solves[t-2]"),
        _row(node_id="test_mine.py::test_mine[t]"),
    ]
    assert [key_of(each).task for each in _counted(rows)] == ["t", "t (test_mine.py::test_mine)"]


@pytest.mark.parametrize(
    ("node_id", "task"),
    [
        ("t/test_rules.py::test_uv[codex-control-2]", "test_uv"),
        ("t/test_rules.py::test_uv[fast-codex]", "test_uv[fast]"),
        ("t/test_rules.py::TestUv::test_uv[codex]", "TestUv::test_uv"),
        ("t/test_rules.py::test_uv[codex]", "test_uv #2"),
    ],
)
def test_a_project_test_is_its_own_task(node_id: str, task: str) -> None:
    (record,) = _counted([_row(task, suite="t/test_rules.py", node_id=node_id)])
    assert str(key_of(record)) == f"t/test_rules.py/{task}"


def test_rows_of_intercode() -> None:
    rows = [
        {
            "task_id": n,
            "dataset": "d",
            "environment": "ic_sql",
            "turn_history": {"actions": []},
            "summary": {"max_reward": reward},
        }
        for n, reward in ((0, 1.0), (1, 0.5), (2, None))
    ]
    tries = _counted(rows)
    assert [
        (key_of(each).suite, key_of(each).task, each.outcome, each.reward) for each in tries
    ] == [
        ("d", "0", "solved", 1.0),
        ("d", "1", "failed", 0.5),
        ("d", "2", "failed", 0.0),
    ]
    assert all(each.graded for each in tries)
    assert not _counted([_row(outcome="infrastructure-error")])[0].graded
    assert not _counted([_row(outcome="task-error")])[0].graded


# -- truncated lines

LINE = json.dumps(_row()).encode()


@pytest.mark.parametrize(
    ("content", "rows", "number"),
    [
        (LINE + b"\n" + LINE + b"\n", 2, None),
        (LINE + b"\n" + LINE, 2, None),
        (LINE + b"\n" + LINE[:40], 1, 2),
        (LINE + b"\n" + LINE[:1], 1, 2),
        (LINE + b"\n\n" + LINE[:-1], 1, 3),
        (LINE[:40], 0, 1),
        (LINE + b"\n" + '{"environment": "ü'.encode()[:-1], 1, 2),
    ],
)
def test_a_truncated_line_is_left_out(
    tmp_path: Path, content: bytes, rows: int, number: int | None
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    said: list[str] = []
    assert len(read_results(path, warn=said.append)) == rows
    why = "its run was killed, or is writing it"
    expected = f"{path}:{number}: the last line is truncated: {why}; it is left out"
    assert said == ([expected] if number else [])
    if number:
        with pytest.raises(ConfigurationError):
            read_results(path)


@pytest.mark.parametrize(
    "content",
    [
        b"{\n" + LINE[1:],  # another program's
        LINE + b"\n{broken}\n" + LINE + b"\n",  # in the middle
        b"notes\nof mine",
    ],
)
def test_what_is_not_truncated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    said: list[str] = []
    try:
        read_results(path, warn=said.append)
    except ConfigurationError as error:
        said.append(str(error).partition("not JSON")[1])
    assert said in ([], ["not JSON"])


def test_intercodes_own_file_is_not_truncated(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"0": _row(), "1": _row()}, indent=1))
    said: list[str] = []
    assert len(read_results(path, warn=said.append)) == 2
    assert said == []


# -- rows that were edited by hand


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"repeat": "x"}, "repeat is not a whole number"),
        ({"repeat": True}, "repeat is not a whole number"),
        ({"reward": "1"}, "reward is not a number"),
        ({"agent_arguments": [1]}, "agent_arguments is not an object"),
        ({"tags": "a"}, "tags is not a list"),
        ({"usage": 3}, "usage is not an object"),
    ],
)
def test_a_value_of_the_wrong_kind(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({**_row(), **change}) + "\n")
    with pytest.raises(ConfigurationError, match=f":1: not a recorded episode: {said}$"):
        read_results(path)


def test_an_outcome_without_its_reward(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({k: v for k, v in _row().items() if k != "reward"}))
    with pytest.raises(ConfigurationError, match="it has an outcome but no reward"):
        read_results(path)
