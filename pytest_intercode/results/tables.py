"""The tables at the end of a run, in lines of text and in Markdown. Pure: tries in, lines out.

A run with several cells, such as those of two agents, has a table of its cells, a table with a
column for each of them, and lines about which of them differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import format_columns, markdown_text, one_line
from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.results.cell_tables import cell_labels, difference_lines, result_rows
from pytest_intercode.results.cells import Cell, by_cell
from pytest_intercode.results.summary import (
    Grouping,
    Summary,
    format_interval,
    format_number,
    format_percent,
    groups,
    rank_of_hardness,
    summarise,
)

__all__ = ["bill", "detailed_table", "markdown", "summaries", "table"]

_LABELS = ("env", "dataset", "hardness")
_NUMBERS = (
    *("tasks", "tries", "solved", "rate", "95% interval", "reward", "turns"),
    *("failed actions", "seconds"),
)
_USAGE_COLUMNS = ("tokens", "cost")  # shown if an agent reports any
_GROUPINGS: tuple[Grouping, ...] = ("env", "dataset", "hardness", "tag")


def table(tries: list[EpisodeRecord]) -> list[str]:
    """Return the table's lines: one for each environment, dataset and hardness, and a total.

    With several cells there is a line for each of them instead, and then one for each task, or
    each environment, dataset and hardness, with a column for each cell.

    Rates and means leave out episodes that failed because of the task or the infrastructure; a line
    below the table counts these.
    """
    tries_by_cell = by_cell(tries)
    if len(tries_by_cell) > 1:
        rows, label_count = _cell_rows(tries_by_cell)
        results, result_label_count = result_rows(tries_by_cell)
        lines = [
            *format_columns(rows, labels=label_count),
            "",
            *format_columns(results, labels=result_label_count),
            "",
        ]
        if compared := [one_line(line) for line in difference_lines(tries_by_cell)]:
            lines += [*compared, ""]
    else:
        lines = format_columns(_rows(tries), labels=len(_LABELS))
    outcomes = Counter(record.outcome for record in tries)
    lines.append("outcomes: " + ", ".join(f"{n} {name}" for name, n in outcomes.most_common()))
    verdicts = Counter(record.test_passed for record in tries if record.test_passed is not None)
    if verdicts:
        lines.append(
            f"solved is what tests of your own say of their episodes: {verdicts[True]} passed, "
            f"{verdicts[False]} failed"
        )
    lines += _by_submission(tries_by_cell)
    lines += _by_gold_alone(tries)
    if any(_reports_usage(tries)):
        lines.append(bill("spent", [record.usage for record in tries]))
    judged = [votes.usage for record in tries for votes in record.judge_records]
    if any(judged):
        lines.append(bill("spent by judges", judged))
    return lines


def markdown(tries: list[EpisodeRecord]) -> list[str]:
    """Return the same tables in Markdown, for GitHub's summary of a job."""
    tries_by_cell = by_cell(tries)
    if len(tries_by_cell) < 2:
        return _markdown_table(_rows(tries), len(_LABELS))
    lines = [
        *_markdown_table(*_cell_rows(tries_by_cell)),
        "",
        *_markdown_table(*result_rows(tries_by_cell)),
    ]
    heading, *compared = difference_lines(tries_by_cell) or [""]
    if heading:
        lines += ["", markdown_text(heading), ""]
        lines += [f"- {markdown_text(line.strip())}" for line in compared]
    return lines


def _markdown_table(rows: Sequence[Sequence[str]], label_count: int) -> list[str]:
    heading, *body = rows
    rule = ["---"] * label_count + ["---:"] * (len(heading) - label_count)
    return [f"| {' | '.join(map(markdown_text, row))} |" for row in (heading, rule, *body)]


def detailed_table(tries: list[EpisodeRecord]) -> list[str]:
    """Return all statistics, one line for each environment, dataset, hardness and tag.

    With several tries at each task, ``pass@k`` is the probability that at least one of k tries
    solves it, and ``pass^k`` the probability that all of k do.
    """
    tries_by_cell = by_cell(tries)
    sections = []
    for cell, tries_of_cell in tries_by_cell.items():
        label = str(cell) if len(tries_by_cell) > 1 else ""
        sections.append((label, "all", "", summarise(tries_of_cell)))
        for grouping, values in summaries(tries_of_cell).items():
            sections += [(label, grouping, value, summary) for value, summary in values]
    max_k = max((max(summary.pass_at, default=1) for *_, summary in sections), default=1)
    shown_ks = sorted({1, max_k}) if max_k > 1 else []
    heading = ["cell", "by", "value", "tasks", "tries", "rate", "95% interval"]
    heading += [f"pass@{k}" for k in shown_ks] + [f"pass^{k}" for k in shown_ks if k > 1]
    heading += ["reward", "95% interval"]
    rows: list[Sequence[str]] = [heading]
    for *labels, summary in sections:
        row = [*labels, str(summary.tasks), str(summary.graded), format_percent(summary.rate)]
        row.append(format_interval(summary.rate_interval))
        row += [format_percent(summary.pass_at.get(k)) for k in shown_ks]
        row += [format_percent(summary.pass_hat.get(k)) for k in shown_ks if k > 1]
        row.append(format_number(summary.reward))
        row.append(format_interval(summary.reward_interval, percent=False))
        rows.append(row)
    if len(tries_by_cell) > 1:
        return format_columns(rows, labels=3)
    return format_columns([row[1:] for row in rows], labels=2)


