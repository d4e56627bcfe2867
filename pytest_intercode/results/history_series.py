"""Runs over time: each cell's runs in order, and all cells in a leaderboard. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from pytest_intercode.results.cells import Cell, shorten
from pytest_intercode.results.history import KeptCell, TaskTally
from pytest_intercode.results.tries import TaskKey
from pytest_intercode.statistics.paired import Verdict, paired_tests
from pytest_intercode.statistics.rates import Interval, bootstrap_mean, clustered_wilson

__all__ = [
    *("Leaderboard", "Mean", "Numbers", "Series", "Standing", "Step"),
    *("make_leaderboard", "make_series", "numbers_of", "warnings_of"),
]


class Mean(NamedTuple):
    """A mean of tries, with its 95 % interval, the bootstrap's with tasks as clusters."""

    value: float
    interval: Interval


class Numbers(NamedTuple):
    """The statistics of a kept cell, or of some of its tasks.

    Attributes:
        tasks: the number of tasks.
        tries: the number of graded tries.
        solved: how many of them were solved.
        rate: solved over tries; without a try, this and the following are None.
        rate_interval: its 95 % interval, Wilson's, with tasks as clusters.
        turns: the turns of a try.
        cost: the cost of a try, over the tasks whose price is known.
        total_cost: what these tasks cost together.
    """

    tasks: int
    tries: int
    solved: int
    rate: float | None
    rate_interval: Interval | None
    turns: Mean | None
    cost: Mean | None
    total_cost: float | None


class Step(NamedTuple):
    """A run of a series.

    Attributes:
        entry: the kept cell.
        numbers: its statistics.
        verdict: how it compares with the previous run, over the tasks of both and with Holm's
            correction for the number of cells of the run; None for the first run.
    """

    entry: KeptCell
    numbers: Numbers
    verdict: Verdict | None


class Series(NamedTuple):
    """The runs of one agent with one treatment, the oldest first."""

    name: str
    steps: Sequence[Step]


class Standing(NamedTuple):
    """A cell of a leaderboard.

    Attributes:
        name: the cell, by a short name.
        entry: the kept cell of its newest run.
        numbers: its statistics over the tasks of the leaderboard.
        verdict: how it compares with the first of the leaderboard, with Holm's correction for the
            number of cells; None for the first, and if no task is common to all.
    """

    name: str
    entry: KeptCell
    numbers: Numbers
    verdict: Verdict | None


class Leaderboard(NamedTuple):
    """Cells by their rate, the best first.

    Attributes:
        common: how many graded tasks all cells have in common. If there is at least one, all
            numbers are only about these tasks, otherwise about the tasks that each cell has.
        standings: the cells.
    """

    common: int
    standings: Sequence[Standing]


def numbers_of(tallies: Sequence[TaskTally]) -> Numbers:
    """Return the statistics of tasks."""
    tries = sum(tally.graded for tally in tallies)
    solved = sum(tally.solved for tally in tallies)
    priced = [(tally.cost, tally.graded) for tally in tallies if tally.cost is not None]
    return Numbers(
        tasks=len(tallies),
        tries=tries,
        solved=solved,
        rate=solved / tries if tries else None,
        rate_interval=clustered_wilson([tally.tries for tally in tallies]) if tallies else None,
        turns=_mean([(tally.turns, tally.graded) for tally in tallies]),
        cost=_mean(priced),
        total_cost=sum(cost for cost, _ in priced) if priced else None,
    )


def _mean(sums: Sequence[tuple[float, int]]) -> Mean | None:
    """Return the mean over tries, from the sum and the number of tries of each task."""
    if not sums:
        return None
    # Whole tasks are drawn, so it does not matter how a sum is spread over the tries of a task.
    groups = [[total / count] * count for total, count in sums]
    value = sum(total for total, _ in sums) / sum(count for _, count in sums)
    return Mean(value, bootstrap_mean(groups))


# -- over time


