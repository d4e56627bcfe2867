"""A run, or two runs, as the page shows them: tries, facts, numbers and changes, in words.

The statistics come from ``results/`` and ``statistics/``; this module puts them into words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from pytest_intercode.core.record import OUTCOMES, EpisodeRecord
from pytest_intercode.core.text import pluralize
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.results import comparison
from pytest_intercode.results.cells import Cell, by_cell, pair_tries
from pytest_intercode.results.files import no_episodes, read_records
from pytest_intercode.results.gate import Conclusion, conclude, judge_file
from pytest_intercode.results.recorded import had_feedback, is_ours
from pytest_intercode.results.summary import (
    HARDNESS,
    Summary,
    format_number,
    format_percent,
    groups,
    summarise,
)
from pytest_intercode.results.tries import (
    TaskKey,
    by_task,
    counted_tries,
    in_order_of_items,
    key_of,
    solved,
)
from pytest_intercode.statistics.paired import Verdict, paired_test, paired_tests
from pytest_intercode.statistics.rates import Interval

__all__ = [
    "CHANGES",
    "CellRuns",
    "Change",
    "Failure",
    "Group",
    "Kind",
    "Measure",
    "OutcomeShare",
    "Run",
    "cell_verdicts",
    "changes",
    "conclusion_of",
    "facts",
    "failures",
    "groups_of",
    "measures",
    "outcomes",
    "pair_runs",
    "verdict",
]

_MAX_NAMED = 4  # values of one fact that are named; further ones are counted
_MAX_REASON = 160  # characters of the reason why a task was not solved
_MAX_KS = 5  # values of k up to which pass@k is shown for each


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        name: its name, next to another run.
        date: when it ended, for people; empty if that is not known.
        tries: the tries that count, in the order of their items.
        rerun_count: how many records do not count because their try was run again.
    """

    name: str
    date: str
    tries: list[EpisodeRecord]
    rerun_count: int = 0

    @classmethod
    def of(
        cls,
        source: Path | Iterable[EpisodeRecord],
        name: str,
        warn: Callable[[str], None] | None = None,
    ) -> Run:
        """Read a run.

        Args:
            source: a results file, or its records.
            name: the name of the run, if its records do not have one.
            warn: called with one line if the file's last line is truncated.

        Raises:
            ConfigurationError: the file is wrong, or has no episode.
        """
        date = datetime.now()
        source_name = "the run"
        if isinstance(source, Path):
            source_name = str(source)
            records = read_records(source, warn)
            date = datetime.fromtimestamp(source.stat().st_mtime)
        else:
            records = list(source)
        if not records:
            raise no_episodes(source_name, ", so there is no page")
        tries = in_order_of_items(counted_tries(records))
        names = {record.run_name for record in tries}
        if len(names) == 1:
            name = names.pop() or name
        return cls(name, f"{date:%Y-%m-%d %H:%M}", tries, len(records) - len(tries))

    def limited_to(self, other: Run) -> Run:
        """Return the run without tasks and cells that another run lacks, in the other's order."""
        places = {key: place for place, key in enumerate(other.tasks())}
        sides = pair_tries(self.tries, other.tries).values()
        common = [record for tries, other_tries in sides if other_tries for record in tries]
        tries = [record for record in common if key_of(record) in places]
        tries.sort(key=lambda record: places[key_of(record)])
        return replace(self, tries=tries)

    def tasks(self) -> dict[TaskKey, list[EpisodeRecord]]:
        """Return the tries of each task."""
        return by_task(self.tries)


# -- facts


def facts(run: Run) -> list[tuple[str, str]]:
    """Return the facts about a run for the head of the page, as pairs of a name and a value."""
    tries = run.tries
    arguments = (pair for record in tries for pair in record.agent_arguments.items())
    pairs = [
        ("agent", _join_distinct(record.agent for record in tries)),
        ("arguments", _join_distinct(f"{name}={value}" for name, value in arguments)),
        ("profile", _join_distinct(record.profile for record in tries)),
        ("feedback", "reward after every action" if any(map(_graded_often, tries)) else ""),
        ("sandbox", _join_distinct(record.sandbox for record in tries)),
        ("image", _join_distinct(record.image for record in tries)),
        ("dataset", _join_distinct(record.task.dataset for record in tries)),
        ("run again", pluralize(run.rerun_count, "try", "tries") if run.rerun_count else ""),
        ("results of", run.date),
    ]
    return [(name, value) for name, value in pairs if value]


def _join_distinct(values: Iterable[str]) -> str:
    ordered = sorted(set(filter(None, values)))
    hidden_count = len(ordered) - _MAX_NAMED
    return ", ".join(ordered[:_MAX_NAMED]) + (
        f" and {hidden_count} more" if hidden_count > 0 else ""
    )


