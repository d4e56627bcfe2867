"""The cells of a run: what tells agents and treatments apart, and which of two runs are a pair."""

from __future__ import annotations

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.results.cells import Cell, by_cell, cell_of, pair_cells, shorten
from pytest_intercode.results.tries import counted_tries
from tests.support.cell_records import episode


def _labels(*records: EpisodeRecord) -> list[str]:
    return [str(cell) for cell in by_cell(records)]


def test_an_agent_is_called_by_its_name() -> None:
    assert _labels(episode(agent="codex", model="a")) == ["codex"]
    assert _labels(episode(agent="installed:codex"), episode(agent="codex")) == ["codex"]
    assert _labels(episode(agent="")) == ["unnamed"]


@pytest.mark.parametrize(
    ("agents", "labels"),
    [
        (("mine:Agent", "codex"), ["Agent", "codex"]),
        (("agents/mine.py:Agent", "agents/other.py:Other"), ["Agent", "Other"]),
        (("one.py:Agent", "two.py:Agent"), ["one.py:Agent", "two.py:Agent"]),
        (("mine.py:codex", "codex"), ["mine.py:codex", "codex"]),
        (("command:python3 a/b.py -x", "replay:old/r.jsonl"), ["command:b.py", "replay:r.jsonl"]),
        (("command:a.py -x", "command:a.py -y"), ["command:a.py -x", "command:a.py -y"]),
    ],
)
def test_names_are_short_where_they_are_unique(agents: tuple[str, ...], labels: list[str]) -> None:
    assert _labels(*(episode(agent=name) for name in agents)) == labels


def test_only_arguments_that_differ_are_named() -> None:
    records = [
        episode(agent="codex", model="a", effort="high"),
        episode(agent="codex", model="b", effort="high"),
        episode(agent="codex", effort="high"),
        episode(agent="claude", model="c"),
    ]
    assert _labels(*records) == ["codex:model=a", "codex:model=b", "codex", "claude"]


def test_keys_are_not_named() -> None:
    assert "sk-1" not in str(cell_of(episode(agent="codex", api_key="sk-1")))


def test_cells_are_in_the_order_of_items_and_the_control_is_the_first() -> None:
    records = [
        episode(agent="claude", treatment="skill", item=3),
        episode(agent="claude", treatment="control", item=2),
        episode(agent="codex", treatment="skill", item=1),
        episode(agent="codex", treatment="control", item=0),
    ]
    labels = ["codex-control", "codex-skill", "claude-control", "claude-skill"]
    assert _labels(*records) == labels


def test_tries_of_two_cells_are_two() -> None:
    cells = [("codex", "control"), ("codex", "skill"), ("claude", "control")]
    records = [episode(agent=agent, treatment=treatment) for agent, treatment in cells]
    assert len(counted_tries([*records, *records])) == 3


def test_what_a_run_keeps_of_a_record_knows_its_cell_and_shares_it() -> None:
    kept = [
        episode(task=name, agent="codex", treatment="skill", model="a").for_statistics()
        for name in ("a", "b")
    ]
    assert str(cell_of(kept[0])) == "codex:model=a-skill"
    assert kept[0].agent_arguments is kept[1].agent_arguments
    assert kept[0].task.treatment is kept[1].task.treatment


_A, _B = Cell("codex", "", (("model", "a"),)), Cell("codex", "", (("model", "b"),))
_C, _OTHER = Cell("codex", "", (("model", "c"),)), Cell("claude")


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        ([_A], [_OTHER], {_OTHER: _A}),  # of one cell each, whatever they are
        ([_A, _OTHER], [_B, _OTHER], {_B: _A, _OTHER: _OTHER}),  # a newer model
        ([_A, _B], [_A], {_A: _A}),
        ([_A], [_A, _B], {_A: _A}),
        ([_A, _B], [_C], {}),  # of two nobody knows which one it replaces
        ([_A], [_OTHER, Cell("qwen")], {}),
        ([Cell("codex", "control")], [Cell("codex", "skill"), _OTHER], {}),
    ],
)
def test_pairs(before: list[Cell], after: list[Cell], pairs: dict[Cell, Cell]) -> None:
    assert pair_cells(before, after) == pairs


def test_a_cell_keeps_what_tells_it_apart() -> None:
    assert shorten([_A, _OTHER]) == {_A: Cell("codex"), _OTHER: _OTHER}
    assert shorten([_A, _B]) == {_A: _A, _B: _B}
