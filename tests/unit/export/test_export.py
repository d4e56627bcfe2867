"""Exports: valid whatever was recorded, complete, without gold, one line for each mistake."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.export import FORMATS, export
from pytest_intercode.export.actions import clean
from pytest_intercode.export.atif import trajectory
from pytest_intercode.results.files import iterate_records, read_records
from pytest_intercode.results.format import from_row
from tests.support import page_rows
from tests.support.atif_schema import problems

ROOT = Path(__file__).parents[3]
READER = ROOT / "tests/support/inspect_reader.py"
OLD = {
    "environment": "ic_bash",
    "dataset": "nl2bash_fs_1.json",
    "task_id": 3,
    "query": "How many lines?",
    "turn_history": {
        "actions": ["wc -l a", "submit"],
        "observations": ["3", None],
        "rewards": [0.3, 1.0],
        "valid_action": [True, True],
    },
    "summary": {"max_reward": 1.0, "turns_taken": 2, "turns_max": 10},
}
BINARY = "".join(map(chr, range(256))) + "\ud800 \u202e \U0001f600"


def row(number: int = 0, **more: Any) -> dict[str, Any]:
    return {**page_rows.run(8)[number], **more}


def spent(requests: int, cost: float | None, **parts: int) -> dict[str, Any]:
    used = {"requests": requests, "input_tokens": 90, "output_tokens": 7, "cost": cost, **parts}
    made = row(usage=used)
    made["turn_usage"] = [used] * len(made["turn_history"]["actions"])
    return made


def with_turns(**columns: Any) -> dict[str, Any]:
    made = row()
    count = len(made["turn_history"]["actions"])
    made["turn_history"] |= {name: [value] * count for name, value in columns.items()}
    return made


KINDS = {
    **{made["environment"]: made for made in page_rows.run(4)},
    "swe": row(environment="ic_swe", end_state={"patch": "+x", "left_out": []}),
    "own environment": row(environment="ic_lua"),
    "no turns": row() | {"turn_history": {"actions": []}, "turn_parts": []},
    "thoughts": with_turns(thoughts="I think"),
    "usage and cost": spent(2, 0.25),
    "usage without cost": spent(2, None),
    "usage with caches": spent(2, None, cached_tokens=60, cache_write_tokens=9, reasoning_tokens=3),
    "tokens without requests": spent(0, None),
    "an oracle that reports": spent(1, 0.1) | {"agent": "oracle"},
    "oracle": row(agent="oracle", usage={}),
    "oracle with thoughts": with_turns(thoughts="hm") | {"agent": "oracle", "usage": {}},
    "InterCode's": OLD,
    "agent error": row(outcome="agent-error", reason="ValueError: x", detail="Traceback ..."),
    "task error": row(outcome="task-error", reason="gold"),
    "infrastructure error": row(outcome="infrastructure-error", reason="no sandbox"),
    "stopped": row(outcome="stopped", reason="by the user"),
    "out of budget": row(outcome="out-of-budget"),
    "timed out": row(outcome="timed-out"),
    "binary": with_turns(actions=BINARY, observations=BINARY, thoughts=BINARY)
    | {"query": BINARY, "reason": BINARY, "agent": BINARY, "tags": [BINARY]},
    "100 kB": with_turns(observations="x" * 100_000),
    "no number": row(reward=float("nan"), reward_parts={"output": float("inf")}),
    "passed turns": row() | {"turn_passed": [True] * 4},
    "answers": row() | {"turn_answers": ["  exact "] * 4},
    "a dialogue": row(
        dialogue=[
            {"turn": 0, "message": BINARY, "reply": "Ten."},
            {"turn": 1, "message": "Like that?", "reply": BINARY},
            {"turn": 99, "message": "Done.", "reply": None},
        ],
        user_usage={"requests": 2, "input_tokens": 9, "output_tokens": 1, "cost": None},
    ),
    "scored again": row(rescored_from={"profile": "paper", "reward": 0.1, "outcome": "failed"}),
}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    return path


def read(path: Path) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)  # NaN is no JSON

    return json.loads(path.read_text(), parse_constant=refuse)


# -- ATIF


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_record_is_valid_atif(kind: str, tmp_path: Path) -> None:
    """The very bytes that are written, by the validator whose verdicts are Harbor's."""
    results = write(tmp_path / "r.jsonl", KINDS[kind])
    assert export(results, "atif", tmp_path / "out") == 1
    (path,) = (tmp_path / "out").iterdir()
    document = read(path)
    assert problems(document) == []
    (record,) = read_records(results)
    said = sum(1 + (exchange.reply is not None) for exchange in record.dialogue)
    assert len(document["steps"]) == 1 + len(record.turns) + said
    assert document["extra"]["outcome"] == record.outcome
    assert "end_state" not in path.read_text()
    ids = [
        call["tool_call_id"] for step in document["steps"] for call in step.get("tool_calls", ())
    ]
    assert len(ids) == len(set(ids))


