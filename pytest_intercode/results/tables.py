"""The tables at the end of a run, in lines of text and in Markdown. Pure: tries in, lines out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import format_columns, markdown_text
from pytest_intercode.core.usage import UNSPENT
from pytest_intercode.results.summary import (
    Grouping,
    Summary,
    groups,
    rank_of_hardness,
    summarise,
)
from pytest_intercode.statistics.rates import Interval

__all__ = ["detailed_table", "markdown", "summaries", "table"]

_LABELS = ("env", "dataset", "hardness")
_NUMBERS = (
    *("tasks", "tries", "solved", "rate", "95% interval", "reward", "turns"),
    *("failed actions", "seconds"),
)
_SPENT = ("tokens", "cost")  # shown where an agent reports any
_BY: tuple[Grouping, ...] = ("env", "dataset", "hardness", "tag")


def table(tries: Iterable[EpisodeRecord]) -> list[str]:
    """Return the table's lines: one for each environment, dataset and hardness, and a total.

    Rates and means leave out episodes that a fault of the task or of the infrastructure spoiled;
    they are named below.
    """
    tries = list(tries)
    lines = format_columns(_rows(tries), labels=len(_LABELS))
    outcomes = Counter(record.outcome for record in tries)
    lines.append("outcomes: " + ", ".join(f"{n} {name}" for name, n in outcomes.most_common()))
    verdicts = Counter(record.test_passed for record in tries if record.test_passed is not None)
    if verdicts:
        lines.append(
            f"solved is what tests of your own say of their episodes: {verdicts[True]} passed, "
            f"{verdicts[False]} failed"
        )
    lines += _by_gold_alone(tries)
    if any(_spent(tries)):
        lines.append(_bill(tries))
    return lines


def markdown(tries: Iterable[EpisodeRecord]) -> list[str]:
    """Return the same table in Markdown, as GitHub shows it in a job's summary."""
    heading, *rows = _rows(list(tries))
    rule = ["---"] * len(_LABELS) + ["---:"] * (len(heading) - len(_LABELS))
    return [f"| {' | '.join(map(markdown_text, row))} |" for row in (heading, rule, *rows)]


def detailed_table(tries: Iterable[EpisodeRecord]) -> list[str]:
    """Return all statistics, one line for each environment, dataset, hardness and tag.

    With several tries at each task, ``pass@k`` is how likely one of k solves it, and ``pass^k`` how
    likely all of k do.
    """
    tries = list(tries)
    found = [("all", "", summarise(tries))]
    for by, values in summaries(tries).items():
        found += [(by, value, made) for value, made in values]
    most = max((max(made.pass_at, default=1) for *_, made in found), default=1)
    shown = sorted({1, most}) if most > 1 else []
    heading = ["by", "value", "tasks", "tries", "rate", "95% interval"]
    heading += [f"pass@{k}" for k in shown] + [f"pass^{k}" for k in shown if k > 1]
    heading += ["reward", "95% interval"]
    rows: list[Sequence[str]] = [heading]
    for by, value, made in found:
        row = [by, value, str(made.tasks), str(made.graded), _percent(made.rate)]
        row.append(_range(made.rate_interval))
        row += [_percent(made.pass_at.get(k)) for k in shown]
        row += [_percent(made.pass_hat.get(k)) for k in shown if k > 1]
        row += [_number(made.reward, 3), _range(made.reward_interval, percent=False)]
        rows.append(row)
    return format_columns(rows, labels=2)


def summaries(tries: Iterable[EpisodeRecord]) -> dict[str, list[tuple[str, Summary]]]:
    """Return the statistics by environment, dataset, hardness and tag, where there are several."""
    tries = list(tries)
    found: dict[str, list[tuple[str, Summary]]] = {}
    for by in _BY:
        parts = groups(tries, by)
        if len(parts) > 1:
            values = sorted(parts, key=rank_of_hardness)
            found[by] = [(value, summarise(parts[value])) for value in values]
    return found


def _rows(tries: list[EpisodeRecord]) -> list[Sequence[str]]:
    parts: dict[tuple[str, ...], list[EpisodeRecord]] = defaultdict(list)
    for each in tries:
        parts[each.task.env, each.task.dataset, each.task.hardness or "-"].append(each)
    rows = [_row(labels, parts[labels]) for labels in sorted(parts, key=_order)]
    if len(rows) > 1:
        rows.append(_row(("all", "", ""), tries))
    tokens, cost = _spent(tries)
    shown = len(_LABELS) + len(_NUMBERS) + (2 if cost else 1 if tokens else 0)
    again = any(each.task.repeat > 1 for each in tries)
    at = len(_LABELS) + 1  # of the number of tries, which says nothing where each task has one
    return [
        (*row[: at + again], *row[at + 1 : shown])
        for row in [(*_LABELS, *_NUMBERS, *_SPENT), *rows]
    ]


def _row(labels: tuple[str, ...], tries: list[EpisodeRecord]) -> tuple[str, ...]:
    made = summarise(tries)
    graded = [each for each in tries if each.graded]
    actions = [turn.executed for each in graded for turn in each.turns]
    n = len(graded)
    return (
        *labels,
        str(made.tasks),
        str(made.tries),
        str(made.solved),
        _percent(made.rate),
        _range(made.rate_interval),
        _number(made.reward, 3),
        f"{len(actions) / n:.1f}" if n else "-",
        f"{actions.count(False) / len(actions):.1%}" if actions else "-",
        _number(made.seconds, 2),
        f"{sum(each.usage.tokens for each in graded) / n:,.0f}" if n else "-",
        f"{sum(each.usage.cost or 0.0 for each in graded) / n:.4f}" if n else "-",
    )


def _order(labels: tuple[str, ...]) -> tuple[str, str, int, str]:
    env, dataset, hardness = labels
    return env, dataset, *rank_of_hardness(hardness)


def _by_gold_alone(tries: list[EpisodeRecord]) -> list[str]:
    """Return a line with what the rate would be without alternatives of gold, if a task has any."""
    graded = [each for each in tries if each.graded]
    alone = [each.parts.get("gold_alone", each.reward) for each in graded]
    if not any("gold_alone" in each.parts for each in graded):
        return []
    solved = sum(value >= 1.0 for value in alone)
    return [f"by gold alone, without its alternatives: {solved} solved, {solved / len(graded):.1%}"]


def _spent(tries: list[EpisodeRecord]) -> tuple[bool, bool]:
    return any(each.usage.tokens for each in tries), any(each.usage.cost for each in tries)


def _bill(tries: list[EpisodeRecord]) -> str:
    used = sum((each.usage for each in tries), UNSPENT)
    cost = "" if used.cost is None else f", cost {used.cost:.4f}"
    cached = f" ({used.cached_tokens:,} cached)" if used.cached_tokens else ""
    return f"spent: {used.requests:,} requests, {used.tokens:,} tokens{cached}{cost}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _range(interval: Interval | None, *, percent: bool = True) -> str:
    if interval is None:
        return "-"
    if percent:
        return f"{100 * interval.low:.0f}-{100 * interval.high:.0f}%"
    return f"{interval.low:.3f}-{interval.high:.3f}"
