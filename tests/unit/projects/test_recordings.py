"""Recordings of project tests: their files, what makes them stale, and what tests do with them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.turn import Turn
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.apis import ROUTES
from pytest_intercode.gateway.masking import KEY_MASK, Masks
from pytest_intercode.gateway.recording import NotRecorded, RecordedAnswer, make_row
from pytest_intercode.projects import recording_file
from pytest_intercode.projects.recordings import (
    ItemRecording,
    RecordingHead,
    RecordMode,
    StaleRecording,
    load_recording,
    open_recording,
    recording_path,
)

KEY = "sk-real-0123456789abcdef"
TOKEN = "sk-intercode-0123456789"
MASKS = Masks([KEY])
ROUTE = ROUTES["POST", "/v1/chat/completions"]
NODE = "tests/test_rules.py::test_uses_uv[codex]"
HEAD = RecordingHead.of_item(
    NODE,
    "Add requests.",
    agent="codex",
    agent_arguments={"model": "gpt-x"},
    agent_version="@openai/codex@1.0",
    inputs={"fake gh": "f1"},
    files={"AGENTS.md": "a1", "uv.lock": "u1", "other.py": "o1"},
)
RECORD = EpisodeRecord(
    task=TaskRecord(id="t", query="Add requests.", env="project"),
    outcome="solved",
    reward=1.0,
    turns=(Turn("uv add requests", f"added with {KEY}\n", True),),
    max_turns=10,
    seconds=1.0,
    profile="strict",
    node_id=NODE,
    host="a-host",
)


def _request(*texts: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in texts]
    return {"model": "gpt-x", "messages": messages, "tools": [{"name": "shell"}]}


def _exchange(item: ItemRecording, number: int, answer: str, *texts: str) -> None:
    assert item.recorder is not None
    body = json.dumps({"choices": [{"message": {"content": answer}}]})
    recorded = RecordedAnswer(200, "application/json", (body,))
    row = make_row(ROUTE, _request(*texts), TOKEN, recorded, MASKS)
    item.recorder.write(number, row, None)


def _open(path: Path, mode: RecordMode = "", head: RecordingHead = HEAD, **more: Any) -> Any:
    return open_recording(mode, path, head, **{"reaches_models": True, "masks": MASKS, **more})


def _record(path: Path, *answers: str, mode: RecordMode = "missing", **more: Any) -> ItemRecording:
    item: ItemRecording = _open(path, mode)
    texts = [f"Add requests with {KEY}."]
    for number, answer in enumerate(answers or ("I will.", "Done."), 1):
        _exchange(item, number, answer, *texts)
        texts.append(f"result {number}")
    files = {"AGENTS.md": "a1", "uv.lock": "u1"}
    item.save(RECORD, files=files, run={"diff": "+requests"}, **more)
    return item


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return recording_path(NODE, tmp_path / "test_rules.py")


# -- where it is


def test_a_recording_is_next_to_its_test() -> None:
    path = recording_path(NODE, Path("tests/test_rules.py"))
    assert path == Path("tests/recordings/test_rules/test_uses_uv[codex].jsonl.gz")
    path = recording_path(NODE.replace("codex", "codex-control-2"), Path("tests/test_rules.py"))
    assert path.name == "test_uses_uv[codex-control-2].jsonl.gz"


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "test_x[a/b]",
        "test_x[" + "é" * 300 + "]",
        "test_x[\ud800]",
        "a\0b",
        "..",
    ],
)
def test_a_hostile_name_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    path = recording_path(f"test_m.py::{name}", tmp_path / "test_m.py")
    assert path.parent == tmp_path / "recordings" / "test_m"
    assert len(path.name.encode()) < 200
    path.parent.mkdir(parents=True)
    path.touch()


def test_names_that_file_systems_confuse_have_files_of_their_own() -> None:
    names = ["test_x[a]", "test_x[A]", "test_x[a ]", "Test_x[a]", "test_x[ä]", "test_x[a\u0308]"]
    paths = [recording_path(f"m.py::{name}", Path("m.py")).name.lower() for name in names]
    assert len({*paths}) == len(names)
    assert recording_path("con.py::test", Path("con.py")).parent.name != "con"


# -- what it holds


def test_what_was_recorded_is_read(path: Path) -> None:
    _record(path)
    recording = load_recording(path)
    assert recording.head == replace(
        HEAD, files={"AGENTS.md": "a1", "uv.lock": "u1"}, models=("gpt-x",)
    )
    assert [exchange.model for exchange in recording.exchanges] == ["gpt-x", "gpt-x"]
    assert recording.run == {"diff": "+requests"}
    assert recording.record is not None
    assert recording.record["turn_history"]["actions"] == ["uv add requests"]
    text = gzip.decompress(path.read_bytes()).decode()
    for secret in (KEY, "real-0123", "a-host"):
        assert secret not in text
    assert text.count('{"name":"shell"}') == 1  # each request repeats the tools
    assert text.count("Add requests with") == 1


def test_equal_content_is_equal_bytes(path: Path, tmp_path: Path) -> None:
    other = recording_path(NODE, tmp_path / "elsewhere" / "test_rules.py")
    _record(path)
    _record(other)
    data = path.read_bytes()
    assert data == other.read_bytes()
    assert data[3] == 0  # no name
    assert data[4:8] == bytes(4)  # no time
    assert data[9] == 255  # no system


def test_a_recording_is_replayed(path: Path) -> None:
    _record(path)
    item = _open(path, "none", reaches_models=False)
    assert item.action == "replay"
    assert item.recorder is None
    answers = [
        item.replayer.answer(ROUTE, _request(*texts), TOKEN).pieces
        for texts in ([f"Add requests with {KEY}."], [f"Add requests with {KEY}.", "result 1"])
    ]
    assert ["Done" in "".join(pieces) for pieces in answers] == [False, True]
    with pytest.raises(NotRecorded, match="recorded 1 times, and asked once more; record it again"):
        item.replayer.answer(ROUTE, _request(f"Add requests with {KEY}."), TOKEN)
    item.replayer.begin()  # a sandbox broke, and the episode begins again
    assert item.replayer.answer(ROUTE, _request(f"Add requests with {KEY}."), TOKEN)
    with pytest.raises(NotRecorded) as raised:
        item.replayer.answer(ROUTE, _request(f"Add requests with {KEY}.", "result 2"), TOKEN)
    line = str(raised.value)
    assert line.endswith(
        "not recorded; messages[1].content: recorded 'result 1', now 'result 2'; record it again "
        "with --intercode-record=all"
    )


def test_a_key_that_is_not_known_any_more_matches_its_mask(path: Path) -> None:
    _record(path)
    item = _open(path, masks=Masks())
    assert item.replayer.answer(ROUTE, _request("Add requests with Xy-another."), TOKEN)
    with pytest.raises(NotRecorded):
        item.replayer.answer(ROUTE, _request("Remove requests with Xy-another."), TOKEN)


# -- staleness


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"prompt": "Add httpx."},
            "the prompt was 'Add requests.' and is 'Add httpx.'",
        ),
        ({"treatment": "skill"}, "the treatment was '' and is 'skill'"),
        ({"agent": "claude"}, "the agent was 'codex' and is 'claude'"),
        (
            {"agent_arguments": {"model": "gpt-y"}},
            "the agent's argument model was 'gpt-x' and is 'gpt-y'",
        ),
        (
            {"agent_arguments": {"model": "gpt-x", "system": ""}},
            "the agent's argument system is new",
        ),
        ({"agent_arguments": {}}, "the agent's argument model is gone"),
        (
            {"agent_version": "@openai/codex@1.1"},
            "the agent's version was '@openai/codex@1.0' and is '@openai/codex@1.1'",
        ),
        ({"inputs": {}}, "fake gh is gone"),
        ({"inputs": {"fake gh": "f2", "answers": "x"}}, "answers is new; fake gh is changed"),
        (
            {"files": {"AGENTS.md": "a2"}},
            "AGENTS.md, which the agent has read, was changed; uv.lock, which the agent has read, "
            "is gone",
        ),
        (
            {
                "files": {
                    **HEAD.files,
                    "docs/AGENTS.md": "d",
                    ".claude/rules/a.md": "r",
                    "new.py": "n",
                }
            },
            ".claude/rules/a.md, which agents read, is new; docs/AGENTS.md, which agents read, is "
            "new",
        ),
    ],
)
def test_what_changed_is_named(changes: dict[str, Any], line: str, path: Path) -> None:
    _record(path)
    with pytest.raises(StaleRecording) as raised:
        _open(path, head=replace(HEAD, **changes))
    assert str(raised.value) == (
        f"the recording {path.name} is stale: {line}; record it again with --intercode-record=all"
    )


def test_a_file_that_the_agent_did_not_read_changes_nothing(path: Path) -> None:
    _record(path)
    files = {**HEAD.files, "other.py": "o2", "new.py": "n"}
    assert _open(path, head=replace(HEAD, files=files)).action == "replay"


# -- what a test does: each row of the table in docs/recordings.md

CURRENT, STALE, ABSENT, DAMAGED = "current", "stale", "absent", "damaged"
ERROR = "error"
TABLE: dict[tuple[str, RecordMode, bool], str] = {
    (CURRENT, "", True): "replay",
    (CURRENT, "", False): "replay",
    (CURRENT, "none", True): "replay",
    (CURRENT, "none", False): "replay",
    (CURRENT, "missing", True): "replay",
    (CURRENT, "missing", False): "replay",
    (CURRENT, "all", True): "record",
    (CURRENT, "all", False): ERROR,
    (STALE, "", True): STALE,
    (STALE, "", False): STALE,
    (STALE, "none", True): STALE,
    (STALE, "none", False): STALE,
    (STALE, "missing", True): "record",
    (STALE, "missing", False): ERROR,
    (STALE, "all", True): "record",
    (STALE, "all", False): ERROR,
    (ABSENT, "", True): "live",
    (ABSENT, "", False): ERROR,
    (ABSENT, "none", True): ERROR,
    (ABSENT, "none", False): ERROR,
    (ABSENT, "missing", True): "record",
    (ABSENT, "missing", False): ERROR,
    (ABSENT, "all", True): "record",
    (ABSENT, "all", False): ERROR,
    **{
        (DAMAGED, mode, reaches): ERROR
        for mode in ("", "none", "missing", "all")
        for reaches in (True, False)
    },
}


@pytest.mark.parametrize(("state", "mode", "reaches"), TABLE)
def test_each_row_of_the_table(state: str, mode: RecordMode, reaches: bool, path: Path) -> None:
    if state != ABSENT:
        _record(path)
    if state == DAMAGED:
        path.write_bytes(path.read_bytes()[:-20])
    before = path.read_bytes() if path.exists() else None
    head = replace(HEAD, prompt="Another.") if state == STALE else HEAD
    try:
        action = _open(path, mode, head, reaches_models=reaches).action
    except StaleRecording as error:
        action, line = STALE, str(error)
    except ConfigurationError as error:
        action, line = ERROR, str(error)
    assert action == TABLE[state, mode, reaches]
    if action in (STALE, ERROR):
        assert "\n" not in line
        assert state == DAMAGED or "--intercode-record=" in line
    assert (path.read_bytes() if path.exists() else None) == before  # nothing is lost


def test_an_item_whose_agent_did_not_end_keeps_its_recording(path: Path) -> None:
    _record(path)
    before = path.read_bytes()
    item = _open(path, "all")
    _exchange(item, 1, "no", "x")
    for outcome in ("timed-out", "out-of-budget", "agent-error", "infrastructure-error"):
        assert not item.save(replace(RECORD, outcome=outcome))
    assert path.read_bytes() == before
    assert item.save(replace(RECORD, outcome="failed"))
    assert path.read_bytes() != before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_episode_that_begins_again_is_recorded_once(path: Path) -> None:
    item = _open(path, "missing")
    _exchange(item, 1, "lost", "lost")
    item.recorder.begin()
    _exchange(item, 1, "kept", "kept")
    item.save(RECORD)
    assert "lost" not in gzip.decompress(path.read_bytes()).decode()
    assert len(load_recording(path).exchanges) == 1


def test_live_runs_write_nothing(path: Path) -> None:
    assert not _open(path).save(RECORD)
    assert not path.exists()


# -- files that are none, and too large ones


def _pack(text: str) -> bytes:
    return gzip.compress(text.encode())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is not a recording"),
        (b"plain text\n", "is not a recording: it is not a gzip file, or is damaged"),
        (_pack('{"x": 1}\n'), "is not a recording: its first line is not a head"),
        (_pack("[]\n"), "is not a recording: TypeError: a line is not an object"),
        (_pack("no JSON\nat all"), "is not a recording: JSONDecodeError"),
        (
            _pack('{"intercode_recording": 2}\n'),
            "has format 2, of a newer pytest-intercode; this one reads 1",
        ),
        (_pack('{"intercode_recording": 1}\n'), "is damaged: its end is missing"),
        (_pack('{"intercode_recording": 1}\n{"end": "0"}\n'), "is damaged: its end is missing"),
    ],
    ids=range(8),  # gzip has a time in it
)
def test_files_that_are_no_recordings(data: bytes, problem: str, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    for mode in ("", "none", "missing", "all"):
        with pytest.raises(ConfigurationError) as raised:
            _open(path, mode)
        line = str(raised.value)
        assert line.startswith(f"{path} {problem}")
        assert "\n" not in line
        assert path.read_bytes() == data


def test_torn_and_altered_recordings(path: Path) -> None:
    _record(path)
    data = path.read_bytes()
    text = gzip.decompress(data)
    lines = text.splitlines(keepends=True)
    for damaged in (
        data[:-1],
        data[: len(data) // 2],
        data[:40] + bytes([data[40] ^ 1]) + data[41:],
        gzip.compress(b"".join(lines[:-1])),
        gzip.compress(b"".join([*lines[:1], *lines[2:]])),
        gzip.compress(text.replace(b"Done.", b"Dont.")),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ConfigurationError, match=r"(is damaged|is not a recording): [^\n]*$"):
            load_recording(path)


def test_links_and_folders_are_not_read(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="is not a regular file"):
        _open(path, "all")
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigurationError, match="is not a regular file"):
        _open(path)


def test_another_tests_recording_is_not_replaced(path: Path, tmp_path: Path) -> None:
    _record(path)
    before = path.read_bytes()
    other = replace(HEAD, test="test_rules.py::test_other[codex]")
    for mode in ("", "none", "missing", "all"):
        with pytest.raises(ConfigurationError) as raised:
            _open(path, mode, other)
        assert str(raised.value) == (
            f"{path} is the recording of another test, test_rules.py::test_uses_uv[codex]: move it "
            "away, and record this one with --intercode-record=missing"
        )
    assert path.read_bytes() == before


def test_a_recording_has_a_bound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _record(path)
    before = path.read_bytes()
    monkeypatch.setattr(recording_file, "MAX_SIZE", 400)
    with pytest.raises(ConfigurationError) as raised:
        _record(path, "short", "long " * 50_000, mode="all")
    assert str(raised.value).endswith(
        "at most 0 are allowed, so it is not written; its largest part is exchange 2 of 2, 0.2 "
        "MiB unpacked: let the agent read or print less"
    )
    assert path.read_bytes() == before
    monkeypatch.setattr(recording_file, "_MAX_UNPACKED", 400)
    path.rename(path.with_name("old.jsonl.gz"))
    with pytest.raises(
        ConfigurationError, match="the agent's requests and their answers are too large"
    ):
        _record(path, "long " * 500)
    assert not path.exists()


def test_a_bomb_is_not_unpacked(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with gzip.open(path, "wb") as file:
        for _ in range(9):
            file.write(bytes(16 * 2**20))
    with pytest.raises(ConfigurationError, match="is too large: it has more than 128 MiB unpacked"):
        load_recording(path)


def test_the_prompt_in_the_head_has_no_key(path: Path) -> None:
    head = replace(HEAD, prompt=f"Log in with {KEY}.", agent_arguments={"api_key": KEY})
    item = _open(path, "missing", head)
    _exchange(item, 1, "Done.", "x")
    item.save(RECORD, files={"AGENTS.md": "a1"})
    assert KEY not in gzip.decompress(path.read_bytes()).decode()
    assert load_recording(path).head.prompt == f"Log in with {KEY_MASK}."
    assert _open(path, "", head).action == "replay"
    assert _open(path, "", head, masks=Masks()).action == "replay"
