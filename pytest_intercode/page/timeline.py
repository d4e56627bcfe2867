"""What ran where: a line for each machine of a run, when each episode ran, how long phases took.

Times come from the records' phases, each by the clock of its machine. Pure functions of a run's
tries; the template draws what they return.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from pytest_intercode.core.phases import PHASES
from pytest_intercode.core.record import EpisodeRecord, lost_on
from pytest_intercode.core.text import pluralize

__all__ = ["WIDTH", "Band", "Bar", "Stroke", "Tick", "Timeline", "timeline"]

WIDTH = 1000
"""Units from the left end to the right end."""

_HERE = "this machine"
_LOST = lost_on("", "").partition(":")[0]
_MAX_BARS = 500  # bars with a text each; more are drawn together
_GRADING = frozenset(("carry", "tests", "gold"))
_MIN_PAUSE = 60.0  # seconds without any episode that may be left out
_MIN_PAUSE_SHARE = 0.05  # of the time in which episodes ran; only longer pauses are left out
_LANE = 12.0  # units of height, at most
_BANDS = 640.0  # units of height of all bands, approximately
_LABEL = 20.0  # units of height above a band
_AXIS = 24.0
_MAX_TIME = 1e11  # seconds since the epoch; later values are not times
_STEPS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 4, 8, 12, 24, 48, 96, 240, 720)),
)
_MAX_TICKS = 8


class Bar(NamedTuple):
    """A part of an episode: its place, its kind (a class of the style), and its text."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    says: str


class Stroke(NamedTuple):
    """All bars of a kind: horizontal lines, as an SVG path, and their thickness."""

    kind: str
    path: str
    thick: float


class Tick(NamedTuple):
    """A mark of the axis: its position in percent, its text, and its alignment."""

    position: float
    text: str
    anchor: str


@dataclass(frozen=True)
class Band:
    """A machine: its name, and where its part of the drawing begins and ends."""

    name: str
    label: float
    top: float
    bottom: float
    bars: Sequence[Bar] = ()
    strokes: Sequence[Stroke] = ()


@dataclass(frozen=True)
class Timeline:
    """What ran where in a run.

    Attributes:
        says: the timeline in words, for those who do not see it.
        notes: what readers need to know about it.
        head: the names of the table's columns.
        rows: a row for each machine.
        phase_head: the names of the columns of the table of phases.
        phase_rows: a row for each phase.
        bands: a part of the drawing for each machine.
        ticks: the marks of the axis.
        pauses: where time was left out, in percent.
        height: units of height.
    """

    says: str
    notes: Sequence[str]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    phase_head: Sequence[str] = ()
    phase_rows: Sequence[Sequence[str]] = ()
    bands: Sequence[Band] = ()
    ticks: Sequence[Tick] = ()
    pauses: Sequence[float] = ()
    height: float = 0.0


@dataclass
class _Span:
    """When an episode ran."""

    record: EpisodeRecord
    begin: float
    ran: float  # when its preparation was over
    graded: float  # when its grading began, if all of it was at the end
    end: float
    seconds: Mapping[str, float]  # by phase
    lane: int = 0


@dataclass
class _Axis:
    """Time without pauses: the beginnings and lengths of the stretches in which something ran."""

    begins: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)  # seconds of the pauses that are left out

    def __post_init__(self) -> None:
        self.offsets = [0.0, *accumulate(self.lengths)]
        self.total = self.offsets[-1]

    def position_of(self, time: float) -> float:
        """Return the position of a time, in [0, WIDTH]."""
        if not self.total:
            return 0.0
        number = max(0, bisect_right(self.begins, time) - 1)
        inside = min(max(0.0, time - self.begins[number]), self.lengths[number])
        return WIDTH * (self.offsets[number] + inside) / self.total


