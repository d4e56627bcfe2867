"""A command's output, as it came, drawn as a terminal in an SVG that plays once.

The colours are those that programs ask for by ECMA-48's "select graphic rendition" (SGR).
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

__all__ = ["Line", "draw", "record", "text_of"]

_WIDTH, _HEIGHT, _MARGIN = 7.85, 19, 16  # of a character, of a line, around all: pixels at 13 px
_MAX_PAUSE = 1.5  # seconds between two lines: what takes longer is cut short
_COLOURS = {
    31: "#ff7b72",
    32: "#7ee787",
    33: "#e3b341",
    34: "#79c0ff",
    35: "#d2a8ff",
    36: "#76e3ea",
}
_COLOURS |= {code + 60: colour for code, colour in _COLOURS.items()} | {90: "#8b949e"}
_SGR = re.compile(r"\x1b\[([\d;]*)m")


class Line(NamedTuple):
    """A line of output, with the seconds after which it came."""

    seconds: float
    text: str


class _Look(NamedTuple):
    bold: bool = False
    colour: str = ""


def record(command: Sequence[str], folder: Path, columns: int) -> list[Line]:
    """Run a command, and return the lines that it prints with their times."""
    environment = {**os.environ, "COLUMNS": str(columns), "PYTEST_ADDOPTS": ""}
    begin = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        return [Line(time.monotonic() - begin, text.rstrip("\n")) for text in process.stdout]


def text_of(line: Line) -> str:
    """Return a line without its colours."""
    return _SGR.sub("", line.text).rstrip()


def draw(prompt: str, lines: Sequence[Line], columns: int) -> str:
    """Return the SVG of a command and what it printed, in a terminal of so many columns."""
    shown = [Line(0.0, f"\x1b[1m$ {prompt}\x1b[0m"), *_without_pauses(lines)]
    rows = [(line.seconds, spans) for line in shown for spans in _wrap(line.text, columns)]
    width, height = round(columns * _WIDTH) + 2 * _MARGIN, len(rows) * _HEIGHT + 2 * _MARGIN
    texts = []
    for number, (seconds, spans) in enumerate(rows):
        if spans:
            delay = f' style="animation-delay:{seconds:.2f}s"' if seconds else ""
            y = _MARGIN + (number + 0.75) * _HEIGHT
            texts.append(f'<text x="{_MARGIN}" y="{y:g}"{delay}>{spans}</text>\n')
    label = escape(f"A terminal: {prompt}")
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{label}</title>
<style>
text {{ font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #e6edf3;
  white-space: pre; animation: appear 1ms backwards; }}
@keyframes appear {{ from {{ opacity: 0; }} }}
@media (prefers-reduced-motion) {{ text {{ animation: none; }} }}
.b {{ font-weight: bold; }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
{"".join(texts)}</svg>
"""


def _without_pauses(lines: Sequence[Line]) -> Iterator[Line]:
    now, before = 0.4, 0.0
    for line in lines:
        now += min(line.seconds - before, _MAX_PAUSE)
        before = line.seconds
        yield Line(now, line.text)


def _wrap(text: str, columns: int) -> Iterator[str]:
    """Yield the rows of a line as a terminal breaks it, each as SVG."""
    cells = list(_cells(text.rstrip()))
    for start in range(0, max(1, len(cells)), columns):
        row = cells[start : start + columns]
        yield "".join(
            _span(look, "".join(char for char, _ in group))
            for look, group in groupby(row, key=lambda cell: cell[1])
        )


def _cells(text: str) -> Iterator[tuple[str, _Look]]:
    look = _Look()
    for index, part in enumerate(_SGR.split(text)):
        if index % 2:
            for code in map(int, filter(None, (part or "0").split(";"))):
                bold = code == 1 or (look.bold and code not in (0, 22))
                look = _Look(bold, _COLOURS.get(code, "" if code in (0, 39) else look.colour))
        else:
            yield from ((char, look) for char in part)


def _span(look: _Look, text: str) -> str:
    marks = ' class="b"' if look.bold else ""
    marks += f' style="fill:{look.colour}"' if look.colour else ""  # an attribute would not win
    return (
        f"<tspan{marks}>{escape(text, quote=False)}</tspan>" if marks else escape(text, quote=False)
    )
