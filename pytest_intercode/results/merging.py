"""Several results files as one: which row of a try counts. Pure: rows in, rows out.

The rows of all files are kept, in order. Of a try that is in one file more than once, as it was
run again, the last row counts, as ever. Of a try that is in several files:

- the very same row is kept once;
- what the infrastructure spoiled gives way to what was graded;
- two rows that were graded are two episodes, of which one would be lost: that is refused, unless
  the caller says that the last file counts.

Rows that give way are marked ``superseded`` and stand before the one that counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.tries import Try, counted

__all__ = ["Merged", "merge"]


class Merged(NamedTuple):
    """Rows of several files, made one.

    Attributes:
        rows: the rows.
        tries: those that count.
        kept: how many rows each file gave.
        doubled: how many more rows of each file are the same in a later one.
        superseded: how many rows give way to another file's.
    """

    rows: list[dict[str, Any]]
    tries: list[Try]
    kept: list[int]
    doubled: list[int]
    superseded: int


class _Placed(NamedTuple):
    """The row that counts of a try in one file."""

    file: int
    made: Try


def merge(
    files: Sequence[tuple[Path, Sequence[dict[str, Any]]]], *, last_counts: bool = False
) -> Merged:
    """Return the rows of several files as those of one.

    Args:
        files: paths with their rows.
        last_counts: of a try that several files graded, take the last.

    Raises:
        ConfigurationError: files hold different episodes of the same try.
    """
    tries: dict[Any, list[_Placed]] = defaultdict(list)
    for file, (_, rows) in enumerate(files):
        for made in counted(rows):
            tries[made.key, made.repeat].append(_Placed(file, made))
    # Rows are told by their identity. Where one goes that is moved: behind the last that yields.
    moved: dict[int, int] = {}
    dropped, yielding = set(), set()
    for places in tries.values():
        if len(places) == 1:
            continue
        chosen = _chosen([path for path, _ in files], places, last_counts)
        for placed in places:
            row = placed.made.row
            if placed is chosen:
                continue
            if row == chosen.made.row:
                dropped.add(id(row))
            else:
                yielding.add(id(row))
                moved[id(chosen.made.row)] = placed.file
    return _together(files, moved, dropped, yielding)


def _chosen(paths: Sequence[Path], places: Sequence[_Placed], last_counts: bool) -> _Placed:
    graded = [each for each in places if each.made.graded and not each.made.row.get("superseded")]
    if not graded:
        return places[-1]
    kept, *others = graded
    for other in others:
        if other.made.row != kept.made.row and not last_counts:
            raise ConfigurationError(_conflict(paths, kept, other))
        kept = other
    return kept


def _conflict(paths: Sequence[Path], one: _Placed, other: _Placed) -> str:
    made = one.made
    told = "other actions or times"
    if one.made.outcome != other.made.outcome:
        told = f"{one.made.outcome} and {other.made.outcome}"
    return (
        f"{paths[other.file]}: try {made.repeat} of {made.key} is in {paths[one.file]}, too, and "
        f"is another episode ({told}); shards of one run hold no try twice. With --last the last "
        "file counts; two runs are for `pytest-intercode compare`"
    )


def _together(
    files: Sequence[tuple[Path, Sequence[dict[str, Any]]]],
    moved: Mapping[int, int],
    dropped: set[int],
    yielding: set[int],
) -> Merged:
    """Put the rows together; one that counts goes behind those of its try that do not."""
    found: list[dict[str, Any]] = []
    kept, doubled = [0] * len(files), [0] * len(files)
    waiting: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for file, (_, rows) in enumerate(files):
        for row in rows:
            if id(row) in dropped:
                doubled[file] += 1
                continue
            kept[file] += 1
            if moved.get(id(row), file) > file:
                waiting[moved[id(row)]].append(row)
            else:
                found.append({**row, "superseded": True} if id(row) in yielding else row)
        found += waiting[file]
    return Merged(found, counted(found), kept, doubled, len(yielding))
