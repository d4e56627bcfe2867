"""What changed between two runs, where trajectories part, and how it is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.results.comparison import (
    Compared,
    Difference,
    Run,
    changes,
    first_difference,
)
from pytest_intercode.results.comparison_text import lines
from pytest_intercode.results.format import from_row
from pytest_intercode.results.tries import counted_tries, solved
from pytest_intercode.statistics.paired import paired_test


def _row(
    task: str, outcome: str = "solved", turns: Sequence[tuple[str, str]] = (), **more: Any
) -> dict[str, Any]:
    return {
        "environment": "ic_bash",
        "dataset": "bash",
        "suite": "bash",
        "task_id": task,
        "query": f"Do {task}.",
        "turn_history": {"actions": [a for a, _ in turns], "observations": [o for _, o in turns]},
        "summary": {"turns_max": 10},
        "outcome": outcome,
        "reward": 1.0 if outcome == "solved" else 0.5,
        "hardness": "easy",
        "profile": "strict",
        "agent": "mine",
        "agent_arguments": {},
        "format_version": 2,
        **more,
    }


def _counted(rows: Sequence[dict[str, Any]]) -> list[EpisodeRecord]:
    return counted_tries(map(from_row, rows))


def _compared(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> Compared:
    runs = {"a.jsonl": before, "b.jsonl": after}
    old, new = (Run(Path(name), _counted(rows)) for name, rows in runs.items())
    return Compared(old, new, paired_test(solved(old.tries), solved(new.tries)))


def _repeats(task: str, *outcomes: str) -> list[dict[str, Any]]:
    return [_row(task, outcome, repeat=at) for at, outcome in enumerate(outcomes, 1)]


_S, _F, _I = "solved", "failed", "infrastructure-error"


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ([_S], [_F], "broke"),
        ([_F], [_S], "fixed"),
        ([_S], [_S], "as before"),
        ([_F], ["timed-out"], "as before"),
        ([_S, _S, _S], [_S, _F, _S], "less often"),
        ([_S, _F, _F], [_F, _F, _F], "broke"),
        ([_S, _F, _F], [_S, _F, _S], "more often"),
        ([_F, _F], [_S, _F], "fixed"),
        ([_S, _F], [_F, _S], "as before"),
        ([_S], [_S, _S, _F], "less often"),
        ([_S, _I], [_S], "as before"),
        ([_I], [_S], "not graded"),
        ([_S], [_I, _I], "not graded"),
        ([], [_S], "only after"),
        ([_F], [], "only before"),
    ],
)
def test_kinds(before: list[str], after: list[str], kind: str) -> None:
    found = changes(_counted(_repeats("t", *before)), _counted(_repeats("t", *after)))
    assert [each.kind for each in found] == [kind]


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [
        ([_S], [_F], None),
        ([_S], [_S], None),
        ([_S, _S, _S], [_S, _F, _F], 0.4),
        ([_S] * 5, [_F] * 5, 2 / 252),
        ([_S, _I], [_F], None),
    ],
)
def test_how_likely_chance_is(before: list[str], after: list[str], p: float | None) -> None:
    (change,) = changes(_counted(_repeats("t", *before)), _counted(_repeats("t", *after)))
    assert change.p == (None if p is None else pytest.approx(p))
    assert change.by_chance is (p == 0.4)


_LS, _CAT = ("ls", "notes"), ("cat notes", "milk")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([_LS, _CAT], [_LS, ("rm notes", "")], Difference(2, "action", "cat notes", "rm notes")),
        (
            [_LS, _CAT],
            [("ls", "other"), _CAT],
            Difference(1, "observation", "notes", "other", "ls"),
        ),
        ([_LS, _CAT], [_LS], Difference(2, "end", "cat notes", None)),
        ([], [_LS], Difference(1, "end", None, "ls")),
        ([_LS, _CAT], [_LS, _CAT], Difference(0, "nothing", None, None)),
        ([("ls", "notes")], [("ls\n", "notes\n")], Difference(0, "nothing", None, None)),
    ],
)
def test_where_they_differ_first(
    before: list[tuple[str, str]], after: list[tuple[str, str]], expected: Difference
) -> None:
    old, new = (from_row(_row("t", turns=turns)) for turns in (before, after))
    assert first_difference(old, new) == expected


def test_a_row_without_observations_and_one_of_react() -> None:
    mine = _row("t", turns=[("SELECT 1", "")])
    react = {
        "environment": "ic_sql",
        "task_id": "t",
        "turn_history": {"actions": ["execute[SELECT 1]"], "thoughts": ["one"]},
    }
    assert first_difference(from_row(mine), from_row(react)).what == "nothing"


def test_the_tries_that_are_shown_are_those_that_changed() -> None:
    before = [_row("t", _S, [("same", "")], repeat=1), _row("t", _S, [("good", "")], repeat=2)]
    after = [_row("t", _S, [("same", "")], repeat=1), _row("t", _F, [("bad", "")], repeat=2)]
    (change,) = changes(_counted(before), _counted(after))
    assert change.difference == Difference(1, "action", "good", "bad")


def test_the_text() -> None:
    before = [
        _row("broken", _S, [_LS, _CAT]),
        _row("same"),
        _row("gone"),
        _row("fixed", _F, [("date", "1"), ("x", "")]),
        _row("failed", _I, environment="ic_sql"),
    ]
    after = [
        _row("broken", _F, [_LS, ("cat\tno\x1b[2Jtes", "")]),
        _row("same"),
        _row("fixed", _S, [("date", "2"), ("x", "")]),
        _row("failed", _S, environment="ic_sql"),
        _row("new"),
    ]
    text = "\n".join(lines(_compared(before, after)))
    told, verdict = text.rsplit("\n\n", 1)
    assert told == "\n".join(
        [
            "before: a.jsonl: 5 tasks, 5 tries, agent mine, profile strict",
            "after:  b.jsonl: 5 tasks, 5 tries, agent mine, profile strict",
            "",
            "broke (solved before, in no try now): 1",
            "  bash bash/broken  1/1 -> 0/1  turn 2: another action",
            "      before: cat notes",
            "      after:  cat no\\x1b[2Jtes",
            "",
            "fixed (in no try before, solved now): 1",
            "  bash bash/fixed  0/1 -> 1/1  turn 1: the same action, another observation "
            "(not deterministic)",
            "      action: date",
            "      before: 1",
            "      after:  2",
            "",
            "as before: 1",
            "",
            "only before: 1 (bash/gone)",
            "",
            "only after: 1 (bash/new)",
            "",
            "not graded: 1 (bash/failed)",
            "",
            "left out, as the task or the infrastructure failed: 1 try before, 0 after",
            "",
            "by        value  tasks    rate before          after  points  reward before  after",
            "env       bash       3  66.7% (21-94)  66.7% (21-94)    +0.0          0.833  0.833",
            "hardness  easy       3  66.7% (21-94)  66.7% (21-94)    +0.0          0.833  0.833",
            "all                  3  66.7% (21-94)  66.7% (21-94)    +0.0          0.833  0.833",
        ]
    )
    assert verdict.startswith("too few samples: ")


def test_what_is_listed_is_limited() -> None:
    before = [_row(f"t{at:04}") for at in range(1000)] + [_row(f"old{at}") for at in range(20)]
    after = [_row(f"t{at:04}", _F) for at in range(1000)]
    compared = _compared(before, after)
    short = lines(compared)
    assert len(short) < 40
    assert "  ... and 990 more; --all names them" in short
    assert (
        "only before: 20 (bash/old0, bash/old1, bash/old2, bash/old3, bash/old4, and 15 more)"
        in (short)
    )
    every = "\n".join(lines(compared, everything=True))
    assert "more" not in every
    assert every.count("1/1 -> 0/1") == 1000
    assert "bash/old19)" in every


def test_long_actions_show_where_they_differ() -> None:
    start = "SELECT " + ", ".join(f"column_{at}" for at in range(30))
    before = [_row("t", _S, [(f"{start} FROM here", "")])]
    after = [_row("t", _F, [(f"{start} FROM there", "")])]
    told = lines(_compared(before, after))
    shown = [line for line in told if line.startswith("      ")]
    assert shown[0].endswith("FROM here")
    assert shown[1].endswith("FROM there")
    assert all(len(line) < 110 for line in shown)


def test_only_blanks_differ() -> None:
    told = lines(
        _compared([_row("t", _S, [("if x:\n  y", "")])], [_row("t", _F, [("if x:\n\ty", "")])])
    )
    assert "      before: 'if x:\\n  y'" in told
    assert "      after:  'if x:\\n\\ty'" in told


def test_warnings() -> None:
    before = [
        _row("a", agent_arguments={"model": "one"}, task_digest="1"),
        _row("b", task_digest="1"),
        _row("c", task_digest="1"),
    ]
    after = [
        _row(
            "a",
            agent_arguments={"model": "two", "top": "1"},
            profile="paper",
            task_digest="1",
        ),
        _row("b", query="Do it.", profile="paper", task_digest="2"),
        _row("c", profile="paper", agent="other", task_digest="2"),
    ]
    assert _compared(before, after).warnings() == [
        "the runs differ in profile: strict before, paper after",
        "the runs differ in agent argument model: one before, two after",
        "the runs differ in agent argument top: none before, 1 after",
        "the query differs in 1 task (bash/b)",
        "the task itself (gold, files or limits) differs in 1 task (bash/c)",
    ]
    assert _compared(before, before).warnings() == []


def test_what_a_project_test_is_about_may_change() -> None:
    """Its repository and its agent are what is tested; image and task hold a copy of the first."""

    def row(name: str, **parts: str) -> dict[str, Any]:
        test_digest = {"test": "1", "values": "1", "sandbox": "1"} | parts
        return _row(name, test_digest=test_digest, image=str(parts), task_digest=str(parts))

    before = [row("a"), row("b"), row("c"), row("d")]
    changes_of_project = {"project": "2", "repository": "2", "agent": "2"}
    assert _compared(before, [row("a", **changes_of_project)]).warnings() == []
    after = [row("a", test="2"), row("b", values="2"), row("c", sandbox="2"), row("d")]
    assert _compared(before, after).warnings() == [
        "the test itself (its code, marks or parameters) differs in 2 tasks (bash/a, bash/b)",
        "what its sandbox is made of differs in 1 task (bash/c)",
    ]
    elsewhere = [row("a", sandbox="2") | {"sandbox": "bubblewrap"}]
    here = [row("a") | {"sandbox": "docker"}]
    assert _compared(here, elsewhere).warnings() == [
        "the runs differ in sandbox: docker before, bubblewrap after"
    ]


def test_digests_of_the_first_format_are_not_compared() -> None:
    old = [_row("a", task_digest="1", format_version=1)]
    assert _compared(old, [_row("a", task_digest="2")]).warnings() == []


def test_one_of_intercodes_runs_is_played_before_it_is_compared() -> None:
    intercodes = {
        "environment": "ic_bash",
        "dataset": "./data/nl2bash.json",
        "task_id": "a",
        "query": "Do it.",
        "turn_history": {"actions": ["ls"], "observations": [""], "rewards": [1.0]},
        "summary": {"max_reward": 1.0},
    }
    [line] = _compared([intercodes], [_row("a")]).warnings()
    assert (
        "InterCode's files have other ids; replay that one with --intercode-agent=replay:FILE"
        in line
    )
    assert _compared([intercodes], [intercodes]).warnings() == []
    [line] = _compared([_row("a")], [_row("b")]).warnings()
    assert line == "no task is in both runs: tasks are matched by env, suite and id"


def test_nothing_in_common() -> None:
    told = lines(_compared([_row("a")], [_row("b")]))
    assert told[-1] == "too few samples: no task has a graded try in both runs"
    assert not any(line.startswith("by ") for line in told)
