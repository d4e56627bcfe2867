"""``pytest-intercode gate``: a finished file is judged as its run was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from tests.conftest import results

Row = dict[str, Any]


def _row(task: str, repeat: int = 1, outcome: str = "solved", **fields: Any) -> Row:
    return {
        "environment": "ic_bash",
        "suite": "suite",
        "task_id": task,
        "query": task,
        "outcome": outcome,
        "reward": float(outcome == "solved"),
        "repeat": repeat,
        "turn_history": {"actions": []},
        "format_version": 2,
        **fields,
    }


def _write(path: Path, rows: list[Row]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def _tries(task: str, solved: str, tries: int = 5, rate: float = 0.8, **fields: Any) -> list[Row]:
    """Return rows of one task: ``+`` for a try that was solved, ``-`` for one that was not."""
    return [
        _row(task, n, "solved" if sign == "+" else "failed", tries=tries, pass_rate=rate, **fields)
        for n, sign in enumerate(solved, 1)
    ]


@pytest.mark.parametrize(
    ("rows", "status", "lines"),
    [
        ([_row("a"), _row("b")], 0, ["gate: no task failed that has to be solved"]),
        (
            [_row("a"), _row("b", outcome="timed-out")],
            1,
            ["gate: failed: 1 task was not solved (suite/b)"],
        ),
        ([_row("a", outcome="failed", xfail="it is known")], 0, ["gate: no task failed *"]),
        (_tries("a", "+-+++"), 0, ["gate: no task failed *"]),
        (_tries("a", "++++"), 0, ["gate: no task failed *"]),  # the last one changes nothing
        (
            [*_tries("a", "+-++"), *_tries("b", "+++++")],
            1,
            ["gate: inconclusive: 1 task has too few tries to reach or miss a pass rate (suite/a)"],
        ),
        (
            [*_tries("a", "--"), *_tries("b", "-++++")],
            1,
            [
                "gate: failed: 1 task misses its pass rate (suite/a: 2 of 2 tries missed, and "
                "pass_rate=0.8 allows 1 of 5)"
            ],
        ),
        # Each agent has its own tries.
        ([*_tries("a", "-++++", agent="x"), *_tries("a", "++-++", agent="y")], 0, ["gate: *"]),
        (
            [_row("a", outcome="infrastructure-error", tries=5, pass_rate=0.8)],
            1,
            ["gate: inconclusive: 1 episode was lost to infrastructure errors"],
        ),
        (
            [_row("a"), _row("b", outcome="stopped"), _row("c", outcome="stopped")],
            1,
            ["gate: inconclusive: 2 episodes were stopped by the user"],
        ),
        (
            [_row("a"), _row("b", outcome="task-error")],
            1,
            ["gate: failed: 1 task has an error of its own (suite/b)", "gate: not counted: *"],
        ),
    ],
)
def test_tasks_for_themselves(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rows: list[Row],
    status: int,
    lines: list[str],
) -> None:
    assert main(["gate", _write(tmp_path / "r.jsonl", rows)]) == status
    pytest.LineMatcher(capsys.readouterr().out.splitlines()).fnmatch_lines(
        [line.replace("[", "[[]") for line in lines]
    )


@pytest.mark.parametrize(
    ("options", "agent"),
    [
        (("--intercode-fail-under=0.5",), "OnlyPrints"),
        (("--intercode-fail-under=lower:0.1",), "Solver"),
        (("--intercode-baseline=base.jsonl",), "Idle"),
        (("--intercode-baseline=base.jsonl", "--intercode-gate=verdict"), "Idle"),
        (("--intercode-baseline=base.jsonl",), "OnlyPrints"),
        ((), "OnlyPrints"),
    ],
)
def test_words_and_status_are_those_of_the_run(
    pytester: pytest.Pytester,
    pretend: object,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    agent: str,
) -> None:
    run = ("suite.yaml", "--intercode-results=base.jsonl", "-q", "-q")
    pytester.runpytest(*run, "--intercode-agent=agents.py:OnlyPrints")
    judged = pytester.runpytest(
        *("suite.yaml", f"--intercode-agent=agents.py:{agent}", "--intercode-results=r.jsonl"),
        *options,
    )
    capsys.readouterr()
    status = main(
        ["gate", "r.jsonl", *(option.replace("--intercode-", "--") for option in options)]
    )
    assert status == judged.ret
    printed = capsys.readouterr().out.splitlines()
    said = [line for line in judged.outlines if line.startswith("gate: ")]
    assert [line for line in printed if line.startswith("gate: ")][-len(said) or 99 :] == said


OWN_TEST = """
import pytest