def make_series(history: Iterable[KeptCell], max_runs: int | None = None) -> list[Series]:
    """Return the runs of each agent and treatment.

    An agent whose arguments change from run to run has one series, so that a newer model is
    compared with the one that it replaces. If a run has the agent with several sets of arguments,
    each set is a series.

    Args:
        history: kept cells, the oldest first.
        max_runs: the maximum number of runs of a series; of more, the newest are returned, and the
            first of these is still compared with the run before it. None for all.
    """
    kept_by_cell = _by_series(history)
    previous = {
        id(entry): older for cells in kept_by_cell.values() for older, entry in pairwise(cells)
    }
    newest = {
        cell: entries[-max_runs:] if max_runs else entries for cell, entries in kept_by_cell.items()
    }
    verdicts = _verdicts([entry for cells in newest.values() for entry in cells], previous)
    names = shorten(kept_by_cell)
    return [
        Series(
            str(names[cell]),
            [Step(entry, numbers_of(entry.tasks), verdicts.get(id(entry))) for entry in cells],
        )
        for cell, cells in newest.items()
    ]


def _by_series(history: Iterable[KeptCell]) -> dict[Cell, list[KeptCell]]:
    history = list(history)
    counts = Counter((entry.run, entry.agent, entry.treatment) for entry in history)
    varied = {(agent, treatment) for (_, agent, treatment), count in counts.items() if count > 1}
    kept_by_cell: dict[Cell, list[KeptCell]] = defaultdict(list)
    for entry in history:
        cell = entry.cell
        if (entry.agent, entry.treatment) not in varied:
            cell = cell._replace(arguments=())
        kept_by_cell[cell].append(entry)
    return dict(kept_by_cell)


def _verdicts(history: Iterable[KeptCell], previous: dict[int, KeptCell]) -> dict[int, Verdict]:
    """Compare each kept cell with its previous one, with one correction for the cells of a run."""
    runs: dict[str, list[KeptCell]] = defaultdict(list)
    for entry in history:
        if id(entry) in previous:
            runs[entry.run].append(entry)
    verdicts = {}
    for cells in runs.values():
        pairs = [(previous[id(entry)].solved, entry.solved) for entry in cells]
        for entry, verdict in zip(cells, paired_tests(pairs), strict=True):
            verdicts[id(entry)] = verdict
    return verdicts


def warnings_of(history: Iterable[KeptCell]) -> list[str]:
    """Return what makes runs hard to compare, a line each."""
    profiles = sorted({entry.profile for entry in history if entry.profile})
    if len(profiles) < 2:
        return []
    return [
        f"the runs differ in profile ({', '.join(profiles)}): their rewards are not of one kind"
    ]


# -- a leaderboard


def make_leaderboard(history: Iterable[KeptCell]) -> Leaderboard:
    """Return all cells by their rate, each with its newest run.

    Args:
        history: kept cells, the oldest first. A cell without a graded try is left out.
    """
    newest = {entry.cell: entry for entry in history if entry.tasks}
    if not newest:
        return Leaderboard(0, [])
    common = set.intersection(*(set(entry.solved) for entry in newest.values()))
    numbers = {cell: numbers_of(_tallies_of(entry, common)) for cell, entry in newest.items()}
    names = shorten(newest)
    cells = sorted(newest, key=lambda cell: (*_rank(numbers[cell]), str(names[cell])))
    verdicts: dict[Cell, Verdict] = {}
    if common:
        first, *challengers = cells
        pairs = [
            (_common(newest[first], common), _common(newest[cell], common)) for cell in challengers
        ]
        verdicts = dict(zip(challengers, paired_tests(pairs, symmetric=True), strict=True))
    return Leaderboard(
        len(common),
        [
            Standing(str(names[cell]), newest[cell], numbers[cell], verdicts.get(cell))
            for cell in cells
        ],
    )


def _rank(numbers: Numbers) -> tuple[float, float]:
    """Return the sort key: the rate, and for equal rates the cost of a try."""
    cost = numbers.cost.value if numbers.cost else float("inf")
    return -(numbers.rate or 0.0), cost


def _tallies_of(entry: KeptCell, common: Collection[TaskKey]) -> list[TaskTally]:
    return [tally for tally in entry.tasks if not common or tally.key in common]


def _common(entry: KeptCell, common: Collection[TaskKey]) -> dict[TaskKey, list[bool]]:
    return {tally.key: tally.tries for tally in _tallies_of(entry, common)}