def test_a_dialogue_is_where_it_was_in_every_format(tmp_path: Path) -> None:
    made = row(
        dialogue=[
            {"turn": 0, "message": "What is cheap?", "reply": "Ten."},
            {"turn": 1, "message": "Is that all?", "reply": "Yes. DONE", "is_last": True},
        ]
    )
    steps = trajectory(from_row(made))["steps"]
    talk = [("agent", "What is cheap?"), ("user", "Ten.")]
    assert [(step["source"], step["message"]) for step in steps[1:3]] == talk
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
    assert steps[3]["tool_calls"]
    assert [step["message"] for step in steps[4:6]] == ["Is that all?", "Yes. DONE"]
    results = write(tmp_path / "r.jsonl", made)
    export(results, "jsonl", tmp_path / "chat.jsonl")
    messages = read(tmp_path / "chat.jsonl")["messages"]
    assert [message["content"] for message in messages[1:3]] == ["What is cheap?", "Ten."]
    assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2) + [
        "user"
    ] * (len(messages) % 2)
    export(results, "inspect", tmp_path / "log.json")
    (sample,) = read(tmp_path / "log.json")["samples"]
    assert [m["content"] for m in sample["messages"][1:3]] == ["What is cheap?", "Ten."]
    assert len({m["id"] for m in sample["messages"]}) == len(sample["messages"])


def test_a_turn_is_a_step_with_its_call_and_result() -> None:
    made = KINDS["usage and cost"]
    made["turn_history"]["actions"][0] = "wc -l 'a b'"
    made["turn_history"]["observations"][0] = "3\n"
    found = trajectory(from_row(made))
    first, second, *_, last = found["steps"]
    assert (first["source"], first["message"]) == ("user", made["query"])
    (call,) = second["tool_calls"]
    assert (call["function_name"], call["arguments"]) == ("bash", {"command": "wc -l 'a b'"})
    (result,) = second["observation"]["results"]
    assert result == {"source_call_id": call["tool_call_id"], "content": "3\n"}
    assert second["metrics"] == {"prompt_tokens": 90, "completion_tokens": 7, "cost_usd": 0.25}
    assert second["llm_call_count"] == 2
    assert last["tool_calls"][0]["function_name"] == "submit"
    assert last["extra"]["reward"] == made["reward"]
    assert found["final_metrics"]["total_cost_usd"] == 0.25
    assert found["final_metrics"]["total_steps"] == len(found["steps"])
    assert found["extra"]["reward_parts"] == made["reward_parts"]
    assert found["agent"]["model_name"] == "small"


def test_tokens_of_caches_are_a_part_of_the_prompts() -> None:
    found = trajectory(from_row(KINDS["usage with caches"]))
    parts = {"cache_write_tokens": 9, "reasoning_tokens": 3}
    assert found["steps"][1]["metrics"] == {
        **{"prompt_tokens": 90, "completion_tokens": 7, "cached_tokens": 60, "extra": parts}
    }
    assert found["final_metrics"]["total_cached_tokens"] == 60
    assert found["final_metrics"]["total_prompt_tokens"] == 90


def test_a_step_has_the_tokens_of_its_last_request() -> None:
    made = row()
    made["model_calls"] = [
        {"model": "m", "prompt_ids": [1, 2], "completion_ids": [3], "logprobs": [-0.5]},
        {"model": "m", "base": 0, "kept_ids": 3, "prompt_ids": [4], "completion_ids": [5]},
    ]
    made["turn_model_calls"] = [[0], [0, 1]]
    document = trajectory(from_row(made))
    assert problems(document) == []
    first, second = (step["metrics"] for step in document["steps"][1:3])
    assert first["prompt_token_ids"] == [1, 2]
    assert (first["completion_token_ids"], first["logprobs"]) == ([3], [-0.5])
    assert second["prompt_token_ids"] == [1, 2, 3, 4]
    assert second["completion_token_ids"] == [5]
    assert "logprobs" not in second
    made["model_calls"][1]["base"] = 1
    with pytest.raises(ConfigurationError, match=r"model_calls\[1\].base is not an earlier call"):
        from_row(made)


