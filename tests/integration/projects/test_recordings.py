"""A recorded episode, replayed by the real program in a real sandbox, with no model."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.gateway.masking import KEY_MASK, Masks
from pytest_intercode.projects.recordings import (
    ItemRecording,
    RecordingHead,
    RecordMode,
    load_recording,
    open_recording,
    recording_path,
)
from tests.integration.agents.test_installed import RECIPE
from tests.support.installed import KEY, SUPPORT, World
from tests.support.model_server import Command

NODE = "test_rules.py::test_it[mine]"
ENVIRONMENT_KEY = "Zx81-spectrum-48k-rubber"
MASKS = Masks([KEY, ENVIRONMENT_KEY])


@pytest.fixture(scope="module")
def world(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "program").mkdir()
    shutil.copy(SUPPORT / "installed_program.py", folder / "program")
    (folder / "mine.yaml").write_text(RECIPE)
    made = World("bubblewrap", "installed:mine.yaml", {"model": "m"}, folder)
    yield made
    made.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return recording_path(NODE, tmp_path / "test_rules.py")


def play(
    world: World,
    path: Path,
    mode: RecordMode,
    *script: Any,
    query: str = "Write hi to x.",
    masks: Masks = MASKS,
) -> tuple[ItemRecording, EpisodeRecord]:
    head = RecordingHead.of_item(NODE, query, agent_version=world.factory.version)
    item = open_recording(mode, path, head, reaches_models=mode != "none", masks=masks)
    record = world.play(*script, query=query, recording=item)
    item.save(record)
    return item, record


def test_a_replay_is_the_real_agent_without_a_model(world: World, path: Path) -> None:
    script = (Command("date; echo hi >x", "I write."), Command("ls -l; env | sort"), "Done.")
    _, first = play(world, path, "missing", *script)
    assert first.outcome == "solved", first.reason
    asked = len(world.server.requests)
    for _ in range(3):
        item, record = play(world, path, "none")
        assert (item.action, record.outcome, record.reason) == ("replay", "solved", "")
        assert [turn.action for turn in record.turns] == [turn.action for turn in first.turns]
        assert record.usage == first.usage
    assert len(world.server.requests) == asked
    assert world.factory.version.startswith("sha256:")


def test_a_request_that_is_not_recorded_calls_nothing(world: World, path: Path) -> None:
    play(world, path, "missing", Command("cat /etc/hostname; echo $((6 * 7)) >&2"), "Done.")
    text = gzip.decompress(path.read_bytes()).decode()
    lines = text.replace('42\\n"', '41\\n"').splitlines()
    recording = load_recording(path)
    assert '41\\n"' in "\n".join(lines)
    asked = len(world.server.requests)
    # As it is where the project, or a program in the image, is another one by now.
    from pytest_intercode.projects.recording_file import write_file

    head = {key: value for key, value in json.loads(lines[0]).items() if "recording" not in key}
    write_file(path, head, lines[1:-2], recording.record, {})
    _, record = play(world, path, "")
    assert record.outcome == "agent-error"
    assert record.reason.startswith("the recording lacks a request: POST /v1/chat/completions")
    assert record.reason.endswith("; record it again with --intercode-record=all")
    assert "42" in record.reason
    assert "\n" not in record.reason
    assert len(world.server.requests) == asked


def test_no_key_is_recorded(world: World, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the prompt, in results, in the agent's environment and headers, and in answers."""
    spelled = "".join(f"\\u{ord(character):04x}" for character in KEY)
    script = (
        Command(f"echo {ENVIRONMENT_KEY} {KEY} '{spelled}'; env", thought=f"With {KEY}."),
        Command(f"echo $OPENAI_API_KEY | rev | rev; echo {ENVIRONMENT_KEY} >x; echo hi >x"),
        f"I used {KEY} and {spelled}.",
    )
    query = f"Log in with {ENVIRONMENT_KEY}, or {KEY}."
    _, first = play(world, path, "missing", *script, query=query)
    assert first.outcome == "solved", first.reason
    text = gzip.decompress(path.read_bytes()).decode()
    for secret in (KEY, ENVIRONMENT_KEY, spelled, json.dumps(spelled)[1:-1], "sk-intercode-"):
        assert secret not in text
    assert KEY_MASK in text
    assert "authorization" not in text.lower()
    for masks in (MASKS, Masks([KEY])):  # where it is replayed, the environment has no such key
        _, record = play(world, path, "none", query=query, masks=masks)
        assert (record.outcome, record.reason) == ("solved", "")


def test_an_agent_finds_no_recording_in_its_sandbox(world: World, path: Path) -> None:
    script = (Command("echo hi >x"), "Done.")
    play(world, path, "missing", *script)
    before = path.read_bytes()
    search = f"ls {path.parent} 2>&1; find / -xdev -name '*.jsonl.gz' 2>/dev/null; echo hi >x"
    item, record = play(world, path, "all", Command(f"rm -f {path}; {search}"), "Done.")
    assert record.outcome == "solved"
    assert "No such file" in record.turns[0].observation
    assert ".jsonl.gz\n" not in record.turns[0].observation
    assert item.recorder is not None
    assert len(load_recording(path).exchanges) == 2
    assert path.read_bytes() != before
