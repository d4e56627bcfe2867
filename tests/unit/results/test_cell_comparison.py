"""Two runs with several cells compared, and judged by a baseline."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.core.rates import FailUnder
from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Turn
from pytest_intercode.results.baseline import Baseline
from pytest_intercode.results.cell_comparison import ComparedCells
from pytest_intercode.results.cells import Cell, cell_of
from pytest_intercode.results.comparison import Run
from pytest_intercode.results.comparison_text import cell_lines
from pytest_intercode.results.files import to_text
from pytest_intercode.results.gate import conclude, judge, judge_file
from tests.support.cell_records import episode, tries_of

TASKS = [f"t{number:02}" for number in range(12)]


def _compared(before: Iterable[EpisodeRecord], after: Iterable[EpisodeRecord]) -> ComparedCells:
    runs = (Run(Path("a.jsonl"), list(before)), Run(Path("b.jsonl"), list(after)))
    return ComparedCells(*runs, level=0.05, smallest=0.1)


def _two_agents(codex: int = 12, claude: int = 12) -> list[EpisodeRecord]:
    """One try of each task by two agents, of which each solves the first so many."""
    return [
        *tries_of(TASKS[:codex], TASKS[codex:]),
        *tries_of(TASKS[:claude], TASKS[claude:], agent="claude"),
    ]


def test_a_cell_that_got_worse_is_not_hidden_by_one_that_got_better() -> None:
    compared = _compared(_two_agents(codex=2), _two_agents(claude=2))
    assert {str(cell): each.verdict.kind for cell, each in compared.cells.items()} == {
        "codex": "improved",
        "claude": "regressed",
    }
    assert compared.regressed
    assert compared.sentence == (
        "regressed: of 2 cells, with Holm's correction: 1 regressed (claude), 1 improved (codex)"
    )
    assert compared.data()["verdict"]["kind"] == "regressed"
    assert [cell["agent"] for cell in compared.data()["cells"]] == ["codex", "claude"]


def test_two_runs_of_one_cell_each_are_compared_as_ever() -> None:
    compared = _compared(tries_of(TASKS), tries_of([], TASKS, agent="claude"))
    assert compared.single is not None
    assert compared.sentence.startswith("regressed: -100.0 points")
    assert "corrected" not in compared.data()["verdict"]
    assert not any(line.startswith("==") for line in cell_lines(compared))


def test_what_only_one_file_has_is_named() -> None:
    before = [*_two_agents(), *tries_of(TASKS, agent="qwen")]
    after = [*_two_agents(), *tries_of(TASKS, agent="mine.py:Agent")]
    lines = cell_lines(_compared(before, after))
    assert [line for line in lines if line.startswith(("==", "cells"))] == [
        "== codex ==",
        "== claude ==",
        "cells only before: qwen",
        "cells only after: Agent",
    ]


def test_runs_without_a_common_cell() -> None:
    compared = _compared(_two_agents(), tries_of(TASKS, agent="qwen"))
    assert not compared.verdicts
    assert compared.sentence.startswith("too few samples: no cell has a task")


def test_warnings_name_the_cells_that_they_are_about() -> None:
    after = [replace(record, profile="paper") for record in _two_agents()]
    assert _compared(_two_agents(), after).warnings() == [
        "the runs differ in profile: strict before, paper after"
    ]
    after = [
        replace(record, profile="paper") if record.agent == "codex" else record for record in after
    ]
    after = [replace(r, profile="strict") if r.agent == "claude" else r for r in after]
    assert _compared(_two_agents(), after).warnings() == [
        "codex: the runs differ in profile: strict before, paper after"
    ]


# -- a baseline


@pytest.fixture
def baseline(tmp_path: Path) -> Baseline:
    """Two agents, of which one solves everything and the other one the first task alone."""
    path = tmp_path / "main.jsonl"
    path.write_text(to_text(_two_agents(claude=1)), encoding="utf-8")
    return Baseline(path, lambda line: None)


def _task(name: str) -> Task:
    return Task(name, f"Do {name}.", ("true",), "bash", "suite", "set")


@pytest.mark.parametrize(
    ("cell", "reason", "alone"),
    [
        (Cell("codex"), None, None),
        (Cell("claude"), "0 of 1 tries solved in main.jsonl", "0 of 1 tries solved in main.jsonl"),
        # Not in the baseline: it has to be solved, unless all of the baseline is what it replaces.
        (Cell("installed"), None, "1 of 2 tries solved in main.jsonl"),
        (
            cell_of(episode(agent="claude", model="newer")),
            *["0 of 1 tries solved in main.jsonl"] * 2,
        ),
    ],
)
def test_what_may_fail_is_of_the_cell(
    baseline: Baseline, cell: Cell, reason: str | None, alone: str | None
) -> None:
    for is_only_agent, expected in ((False, reason), (True, alone)):
        node = "intercode/bash::test_solves"
        assert baseline.may_fail(_task("t05"), node, cell, is_only_agent=is_only_agent) == expected


def test_one_agent_of_two_is_judged_by_what_it_did_itself(baseline: Baseline) -> None:
    """The other one, which failed the task before, does not excuse it."""
    tries = list(tries_of([name for name in TASKS if name != "t05"], ["t05"]))
    judgements = judge_file(tries, baseline, None, "tasks")
    assert [judgement.line for judgement in judgements if not judgement.passed] == [
        "failed: 1 task was not solved (suite/t05)"
    ]


def test_a_task_without_a_suite_finds_its_earlier_tries(tmp_path: Path) -> None:
    task = replace(_task("t00"), suite="")
    record = replace(episode(outcome="failed"), task=TaskRecord.of(task))
    path = tmp_path / "main.jsonl"
    path.write_text(to_text([record]), encoding="utf-8")
    reason = Baseline(path, lambda line: None).may_fail(
        task, "intercode/bash::test_solves", Cell("another"), is_only_agent=True
    )
    assert reason == "0 of 1 tries solved in main.jsonl"


def test_trajectories_of_a_baseline_are_never_in_memory_together(
    baseline: Baseline, tmp_path: Path
) -> None:
    turn = Turn("x", "y" * 100_000, True)
    record = replace(episode(), turns=(turn,))
    path = tmp_path / "main.jsonl"
    path.write_text(
        to_text([replace(record, task=replace(record.task, id=name)) for name in TASKS])
    )
    tracemalloc.start()
    try:
        long = Baseline(path, lambda line: None)  # the fixture's has made what reads a line
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 2
    assert long.verdicts(tries_of(TASKS)).keys() == baseline.verdicts(tries_of(TASKS)).keys()


def _judge(
    tries: list[EpisodeRecord], baseline: Baseline | None = None, rate: FailUnder | None = None
) -> list[tuple[bool, str]]:
    return [(judgement.passed, judgement.line) for judgement in judge(tries, baseline, rate)]


def test_the_gate_fails_if_a_cell_got_worse(baseline: Baseline) -> None:
    (codex, claude) = _judge(_two_agents(codex=2, claude=12), baseline)
    assert codex[0] is False
    assert codex[1].startswith("codex compared with main.jsonl: regressed: ")
    assert claude[0] is True
    assert claude[1].startswith("claude compared with main.jsonl: improved: ")


def test_a_conclusion_is_not_read_out_of_names(tmp_path: Path) -> None:
    path = tmp_path / "inconclusive: main.jsonl"
    path.write_text(to_text(list(tries_of(TASKS))), encoding="utf-8")
    judgements = judge(list(tries_of([], TASKS)), Baseline(path, lambda line: None), None)
    assert conclude(judgements).kind == "failed"
    (judgement,) = judge([episode(outcome="infrastructure-error")], None, None)
    assert conclude([judgement]) == ("inconclusive", "1 episode was lost to infrastructure errors")
    assert judgement.line == "inconclusive: 1 episode was lost to infrastructure errors"


def test_the_gate_says_which_cells_are_new(baseline: Baseline) -> None:
    ((passed, line),) = _judge([*tries_of(TASKS), *tries_of([], TASKS, agent="qwen")], baseline)
    assert passed
    assert line.startswith("codex compared with main.jsonl (qwen is not in it): too few")
    assert _judge(list(tries_of(TASKS, agent="qwen")), baseline) == [
        (False, "inconclusive: no task of this run has its result in main.jsonl")
    ]


def test_every_cell_has_to_reach_the_rate_and_the_control_need_not() -> None:
    rate = FailUnder(0.8, False)
    judgements = _judge(_two_agents(claude=7), rate=rate)
    assert [(passed, line.partition(",")[0]) for passed, line in judgements] == [
        (True, "codex: the rate"),
        (False, "claude: the rate"),
    ]
    treated = [
        *tries_of([], TASKS, treatment="control"),
        *tries_of(TASKS, treatment="skill"),
    ]
    ((passed, line),) = _judge(treated, rate=rate)
    assert passed
    assert line.startswith("codex-skill: the rate, 100.0%")
    assert _judge([], rate=rate) == [
        (False, "inconclusive: no episode was graded, so there is no rate")
    ]
