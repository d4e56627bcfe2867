"""The page of runs over time: charts, tables and a leaderboard, as one HTML file without a script.

All text of the runs is untrusted, and is escaped by the template.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_intercode.page import require
from pytest_intercode.page.charts import Chart, Line, Point, Tick, x_ticks, y_of
from pytest_intercode.page.sources import join_styles, policy_hash, template_environment
from pytest_intercode.results.history_series import Leaderboard, Mean, Numbers, Series
from pytest_intercode.results.history_text import (
    describe_leaderboard,
    leaderboard_table,
    series_table,
)
from pytest_intercode.results.summary import format_percent
from pytest_intercode.statistics.rates import Interval
from pytest_intercode.system.files import write_file

__all__ = ["over_time", "write_history"]

_MAX_COLOURS = 6  # series in the charts; the style sheet has a colour for each
_LEFT = 58  # for texts such as 0.00025
_STEPS = (1, 2, 4, 8, 10)  # ends of an axis, times a power of ten


class _Quantity(NamedTuple):
    """What a chart shows about each run, as a value with its interval."""

    title: str
    value_of: Callable[[Numbers], Mean | None]
    format_value: Callable[[float], str]
    format_tick: Callable[[float], str]
    limit: float | None = None


def _rate(numbers: Numbers) -> Mean | None:
    if numbers.rate is None or numbers.rate_interval is None:
        return None
    return Mean(numbers.rate, numbers.rate_interval)


_QUANTITIES = (
    _Quantity("Solved", _rate, format_percent, "{:.0%}".format, 1.0),
    _Quantity("Turns of a try", lambda numbers: numbers.turns, "{:.1f}".format, "{:.3g}".format),
    _Quantity("Cost of a try", lambda numbers: numbers.cost, "{:.3g}".format, "{:.3g}".format),
)


def write_history(
    path: Path,
    all_series: Sequence[Series],
    leaderboard: Leaderboard | None,
    notes: Sequence[str] = (),
) -> None:
    """Write the page, whole or not at all.

    Args:
        path: the HTML file.
        all_series: the runs of each agent and treatment.
        leaderboard: the leaderboard, if it was requested.
        notes: lines for the head of the page.

    Raises:
        ConfigurationError: the extra ``html`` is missing, or the file cannot be written.
    """
    require()
    write_file(path, _render(all_series, leaderboard, notes), option="--page")


def _render(
    all_series: Sequence[Series], leaderboard: Leaderboard | None, notes: Sequence[str]
) -> str:
    from markupsafe import Markup

    style = join_styles("base.css", "page.css", "history.css")
    title = "Runs over time" if leaderboard is None else "Leaderboard and runs over time"
    board = leaderboard and {
        "says": describe_leaderboard(leaderboard),
        "table": leaderboard_table(leaderboard),
    }
    page = template_environment().get_template("history.html")
    return page.render(
        title=title,
        notes=notes,
        verdicts=[
            (series.name, verdict)
            for series in all_series
            if (verdict := series.steps[-1].verdict) is not None
        ],
        leaderboard=board,
        all_series=[{"name": series.name, "table": series_table(series)} for series in all_series],
        charts=over_time(all_series[:_MAX_COLOURS]),
        coloured=_MAX_COLOURS,
        style=Markup(style),
        hash=policy_hash(style),
    )


# -- charts


def over_time(all_series: Sequence[Series]) -> list[Chart]:
    """Return a chart for each quantity that a run has; runs are equally spaced, by their date.

    Args:
        all_series: the runs of each agent and treatment.
    """
    charts = [_draw(quantity, all_series) for quantity in _QUANTITIES]
    return [chart for chart in charts if chart.points]


def _draw(quantity: _Quantity, all_series: Sequence[Series]) -> Chart:
    dates = {step.entry.run: step.entry for series in all_series for step in series.steps}
    runs = sorted(dates.values(), key=lambda entry: (entry.date, entry.name))
    values = [
        {
            step.entry.run: mean
            for step in series.steps
            if (mean := quantity.value_of(step.numbers)) is not None
        }
        for series in all_series
    ]
    highest = max((mean.interval.high for means in values for mean in means.values()), default=0.0)
    limit = quantity.limit or _axis_limit(highest)
    chart = Chart(
        quantity.title,
        _describe(quantity, all_series, values),
        "",
        "run",
        quantity.title,
        ["run", "date (UTC)", *(series.name for series in all_series)],
        [
            [
                entry.name,
                f"{entry.date:%Y-%m-%d %H:%M}",
                *(_with_interval(quantity, means.get(entry.run)) for means in values),
            ]
            for entry in runs
        ],
        left=_LEFT,
    )
    chart.x_ticks = x_ticks(chart, [f"{entry.date:%m-%d}" for entry in runs])
    chart.y_ticks = [
        Tick(y_of(chart, part / 4), quantity.format_tick(limit * part / 4)) for part in range(5)
    ]
    slot = (chart.right - chart.left) / max(len(runs), 1)
    # Intervals of several series are drawn next to each other.
    shift = min(8.0, slot / (len(all_series) + 1))
    for number, (series, means) in enumerate(zip(all_series, values, strict=True)):
        points = []
        for index, entry in enumerate(runs):
            if (mean := means.get(entry.run)) is None:
                continue
            x = chart.left + (index + 0.5) * slot + (number - (len(all_series) - 1) / 2) * shift
            y, low, high = (
                y_of(chart, value / limit)
                for value in (mean.value, mean.interval.low, mean.interval.high)
            )
            says = f"{series.name}, {entry.name}: {_with_interval(quantity, mean)}"
            points.append(Point(x, y, low, high, number, says))
        chart.points += points
        line = " ".join(f"{point.x:.1f},{point.y:.1f}" for point in points)
        chart.lines += [Line(number, line)] if len(points) > 1 else []
    return chart


def _describe(
    quantity: _Quantity, all_series: Sequence[Series], values: Sequence[dict[str, Mean]]
) -> str:
    """Return a sentence about a chart: the first and the last value of each series."""
    parts = []
    for series, means in zip(all_series, values, strict=True):
        if means:
            ends = [quantity.format_value(mean.value) for mean in means.values()]
            change = f"{ends[0]} to {ends[-1]}" if len(ends) > 1 else ends[0]
            parts.append(f"{series.name} {change}")
    return f"{quantity.title}: {', '.join(parts) or 'nothing'}."


def _with_interval(quantity: _Quantity, mean: Mean | None) -> str:
    if mean is None:
        return "-"
    low, high = map(quantity.format_value, Interval(*mean.interval))
    return f"{quantity.format_value(mean.value)} ({low} to {high})"


def _axis_limit(highest: float) -> float:
    """Return the next value at which an axis can end so that it divides well into four."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next((step * power for step in _STEPS if highest <= step * power), 10 * power)