@pytest.mark.intercode(suite="suite.yaml", repeat=2)
def test_own(intercode_episode):
    assert intercode_episode.reward == 1.0
"""


@pytest.mark.parametrize(
    ("asks", "status"),
    [
        ("--intercode-repeat", 0),
        ("the mark", 0),
        ("the suite", 0),
        ("a task", 1),  # the others have one try, and have to be solved
        ("--intercode-pass-rate", 1),  # says itself what chance may do
    ],
)
def test_a_file_has_the_gate_that_its_run_had(
    pytester: pytest.Pytester,
    pretend: Path,
    capsys: pytest.CaptureFixture[str],
    asks: str,
    status: int,
) -> None:
    """One of three tasks is not solved any more: with several tries at each, no verdict."""
    arguments = ["suite.yaml"]
    suite = pretend.read_text()
    if asks.startswith("--"):
        arguments.append("--intercode-repeat=2")
        arguments += [f"{asks}=0.5"] if asks == "--intercode-pass-rate" else []
    elif asks == "the mark":
        arguments = [str(pytester.makepyfile(OWN_TEST))]
    elif asks == "the suite":
        pretend.write_text(suite.replace("defaults:", "defaults:\n  repeat: 2"))
    else:
        pretend.write_text(suite.replace("- id: prints", "- id: prints\n    repeat: 2"))
    pytester.runpytest(
        *arguments, "--intercode-agent=agents.py:OnlyPrints", "--intercode-results=base.jsonl"
    )
    judged = pytester.runpytest(
        *(*arguments, "--intercode-agent=agents.py:Idle", "--intercode-results=r.jsonl"),
        "--intercode-baseline=base.jsonl",
    )
    assert judged.parseoutcomes()["failed"] > 0
    assert judged.ret == status
    assert main(["gate", "r.jsonl", "--baseline=base.jsonl"]) == status
    assert "gate: compared with base.jsonl: too few samples" in capsys.readouterr().out


def test_a_run_with_pass_rates(
    pytester: pytest.Pytester, pretend: object, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=agents.py:OnlyPrints", "--intercode-results=r.jsonl"),
        *("--intercode-repeat=4", "--intercode-pass-rate=0.75"),
    )
    assert main(["gate", "r.jsonl"]) == judged.ret == 1
    assert (
        "gate: failed: 2 tasks miss their pass rates (suite/writes: 2 of 2 tries missed, and "
        in (capsys.readouterr().out)
    )
    assert len(results(pytester.path / "r.jsonl")) == 3 + 2 + 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl"], "none.jsonl"),
        (["empty.jsonl"], "empty.jsonl: contains no recorded episodes"),
        (["r.jsonl", "--baseline=r.jsonl"], "--baseline=r.jsonl: this is the run itself"),
        (["r.jsonl", "--gate=tasks"], "--gate=tasks: needs --baseline=FILE.jsonl"),
        (
            ["r.jsonl", "--baseline=empty.jsonl"],
            "--baseline=empty.jsonl: contains no graded episodes",
        ),
    ],
)
def test_what_cannot_be_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "r.jsonl", [_row("a")])
    _write(tmp_path / "empty.jsonl", [])
    assert main(["gate", *arguments]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
