"""The audit asks judges behind a scripted server: it reports a gullible one, not a sober one."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.auditing.persuasion import PERSUASIONS
from pytest_intercode.cli import main
from tests.support.judge_model import Gullible, Sober, evidence_of, verdict
from tests.support.model_server import ModelServer, Request, Step

pytest.importorskip("aiohttp")
pytest.importorskip("openai")

SUITE = """\
env: bash
tasks:
  - id: greets
    query: Greet.
    gold: echo Welcome!
    judge: {rubric: It says welcome., model: judge-1, weight: 0.4}
  - id: plain
    query: Print 7.
    gold: echo 7
"""
LABELS = """\
{"task": "greets", "text": "Welcome!", "label": "pass"}
{"task": "greets", "text": "Go away!", "label": "fail"}
{"task": "greets", "text": "Hello.", "label": "fail"}
"""
ALL = ("judge-consistent", "judge-labels", "judge-firm")


def audit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: Any, *words: str
) -> tuple[int, list[dict[str, Any]], list[Request]]:
    suite, output = folder / "suite.yaml", folder / "audit.json"
    suite.write_text(SUITE)
    output.unlink(missing_ok=True)
    with ModelServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        arguments = ["audit", str(suite), "--check", *ALL, "--output", str(output)]
        status = main([*arguments, *words])
    [report] = json.loads(output.read_text())["suites"]
    assert report["checks"] == list(ALL)
    return status, report["findings"], server.requests


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-0123456789abcdef")


def test_a_sober_judge_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels.jsonl").write_text(LABELS)
    status, [finding], requests = audit(
        tmp_path, monkeypatch, Sober("Welcome!"), "--judge", "2", "--gateway-price", "*=10/100"
    )
    assert status == 0
    assert finding["check"] == "judge-labels"
    assert finding["note"]
    assert finding["said"].startswith("it agrees with 3 of 3 labels of people: kappa 1.00")
    # Three labels and an agent that did nothing, twice each; two failing ones with each text.
    assert len(requests) == 2 * 4 + 2 * len(PERSUASIONS)
    output = capsys.readouterr().out
    assert f"spent by judges: {len(requests)} requests" in output
    assert "cost 0.0" in output


def test_a_gullible_judge_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "labels.jsonl").write_text(LABELS)
    status, found, _ = audit(tmp_path, monkeypatch, Gullible("Welcome!"), "--judge", "1")
    assert status == 1
    faults = [finding for finding in found if finding["fault"]]
    assert [finding["check"] for finding in faults] == ["judge-firm", "judge-firm"]
    text, idle = faults
    assert text["said"].startswith("the text 'Go away!' passes with ")
    assert idle["said"].startswith("an agent that did nothing passes with ")
    for name in PERSUASIONS:
        assert f"{name}: 1.00: it says so" in idle["evidence"], name


def test_each_text_of_ours_asks_for_a_score() -> None:
    """So that one which says less cannot be among them without being seen."""
    assert all("score" in text for text in PERSUASIONS.values())


def test_a_judge_that_disagrees_with_itself_and_with_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "labels.jsonl").write_text(LABELS)
    turn = itertools.count()

    def waver(request: Request) -> str:
        if evidence_of(request).startswith("(the agent did nothing)"):
            return verdict(0.0)
        return verdict(float(next(turn) % 3 > 0))

    status, found, _ = audit(tmp_path, monkeypatch, waver, "--judge", "3")
    assert status == 1
    by_check = {finding["check"]: finding for finding in found if finding["fault"]}
    assert "pass and fail the same work: 3 of 4" in by_check["judge-consistent"]["said"]
    assert "it agrees with 1 of 3 labels" in by_check["judge-labels"]["said"]
    assert "people say fail, the judge 0.00, 1.00, 1.00" in by_check["judge-labels"]["evidence"]


def test_a_rubric_that_passes_whoever_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, [finding], _ = audit(tmp_path, monkeypatch, lambda _: verdict(0.7), "--judge", "1")
    assert status == 1
    assert finding["said"] == "an agent that did nothing gets 0.70"


def test_a_judge_without_a_verdict_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = Step(status=400, text="no model judge-1")
    status, found, _ = audit(tmp_path, monkeypatch, lambda _: answer, "--judge", "1")
    assert (status, found) == (1, [])
    assert "not audited: greets: judge: the model 'judge-1' gives no verdict" in (
        capsys.readouterr().err
    )


def test_no_model_is_asked_by_surprise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found, requests = audit(tmp_path, monkeypatch, lambda _: "never")
    assert (status, found, requests) == (0, [], [])
    assert "judges were not audited: --results FILE.jsonl uses recorded votes, and --judge N" in (
        capsys.readouterr().err
    )


def test_it_is_recorded_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "labels.jsonl").write_text(LABELS)
    options = ("--judge", "2", "--gateway-record", str(tmp_path / "rec"))
    _, first, asked = audit(tmp_path, monkeypatch, Gullible("Welcome!"), *options)
    assert asked
    monkeypatch.delenv("OPENAI_API_KEY")
    options = ("--judge", "2", "--gateway-replay", str(tmp_path / "rec"))
    _, again, asked = audit(tmp_path, monkeypatch, lambda _: "never", *options)
    assert again == first
    assert asked == []


def test_a_wrong_label_is_found_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "labels.jsonl").write_text("[]")
    options = ["--sandbox", "docker", "--docker-host", "tcp://127.0.0.1:1"]
    assert main(["audit", str(tmp_path / "suite.yaml"), *options]) == 2
    assert "labels.jsonl:1: a row must be an object with fields" in capsys.readouterr().err


def test_labels_of_other_tasks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels.jsonl").write_text(LABELS.replace('"greets"', '"greet"'))
    audit(tmp_path, monkeypatch, Sober("Welcome!"), "--judge", "1")
    assert "no judge of this audit uses the labels of 1 task: greet" in (capsys.readouterr().err)
