"""History and leaderboard as tables, as lines for the terminal, and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pytest_intercode.core.text import format_columns, one_line, pluralize
from pytest_intercode.results.cells import shorten
from pytest_intercode.results.comparison import verdict_data
from pytest_intercode.results.history import KeptCell
from pytest_intercode.results.history_series import Leaderboard, Mean, Numbers, Series, Step
from pytest_intercode.results.summary import format_interval, format_number, format_percent
from pytest_intercode.statistics.paired import Verdict

__all__ = ["Table", "data", "describe_leaderboard", "leaderboard_table", "lines", "series_table"]

_MAX_COMMIT = 10  # characters of a commit that are shown


class Table(NamedTuple):
    """A table.

    Attributes:
        heading: the names of its columns.
        rows: its rows.
        labels: how many columns from the left are texts; the others are numbers.
    """

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int

    def lines(self) -> list[str]:
        """Return it in lines for the terminal."""
        return format_columns([self.heading, *self.rows], labels=self.labels)


def series_table(series: Series) -> Table:
    """Return a row for each run; empty columns are left out."""
    arguments = _arguments([step.entry for step in series.steps])
    label_columns: dict[str, list[str]] = {
        "run": [step.entry.name for step in series.steps],
        "date (UTC)": [f"{step.entry.date:%Y-%m-%d %H:%M}" for step in series.steps],
        "commit": [step.entry.commit[:_MAX_COMMIT] for step in series.steps],
        "arguments": arguments,
        "since the run before": [_word(step.verdict) for step in series.steps],
    }
    number_columns = {
        "points": [_points(step.verdict) for step in series.steps],
        **_number_columns([step.numbers for step in series.steps]),
    }
    return _table(label_columns, number_columns)


def leaderboard_table(leaderboard: Leaderboard) -> Table:
    """Return a row for each cell, the best first."""
    standings = leaderboard.standings
    label_columns: dict[str, list[str]] = {
        "agent": [standing.name for standing in standings],
        "run": [standing.entry.name for standing in standings],
        "against the first": [_word(standing.verdict) for standing in standings],
    }
    number_columns = {
        "points": [_points(standing.verdict) for standing in standings],
        **_number_columns([standing.numbers for standing in standings]),
    }
    if any(len(standing.entry.tasks) != standing.numbers.tasks for standing in standings):
        number_columns["own tasks"] = [f"{len(standing.entry.tasks):,}" for standing in standings]
    return _table(label_columns, number_columns)


def describe_leaderboard(leaderboard: Leaderboard) -> str:
    """Return a sentence about which tasks a leaderboard covers."""
    if not leaderboard.standings:
        return "no run has a graded try"
    count = len(leaderboard.standings)
    if not leaderboard.common:
        return (
            f"{pluralize(count, 'agent')}, without a task that all have in common: the rates are "
            "for different tasks, and do not show which is better"
        )
    if count == 1:
        return f"1 agent, over its {pluralize(leaderboard.common, 'task')}"
    return (
        f"{count} agents, over the {pluralize(leaderboard.common, 'task')} that all have in common"
    )


def _table(labels: dict[str, list[str]], numbers: dict[str, list[str]]) -> Table:
    label_columns = {name: values for name, values in labels.items() if any(values)}
    number_columns = {name: values for name, values in numbers.items() if any(values)}
    columns = {**label_columns, **number_columns}
    return Table(
        list(columns),
        [list(row) for row in zip(*columns.values(), strict=True)],
        len(label_columns),
    )


def _number_columns(all_numbers: Sequence[Numbers]) -> dict[str, list[str]]:
    totals = [format_number(numbers.total_cost, 2) for numbers in all_numbers]
    tries = [f"{numbers.tries:,}" for numbers in all_numbers]
    tasks = [f"{numbers.tasks:,}" for numbers in all_numbers]
    return {
        "tasks": tasks,
        "tries": tries if tries != tasks else [],
        "rate": [format_percent(numbers.rate) for numbers in all_numbers],
        "95% interval": [format_interval(numbers.rate_interval) for numbers in all_numbers],
        "turns": [_mean(numbers.turns, 1) for numbers in all_numbers],
        "cost of a try": _unless_empty([_mean(numbers.cost, 4) for numbers in all_numbers]),
        "cost of all": _unless_empty(totals),
    }


def _unless_empty(values: list[str]) -> list[str]:
    return values if any(value != "-" for value in values) else []


def _mean(mean: Mean | None, digits: int) -> str:
    if mean is None:
        return "-"
    low, high = (format_number(end, digits) for end in mean.interval)
    return f"{format_number(mean.value, digits)} ({low}-{high})"


def _points(verdict: Verdict | None) -> str:
    return f"{100 * verdict.difference:+.1f}" if verdict is not None and verdict.tasks else ""


def _word(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    return verdict.word if verdict.tasks else "no common task"


def _arguments(cells: Sequence[KeptCell]) -> list[str]:
    """Return those arguments of runs that are not the same in all of them."""
    short_cells = shorten(entry.cell for entry in cells)
    return [
        ",".join(f"{name}={value}" for name, value in short_cells[entry.cell].arguments)
        for entry in cells
    ]


# -- lines


def lines(
    all_series: Sequence[Series], leaderboard: Leaderboard | None, hidden_count: int = 0
) -> list[str]:
    """Return history and leaderboard for the terminal.

    Args:
        all_series: the runs of each agent and treatment.
        leaderboard: the leaderboard, if it was requested.
        hidden_count: how many older runs are left out.
    """
    output = []
    for series in all_series:
        output += ["", one_line(series.name), *series_table(series).lines()]
        last = series.steps[-1]
        if last.verdict is not None:
            output.append(f"the last run: {last.verdict.sentence}")
    if hidden_count:
        output += ["", f"{pluralize(hidden_count, 'older run')} left out; --last shows more"]
    if leaderboard is not None:
        output += ["", f"leaderboard: {describe_leaderboard(leaderboard)}"]
        output += leaderboard_table(leaderboard).lines() if leaderboard.standings else []
    return output[1:]


# -- JSON


def data(all_series: Sequence[Series], leaderboard: Leaderboard | None) -> dict[str, Any]:
    """Return history and leaderboard as builtins, ready for JSON."""
    output: dict[str, Any] = {
        "series": [
            {"name": series.name, "runs": list(map(_step_data, series.steps))}
            for series in all_series
        ]
    }
    if leaderboard is not None:
        output["leaderboard"] = {
            "common_tasks": leaderboard.common,
            "standings": [
                {
                    "name": standing.name,
                    **_kept_data(standing.entry),
                    **_numbers_data(standing.numbers),
                    "against_first": standing.verdict and verdict_data(standing.verdict),
                }
                for standing in leaderboard.standings
            ],
        }
    return output


def _step_data(step: Step) -> dict[str, Any]:
    return {
        **_kept_data(step.entry),
        **_numbers_data(step.numbers),
        "change": step.verdict and verdict_data(step.verdict),
    }


def _kept_data(entry: KeptCell) -> dict[str, Any]:
    return entry.model_dump(mode="json", exclude={"history_version", "tasks"})


def _numbers_data(numbers: Numbers) -> dict[str, Any]:
    means = {"turns": numbers.turns, "cost": numbers.cost}
    return {
        **numbers._asdict(),
        **{name: mean and mean._asdict() for name, mean in means.items()},
    }
