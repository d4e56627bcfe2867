"""Runs of pytest on tasks with a judge: on both backends, recorded, replayed and scored again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from tests.conftest import results
from tests.support.chat_server import warm_up
from tests.support.judge_model import Sober, verdict
from tests.support.model_server import ModelServer, Request, Step

pytest.importorskip("aiohttp")
pytest.importorskip("openai")

SUITE = """\
env: bash
defaults:
  workdir: /work
  judge: {model: judge-1, weight: 0.4}
tasks:
  - id: prints
    query: Print the word hello.
    gold: echo hello
    judge: {rubric: It uses echo.}
"""
OPTIONS = ("suite.yaml", "--intercode-agent=agents.py:Solver", "--intercode-results=r.jsonl")
ORACLE = ("suite.yaml", "--intercode-agent=oracle", "--intercode-results=r.jsonl")


@pytest.fixture
def suite(pytester: pytest.Pytester, small_suite: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    warm_up()
    small_suite.write_text(SUITE)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-0123456789abcdef")
    return small_suite


def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, script: Any, *options: str
) -> tuple[pytest.RunResult, dict[str, Any], list[Request]]:
    with ModelServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        Path("r.jsonl").unlink(missing_ok=True)
        result = pytester.runpytest_inprocess(*options)
    [row] = results(Path("r.jsonl"))
    return result, row, server.requests


@pytest.mark.parametrize("backend", ["docker", "bubblewrap"])
def test_a_judge_finds_fault_with_what_is_right(
    backend: str,
    suite: Path,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    request.getfixturevalue("needs_docker" if backend == "docker" else "bubblewrap")
    result, row, requests = run(
        *(pytester, monkeypatch, Sober("printf hello")),
        *(*OPTIONS, f"--intercode-sandbox={backend}", "--intercode-gateway-price=*=10/100"),
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*reward 0.60 < 1.00 after 2/10 turns: the judge gives 0.00: printf hello is not there",
            "judge: *judge-1 judges 0.4 of the reward; without it, the reward is 1.00",
            "spent by judges: 3 requests, 321 tokens (120 cached), cost 0.0051",
        ]
    )
    assert row["outcome"] == "failed"
    assert row["reward"] == pytest.approx(0.6)
    assert row["reward_parts"]["judge"] == 0.0
    assert row["judge"]["scores"] == [0.0, 0.0, 0.0]
    assert row["judge"]["reward"] == 1.0
    assert row["usage"]["requests"] == 0
    assert len(requests) == 3
    assert "hello\n" in requests[0].body["messages"][1]["content"]


def test_a_judge_without_a_verdict_is_an_error_of_the_test(
    suite: Path, needs_sandboxes: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Step(status=400, text="no model judge-1")
    result, row, _ = run(pytester, monkeypatch, lambda _: answer, *OPTIONS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*infrastructure error: judge: the model 'judge-1' gives no *"])
    assert row["outcome"] == "infrastructure-error"
    assert row["turn_history"]["actions"] == ["echo hello", "submit"]
    assert row["judge"]["usage"]["requests"] == 0


def test_votes_are_recorded_replayed_and_scored_again(
    suite: Path,
    needs_sandboxes: None,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    votes = iter([0.5, 1.0, 0.5])
    script = lambda _: verdict(next(votes), "not so short")  # noqa: E731
    _, first, _ = run(pytester, monkeypatch, script, *ORACLE, "--intercode-gateway-record=rec")
    assert first["reward"] == pytest.approx(0.8)

    monkeypatch.delenv("OPENAI_API_KEY")
    _, again, requests = run(
        pytester, monkeypatch, lambda _: "never", *ORACLE, "--intercode-gateway-replay=rec"
    )
    assert requests == []
    for key in ("reward", "outcome", "reason", "judge", "end_state"):
        assert again[key] == first[key]

    def rescore(*options: str) -> tuple[int, list[dict[str, Any]], str]:
        Path("new.jsonl").unlink(missing_ok=True)
        capsys.readouterr()
        status = main(["rescore", "r.jsonl", "--output", "new.jsonl", *options])
        return status, results(Path("new.jsonl")), "".join(capsys.readouterr())

    status, [row], _ = rescore()
    assert status == 0
    for key in ("reward", "reward_parts", "outcome", "reason", "judge"):
        assert row[key] == first[key], key
    checked = ["--check", "judge-consistent", "--results", "r.jsonl"]
    assert main(["audit", "suite.yaml", *checked]) == 0
    assert "(note) its votes differ on the same work: 1 of 1" in capsys.readouterr().out
    suite.write_text(SUITE.replace("0.4", "0.2"))
    status, [row], _ = rescore("--suite", "suite.yaml")
    assert (status, row["reward"]) == (0, pytest.approx(0.9))
    assert row["judge"]["share"] == 0.2
    for changed in (SUITE.replace("judge-1", "judge-2"), SUITE.replace("uses echo", "is plain")):
        suite.write_text(changed)
        status, rows, output = rescore("--suite", "suite.yaml")
        assert (status, rows) == (1, [])
        assert "the rubric or the model of the judge was changed, so the recorded votes " in output


def test_nothing_is_started_without_a_model(
    suite: Path, needs_sandboxes: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    result = pytester.runpytest_inprocess(*OPTIONS[:2])
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*task 'prints': judge: no model can be reached: set OPENAI_*"])
