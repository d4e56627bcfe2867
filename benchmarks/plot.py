"""Line plots as SVG, written by hand: a few panels, axes with units, light and dark.

The picture has its own background, and follows the reader's preference for light or dark if the
viewer knows one. Backends also differ in their dashes, not only in colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["Line", "Panel", "svg"]

WIDTH, HEIGHT = 440, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 44, 126
KEYS = 24  # where the legend begins
COLUMNS = 2
STYLE = """
.paper { fill: #ffffff } text { fill: #24292f; font: 12px sans-serif }
.title { font-weight: bold; font-size: 13px }
.axis { stroke: #57606a } .grid { stroke: #d8dee4 }
.c0 { stroke: #0550ae; fill: #0550ae } .c1 { stroke: #bc4c00; fill: #bc4c00 }
.c2 { stroke: #1a7f37; fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 } text { fill: #e6edf3 }
.axis { stroke: #8b949e } .grid { stroke: #30363d }
.c0 { stroke: #79c0ff; fill: #79c0ff } .c1 { stroke: #ffa657; fill: #ffa657 }
.c2 { stroke: #7ee787; fill: #7ee787 }
}
.line { fill: none; stroke-width: 1.8 }"""
DASHES = ("", "6 3")


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        name: its name in the legend.
        points: its points in the axes' units.
        colour: 0, 1 or 2.
        dashed: whether it is dashed.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    colour: int = 0
    dashed: bool = False


@dataclass
class Panel:
    """One pair of axes.

    Attributes:
        title: what it shows.
        x_label: the horizontal axis, with its unit.
        y_label: the vertical axis, with its unit.
        lines: the lines to draw.
        x_log: whether the horizontal axis is logarithmic, with a tick at every point.
        y_log: whether the vertical axis is logarithmic.
    """

    title: str
    x_label: str
    y_label: str
    lines: list[Line] = field(default_factory=list)
    x_log: bool = False
    y_log: bool = False


@dataclass(frozen=True)
class Axis:
    """Maps numbers to positions: ``low`` to ``high`` onto ``first`` to ``last``."""

    low: float
    high: float
    first: float
    last: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high, value = (
            (math.log(number) for number in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        return round(self.first + (value - low) / (high - low) * (self.last - self.first), 1)


def svg(panels: Sequence[Panel], caption: str) -> str:
    """Return a picture with some panels.

    Args:
        panels: the panels to draw; those without a point are left out.
        caption: one line about all of them.
    """
    shown_panels = [panel for panel in panels if any(line.points for line in panel.lines)]
    columns = min(COLUMNS, max(1, len(shown_panels)))
    rows = math.ceil(len(shown_panels) / columns)
    width, height = columns * WIDTH, rows * HEIGHT + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(caption)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
    ]
    for number, panel in enumerate(shown_panels):
        row, column = divmod(number, columns)
        parts.append(f'<g transform="translate({column * WIDTH} {row * HEIGHT})">')
        parts += _panel(panel)
        parts.append("</g>")
    parts += [_text(LEFT, height - 10, caption), "</svg>"]
    return "\n".join(parts) + "\n"


def _panel(panel: Panel) -> Iterable[str]:
    xs = [x for line in panel.lines for x, _ in line.points]
    ys = [y for line in panel.lines for _, y in line.points]
    x_ticks = sorted(set(xs)) if panel.x_log else _ticks(0, max(xs))
    y_ticks = _log_ticks(min(ys), max(ys)) if panel.y_log else _ticks(min(0, *ys), max(ys))
    across = Axis(x_ticks[0], x_ticks[-1] or 1, LEFT, WIDTH - RIGHT, panel.x_log)
    if across.low == across.high:
        across = Axis(across.low, across.high * 2, LEFT, WIDTH - RIGHT, panel.x_log)
    vertical = Axis(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP, panel.y_log)
    yield _text(LEFT, 24, panel.title, "title")
    for tick in y_ticks:
        yield _rule("grid", LEFT, vertical.at(tick), WIDTH - RIGHT, vertical.at(tick))
        yield _text(LEFT - 8, vertical.at(tick) + 4, f"{tick:g}", anchor="end")
    for tick in x_ticks:
        yield _rule("axis", across.at(tick), HEIGHT - BOTTOM, across.at(tick), HEIGHT - BOTTOM + 5)
        short = f"{tick / 1000:g}k" if tick >= 10_000 else f"{tick:g}"  # else the last is cut off
        yield _text(across.at(tick), HEIGHT - BOTTOM + 19, short, anchor="middle")
    yield _rule("axis", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM)
    yield _rule("axis", LEFT, TOP, LEFT, HEIGHT - BOTTOM)
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield _text(middle, HEIGHT - BOTTOM + 38, panel.x_label, anchor="middle")
    turned = (TOP + HEIGHT - BOTTOM) / 2
    upright = _text(16, turned, panel.y_label, anchor="middle")
    yield f'<g transform="rotate(-90 16 {turned})">{upright}</g>'
    for number, line in enumerate(panel.lines):
        yield from _line(line, across, vertical)
        yield from _key(line, number)


def _line(line: Line, across: Axis, up: Axis) -> Iterable[str]:
    places = [(across.at(x), up.at(y)) for x, y in line.points]
    path = " ".join(f"{x},{y}" for x, y in places)
    dash = DASHES[line.dashed]
    yield (
        f'<polyline class="line c{line.colour}" stroke-dasharray="{dash or "none"}" '
        f'points="{path}"/>'
    )
    if len(places) <= 10:
        for x, y in places:
            yield f'<circle class="c{line.colour}" cx="{x}" cy="{y}" r="2.6"/>'


def _key(line: Line, number: int) -> Iterable[str]:
    """Draw a line's entry in the legend, below the axes, two in a row."""
    x = KEYS + number % 2 * (WIDTH - KEYS) / 2
    y = HEIGHT - BOTTOM + 62 + number // 2 * 19
    dash = DASHES[line.dashed] or "none"
    yield (
        f'<line class="line c{line.colour}" stroke-dasharray="{dash}" '
        f'x1="{x}" y1="{y - 4}" x2="{x + 28}" y2="{y - 4}"/>'
    )
    yield _text(x + 34, y, line.name)


def _rule(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers, evenly spaced, from at most ``low`` to at least ``high``."""
    span = (high - low) or 1.0
    unit = 10.0 ** math.floor(math.log10(span / 4))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if span / (unit * factor) <= 5)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [round(step * number, 10) for number in range(first, max(last, first + 1) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten that enclose the range."""
    numbers = [
        factor * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factor in (1, 2, 5)
    ]
    first = max((index for index, number in enumerate(numbers) if number <= low), default=0)
    last = min(
        (index for index, number in enumerate(numbers) if number >= high), default=len(numbers)
    )
    return numbers[first : max(last, first + 1) + 1]
