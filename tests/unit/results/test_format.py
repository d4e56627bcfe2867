"""The format of a line: records to rows and back, files of every shape, and their mistakes."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import execnet
import numpy as np
import pytest

from pytest_intercode.core.record import EpisodeRecord, FirstScore, ShardRecord, TaskRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation, Turn
from pytest_intercode.core.usage import Usage
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results import files
from pytest_intercode.results.files import ResultsFile, read_records, read_results
from pytest_intercode.results.format import from_line, from_row, to_line, to_row
from pytest_intercode.results.schema import json_schema
from pytest_intercode.system.digest import digest

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
        "turns": (
            Turn("ls", "a\n", True, 0.0, 0.12345678),
            Turn("cat ünï \udc80", "no\n", False, 0.5, 0.5, {"output": 0.5}),
            Turn("submit", "", True, 0.25, 0.1, {"output": 0.25}),
        ),
        "max_turns": 10,
        "seconds": 1.23456,
        "profile": "strict",
        "agent": "mine:Agent",
        "parts": {"output": 0.25},
        "reason": "why",
        "detail": "at length",
        "attempts": ("the sandbox died",),
        "state": {"agent": {"output": ""}},
    }
    return EpisodeRecord(**{**fields, **more})


def test_the_version_of_parameters_is_written_where_there_is_one() -> None:
    assert "parameters_version" not in to_row(_episode())
    row = to_row(_episode(parameters_version=7))
    assert row["parameters_version"] == 7
    assert from_row(row).parameters_version == 7


def test_row() -> None:
    row = to_row(_episode(node_id="suite.yaml::test_solves[t-1]"))
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
        "format_version": 2,
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


def test_the_bytes_of_a_line_are_as_they_were() -> None:
    turn = Turn("ls", "a", None, 1.0, 0.1, {"p": 1.0}, True, "hm", "said", Usage(1), 0.2, "exact")
    record = _episode(
        turns=(turn,),
        **{"usage": Usage(2, 30, 4, 0.5, 20), "log": "end", "left_behind": ("a thread",)},
        **{"sandbox": "docker", "image": "i", "node_id": "n", "test_output": "1 failed"},
        **{"image_digest": "x@sha256:0", "parameters_version": 3, "host": "h"},
        **{"phases": {"agent": (1.0, 2.0)}, "test_passed": False, "item": 0, "run_name": "r"},
        **{"shard": ShardRecord(1, 2, 3, "d", {"env": "bash"}), "refused_hosts": ("a.b",)},
        **{"superseded": True, "rescored_from": FirstScore("paper", 0.5), "reward_function": "f"},
        extra={"later": 1, "turn_history": {"steps": ["one"]}},
    )
    usage = '"input_tokens": 0, "output_tokens": 0, "cost": null'
    assert to_line(record) == (
        '{"environment": "ic_bash", "dataset": "set", "task_id": "t-1", "query": "Do it.", '
        '"turn_history": {"actions": ["ls"], "observations": ["a"], "rewards": [1.0], '
        '"valid_action": [null], "thoughts": ["hm"], "steps": ["one"]}, '
        '"summary": {"max_reward": 1.0, "max_reward_idx": 0, "turns_taken": 1, "turns_max": 10}, '
        '"format_version": 2, "outcome": "failed", "reward": 0.25, "reward_parts": '
        '{"output": 0.25}, "reason": "why", "detail": "at length", "seconds": 1.235, '
        '"turn_seconds": [0.1], "turn_parts": [{"p": 1.0}], "turn_agent_seconds": [0.2], '
        '"turn_passed": [true], "turn_answers": ["exact"], "turn_logs": ["said"], '
        f'"turn_usage": [{{"requests": 1, {usage}}}], "usage": {{"requests": 2, '
        '"input_tokens": 30, "output_tokens": 4, "cost": 0.5, "cached_tokens": 20}, '
        '"log": "end", "left_behind": ["a thread"], "suite": "suite", "hardness": "easy", '
        '"tags": ["x", "y"], "profile": "strict", "agent": "mine:Agent", "agent_arguments": {}, '
        f'"sandbox": "docker", "image": "i", "task_digest": "{digest(_TASK)}", "repeat": 1, '
        '"node_id": "n", "attempts": ["the sandbox died"], "end_state": {"agent": '
        '{"output": ""}}, "test_output": "1 failed", "image_digest": "x@sha256:0", '
        '"parameters_version": 3, "host": "h", "phases": {"agent": [1.0, 2.0]}, '
        '"test_passed": false, "item": 0, "run_name": "r", "shard": {"part": 1, "parts": 2, '
        '"items": 3, "durations": "d", "options": {"env": "bash"}}, "refused_hosts": ["a.b"], '
        '"superseded": true, "rescored_from": {"profile": "paper", "reward": 0.5, '
        '"outcome": "", "file": ""}, "reward_function": "f", "later": 1}'
    )


def test_the_bytes_of_published_recordings_are_as_they_were(recordings: Path) -> None:
    lines = hashlib.sha256()
    for path in sorted(recordings.glob("*.json.gz")):
        for record in read_records(path):
            lines.update(f"{to_line(record)}\n".encode("ascii"))
    assert lines.hexdigest() == "7561e5b6d02786bf333e19b3b424b28bb9ad09fc8608c76d9eb32435b01abc21"


def test_where_and_when_it_ran() -> None:
    digest = f"a.b/c/pytest-intercode@sha256:{'0' * 64}"
    record = _episode(
        host="node-1 ünï",
        image_digest=digest,
        phases={"prepare": (1.0004, 0.25), "run": (1.25, 3)},
    )
    row = json.loads(to_line(record))
    assert row["host"] == "node-1 ünï"
    assert row["image_digest"] == from_row(row).image_digest == digest
    assert row["phases"] == {"prepare": [1.0, 0.25], "run": [1.25, 3]}
    again = from_row(row)
    assert (again.host, again.phases) == (record.host, {"prepare": (1.0, 0.25), "run": (1.25, 3)})
    assert to_row(again) == row
    wrong: list[object] = [{"run": [1.0]}, {"run": ["now", 1]}, [], {"run": [1, 2, 3]}]
    for phases in wrong:
        with pytest.raises(ConfigurationError, match=r"phases"):
            from_row({**row, "phases": phases})


def test_row_without_turns() -> None:
    row = to_row(_episode(turns=(), reward=1.0))
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
    row = to_row(_episode(turns=(turn,), **more))
    assert _types(row) <= {dict, list, str, float, int, bool, type(None)}
    assert "s3cret" not in json.dumps(row)


def test_line_travels_from_an_xdist_worker() -> None:
    broken = "half of a smile: \ud83d"  # no UTF-8 can be made of it
    line = to_line(_episode(turns=(Turn(broken, broken, True),), reason=broken, detail=broken))
    assert execnet.loads(execnet.dumps(line)) == line
    assert from_line(line).turns[0].action == "half of a smile: \\ud83d"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "deep" / "er" / "run.jsonl"
    rows = [to_row(_episode(node_id="a")), to_row(_episode(turns=(), node_id="b"))]
    file = ResultsFile(path)
    for number, row in enumerate(rows, 1):
        file.write(json.dumps(row))
        assert file.written == number
        assert len(path.read_text().splitlines()) == number  # before it is closed
    file.close()
    if suffix:
        packed = path.with_name("run.jsonl.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path = packed
    assert read_results(path) == rows
    assert [to_row(record) for record in read_records(path)] == rows


def test_a_record_comes_back() -> None:
    used = Usage(2, 30, 4, 0.5, 20, 5, 3)
    turn = Turn("ls", "a", None, 1.0, 0.1, {"p": 1.0}, True, "hm", "said", used, 0.2, "exact")
    turn = replace(turn, tool="Bash", status=0)
    record = _episode(
        turns=(turn, Turn("submit", "", False)),
        usage=used,
        log="end",
        test_output="1 failed",
        test_passed=False,
        run_name="nightly",
        left_behind=("a thread",),
        sandbox="docker",
        image="sha",
        node_id="x::y",
        agent_arguments={"model": "m"},
        seconds=1.5,
        superseded=True,
        rescored_from=FirstScore("paper", 0.5, "failed", "a.jsonl"),
        reward_function="mine.py:f",
        extra={"later": [1, {"x": None}], "turn_history": {"steps": ["one"]}},
    )
    assert from_line(to_line(record)) == record
    assert from_line(to_line(_episode(state={"output": "\udc80"}))).state == {"output": "\udc80"}


def test_a_status_of_0_is_not_an_empty_one() -> None:
    row = to_row(_episode(turns=(Turn("ls", "", True, status=0), Turn("submit", "", True))))
    assert row["turn_status"] == [0, None]
    assert "turn_tools" not in row
    assert "turn_status" not in to_row(_episode(turns=(Turn("ls", "", True),)))


@pytest.mark.parametrize(
    ("tool", "action", "arguments"),
    [
        ("edit", 'edit({"path": "a", "n": [1]})', {"path": "a", "n": [1]}),
        ("apply_patch", 'apply_patch("*** Begin")', {"input": "*** Begin"}),
        ("edit", "edit({})", {}),
        ("Bash", "ls -l", None),
        ("Bash", "Bash() { ls; }", None),
        ("", 'edit({"path": "a"})', None),
        ("edit", "edit(" + "[" * 10_000, None),
    ],
)
def test_the_arguments_of_a_tool_are_in_its_action(
    tool: str, action: str, arguments: dict[str, Any] | None
) -> None:
    assert Turn(action, "", None, tool=tool).arguments == arguments


def test_parts_of_tokens_are_in_a_row_where_there_are_any() -> None:
    turn = Turn("ls", "a", None, 1.0, 0.1, {}, usage=Usage(1, 30, 4, 0.5, 20))
    row = to_row(_episode(turns=(turn, Turn("submit", "", False)), usage=turn.usage))
    plain = {"requests": 1, "input_tokens": 30, "output_tokens": 4, "cost": 0.5}
    none = {"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost": None}
    assert row["usage"] == {**plain, "cached_tokens": 20}
    assert row["turn_usage"] == [{**plain, "cached_tokens": 20}, none]
    assert from_row({**row, "usage": plain}).usage == Usage(1, 30, 4, 0.5)  # of an older version


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
        ("run.jsonl", b"{}\nx\n", ":1: not a recorded episode: it has no task_id"),
        ("run.jsonl", b"\xff", ": is not UTF-8 text; a results file is needed"),
        ("run.gz", b"plain", ": cannot be read: Not a gzipped file"),
        ("run.gz", gzip.compress(b"[]", mtime=0)[:10] + b"\xff" * 20, ": cannot be read: Error -3"),
        (
            "run.gz",
            gzip.compress(b"[]" * 99, mtime=0)[:-4],
            ": cannot be read: Compressed file ended",
        ),
        ("run.json", b"5", ":1: not a recorded episode: it is not an object"),
        ("run.json", b"[1]", ", row 0: not a recorded episode: it is not an object"),
        (
            "run.json",
            b'{"foo": 1}',
            ":1: not a recorded episode: it has no task_id",
        ),
        ("run.json", b'{"a": {}}', ", row 0: not a recorded episode: it has no task_id"),
        (
            "run.json",
            b'[{"task_id": 1}]',
            ", row 0: not a recorded episode: it has no turn_history.actions",
        ),
        (
            "run.json",
            json.dumps([_recorded(0), {"turn_history": {"actions": []}}]).encode(),
            ", row 1: not a recorded episode: it has no task_id",
        ),
        (
            "run.json",
            json.dumps({"turn_history": {"actions": [1]}, "task_id": 0}).encode(),
            ":1: not a recorded episode: turn_history.actions[0] is not a string",
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
        ("model", False),
    ],
)
def test_keys_are_not_written_down(name: str, hidden: bool) -> None:
    row = to_row(_episode(agent_arguments={name: "sk-123"}))
    assert row["agent_arguments"] == {name: "(hidden)" if hidden else "sk-123"}


# -- absurd sizes, and versions


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task_id": 10**400}, "task_id is neither text nor a number"),
        ({"task_id": True}, "task_id is neither text nor a number"),
        ({"repeat": 10**30}, "repeat is not a number of a sensible size"),
        ({"reward": 10**400, "outcome": "failed"}, "reward is not a number"),
        ({"outcome": "won", "reward": 1.0}, "outcome is not one of solved, failed, out-of-budget"),
        (
            {"format_version": 3},
            "it was written by a newer version; this one reads format_version up to 2",
        ),
        ({"turn_usage": [{"requests": "1"}]}, "turn_usage[0].requests is not a whole number"),
        ({"further": json.loads("[" * 300 + "]" * 300)}, "further is nested too deeply"),
        ({"end_state": json.loads('{"a": ' * 300 + "{}" + "}" * 300)}, "end_state is nested too"),
        (
            {"outcome": "failed", "reward": 0.0, "turn_parts": [{"rows": 1.0}]},
            "it has turn_parts but no turn_history.rewards",
        ),
    ],
)
def test_values_that_nobody_writes(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({**_recorded(0), **change}) + "\n")
    with pytest.raises(ConfigurationError) as caught:
        read_records(path)
    assert str(caught.value).startswith(f"{path}:1: not a recorded episode: {said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("9" * 5000, ": not JSON: a number is too long"),
        (
            '{"a": ' + "9" * 5000 + "}\n",
            ":1: not JSON: a number is too long; a results file is needed, as "
            "--intercode-results writes it, or InterCode's",
        ),
        ("[" * 100_000, ": not JSON: nested too deeply"),
        (
            '{"environment": "ic_sql", "a": ' + "[" * 100_000,
            ":1: not JSON: nested too deeply",
        ),
    ],
)
def test_texts_that_python_refuses(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="^" + re.escape(f"{path}{said}") + "$"):
        read_records(path)


@pytest.mark.parametrize("name", ["results.jsonl", "results.jsonl.gz"])
def test_files_that_are_larger_than_is_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    if name.endswith(".gz"):
        monkeypatch.setattr(files, "_MAX_SIZE", 1024**2)
        path.write_bytes(gzip.compress(bytes(1024**2 + 1)))
    else:
        with path.open("wb") as file:
            file.truncate(2 * 1024**3 + 1)
    with pytest.raises(ConfigurationError, match=r"is too large: at most \d GiB are read"):
        read_records(path)


def test_a_line_of_version_1() -> None:
    row = to_row(_episode(extra={"note": "mine"}))
    del row["format_version"]
    record = from_row(row)
    assert (record.format_version, record.extra) == (1, {"note": "mine"})
    assert {**row, "format_version": 1} == to_row(record)
    assert list(to_row(record))[-1] == "note"


# -- InterCode's files


def test_an_episode_of_intercodes() -> None:
    record = from_row({**_recorded(7, "ls"), "summary": {"max_reward": 1.0, "turns_max": 10}})
    assert (record.format_version, record.outcome, record.reward) == (0, "solved", 1.0)
    assert (record.task.id, record.task.env, record.max_turns) == ("7", "bash", 10)
    assert record.turns == (Turn("ls", "", None),)
    assert from_line(to_line(record)) == record


def test_actions_of_react_are_unwrapped() -> None:
    row = _recorded(0, "execute[SELECT 1]", " execute[ls] ", "submit", "execute[half")
    assert from_row(row).turns[0].action == "execute[SELECT 1]"
    row["turn_history"]["thoughts"] = ["a", "b", "c"]
    record = from_row(row)
    assert [turn.action for turn in record.turns] == ["SELECT 1", "ls", "submit", "execute[half"]
    assert [turn.thought for turn in record.turns] == ["a", "b", "c", ""]
    assert from_row(row | {"outcome": "failed", "reward": 0.0}).turns[0].action.startswith("exec")


def test_a_file_without_valid_action_and_with_gaps() -> None:
    history = {
        "actions": ["ls", "pwd"],
        "observations": ["a", None],
        "rewards": [None],
        "steps": ["first"],
    }
    record = from_row({"task_id": "3", "environment": "ic_ctf", "turn_history": history})
    assert record.turns == (Turn("ls", "a", None), Turn("pwd", "", None))
    assert to_row(record)["turn_history"]["steps"] == ["first"]
    assert to_row(record)["turn_history"]["valid_action"] == [None, None]


def test_plan_and_solve(tmp_path: Path) -> None:
    fenced = ["```BASH\nls -l\npwd\n```", "```bash\nls```", "plain", "echo ```x```"]
    meta = {"data_path": "./data/nl2bash_fs_1.json", "env": "ic_bash", "max_turns": 10}
    episode = {**_recorded(3, *fenced), "summary": {"max_reward": 0.5}}
    bare = {name: episode[name] for name in ("task_id", "query", "turn_history", "summary")}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"meta": meta, "logs": {"0": episode, "7": bare}}))
    whole, short = read_records(path)
    assert [turn.action for turn in whole.turns] == ["ls -l\npwd", "ls", "plain", "echo ```x```"]
    assert (whole.task.id, whole.task.dataset, whole.format_version) == ("3", "x.json", 0)
    assert (short.task.env, short.task.dataset) == ("bash", "./data/nl2bash_fs_1.json")
    assert read_results(path)[1]["turn_history"]["actions"][0] == "ls -l\npwd"


@pytest.mark.parametrize("container", ["list", "object", "one"])
def test_the_human(tmp_path: Path, container: str) -> None:
    turns = [
        {"action": "SELECT 1", "observation": "[(1,)]"},
        {"action": "submit", "observation": None},
    ]
    episode = {
        "environment": "ic_sql",
        "query_idx": 12,
        "query": "One?",
        "gold": "SELECT 1",
        "reward": 1.0,
        "trajectory": turns,
        "info": {},
    }
    path = tmp_path / "human.json"
    shapes = {"list": [episode], "object": {"0": episode}, "one": episode}
    path.write_text(json.dumps(shapes[container]))
    (record,) = read_records(path)
    assert (record.task.id, record.task.query, record.task.env) == ("12", "One?", "sql")
    assert (record.outcome, record.reward, len(record.turns)) == ("solved", 1.0, 2)
    assert record.turns[0] == Turn("SELECT 1", "[(1,)]", None)


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        ({"meta": {}, "logs": {"0": 1}}, "it is not an object"),
        ({"meta": {}, "logs": {"0": {"task_id": 1}}}, "it has no turn_history.actions"),
        ([{"query_idx": 1, "trajectory": [3]}], "turn_history.actions[0] is not a string"),
        ([{"trajectory": []}], "task_id is neither text nor a number"),
    ],
)
def test_shapes_that_are_nearly_those(tmp_path: Path, whole: Any, said: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(
        ConfigurationError, match=re.escape(f"row 0: not a recorded episode: {said}")
    ):
        read_records(path)


# -- the schema

_SCHEMA = Path(__file__).parents[3] / "docs/episode-record.schema.json"


def test_the_schema_is_current() -> None:
    command = "python -m pytest_intercode.results.schema > docs/episode-record.schema.json"
    assert json.loads(_SCHEMA.read_text("utf-8")) == json_schema(), f"run: {command}"


def test_lines_fit_the_schema() -> None:
    schema = json.loads(_SCHEMA.read_text("utf-8"))
    rows = [to_row(_episode()), to_row(from_row(_recorded(0, "ls"))), _recorded(1, "ls")]
    assert all(set(row) <= set(schema["properties"]) for row in rows)
    assert all(set(schema["required"]) <= set(row) for row in rows)
    jsonschema = pytest.importorskip("jsonschema")
    for row in rows:
        jsonschema.validate(row, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**rows[0], "outcome": "won"}, schema)
