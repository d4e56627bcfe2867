"""Measurements as rows of an aligned table for the terminal, and of Markdown for the docs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.plot import Panel

__all__ = [
    "Bound",
    "Part",
    "Row",
    "against",
    "aligned",
    "check_markers",
    "duration",
    "markdown",
    "put_between",
]

HEADINGS = ("what", "ours", "against", "ratio", "bound", "met")
BEGIN = "<!-- benchmarks: written by `python -m benchmarks --markdown FILE` -->"
END = "<!-- benchmarks: end -->"


@dataclass(frozen=True)
class Bound:
    """A bound that a number has to meet.

    Attributes:
        kind: which side of the limit is allowed.
        limit: the limit, in the number's own unit.
        text: the limit as text; by default as a ratio.
    """

    kind: Literal["at most", "at least"]
    limit: float
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.text or ratio(self.limit)}"

    def met(self, value: float) -> bool:
        """Whether a number meets the bound."""
        return value <= self.limit if self.kind == "at most" else value >= self.limit


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        what: what was measured.
        ours: our number, with its unit.
        against: the reference and its number.
        ratio: our number divided by the reference's, or None if only our number counts.
        bound: the bound of the ratio, or of ``value``; None if the row is only information.
        value: the number that the bound is about, instead of the ratio.
    """

    what: str
    ours: str
    against: str = ""
    ratio: float | None = None
    bound: Bound | None = None
    value: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the bound is met; None without one."""
        judged = self.ratio if self.value is None else self.value
        return None if self.bound is None or judged is None else self.bound.met(judged)

    def cells(self) -> tuple[str, ...]:
        """Return the row as cells of a table."""
        ratio_text = "" if self.ratio is None else ratio(self.ratio)
        verdict = {None: "", True: "yes", False: "NO"}[self.met]
        return self.what, self.ours, self.against, ratio_text, str(self.bound or ""), verdict


@dataclass
class Part:
    """The results of one part of the benchmarks.

    Attributes:
        title: what it is about, in a few words.
        rows: its comparisons.
        panels: its plots.
        notes: sentences that explain the rows.
    """

    title: str
    rows: list[Row] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """The title as a heading."""
        return self.title[:1].upper() + self.title[1:]


def ratio(value: float) -> str:
    """Format a ratio: a small one as a fraction."""
    if 0 < value < 0.2:
        return f"1/{round(1 / value, 1):g}"
    return f"{value:.3g}"


def duration(value: float) -> str:
    """Format seconds in a suitable unit."""
    if abs(value) < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if abs(value) < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s"


def against(
    what: str, ours: float, reference: str, theirs: float, bound: Bound | None = None
) -> Row:
    """Return the row that compares two times in seconds."""
    return Row(what, duration(ours), f"{reference}: {duration(theirs)}", ours / theirs, bound)


def aligned(parts: Iterable[Part]) -> str:
    """Return one table for the terminal; a part's title has its own line."""
    lines: list[tuple[str, ...] | str] = [HEADINGS]
    for part in parts:
        lines += ["", part.heading, *(row.cells() for row in part.rows)]
        lines += [f"  {note}" for note in part.notes]
    cells = [line for line in lines if isinstance(line, tuple)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    rows = []
    for line in lines:
        if isinstance(line, tuple):
            pairs = zip(line, widths, strict=True)
            line = "  ".join(cell.ljust(width) for cell, width in pairs).rstrip()
        rows.append(line)
    return "\n".join(rows)


def markdown(parts: Iterable[Part], facts: Iterable[str]) -> str:
    """Return the tables as Markdown, below the facts about the machine and the run."""
    lines = [f"- {fact}" for fact in facts]
    for part in parts:
        lines += ["", f"**{part.heading}**", ""]
        if part.rows:
            lines += [_markdown_row(HEADINGS), _markdown_row(["---"] * len(HEADINGS))]
        lines += [_markdown_row(row.cells()) for row in part.rows]
        if part.rows and part.notes:
            lines.append("")
        lines += part.notes
    return "\n".join(lines)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def check_markers(path: Path) -> None:
    """Check that a file has the two lines between which the tables go.

    Raises:
        ValueError: it does not have them, or cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"--markdown {path}: {error.strerror}") from None
    if not 0 <= text.find(BEGIN) < text.find(END):
        raise ValueError(
            f"--markdown {path}: it has no line {BEGIN!r} with a line {END!r} after it; "
            "the tables go between them"
        )


def put_between(path: Path, tables: str) -> None:
    """Replace the text between the two lines of a file."""
    text = path.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    path.write_text(f"{head}{BEGIN}\n\n{tables}\n\n{END}{tail}", encoding="utf-8")