def timeline(tries: Iterable[EpisodeRecord]) -> Timeline | None:
    """Return what ran where, or None if no record has times.

    Args:
        tries: the tries of a run.
    """
    by_host: dict[str, list[EpisodeRecord]] = defaultdict(list)
    for record in tries:
        by_host[record.host].append(record)
    faults = _faults(record for records in by_host.values() for record in records)
    for host in faults:
        by_host[host]  # makes an empty list, as all episodes of the machine may have been lost
    spans = {
        host: [s for s in map(_span, records) if s is not None] for host, records in by_host.items()
    }
    everything = [span for host_spans in spans.values() for span in host_spans]
    if not everything:
        return None
    axis = _axis(everything)
    lanes = {host: _lanes(host_spans) for host, host_spans in spans.items()}
    hosts = sorted(by_host)
    rows = [
        _row(host, by_host[host], faults[host], spans[host], lanes[host], axis.total)
        for host in hosts
    ]
    max_lanes = max(lanes.values())
    says = (
        f"{pluralize(len(everything), 'episode')} on {pluralize(len(hosts), 'machine')} in "
        f"{_duration(axis.total)}, at most {max_lanes} at a time on one of them."
    )
    notes: list[str] = []
    if len(hosts) > 1:
        notes.append("Each machine has a clock of its own.")
    if axis.pauses:
        notes.append(
            f"{pluralize(len(axis.pauses), 'pause')} in which nothing ran "
            f"{'is' if len(axis.pauses) == 1 else 'are'} left out, "
            f"{_duration(sum(axis.pauses))} altogether."
        )
    if len(everything) <= _MAX_BARS:
        notes.append(
            "The grey part of a bar is its preparation, the faded end its grading; a bar says "
            "which episode it is."
        )
    bands: list[Band] = []
    top = 0.0
    for host in hosts:
        if spans[host]:
            band = _band(host, top, spans[host], lanes[host], axis, len(hosts), len(everything))
            bands.append(band)
            top = band.bottom + 6
    return Timeline(
        says=says,
        notes=notes,
        head=["machine", "episodes", "solved", "faults", "a minute", "at a time", "at most"],
        rows=rows,
        phase_head=["phase", "in all", "share", "an episode", "at most"],
        phase_rows=_phase_rows(everything),
        bands=bands,
        ticks=_ticks(axis.total),
        pauses=[100 * offset / axis.total for offset in axis.offsets[1:-1]] if axis.total else [],
        height=top + _AXIS,
    )


def _span(record: EpisodeRecord) -> _Span | None:
    phases = {
        name: (began, began + seconds)
        for name, (began, seconds) in record.phases.items()
        if math.isfinite(began) and 0 < began < _MAX_TIME and 0 <= seconds < _MAX_TIME
    }
    if not phases:
        return None
    began = min(begin for begin, _ in phases.values())
    ran, _ = phases.get("agent") or phases.get("run") or (began, began)  # "run" in old files
    # A phase has the time of all its parts, so what follows the preparation is as long as all of
    # the later phases together.
    later = {name: end - begin for name, (begin, end) in phases.items() if begin >= ran}
    finish = max(ran + sum(later.values()), *(end for _, end in phases.values()))
    graded = finish - sum(seconds for name, seconds in later.items() if name in _GRADING)
    seconds = {name: phases[name][1] - phases[name][0] for name in _in_order(phases)}
    return _Span(record, began, ran, max(ran, graded), finish, seconds)


def _in_order(names: Iterable[str]) -> list[str]:
    """Return names of phases in their usual order; those of old files come last."""
    places: dict[str, int] = {name: position for position, name in enumerate(PHASES)}
    return sorted(names, key=lambda name: (places.get(name, len(places)), name))


def _phase_rows(spans: Sequence[_Span]) -> list[list[str]]:
    """Return how long each phase took: in all, its share, the mean over episodes, the longest."""
    total = sum(sum(span.seconds.values()) for span in spans)
    rows = []
    for name in _in_order({name for span in spans for name in span.seconds}):
        seconds = [span.seconds.get(name, 0.0) for span in spans]
        whole = sum(seconds)
        share = f"{100 * whole / total:.1f}%" if total else "-"
        mean, longest = whole / len(spans), max(seconds)
        rows.append([name, _duration(whole), share, _duration(mean), _duration(longest)])
    return rows


def _axis(spans: Iterable[_Span]) -> _Axis:
    """Return the axis, with the stretches in which something ran one after the other."""
    stretches: list[list[float]] = []
    for span in sorted(spans, key=lambda span: span.begin):
        if stretches and span.begin <= stretches[-1][1]:
            stretches[-1][1] = max(stretches[-1][1], span.end)
        else:
            stretches.append([span.begin, span.end])
    busy = sum(end - begin for begin, end in stretches)
    longest = max(_MIN_PAUSE, _MIN_PAUSE_SHARE * busy)
    merged = [stretches[0]]
    pauses = []
    for begin, end in stretches[1:]:
        if begin - merged[-1][1] > longest:
            pauses.append(begin - merged[-1][1])
            merged.append([begin, end])
        else:
            merged[-1][1] = end
    return _Axis([begin for begin, _ in merged], [end - begin for begin, end in merged], pauses)


