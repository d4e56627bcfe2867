"""Which cells of a run are compared, and the tables of several cells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.results.cells import by_cell
from pytest_intercode.results.differences import differences
from pytest_intercode.results.tables import detailed_table, markdown, table
from tests.support.cell_records import episode, tries_of

TASKS = [f"t{number:02}" for number in range(12)]


def _run() -> Iterator[EpisodeRecord]:
    """Two agents, each without and with a skill, which helps the first one alone."""
    for agent, solved_with in (("codex", 12), ("claude", 1)):
        yield from tries_of(TASKS[:1], TASKS[1:], agent=agent, treatment="control")
        yield from tries_of(
            TASKS[:solved_with], TASKS[solved_with:], agent=agent, treatment="skill"
        )


def test_pairs_differ_in_one_thing() -> None:
    found = differences(by_cell(_run()))
    assert {pair.name: pair.verdict.word for pair in found} == {
        "codex-skill against codex-control": "better",
        "claude-control against codex-control": "too few samples",
        "claude-skill against codex-skill": "worse",
        "claude-skill against claude-control": "too few samples",
    }
    assert {pair.verdict.comparisons for pair in found} == {4}


@pytest.mark.parametrize(
    ("cells", "pairs"),
    [
        (["codex-a", "codex-b"], []),  # no control
        (["codex-control", "claude-a"], []),  # both differ
        (["codex-control", "codex-"], []),  # tests with treatments, and tests without
        (["codex-", "claude-", "qwen-"], ["claude codex", "qwen codex", "qwen claude"]),
    ],
)
def test_which_are_compared(cells: list[str], pairs: list[str]) -> None:
    names = [cell.split("-") for cell in cells]
    records = [episode(agent=agent, treatment=treatment) for agent, treatment in names]
    found = differences(by_cell(records))
    assert [pair.name.replace(" against", "") for pair in found] == pairs


def test_the_table_has_a_row_for_each_task_and_a_column_for_each_cell() -> None:
    records = [*_run(), episode("t00", "infrastructure-error", agent="codex", treatment="extra")]
    lines = table(records)
    assert lines[0].split()[:4] == ["agent", "treatment", "tasks", "solved"]
    assert lines[1].split()[:5] == ["codex", "control", "12", "1", "8.3%"]
    start = lines.index("") + 1
    names = ["codex-control", "codex-skill", "codex-extra", "claude-control", "claude-skill"]
    assert lines[start].split() == ["suite", "task", *names]
    assert lines[start + 1].split()[1:] == [
        *("t00", "solved", "solved", "infrastructure-error", "solved", "solved")
    ]
    assert lines[start + 2].split()[1:] == ["t01", "failed", "solved", "-", "failed", "failed"]
    heading = "cells compared, task by task: 4 pairs, with Holm's correction over all of them:"
    assert heading in lines
    assert any(line.startswith("  codex-skill against codex-control: better: ") for line in lines)
    assert lines[-1].startswith("outcomes: ")


def test_several_tries_are_shares_and_pass_at_k_is_of_cells() -> None:
    records = [
        episode("a", "solved" if agent == "codex" else "failed", agent=agent, repeat=repeat)
        for agent in ("codex", "claude")
        for repeat in (1, 2)
    ]
    lines = table(records)
    assert lines[0].split()[:3] == ["agent", "tasks", "tries"]
    assert lines[5].split() == ["suite", "a", "2/2", "0/2"]
    assert [line.split()[:2] for line in detailed_table(records)[1:]] == [
        ["codex", "all"],
        ["claude", "all"],
    ]
    assert "pass@4" not in detailed_table(records)[0]


def test_many_tasks_are_put_together() -> None:
    tasks = [f"t{number}" for number in range(100)]
    lines = table([*tries_of(tasks), *tries_of(tasks[:25], tasks[25:], agent="claude")])
    assert lines[4].split() == ["env", "dataset", "hardness", "codex", "claude"]
    assert lines[5].split() == ["bash", "set", "easy", "100.0%", "25.0%"]
    assert len(lines) < 15


def test_many_comparisons_show_what_differs() -> None:
    records = [
        record
        for number in range(8)
        for record in tries_of(TASKS if number == 7 else [], TASKS, agent=f"agent{number}")
    ]
    records = [record for record in records if record.agent != "agent7" or record.solved]
    lines = table(records)
    assert sum(": better: " in line for line in lines) == 7
    assert sum(" against " in line for line in lines) == 20
    assert "  ... and 8 pairs more without a significant difference" in lines


def test_markdown_has_the_same_tables() -> None:
    lines = markdown(list(_run()))
    assert lines[0].startswith("| agent | treatment | tasks | solved |")
    names = "codex-control | codex-skill | claude-control | claude-skill"
    assert f"| suite | task | {names} |" in lines
    assert any(line.startswith("- codex-skill against codex-control: better") for line in lines)