def summaries(tries: list[EpisodeRecord]) -> dict[str, list[tuple[str, Summary]]]:
    """Return the statistics by environment, dataset, hardness and tag, if there are several."""
    grouped: dict[str, list[tuple[str, Summary]]] = {}
    for grouping in _GROUPINGS:
        parts = groups(tries, grouping)
        if len(parts) > 1:
            values = sorted(parts, key=rank_of_hardness)
            grouped[grouping] = [(value, summarise(parts[value])) for value in values]
    return grouped


def _rows(tries: list[EpisodeRecord]) -> list[Sequence[str]]:
    parts: dict[tuple[str, ...], list[EpisodeRecord]] = defaultdict(list)
    for record in tries:
        parts[record.task.env, record.task.dataset, record.task.hardness or "-"].append(record)
    rows = [_row(labels, parts[labels]) for labels in sorted(parts, key=_order)]
    if len(rows) > 1:
        rows.append(_row(("all", "", ""), tries))
    return _without_empty_columns(
        [(*_LABELS, *_NUMBERS, *_USAGE_COLUMNS), *rows], tries, len(_LABELS)
    )


def _cell_rows(
    tries_by_cell: Mapping[Cell, list[EpisodeRecord]],
) -> tuple[list[Sequence[str]], int]:
    """Return a heading and a row for each cell, and how many columns are labels."""
    label_headings, labels = cell_labels(list(tries_by_cell))
    rows = [_row(tuple(labels[cell]), tries) for cell, tries in tries_by_cell.items()]
    heading = (*label_headings, *_NUMBERS, *_USAGE_COLUMNS)
    all_tries = [record for tries in tries_by_cell.values() for record in tries]
    label_count = len(label_headings)
    return _without_empty_columns([heading, *rows], all_tries, label_count), label_count


def _without_empty_columns(
    rows: Sequence[Sequence[str]], tries: Sequence[EpisodeRecord], label_count: int
) -> list[Sequence[str]]:
    """Return rows without usage that no agent reports, and without tries if each task has one."""
    tokens, cost = _reports_usage(tries)
    column_count = label_count + len(_NUMBERS) + (2 if cost else 1 if tokens else 0)
    repeated = any(record.task.repeat > 1 for record in tries)
    tries_column = label_count + 1
    return [
        (*row[: tries_column + repeated], *row[tries_column + 1 : column_count]) for row in rows
    ]


def _row(labels: tuple[str, ...], tries: list[EpisodeRecord]) -> tuple[str, ...]:
    summary = summarise(tries)
    graded = [record for record in tries if record.graded]
    actions = [turn.executed for record in graded for turn in record.turns]
    n = len(graded)
    return (
        *labels,
        str(summary.tasks),
        str(summary.tries),
        str(summary.solved),
        format_percent(summary.rate),
        format_interval(summary.rate_interval),
        format_number(summary.reward),
        f"{len(actions) / n:.1f}" if n else "-",
        f"{actions.count(False) / len(actions):.1%}" if actions else "-",
        format_number(summary.seconds, 2),
        f"{sum(record.usage.tokens for record in graded) / n:,.0f}" if n else "-",
        f"{sum(record.usage.cost or 0.0 for record in graded) / n:.4f}" if n else "-",
    )


def _order(labels: tuple[str, ...]) -> tuple[str, str, int, str]:
    env, dataset, hardness = labels
    return env, dataset, *rank_of_hardness(hardness)


def _by_submission(tries_by_cell: Mapping[Cell, list[EpisodeRecord]]) -> list[str]:
    """Return for each cell how much was solved by each submission, if tasks allow several."""
    lines = []
    for cell, tries in tries_by_cell.items():
        graded = [record for record in tries if record.graded and record.submissions]
        if not graded:
            continue
        counts = Counter(record.submissions for record in graded if record.succeeded)
        parts = []
        for last in range(1, max(2, *(record.submissions for record in graded)) + 1):
            solved = sum(count for number, count in counts.items() if number <= last)
            parts.append(f"{last}: {solved} ({format_percent(solved / len(graded))})")
        label = f" of {cell}" if len(tries_by_cell) > 1 else ""
        lines.append(f"solved by submission{label}: {', '.join(parts)}")
    return lines


def _by_gold_alone(tries: list[EpisodeRecord]) -> list[str]:
    """Return a line with the rate without alternatives of gold, if a task has any."""
    graded = [record for record in tries if record.graded]
    alone = [record.parts.get("gold_alone", record.reward) for record in graded]
    if not any("gold_alone" in record.parts for record in graded):
        return []
    solved = sum(value >= 1.0 for value in alone)
    return [f"by gold alone, without its alternatives: {solved} solved, {solved / len(graded):.1%}"]


def _reports_usage(tries: Sequence[EpisodeRecord]) -> tuple[bool, bool]:
    return any(record.usage.tokens for record in tries), any(record.usage.cost for record in tries)


def bill(label: str, usages: Sequence[Usage]) -> str:
    """Return a line with the total usage.

    Args:
        label: who used it up.
        usages: the usages to add up.
    """
    usage = sum(usages, UNSPENT)
    cost = "" if usage.cost is None else f", cost {usage.cost:.4f}"
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return f"{label}: {usage.requests:,} requests, {usage.tokens:,} tokens{cached}{cost}"