def _graded_often(record: EpisodeRecord) -> bool:
    """Whether the agent saw its reward at several turns; InterCode's records have no parts."""
    return had_feedback(record) or (
        not is_ours(record) and any(turn.reward for turn in record.turns[:-1])
    )


# -- numbers


class Measure(NamedTuple):
    """A number of a run: its name, its value as text, a note, and whether it is a main number."""

    name: str
    value: str
    note: str = ""
    leads: bool = False


class OutcomeShare(NamedTuple):
    """One outcome of a run: how many tries had it, and their share in percent."""

    outcome: str
    tries: int
    percent: float


class Group(NamedTuple):
    """Some tasks of a run: their name, the number of the run, and their statistics."""

    name: str
    run: int
    summary: Summary


def measures(summary: Summary) -> list[Measure]:
    """Return a run's numbers, the most important first."""
    numbers = [
        Measure(
            "solved",
            format_percent(summary.rate),
            _interval(summary.rate_interval, format_percent),
            True,
        ),
        Measure(
            "mean reward",
            format_number(summary.reward),
            _interval(summary.reward_interval, format_number),
            True,
        ),
    ]
    ks = sorted(k for k in summary.pass_at if k > 1)
    if len(ks) > _MAX_KS:
        ks = [k for k in ks if k in (2, 5, 10, 20, 50) or k == ks[-1]]
    for k in ks:
        numbers.append(
            Measure(f"pass@{k}", format_percent(summary.pass_at[k]), f"one of {k} tries solves")
        )
        if k in summary.pass_hat:
            hat = format_percent(summary.pass_hat[k])
            numbers.append(Measure(f"pass^{k}", hat, f"all of {k} tries solve"))
    tries = "" if summary.tries == summary.tasks else f"{summary.tries:,} tries"
    errors = (
        ("infrastructure error", summary.infrastructure_errors),
        ("task error", summary.task_errors),
    )
    notes = (tries, *(f"{pluralize(n, name)}, not counted" for name, n in errors if n))
    numbers += [
        Measure("tasks", f"{summary.tasks:,}", ", ".join(filter(None, notes))),
        Measure("turns", format_number(summary.turns, 1), "mean"),
    ]
    if summary.seconds is not None:
        numbers.append(Measure("seconds", format_number(summary.seconds, 2), "mean of a try"))
    if summary.tokens:
        cached = f", {_large(summary.cached_tokens)} cached" if summary.cached_tokens else ""
        numbers.append(Measure("tokens", _large(summary.tokens), f"all tries together{cached}"))
    if summary.cost is not None:
        numbers.append(Measure("cost", f"{summary.cost:,.2f}", "in the currency of the prices"))
    return numbers


def outcomes(run: Run) -> list[OutcomeShare]:
    """Return how often each outcome occurred, without those that did not."""
    counts = Counter(record.outcome for record in run.tries)
    total = sum(counts.values())
    return [
        OutcomeShare(name, counts[name], 100 * counts[name] / total)
        for name in OUTCOMES
        if counts[name]
    ]


def groups_of(runs: Sequence[Run], grouping: Literal["env", "hardness"]) -> list[Group]:
    """Return the statistics of each env's tasks, or of each hardness's, in each run."""
    grouped_runs: list[Mapping[str, list[EpisodeRecord]]] = [
        groups(run.tries, grouping) for run in runs
    ]
    names = sorted({name for grouped_tries in grouped_runs for name in grouped_tries}, key=_rank)
    return [
        Group(name, number, summarise(grouped_tries[name]))
        for name in names
        for number, grouped_tries in enumerate(grouped_runs)
        if name in grouped_tries
    ]


_ORDER = (*BUILTIN_ENVIRONMENTS, *HARDNESS)


def _rank(name: str) -> tuple[bool, int, str]:
    return name == "-", _ORDER.index(name) if name in _ORDER else len(_ORDER), name


def _large(value: float) -> str:
    return f"{value / 1e6:,.2f} M" if value >= 1e6 else f"{value:,.0f}"


def _interval(interval: Interval | None, format_value: Callable[[float], str]) -> str:
    if interval is None:
        return ""
    return f"95% interval {format_value(interval.low)} to {format_value(interval.high)}"


# -- whether one run passed, and what did not


class Failure(NamedTuple):
    """A task of one run that was not solved in each of its graded tries.

    Attributes:
        key: the task.
        cell: the agent and the treatment; None if the run has one cell.
        share: how many of its tries were solved.
        outcomes: the outcomes of the unsolved tries, each once.
        reason: why the last unsolved try was not solved.
    """

    key: TaskKey
    cell: Cell | None
    share: comparison.Share
    outcomes: tuple[str, ...]
    reason: str