def test_a_tool_of_the_agents_own_is_called_by_its_name() -> None:
    own = 'write_file({"path": "a.txt", "content": "x)"})'
    nested = [f'g({{"a": {"[" * depth}{"]" * depth}}})' for depth in (600, 9000)]
    made = row() | {"turn_parts": [], "turn_usage": []}
    made["turn_history"] = {
        "actions": [own, "ls", own, "f({broken)", *nested],
        "observations": ["ok"] * 6,
        "valid_action": [None, None, True, None, None, None],
    }
    record = from_row(made)
    found = trajectory(record)
    assert "tool_definitions" not in found["agent"]
    calls = [step["tool_calls"][0] for step in found["steps"][1:]]
    assert [call["function_name"] for call in calls] == ["write_file", *["bash"] * 5]
    assert calls[0]["arguments"] == {"path": "a.txt", "content": "x)"}
    assert calls[2]["arguments"] == {"command": own}  # of a shell, which says whether it ran


def test_what_was_not_run_is_no_call() -> None:
    made = KINDS["passed turns"]
    for step in trajectory(from_row(made))["steps"][1:]:
        assert "tool_calls" not in step
        assert step["message"]
        assert "source_call_id" not in step["observation"]["results"][0]


def test_files_are_named_by_tasks_and_leave_the_folder_never(tmp_path: Path) -> None:
    ids = ["a", "A", "../../up", ".hidden", "-rf", "x" * 500, "a:2", "\x1b[0m", "", "a"]
    rows = [row(task_id=each, suite=f"s{at}", repeat=at % 2 + 1) for at, each in enumerate(ids)]
    export(write(tmp_path / "r.jsonl", *rows), "atif", tmp_path / "out" / "deep")
    names = [path.name for path in (tmp_path / "out" / "deep").iterdir()]
    assert len({name.casefold() for name in names}) == len(ids)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "r.jsonl"]
    assert all(name[0].isalnum() or name[0] in "_[" for name in names)


