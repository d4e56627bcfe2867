"""What ``pytest-intercode doctor`` says of project tests, of their recordings and their agents."""

from __future__ import annotations

import gzip
from dataclasses import asdict
from pathlib import Path

import pytest

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.projects.facts import (
    ProjectTests,
    describe_project,
    describe_replays,
    find_project_tests,
)
from pytest_intercode.projects.recording_file import write_file
from pytest_intercode.projects.recordings import RecordingHead, RecordMode

CODEX = AgentChoice("codex", label="codex")
NONE: dict[str, str] = {}
OPENAI = {"OPENAI_API_KEY": "sk-planted-0123456789abcdef"}
ANTHROPIC = {"ANTHROPIC_API_KEY": "sk-planted-0123456789abcdef"}
TEST = "def test_rules(intercode_project): ...\n"
SET = "set OPENAI_API_KEY or the address of a server (OPENAI_BASE_URL, ANTHROPIC_BASE_URL)"


def _find(folder: Path) -> ProjectTests:
    return find_project_tests([folder], ["test_*.py"], [".*", "venv"])


def _write_test(folder: Path, name: str = "test_rules.py", text: str = TEST) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def _record(folder: Path, name: str, agent: str = "codex") -> Path:
    path = folder / "recordings/test_rules" / f"{name}.jsonl.gz"
    write_file(path, asdict(RecordingHead("test_rules.py::x", "Do.", agent=agent)), (), None, {})
    return path


def _replays(
    tests: ProjectTests,
    folder: Path,
    variables: dict[str, str],
    mode: RecordMode = "",
    agent: AgentChoice = CODEX,
) -> list[str]:
    gateway = GatewaySettings.of_environment(variables)
    facts = describe_replays(tests, [agent], gateway, mode, folder)
    return [f"{fact.state} {fact.text}" for fact in facts if fact.subject == "replays"]


def test_the_tests_are_those_that_pytest_would_collect(tmp_path: Path) -> None:
    _write_test(tmp_path / "a")
    _write_test(tmp_path / "a", "conftest.py")
    _write_test(tmp_path / "a", "test_plain.py", "def test_plain(): ...\n")
    _write_test(tmp_path / ".hidden")
    _write_test(tmp_path / "venv")
    _write_test(tmp_path / "own-python")
    (tmp_path / "own-python/pyvenv.cfg").touch()
    path = _record(tmp_path / "a", "one")
    _write_test(path.parent)  # a folder of recordings holds no tests
    tests = _find(tmp_path)
    assert tests.modules == (tmp_path / "a/test_rules.py",)
    assert tests.recordings == (path,)
    assert not find_project_tests([tmp_path / "a/test_plain.py"], ["test_*.py"], [])
    named_tests = find_project_tests([tmp_path / "a/conftest.py"], ["test_*.py"], [])
    assert named_tests.modules == (tmp_path / "a/conftest.py",)


def test_recordings_alone_are_said(tmp_path: Path) -> None:
    _record(tmp_path, "one")
    fact = next(describe_project(_find(tmp_path), tmp_path, ()))
    assert (fact.state, fact.text) == (
        "note",
        "recordings, and no test file here that asks for intercode_project",
    )


@pytest.mark.parametrize(
    ("text", "state"),
    [(TEST, "problem"), (f"{TEST}# project='example'\n", "note")],
    ids=["the project", "a folder"],
)
def test_a_project_without_a_repository(tmp_path: Path, text: str, state: str) -> None:
    _write_test(tmp_path, text=text)
    _, fact = describe_project(_find(tmp_path), tmp_path, ())
    assert fact.state == state
    assert "is not in a git repository" in fact.text


@pytest.mark.parametrize(
    ("recorded", "mode", "variables", "line"),
    [
        (0, "", NONE, f"problem codex: no recording, and no model can be reached: {SET}"),
        (0, "", OPENAI, "ok codex: no recording, and models can be called"),
        (
            *(0, "", ANTHROPIC),
            "note codex: no recording, and models can be called, but only those of anthropic: "
            "OPENAI_API_KEY is not set",
        ),
        (
            *(0, "none", OPENAI),
            "problem codex: no recording, and --intercode-record=none does not allow model calls: "
            "record its tests with --intercode-record=missing",
        ),
        (2, "none", NONE, "ok codex: 2 recordings, and no model is called"),
        (1, "", NONE, f"note codex: 1 recording; for other tests {SET}"),
        (1, "missing", NONE, f"note codex: 1 recording; for other tests {SET}"),
        (1, "all", NONE, f"problem codex: 1 recording, and no model can be reached: {SET}"),
    ],
)
def test_what_an_agent_is_answered_from(
    tmp_path: Path, recorded: int, mode: RecordMode, variables: dict[str, str], line: str
) -> None:
    _write_test(tmp_path)
    _record(tmp_path, "of-another", "claude")
    for number in range(recorded):
        _record(tmp_path, f"item-{number}")
    assert _replays(_find(tmp_path), tmp_path, variables, mode) == [line]


def test_an_agent_that_calls_its_model_itself(tmp_path: Path) -> None:
    _write_test(tmp_path)
    agent = AgentChoice("mine.py:Agent", label="Agent")
    assert _replays(_find(tmp_path), tmp_path, NONE, agent=agent) == []


def test_files_that_are_no_recordings(tmp_path: Path) -> None:
    _write_test(tmp_path)
    _record(tmp_path, "fine")
    newer = _record(tmp_path, "newer")
    newer.write_bytes(gzip.compress(b'{"intercode_recording": 99}\n'))
    for number in range(6):
        torn = _record(tmp_path, f"torn-{number}")
        torn.write_bytes(torn.read_bytes()[:40])
    facts = [
        fact
        for fact in describe_replays(
            _find(tmp_path), [], GatewaySettings.of_environment(NONE), "", tmp_path
        )
        if fact.subject == "recordings"
    ]
    assert [fact.state for fact in facts] == ["ok", *["problem"] * 6]
    assert facts[0].text == "1 item in 1 folder can be read"
    assert f"{newer} has format 99, of a newer pytest-intercode" in facts[1].text
    remedy = "look at it, delete it, and record it again with --intercode-record=missing"
    assert facts[2].text.endswith(
        f"torn-0.jsonl.gz is damaged: its gzip data is incomplete or broken: {remedy}"
    )
    assert facts[-1].text == "2 more files cannot be read"