def conclusion_of(run: Run) -> Conclusion | None:
    """Return whether a finished run passed; None if not all of its tries were tests of pytest."""
    if not all(record.node_id for record in run.tries):
        return None
    return conclude(judge_file(run.tries, None, None, None))


def failures(run: Run) -> list[Failure]:
    """Return the tasks that were not solved, by cell and in the order of the run."""
    tries_by_cell = by_cell(run.tries)
    unsolved = []
    for cell, records in tries_by_cell.items():
        for key, tries in by_task(record for record in records if record.graded).items():
            failed_tries = [record for record in tries if not record.succeeded]
            if failed_tries and failed_tries[0].task.xfail is None:
                outcomes = tuple(dict.fromkeys(record.outcome for record in failed_tries))
                share = comparison.Share(len(tries) - len(failed_tries), len(tries))
                own_cell = cell if len(tries_by_cell) > 1 else None
                unsolved.append(Failure(key, own_cell, share, outcomes, _reason(failed_tries[-1])))
    return unsolved


def _reason(record: EpisodeRecord) -> str:
    reason = " ".join(record.reason.split())
    return reason if len(reason) <= _MAX_REASON else f"{reason[: _MAX_REASON - 4]} ..."


# -- two runs

Kind: TypeAlias = Literal[
    "regressed",
    "failed now",
    "less often",
    "improved",
    "solved now",
    "more often",
    "same",
    "only before",
    "only after",
    "not graded",
]

CHANGES: tuple[Kind, ...] = get_args(Kind)
"""All kinds, in the order in which they are shown."""

_WORSE: tuple[comparison.Kind, ...] = ("broke", "less often")
_BETTER: tuple[comparison.Kind, ...] = ("fixed", "more often")
_OTHERS: Mapping[comparison.Kind, Kind] = {
    "as before": "same",
    "only before": "only before",
    "only after": "only after",
    "not graded": "not graded",
}


class Change(NamedTuple):
    """How a task changed.

    Attributes:
        key: the task.
        kind: ``regressed`` and ``improved`` if chance is excluded; ``less often`` and ``more
            often`` if it is not; ``failed now`` and ``solved now`` for single tries, about which
            statistics say nothing.
        words: the same as a phrase.
        before: how many of the older run's tries were solved.
        after: the same for the newer run.
        cell: the agent and the treatment; None if each run has one cell.
    """

    key: TaskKey
    kind: Kind
    words: str
    before: comparison.Share
    after: comparison.Share
    cell: Cell | None = None


class CellRuns(NamedTuple):
    """Two runs, limited to a cell; a run that does not have the cell has no tries.

    Attributes:
        cell: the cell; None if each run has one cell.
        runs: the older run and the newer.
    """

    cell: Cell | None
    runs: tuple[Run, Run]


def pair_runs(before: Run, after: Run) -> list[CellRuns]:
    """Return two runs by their cells."""
    sides = pair_tries(before.tries, after.tries)
    return [
        CellRuns(
            cell if len(sides) > 1 else None,
            (replace(before, tries=old), replace(after, tries=new)),
        )
        for cell, (old, new) in sides.items()
    ]


def changes(before: Run, after: Run) -> list[Change]:
    """Return how every task of either run changed, by cell and in the order of the runs."""
    return [
        Change(change.key, *_in_words(change), change.before, change.after, cell)
        for cell, (old, new) in pair_runs(before, after)
        for change in comparison.changes(old.tries, new.tries)
    ]


def _in_words(change: comparison.Change) -> tuple[Kind, str]:
    if change.kind not in (*_WORSE, *_BETTER):
        kind = _OTHERS[change.kind]
        return kind, kind
    worse = change.kind in _WORSE
    if change.p is None:
        if worse:
            return "failed now", "failed now, solved before"
        return "solved now", "solved now, failed before"
    if not change.by_chance:
        significant: Kind = "regressed" if worse else "improved"
        return significant, f"{significant} (p {change.p:.2g})"
    tendency: Kind = "less often" if worse else "more often"
    return tendency, f"{tendency} solved, within chance (p {change.p:.2g})"


def verdict(before: Run, after: Run) -> Verdict | None:
    """Return whether the newer run is worse, better or neither; None without a common task.

    Args:
        before: the older run, of one cell.
        after: the newer run, of one cell.
    """
    result = paired_test(solved(before.tries), solved(after.tries))
    return result if result.tasks else None


def cell_verdicts(before: Run, after: Run) -> dict[Cell, Verdict]:
    """Return the verdict on each of several cells with a common task, with Holm's correction."""
    pairs = pair_runs(before, after)
    verdicts = paired_tests([(solved(old.tries), solved(new.tries)) for _, (old, new) in pairs])
    return {
        cell: result
        for (cell, _), result in zip(pairs, verdicts, strict=True)
        if cell is not None and result.tasks
    }