def test_every_cell_has_a_file_for_its_try(tmp_path: Path) -> None:
    rows = [
        row(task_id="a", agent=agent, agent_arguments={}, treatment=treatment)
        for agent, treatment in (("codex", "control"), ("codex", "skill"), ("claude", "control"))
    ]
    export(write(tmp_path / "r.jsonl", *rows), "atif", tmp_path / "out")
    names = {"a-codex-control.json", "a-codex-skill.json", "a-claude-control.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    documents = [json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()]
    assert len({document["session_id"] for document in documents}) == 3
    assert {document["extra"]["treatment"] for document in documents} == {"control", "skill"}


# -- chat messages


def test_chat_messages_take_turns(tmp_path: Path) -> None:
    made = KINDS["thoughts"]
    made["turn_history"]["observations"][-1] = ""
    results = write(tmp_path / "r.jsonl", made, OLD)
    export(results, "jsonl", tmp_path / "out.jsonl")
    one, old = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    history = made["turn_history"]
    roles = [message["role"] for message in one["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2)
    assert one["messages"][0]["content"] == made["query"]
    assert [each["content"] for each in one["messages"][1::2]] == history["actions"]
    assert [each["content"] for each in one["messages"][2::2]] == history["observations"][:-1]
    assert {each["reasoning_content"] for each in one["messages"][1::2]} == {"I think"}
    assert (one["reward"], one["outcome"]) == (made["reward"], made["outcome"])
    assert old["messages"][-1] == {"role": "assistant", "content": "submit"}
    assert old["reward"] == 1.0


def test_records_are_not_held_in_memory(tmp_path: Path) -> None:
    made = row()
    count = len(made["turn_history"]["actions"])
    made["turn_history"]["observations"] = ["x" * 200_000] * count
    results = write(tmp_path / "r.jsonl", *({**made, "task_id": f"t{at}"} for at in range(40)))
    size = results.stat().st_size
    tracemalloc.start()
    try:
        export(results, "jsonl", tmp_path / "out.jsonl")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 15_000_000
    assert most < size / 4
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 40


# -- inspect_ai


@pytest.fixture(scope="module")
def inspect_python() -> str:
    """A Python that has inspect_ai: this one, or that of the environment that is made for it."""
    own = ROOT / ".venv-inspect-ai/bin/python"
    for python in (sys.executable, str(own)):
        find = "import importlib.util as u, sys; sys.exit(u.find_spec('inspect_ai') is None)"
        if Path(python).exists() and subprocess.run([python, "-c", find]).returncode == 0:
            return python
    pytest.skip("inspect-ai is not installed: scripts/test --all does it, into .venv-inspect-ai")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.eval", "run.json"])
def test_inspect_ai_reads_its_log(name: str, inspect_python: str, tmp_path: Path) -> None:
    rows = [{**made, "suite": "s", "task_id": kind} for kind, made in KINDS.items()]
    rows.append({**rows[0], "repeat": 2})
    results = write(tmp_path / "r.jsonl", *rows)
    path, again = tmp_path / name, tmp_path / f"again-{name}"
    assert export(results, "inspect", path) == len(rows)
    done = subprocess.run(
        [inspect_python, str(READER), str(path), str(again)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["status"] == "success"
    assert found["model"] == "small"
    assert found["total in the head"] == found["summaries"] == len(rows)
    assert found["by its id"] == found["samples"][0]["input"]
    assert found["again"] == found["samples"]
    records = {(each.task.id, each.task.repeat): each for each in read_records(results)}
    assert len(found["samples"]) == len(records) == len(rows)
    graded = []
    for sample in found["samples"]:
        record = records[sample["task"], sample["epoch"]]
        if record.graded:
            reward = record.reward if record.reward == record.reward else 0.0
            graded.append(reward)
            assert sample["scores"] == {"reward": reward, "solved": "C" if record.solved else "I"}
        else:
            assert sample["scores"] == {}
        assert (sample["error"] is not None) == record.outcome.endswith("-error")
        limits = {
            "timed-out": {"time"},
            "out-of-budget": {"turn", "custom"},
            "stopped": {"operator"},
        }
        assert sample["limit"] in limits.get(record.outcome, {None})
        assert sample["turns"] == len(record.turns) == len(sample["per turn"])
        spoken = len(record.turns) + len(record.dialogue)
        assert sample["roles"].count("assistant") == spoken
        model = record.agent_arguments.get("model", "none/none")
        assert sample["tokens"] == ({model: record.usage.tokens} if record.usage else {})
        calls = {name: arguments for name, _, arguments in sample["calls"]}
        assert len(calls) == len(sample["calls"])
        assert {name for name, _ in sample["results"]} <= calls.keys()
        if record.task.env == "bash" and not any(turn.passed for turn in record.turns):
            sent = [turn.action for turn in record.turns if turn.action != "submit"]
            shown = [
                arguments["command"]
                for _, function, arguments in sample["calls"]
                if function == "bash"
            ]
            assert shown == [clean(each) for each in sent]
        assert found["tables"]["events"][sample["uuid"]] == [
            "sample_init",
            *(kind for turn in sample["per turn"] for kind in turn),
            *(["sample_limit"] if sample["limit"] else []),
            *(["error"] if sample["error"] else []),
            *["score"] * len(sample["scores"]),
        ]
        if record.turns:  # what follows on the last action was sent to no model
            shown = found["tables"]["messages"][sample["uuid"]]
            assert shown == sample["roles"][: len(shown)]
            late = [entry for entry in record.dialogue if entry.turn >= len(record.turns)]
            assert shown.count("assistant") == spoken - len(late)
    tables = found["tables"]
    assert tables["samples"] == len(rows)
    every_call = [call for sample in found["samples"] for call in sample["calls"]]
    assert tables["calls"] == [function for _, function, _ in every_call]
    assert len(tables["inputs"]) == sum(sample["turns"] for sample in found["samples"])
    mean = sum(graded) / len(graded)
    assert found["metrics"]["reward"]["mean"] == pytest.approx(mean)


def test_an_eval_archive_is_the_same_each_time(tmp_path: Path) -> None:
    results = write(tmp_path / "r.jsonl", *KINDS.values())
    for name in ("a.eval", "b.eval"):
        export(results, "inspect", tmp_path / name)
    assert (tmp_path / "a.eval").read_bytes() == (tmp_path / "b.eval").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.eval") as archive:
        assert archive.testzip() is None
        assert {"header.json", "summaries.json", "_journal/start.json"} <= {*archive.namelist()}


def test_a_log_of_several_agents_says_whose_each_sample_is(tmp_path: Path) -> None:
    rows = [row(agent="codex", agent_arguments={"model": model}) for model in ("small", "large")]
    results = write(tmp_path / "r.jsonl", *rows, row(agent="mine.py:Agent", agent_arguments={}))
    export(results, "inspect", tmp_path / "log.json")
    log = read(tmp_path / "log.json")
    assert (log["eval"]["solver"], log["eval"]["model"]) == ("codex, mine.py:Agent", "small, large")
    assert [
        (sample["metadata"]["agent"], sample["metadata"].get("agent_arguments"))
        for sample in log["samples"]
    ] == [("codex", {"model": "small"}), ("codex", {"model": "large"}), ("mine.py:Agent", None)]


# -- what counts, and where it goes


@pytest.mark.parametrize("verdict", [True, False])
def test_a_test_of_the_users_own_decides_what_is_solved(verdict: bool, tmp_path: Path) -> None:
    outcome = "failed" if verdict else "solved"
    own_row = row(test_passed=verdict, outcome=outcome, reward=float(not verdict))
    results = write(tmp_path / "r.jsonl", own_row)
    export(results, "inspect", tmp_path / "log.json")
    log = json.loads((tmp_path / "log.json").read_text())
    (sample,) = log["samples"]
    assert sample["scores"]["solved"]["value"] == ("C" if verdict else "I")
    _, solved = log["results"]["scores"]
    assert solved["metrics"]["accuracy"]["value"] == float(verdict)


@pytest.mark.parametrize("name", FORMATS)
def test_no_gold_and_the_last_record_of_a_try(name: str, tmp_path: Path) -> None:
    first = row(outcome="infrastructure-error", superseded=True, query="THE FIRST")
    last = row(query="THE LAST", outcome="failed", test_output="HIDDEN TESTS")
    results = write(tmp_path / "r.jsonl", first, last, row(1))
    output = tmp_path / "out.json"
    assert export(results, name, output) == 2
    files = output.iterdir() if output.is_dir() else [output]
    text = "".join(path.read_text() for path in files)
    assert "THE LAST" in text
    assert "THE FIRST" not in text
    assert "HIDDEN TESTS" not in text
    assert "cdcdcdcd" not in text  # what the page's rows have for gold's files
    assert "abababab" not in text


def test_defaults_lie_beside_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "r.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(row()).encode() + b"\n"))
    for name, made in (("atif", "r.atif"), ("inspect", "r.eval"), ("jsonl", "r.chat.jsonl")):
        assert main(["export", str(packed), f"--format={name}"]) == 0
        assert (tmp_path / made).exists()
        said = capsys.readouterr()
        assert (said.out, said.err) == (f"{tmp_path / made}: 1 episode, as {name}\n", "")


def test_an_output_is_packed_where_its_name_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = write(tmp_path / "r.jsonl", row(), row(1))
    export(results, "jsonl", tmp_path / "plain.jsonl")
    for name in ("a.jsonl.gz", "b.JSONL.GZ"):
        packed = tmp_path / name
        assert main(["export", str(results), "--format=jsonl", f"--output={packed}"]) == 0
        assert gzip.decompress(packed.read_bytes()) == (tmp_path / "plain.jsonl").read_bytes()
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.JSONL.GZ").read_bytes()
    capsys.readouterr()
    packed = tmp_path / "log.json.gz"  # which inspect_ai would not read
    assert main(["export", str(results), "--format=inspect", f"--output={packed}"]) == 1
    assert capsys.readouterr().err == (
        f"pytest-intercode: --output={packed}: inspect_ai reads no log with gzip; name it .eval, "
        "which is packed, or .json\n"
    )
    assert not packed.exists()


@pytest.mark.parametrize("name", FORMATS)
def test_a_tool_that_is_not_known_to_commands_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [KINDS["own environment"], KINDS["ic_bash"], KINDS["swe"], KINDS["InterCode's"]]
    results = write(tmp_path / "r.jsonl", *rows, row(environment="", task_id="none"))
    assert main(["export", str(results), f"--format={name}"]) == 0
    warning = (
        f"pytest-intercode: warning: {results}: the environment 'lua' is not known to commands, "
        "which read no conftest.py; its actions are exported as calls of the tool execute\n"
    )
    assert capsys.readouterr().err == ("" if name == "jsonl" else warning)


def test_what_goes_into_a_pipe_is_alone_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = write(tmp_path / "r.jsonl", row())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["export", str(results), "--format=jsonl", f"--output={pipe}"]) == 0
        assert json.loads(os.read(reader, 100_000))["task"] == "bash-00000"
    finally:
        os.close(reader)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == f"pytest-intercode: {pipe}: 1 episode, as jsonl\n"


def _nothing(folder: Path) -> None:
    (folder / "r.jsonl").unlink()


def _no_json(folder: Path) -> None:
    (folder / "r.jsonl").write_text("not JSON\nat all\n")


def _other_json(folder: Path) -> None:
    (folder / "r.jsonl").write_text('{"environment": "ic_bash", "no": "episode"}\n')


def _empty(folder: Path) -> None:
    (folder / "r.jsonl").write_text("")


def _folder(folder: Path) -> None:
    (folder / "r.jsonl").unlink()
    (folder / "r.jsonl").mkdir()


def _file_there(folder: Path) -> None:
    (folder / "out").write_text("precious")


def _folder_there(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "precious").touch()


def _not_ours(folder: Path) -> None:
    (folder / "out").symlink_to("/proc/no/such")


def _same(folder: Path) -> None:
    (folder / "out").symlink_to(folder / "r.jsonl")


@pytest.mark.parametrize(
    ("prepare", "name", "said"),
    [
        (None, "ispect", "--format=ispect: there is no such format; .* Did you mean 'inspect'"),
        (_nothing, "jsonl", "r.jsonl: there is no such results file"),
        (_no_json, "jsonl", "r.jsonl:1: not JSON"),
        (_other_json, "atif", "r.jsonl:1: not a recorded episode: it has no task_id"),
        (_empty, "inspect", "r.jsonl: contains no recorded episodes"),
        (_folder, "inspect", "cannot be read: it is a folder"),
        (_file_there, "jsonl", "out: already exists; --force replaces it"),
        (_file_there, "atif", "out: a folder is needed, and this is a file"),
        (_folder_there, "atif", "out: already exists; --force"),
        (_folder_there, "inspect", "out: a file is needed, and this is a folder"),
        (_not_ours, "jsonl", "out: cannot be written: No such file"),
        (_not_ours, "atif", "out: cannot be written: "),
        (_same, "jsonl", "this is the run itself"),
    ],
)
def test_a_mistake_is_one_line(
    prepare: Callable[[Path], None] | None,
    name: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = write(tmp_path / "r.jsonl", row())
    if prepare is not None:
        prepare(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    arguments = ["export", str(results), f"--format={name}", f"--output={tmp_path / 'out'}"]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert re.search(said, err)
    assert {path.name for path in tmp_path.iterdir()} == before
    if prepare is _file_there:
        assert (tmp_path / "out").read_text() == "precious"


def test_force_replaces(tmp_path: Path) -> None:
    results = write(tmp_path / "r.jsonl", row())
    _folder_there(tmp_path)
    arguments = ["export", str(results), f"--output={tmp_path / 'out'}", "--force"]
    assert main([*arguments, "--format=atif"]) == 0
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"precious", "bash-00000.json"}
    (tmp_path / "file").write_text("old")
    arguments[2] = f"--output={tmp_path / 'file'}"
    assert main([*arguments, "--format=jsonl"]) == 0
    assert json.loads((tmp_path / "file").read_text())["task"] == "bash-00000"


def test_a_bad_row_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    results = write(tmp_path / "r.jsonl", row(), row(1))
    results.write_text(results.read_text() + '{"environment": "x"}\n')
    for name in FORMATS:
        with pytest.raises(ConfigurationError, match=r"r\.jsonl:3: not a recorded episode"):
            export(results, name, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


def test_a_truncated_last_line_is_left_out_with_a_warning(tmp_path: Path) -> None:
    results = write(tmp_path / "r.jsonl", row(), row(1))
    results.write_text(results.read_text()[:-20])
    said: list[str] = []
    assert export(results, "jsonl", tmp_path / "out.jsonl", said.append) == 1
    assert said == [
        f"{results}:2: the last line is truncated: its run was killed, or is writing it; "
        "it is left out"
    ]
    with pytest.raises(ConfigurationError, match="the last line is truncated"):
        export(results, "jsonl", tmp_path / "out.jsonl")


@pytest.mark.parametrize("whole", [True, False])
def test_records_are_read_one_by_one(whole: bool, tmp_path: Path) -> None:
    rows = [KINDS[kind] for kind in ("oracle", "100 kB", "thoughts")]
    path = tmp_path / "r.json.gz"
    text = json.dumps({str(at): each for at, each in enumerate([OLD, OLD])}, indent=1)
    lines = "\n".join(["", *map(json.dumps, rows)])[1:]
    path.write_bytes(gzip.compress((text if whole else f"{lines}\n\n").encode()))
    assert list(iterate_records(path)) == [
        from_row(each) for each in ([OLD, OLD] if whole else rows)
    ]