def _lanes(spans: list[_Span]) -> int:
    """Give each episode its own lane while it runs; return the number of lanes."""
    free: list[int] = []
    running: list[tuple[float, int]] = []
    count = 0
    for span in sorted(spans, key=lambda span: (span.begin, span.end)):
        while running and running[0][0] <= span.begin:
            heapq.heappush(free, heapq.heappop(running)[1])
        if free:
            span.lane = heapq.heappop(free)
        else:
            span.lane, count = count, count + 1
        heapq.heappush(running, (span.end, span.lane))
    return count


def _row(
    host: str,
    records: Sequence[EpisodeRecord],
    faults: int,
    spans: Sequence[_Span],
    lanes: int,
    total: float,
) -> list[str]:
    solved = sum(record.succeeded for record in records)
    busy = sum(span.end - span.begin for span in spans)
    return [
        host or _HERE,
        f"{len(records):,}",
        f"{solved:,}",
        f"{faults:,}",
        f"{60 * len(spans) / total:,.1f}" if total else "-",
        f"{busy / total:,.1f}" if total else "-",
        f"{lanes:,}",
    ]


def _faults(tries: Iterable[EpisodeRecord]) -> Counter[str]:
    """Return how often the infrastructure failed, by machine."""
    faults: Counter[str] = Counter()
    for record in tries:
        faults[record.host] += record.outcome == "infrastructure-error"
        for attempt in record.attempts:
            begin, separator, _ = attempt.partition(": ")
            is_loss = separator and begin.startswith(_LOST)
            faults[begin[len(_LOST) :] if is_loss else record.host] += 1
    return +faults


def _band(
    host: str,
    top: float,
    spans: Sequence[_Span],
    lanes: int,
    axis: _Axis,
    hosts: int,
    episode_count: int,
) -> Band:
    lane = min(_LANE, max(24.0, _BANDS / hosts) / lanes)
    start = top + _LABEL
    bars: list[Bar] = []
    paths: dict[str, list[str]] = defaultdict(list)
    for span in spans:
        y = start + span.lane * lane
        marks = [axis.position_of(time) for time in (span.begin, span.ran, span.graded, span.end)]
        record = span.record
        if episode_count > _MAX_BARS:
            wide = max(0.5, marks[-1] - marks[0])
            paths[record.outcome].append(f"M{marks[0]:.1f} {y + lane / 2:.1f}h{wide:.1f}")
            continue
        task = record.task
        name = f"{task.id}, try {task.repeat}" if task.repeat > 1 else task.id
        parts = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in span.seconds.items())
        says = f"{name}: {record.outcome}; {parts}"
        height = 0.84 * lane
        if marks[1] - marks[0] >= 1:
            bars.append(Bar(marks[0], y, marks[1] - marks[0], height, "preparation", says))
        else:
            marks[1] = marks[0]
        if marks[3] - marks[2] < 1:
            marks[2] = marks[3]
        wide = max(1.0, marks[2] - marks[1])
        bars.append(Bar(marks[1], y, wide, height, record.outcome, says))
        if marks[3] > marks[2]:
            kind = f"{record.outcome} grading"
            bars.append(Bar(marks[2], y, marks[3] - marks[2], height, kind, says))
    strokes = [
        Stroke(kind, "".join(commands), 0.84 * lane) for kind, commands in sorted(paths.items())
    ]
    return Band(host or _HERE, top + 14, start, start + lanes * lane, bars, strokes)


def _ticks(total: float) -> list[Tick]:
    if not total:
        return []
    step = next(
        (candidate for candidate in _STEPS if total / candidate <= _MAX_TICKS), total / _MAX_TICKS
    )
    count = int(total / step + 1e-9)
    ticks = [Tick(100 * step * n / total, _duration(step * n), "middle") for n in range(count + 1)]
    ticks[0] = ticks[0]._replace(text="0", anchor="start")
    if ticks[-1].position > 97:
        ticks[-1] = ticks[-1]._replace(anchor="end")
    return ticks


def _duration(seconds: float) -> str:
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
