"""The results file: what is written, and what is read."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import execnet
import numpy as np
import pytest

from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation, Turn
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.reading import read_results
from pytest_intercode.results.writing import ResultsFile, episode_row
from pytest_intercode.suites.digest import digest

_TASK = Task(
    "t-1",
    "Do it.",
    ("s3cret gold",),
    "bash",
    "suite",
    "set",
    hardness="easy",
    tags=("x", "y"),
)


def _episode(**more: Any) -> EpisodeRecord:
    fields: dict[str, Any] = {
        "task": TaskRecord.of(_TASK, digest(_TASK)),
        "outcome": "failed",
        "reward": 0.25,
        "turns": [
            Turn("ls", "a\n", True, 0.0, 0.12345678),
            Turn("cat ünï \udc80", "no\n", False, 0.5, 0.5, {"output": 0.5}),
            Turn("submit", "", True, 0.25, 0.1, {"output": 0.25}),
        ],
        "max_turns": 10,
        "seconds": 1.23456,
        "profile": "strict",
        "agent": "mine:Agent",
        "parts": {"output": 0.25},
        "reason": "why",
        "detail": "at length",
        "attempts": ["the sandbox died"],
        "state": {"agent": {"output": ""}},
    }
    return EpisodeRecord(**{**fields, **more})


def test_row() -> None:
    row = episode_row(_episode(node_id="suite.yaml::test_solves[t-1]"))
    assert list(row)[:6] == [
        "environment",
        "dataset",
        "task_id",
        "query",
        "turn_history",
        "summary",
    ]
    assert list(row["turn_history"]) == ["actions", "observations", "rewards", "valid_action"]
    assert list(row["summary"]) == ["max_reward", "max_reward_idx", "turns_taken", "turns_max"]
    assert row == {
        "environment": "ic_bash",
        "dataset": "set",
        "task_id": "t-1",
        "query": "Do it.",
        "turn_history": {
            "actions": ["ls", "cat ünï \\udc80", "submit"],
            "observations": ["a\n", "no\n", ""],
            "rewards": [0.0, 0.5, 0.25],
            "valid_action": [True, False, True],
        },
        "summary": {"max_reward": 0.5, "max_reward_idx": 1, "turns_taken": 3, "turns_max": 10},
        "outcome": "failed",
        "reward": 0.25,
        "reward_parts": {"output": 0.25},
        "reason": "why",
        "detail": "at length",
        "seconds": 1.235,
        "turn_seconds": [0.1235, 0.5, 0.1],
        "turn_parts": [{}, {"output": 0.5}, {"output": 0.25}],
        "turn_agent_seconds": [0.0, 0.0, 0.0],
        "usage": {"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost": None},
        "log": "",
        "left_behind": [],
        "suite": "suite",
        "hardness": "easy",
        "tags": ["x", "y"],
        "profile": "strict",
        "agent": "mine:Agent",
        "agent_arguments": {},
        "sandbox": "",
        "image": "",
        "task_digest": digest(_TASK),
        "repeat": 1,
        "node_id": "suite.yaml::test_solves[t-1]",
        "attempts": ["the sandbox died"],
        "end_state": {"agent": {"output": ""}},
    }


def test_row_without_turns() -> None:
    row = episode_row(_episode(turns=[], reward=1.0))
    assert row["summary"] == {
        "max_reward": 1.0,
        "max_reward_idx": 0,
        "turns_taken": 0,
        "turns_max": 10,
    }


def _types(value: object) -> set[type]:
    found = {type(value)}
    if isinstance(value, dict):
        for key, member in value.items():
            found |= _types(key) | _types(member)
    elif isinstance(value, list):
        for member in value:
            found |= _types(member)
    return found


def test_row_is_made_of_builtins_only() -> None:
    turn = Turn(
        Observation("an action that is an observation"),
        Observation("seen"),
        np.bool_(True),  # type: ignore[arg-type]
        np.float64(0.5),
        0.1,
        {"part": np.float64(0.5)},
    )
    more = {"reward": np.float64(0.5), "parts": {"part": np.float64(0.5)}}
    row = episode_row(_episode(turns=[turn], **more))
    assert _types(row) <= {dict, list, str, float, int, bool, type(None)}
    assert "s3cret" not in json.dumps(row)


def test_row_travels_from_an_xdist_worker() -> None:
    broken = "half of a smile: \ud83d"  # no UTF-8 can be made of it
    row = episode_row(_episode(turns=[Turn(broken, broken, True)], reason=broken, detail=broken))
    assert execnet.loads(execnet.dumps(row)) == row
    assert row["turn_history"]["actions"] == ["half of a smile: \\ud83d"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "deep" / "er" / "run.jsonl"
    rows = [episode_row(_episode(node_id="a")), episode_row(_episode(turns=[], node_id="b"))]
    file = ResultsFile(path)
    for number, row in enumerate(rows, 1):
        file.write(row)
        assert file.rows == number
        assert len(path.read_text().splitlines()) == number  # before it is closed
    file.close()
    if suffix:
        packed = path.with_name("run.jsonl.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path = packed
    assert read_results(path) == rows


def test_results_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"^--intercode-results=.*: cannot be written: "):
        ResultsFile(tmp_path / "file" / "run.jsonl")
    with pytest.raises(ConfigurationError, match="Is a directory"):
        ResultsFile(tmp_path)


def _recorded(number: int, *actions: str) -> dict[str, Any]:
    return {
        "environment": "ic_bash",
        "dataset": "x.json",
        "task_id": number,
        "query": "q",
        "turn_history": {"actions": list(actions)},
        "summary": {},
    }


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_json_of_intercode(tmp_path: Path, packed: bool, indent: int | None) -> None:
    rows = [_recorded(0, "ls"), _recorded(1, "pwd", "submit")]
    data = json.dumps({"0": rows[0], "1": rows[1]}, indent=indent).encode()
    path = tmp_path / ("run.json.gz" if packed else "run.json")
    path.write_bytes(gzip.compress(data) if packed else data)
    assert read_results(path) == rows


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([_recorded(0, "ls"), _recorded(1)]),
        f"{json.dumps(_recorded(0, 'ls'))}\n\n{json.dumps(_recorded(1))}\n",
    ],
)
def test_lists_and_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run"
    path.write_text(text)
    assert read_results(path) == [_recorded(0, "ls"), _recorded(1)]


def test_one_line_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(_recorded(0, "ls")) + "\n")
    assert read_results(path) == [_recorded(0, "ls")]


@pytest.mark.parametrize("text", ["", "\n", "{}", "[]"])
def test_nothing_recorded(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    assert read_results(path) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("no.jsonl", None, ": there is no such results file"),
        ("run.jsonl", b"{}\nx\n", ":2: not JSON: Expecting value"),
        ("run.jsonl", b"\xff", ": cannot be read: 'utf-8' codec"),
        ("run.gz", b"plain", ": cannot be read: Not a gzipped file"),
        ("run.gz", gzip.compress(b"[]", mtime=0)[:10] + b"\xff" * 20, ": cannot be read: Error -3"),
        (
            "run.gz",
            gzip.compress(b"[]" * 99, mtime=0)[:-4],
            ": cannot be read: Compressed file ended",
        ),
        ("run.json", b"5", ", row 0: not a recorded episode: it has no turn_history.actions"),
        ("run.json", b"[1]", ", row 0: not a recorded episode: it has no turn_history.actions"),
        ("run.json", b'{"a": 1}', ", row 0: not a recorded episode: it has no turn_history."),
        (
            "run.json",
            json.dumps([_recorded(0), {"turn_history": {"actions": []}}]).encode(),
            ", row 1: not a recorded episode: task_id is missing, or an action is not a string",
        ),
        (
            "run.json",
            json.dumps({"turn_history": {"actions": [1]}, "task_id": 0}).encode(),
            ", row 0: not a recorded episode: task_id is missing, or an action is not a string",
        ),
    ],
)
def test_files_that_are_no_results(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="^" + re.escape(f"{path}{message}")):
        read_results(path)


def test_a_folder_is_no_results(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("api_key", True),
        ("apiKey", True),
        ("TOKEN", True),
        ("client-secret", True),
        ("password", True),
        ("model", False),
        ("max_tokens", False),
        ("keyboard", False),
    ],
)
def test_keys_are_not_written_down(name: str, hidden: bool) -> None:
    row = episode_row(_episode(agent_arguments={name: "sk-123"}))
    assert row["agent_arguments"] == {name: "(hidden)" if hidden else "sk-123"}
