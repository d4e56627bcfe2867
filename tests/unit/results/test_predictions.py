"""Predictions: what is written of an episode, and what is read of others' files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.predictions import Prediction, prediction_line, read_predictions

_RECORD = EpisodeRecord(
    task=TaskRecord(id="ada__calc-1", query="q", env="swe"),
    outcome="failed",
    reward=0.0,
    turns=(),
    max_turns=1,
    seconds=0.0,
    profile="strict",
    agent="tools",
    agent_arguments={"model": "some-model"},
    state={"patch": "diff --git a/x\r\n"},
)


def test_an_episode_and_its_line(tmp_path: Path) -> None:
    line = prediction_line(_RECORD)
    assert line is not None
    assert json.loads(line) == {
        "instance_id": "ada__calc-1",
        "model_name_or_path": "tools:some-model",
        "model_patch": "diff --git a/x\r\n",
    }
    (tmp_path / "run.jsonl").write_text(f"{line}\n")
    assert read_predictions(tmp_path / "run.jsonl") == {
        "ada__calc-1": Prediction("ada__calc-1", "tools:some-model", "diff --git a/x\r\n")
    }


@pytest.mark.parametrize(
    "record",
    [
        replace(_RECORD, superseded=True),
        replace(_RECORD, state={}),
        replace(_RECORD, task=replace(_RECORD.task, repeat=2)),
    ],
)
def test_episodes_that_are_no_predictions(record: EpisodeRecord) -> None:
    assert prediction_line(record) is None


def test_other_forms_of_the_file(tmp_path: Path) -> None:
    row = {"instance_id": "a", "model_patch": None}
    for content in ([row], {"a": row}):
        (tmp_path / "all.json").write_text(json.dumps(content))
        assert read_predictions(tmp_path / "all.json") == {"a": Prediction("a", "", None)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", {}, "p.jsonl:1: instance_id: a text is needed"),
        ("p.jsonl", {"instance_id": "a", "patch": ""}, "model_patch is missing"),
        ("p.jsonl", {"instance_id": "a", "model_patch": 3}, "model_patch: a text or null is nee"),
        ("p.csv", {}, "predictions have to be a file of JSON Lines"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, name: str, content: Any, message: str) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ConfigurationError) as raised:
        read_predictions(tmp_path / name)
    assert message in str(raised.value)


def test_two_predictions_for_a_task(tmp_path: Path) -> None:
    row = json.dumps({"instance_id": "a", "model_patch": ""})
    (tmp_path / "p.jsonl").write_text(f"{row}\n{row}\n")
    with pytest.raises(ConfigurationError, match=r"p\.jsonl:2: instance_id: 'a' is given twice"):
        read_predictions(tmp_path / "p.jsonl")
    with pytest.raises(ConfigurationError, match="there is no such file"):
        read_predictions(tmp_path / "none")


# -- the command

_SUITE = """\
env: swe
tasks:
  - id: ada__calc-1
    query: Mend it.
    workdir: /testbed
    repository: {at: /testbed}
    image: none
    gold: "diff --git a/x b/x\\n--- a/x\\n+++ b/x\\n@@ -1 +1 @@\\n-a\\n+b\\n"
    verification: {command: "true", parser: status}
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "suite.yaml").write_text(_SUITE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "suite.yaml"


def _grade(*words: str, patch: str | None = None, instance: str = "ada__calc-1") -> int:
    row = {"instance_id": instance, "model_patch": patch, "model_name_or_path": "m"}
    Path("p.jsonl").write_text(json.dumps(row))
    return main(["grade", "p.jsonl", "--dataset=suite.yaml", "--sandbox=bubblewrap", *words])


def test_grade_what_needs_no_sandbox(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _grade("--output=report.jsonl") == 0
    said = capsys.readouterr().out
    assert "unresolved  0.00  ada__calc-1  there is no patch\n" in said
    assert "0 of 1 prediction resolved\n" in said
    assert json.loads(Path("report.jsonl").read_text()) == {
        "instance_id": "ada__calc-1",
        "model_name_or_path": "m",
        "patch_is_None": True,
        "patch_exists": False,
        "patch_successfully_applied": False,
        "resolved": False,
        "reward": 0.0,
        "reason": "there is no patch",
    }


def test_hosts_and_a_registry_are_checked_first(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = "--docker-host=unix:///nowhere"
    assert _grade(host) == 2
    assert f"{host}: bubblewrap has no hosts, only docker does" in capsys.readouterr().err
    assert _grade("--registry=localhost:1") == 2
    said = capsys.readouterr().err
    assert "--registry=localhost:1: bubblewrap has no images, only docker and kubernetes do" in said
    assert _grade("--sandbox=docker", host) == 2
    said = capsys.readouterr().err
    assert f"{host}: no Docker engine answers there: No such file or directory" in said
    for wrong, message in (
        ("--docker-host=big=0", "after = a number of sandboxes is needed"),
        ("--registry=https://a.b", "HOST[:PORT][/PREFIX] is needed, without https://"),
        ("--registry=ada:secret@a.b", "credentials come from 'docker login'"),
    ):
        with pytest.raises(SystemExit, match="2"):
            _grade(wrong)
        assert message in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_named_before_anything_is_graded(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _grade("--output=/dev/null/report.jsonl") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pytest-intercode: --output=/dev/null/report.jsonl: cannot be written: ")
    Path("run.jsonl").write_text('{"environment": "ic_bash"}\n')  # results are kept
    assert _grade("--output=run.jsonl") == 0
    assert Path("run.jsonl.1").read_text() == '{"environment": "ic_bash"}\n'


def test_mistakes(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _grade(instance="ada__calc-2") == 2
    assert "suite.yaml: there is no 'ada__calc-2' in it. Did you" in capsys.readouterr().err
    assert _grade("--task", "ada__cal-1") == 2
    assert "p.jsonl has no prediction: there is no 'ada__cal-1'" in capsys.readouterr().err
    suite.write_text(_SUITE.replace("    repository: {at: /testbed}\n", ""))
    assert _grade() == 2
    assert "task 'ada__calc-1' has no repository" in capsys.readouterr().err
