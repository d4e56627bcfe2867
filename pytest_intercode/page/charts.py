"""The charts of the page: the numbers, and the place of each line and bar in an SVG.

The template draws them, and the style sheet colours them. Pure functions of a run's tries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_intercode.core.record import EpisodeRecord

__all__ = [
    "Bar",
    "Bin",
    "Chart",
    "FailingAction",
    "Line",
    "Point",
    "Tick",
    "bars",
    "failing_actions",
    "rewards",
    "solved_by_turn",
    "steps",
    "turns",
    "x_ticks",
    "y_of",
]

# -- the numbers

_MAX_TURNS = 30  # later turns are combined
_MAX_WORDS = 10  # rows of the table of failing actions
_MAX_WORD_LENGTH = 24  # characters


class Bin(NamedTuple):
    """One bar of a distribution: its name, and the number of tries in it."""

    name: str
    tries: int


class FailingAction(NamedTuple):
    """A first word of actions.

    Attributes:
        word: the word.
        failed: how many actions that begin with it did not execute.
        uses: how many actions begin with it.
        share: the share of ``failed`` in all actions that did not execute.
    """

    word: str
    failed: int
    uses: int
    share: float


def solved_by_turn(tries: Iterable[EpisodeRecord]) -> list[float]:
    """Return the share of tries whose reward had reached 1 by each turn, the first turn first.

    It is a figure in InterCode's paper. If rewards were not given as feedback, the state is graded
    once, so the turn of the submission counts. Tries that were not graded do not count.
    """
    graded = [record for record in tries if record.graded]
    solving_turns = Counter(_solving_turn(record) for record in graded if record.solved)
    longest = max((len(record.turns) for record in graded), default=0)
    shares = []
    solved = solving_turns[0]
    for turn in range(1, min(max(longest, 1), _MAX_TURNS) + 1):
        solved += solving_turns[turn]
        shares.append(solved / len(graded) if graded else 0.0)
    return shares


def _solving_turn(record: EpisodeRecord) -> int:
    numbers = (number for number, turn in enumerate(record.turns, 1) if turn.reward >= 1)
    return next(numbers, len(record.turns))


def rewards(tries: Iterable[EpisodeRecord]) -> list[Bin]:
    """Return how many graded tries earned how much; 0 and 1 have their own bins."""
    counts: Counter[str] = Counter()
    names = ["0", *(f"{tenth / 10:.1f}" for tenth in range(10)), "1"]
    names[1] = ">0"
    for record in tries:
        if not record.graded or not math.isfinite(record.reward):
            continue
        if record.reward < 0:  # InterCode's reward for sql goes down to -1
            counts["<0"] += 1
        elif record.reward in (0, 1) or record.reward > 1:
            counts["0" if record.reward == 0 else "1"] += 1
        else:
            counts[names[1 + int(record.reward * 10)]] += 1
    return [Bin(name, counts[name]) for name in (["<0"] if counts["<0"] else []) + names]


def turns(tries: Iterable[EpisodeRecord]) -> list[Bin]:
    """Return how many graded tries took how many turns."""
    counts = Counter(min(len(record.turns), _MAX_TURNS) for record in tries if record.graded)
    last = max(counts, default=0)
    return [
        Bin(f"{number}+" if number == _MAX_TURNS else f"{number}", counts[number])
        for number in range(min(1, min(counts, default=1)), last + 1)
    ]


def failing_actions(tries: Iterable[EpisodeRecord]) -> list[FailingAction]:
    """Return the most frequent first words of actions that did not execute, the worst first."""
    uses: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for record in tries:
        for turn in record.turns:
            if turn.passed:
                continue
            word = _first_word(turn.action)
            uses[word] += 1
            failed[word] += turn.executed is False
    total = sum(failed.values())
    worst = sorted(+failed, key=lambda word: (-failed[word], word))[:_MAX_WORDS]
    return [FailingAction(word, failed[word], uses[word], failed[word] / total) for word in worst]


def _first_word(action: str) -> str:
    words = action.split(None, 1)
    if not words:
        return "(nothing)"
    return words[0] if len(words[0]) <= _MAX_WORD_LENGTH else words[0][: _MAX_WORD_LENGTH - 1] + "…"


# -- the drawings

WIDTH, HEIGHT = 440, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 12, 44
_MAX_LABELS = 14  # on an axis, so that they do not overlap


class Tick(NamedTuple):
    """A mark of an axis: its position, and its text."""

    position: float
    text: str


class Bar(NamedTuple):
    """A bar: its place, its run, and the text that is shown when it is pointed at."""

    x: float
    y: float
    width: float
    height: float
    run: int
    says: str


class Line(NamedTuple):
    """A line of steps: its run, and its points as SVG writes them."""

    run: int
    points: str


class Point(NamedTuple):
    """A value with its interval: its place, its run, and its text.

    Attributes:
        x: its position from the left.
        y: the position of the value from the top.
        low: the position of the interval's lower end from the top.
        high: the position of the upper end from the top.
        run: the number of the run.
        says: the text that is shown when it is pointed at.
    """

    x: float
    y: float
    low: float
    high: float
    run: int
    says: str


@dataclass
class Chart:
    """A chart.

    Attributes:
        title: what it shows.
        says: a sentence for those who do not see it, with what stands out.
        note: what readers need to know about it.
        x: the name of the horizontal axis.
        y: the name of the vertical axis.
        head: the names of the table's columns.
        rows: the table's rows.
    """

    title: str
    says: str
    note: str
    x: str
    y: str
    head: list[str]
    rows: list[list[str]]
    x_ticks: list[Tick] = field(default_factory=list)
    y_ticks: list[Tick] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    size: tuple[int, int] = (WIDTH, HEIGHT)
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM


def steps(title: str, note: str, names: Sequence[str], series: Sequence[Sequence[float]]) -> Chart:
    """Draw shares by turn, one line of steps for each run.

    Args:
        title: what is shown.
        note: what readers need to know about it.
        names: the names of the runs.
        series: the shares of each run, in [0, 1], from the first turn on.
    """
    longest = max(map(len, series))
    ends = [
        f"{100 * shares[-1]:.1f}% by turn {len(shares)}{_run_suffix(name)}"
        for name, shares in zip(names, series, strict=True)
    ]
    chart = Chart(
        title,
        f"{title}: {', '.join(ends)}.",
        note,
        "turn",
        "solved",
        ["turn", *(name or "solved" for name in names)],
        [
            [
                f"{turn + 1}",
                *(f"{100 * shares[min(turn, len(shares) - 1)]:.1f}%" for shares in series),
            ]
            for turn in range(longest)
        ],
    )
    width = (chart.right - chart.left) / longest
    chart.x_ticks = x_ticks(chart, [f"{turn + 1}" for turn in range(longest)])
    chart.y_ticks = [Tick(y_of(chart, share), f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)]
    for run, shares in enumerate(series):
        points = []
        for turn in range(longest):
            y = y_of(chart, shares[min(turn, len(shares) - 1)])
            x = chart.left + turn * width
            points += [f"{x:.1f},{y:.1f}", f"{x + width:.1f},{y:.1f}"]
        chart.lines.append(Line(run, " ".join(points)))
    return chart


def bars(
    title: str, note: str, x: str, names: Sequence[str], series: Sequence[Sequence[Bin]]
) -> Chart:
    """Draw a distribution, one row of bars for each run.

    Args:
        title: what is shown.
        note: what readers need to know about it.
        x: the quantity that the bars are about.
        names: the names of the runs.
        series: the bars of each run; shares of the run are drawn, as runs differ in size.
    """
    labels = _merge_labels([[bar.name for bar in bins] for bins in series])
    counts = [{bar.name: bar.tries for bar in bins} for bins in series]
    totals = [max(sum(bin_counts.values()), 1) for bin_counts in counts]
    highest = max(
        (count[n] / t for count, t in zip(counts, totals, strict=True) for n in count), default=0
    )
    max_share = max(_axis_limit(highest), 0.05)
    descriptions = [
        f"most often {max(count, key=lambda n: count[n])}{_run_suffix(name)}"
        for name, count in zip(names, counts, strict=True)
        if any(count.values())
    ]
    chart = Chart(
        title,
        f"{title}: {', '.join(descriptions) or 'nothing'}.",
        note,
        x,
        "share of tries",
        [x, *(name or "tries" for name in names)],
        [[label, *(str(count.get(label, 0)) for count in counts)] for label in labels],
    )
    slot = (chart.right - chart.left) / max(len(labels), 1)
    width = slot * 0.76 / len(series)
    chart.x_ticks = x_ticks(chart, labels)
    chart.y_ticks = [
        Tick(y_of(chart, part / 4), _percent(max_share * part / 4)) for part in (0, 1, 2, 3, 4)
    ]
    for run, count in enumerate(counts):
        for index, label in enumerate(labels):
            share = count.get(label, 0) / totals[run]
            y = y_of(chart, share / max_share)
            bar_x = chart.left + index * slot + slot * 0.12 + run * width
            says = f"{label}: {count.get(label, 0)} tries ({share:.1%}){_run_suffix(names[run])}"
            chart.bars.append(Bar(bar_x, y, width, chart.bottom - y, run, says))
    return chart


def _run_suffix(name: str) -> str:
    return f" ({name})" if name else ""


def y_of(chart: Chart, share: float) -> float:
    """Return the position of a share of a chart's height, from the top."""
    return chart.bottom - share * (chart.bottom - chart.top)


def x_ticks(chart: Chart, labels: Sequence[str]) -> list[Tick]:
    """Return the marks of an axis with equal parts; only some of them if there are many."""
    slot = (chart.right - chart.left) / max(len(labels), 1)
    every = math.ceil(len(labels) / _MAX_LABELS) or 1
    return [
        Tick(chart.left + (index + 0.5) * slot, label)
        for index, label in enumerate(labels)
        if index % every == 0
    ]


def _axis_limit(share: float) -> float:
    """Return the next share at which an axis can end so that it divides well into four."""
    return next((limit for limit in (0.1, 0.2, 0.4, 0.6, 0.8) if share <= limit), 1.0)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if abs(100 * share - round(100 * share)) < 1e-9 else f"{share:.1%}"


def _merge_labels(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the labels of all lists in order; lists may differ at their beginning or end."""
    merged = max(map(list, lists), key=len)
    for labels in lists:
        merged[:0] = [label for label in labels[:1] if label not in merged]
        merged += [label for label in labels if label not in merged]
    return merged
