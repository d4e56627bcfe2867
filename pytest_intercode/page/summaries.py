"""What runs came to, in words and numbers for people; the statistics are not worked out here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_intercode.core.task import ENVIRONMENTS
from pytest_intercode.page.run import OUTCOMES, Run
from pytest_intercode.results.summary import HARDNESS
from pytest_intercode.results.tries import Try

if TYPE_CHECKING:
    from pytest_intercode.results.summary import Summary
    from pytest_intercode.statistics.rates import Interval

__all__ = ["Group", "Measure", "Part", "groups_of", "measures", "outcomes"]

_FEW = 5  # numbers of tries that are all told


class Measure(NamedTuple):
    """A number of a run: its name, its value as text, what belongs to it, and whether it leads."""

    name: str
    value: str
    note: str = ""
    leads: bool = False


class Part(NamedTuple):
    """One outcome of a run: how many tries had it, and what share that is, in percent."""

    outcome: str
    tries: int
    percent: float


class Group(NamedTuple):
    """Some tasks of a run: their name, the number of the run, and what they came to."""

    name: str
    run: int
    summary: Summary


def measures(summary: Summary) -> list[Measure]:
    """Return a run's numbers, the most important first."""
    found = [
        Measure("solved", _percent(summary.rate), _interval(summary.rate_interval, _percent), True),
        Measure(
            "mean reward",
            _number(summary.reward),
            _interval(summary.reward_interval, _number),
            True,
        ),
    ]
    ks = sorted(k for k in summary.pass_at if k > 1)
    if len(ks) > _FEW:
        ks = [k for k in ks if k in (2, 5, 10, 20, 50) or k == ks[-1]]
    for k in ks:
        found.append(Measure(f"pass@{k}", _percent(summary.pass_at[k]), f"one of {k} tries solves"))
        if k in summary.pass_hat:
            hat = _percent(summary.pass_hat[k])
            found.append(Measure(f"pass^{k}", hat, f"all of {k} tries solve"))
    tries = "" if summary.tries == summary.tasks else f"{summary.tries:,} tries"
    spoiled = f"{summary.spoiled:,} spoiled, not counted" if summary.spoiled else ""
    found += [
        Measure("tasks", f"{summary.tasks:,}", ", ".join(filter(None, (tries, spoiled)))),
        Measure("turns", _number(summary.turns, 1), "mean"),
    ]
    if summary.seconds is not None:
        found.append(Measure("seconds", _number(summary.seconds, 2), "mean of a try"))
    if summary.tokens:
        found.append(Measure("tokens", _large(summary.tokens), "all tries together"))
    if summary.cost is not None:
        found.append(Measure("cost", f"{summary.cost:,.2f}", "in the currency of the prices"))
    return found


def outcomes(run: Run) -> list[Part]:
    """Return how often each outcome was; those that were not are left out."""
    counts = Counter(each.outcome for each in run.tries)
    total = sum(counts.values())
    names = [*OUTCOMES, *sorted(counts.keys() - set(OUTCOMES))]
    return [Part(name, counts[name], 100 * counts[name] / total) for name in names if counts[name]]


def groups_of(runs: Sequence[Run], by: Literal["env", "hardness"]) -> list[Group]:
    """Return what the tasks of each env, or of each hardness, came to in each run."""
    from pytest_intercode.results.summary import groups, summarise

    found: list[Mapping[str, list[Try]]] = [groups(run.tries, by) for run in runs]
    names = sorted({name for each in found for name in each}, key=_rank)
    return [
        Group(name, number, summarise(each[name]))
        for name in names
        for number, each in enumerate(found)
        if name in each
    ]


_ORDER = (*ENVIRONMENTS, *HARDNESS)


def _rank(name: str) -> tuple[bool, int, str]:
    return name == "-", _ORDER.index(name) if name in _ORDER else len(_ORDER), name


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _large(value: float) -> str:
    return f"{value / 1e6:,.2f} M" if value >= 1e6 else f"{value:,.0f}"


def _interval(interval: Interval | None, written: Callable[[float], str]) -> str:
    if interval is None:
        return ""
    return f"95% interval {written(interval.low)} to {written(interval.high)}"
