"""Writes the table of docs/reference/attacks.md from what ``scripts/test --attacks`` has recorded.

Run as ``python -m tests.attacks.table RECORD``; the record has a line of JSON for each case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.attacks.cases import Area, Case, areas

__all__ = ["main", "table"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "attacks.md"
BEGIN = "<!-- attacks: scripts/test --attacks writes from here -->"
END = "<!-- attacks: to here -->"

_COLUMNS = {
    "Docker": ("docker", "root"),
    "bubblewrap, root": ("bubblewrap", "root"),
    "bubblewrap, user": ("bubblewrap", "user"),
}
Row = Mapping[str, Any]


def table(rows: Iterable[Row]) -> str:
    """Return the table as Markdown.

    Args:
        rows: the record; of several lines of one case in one place, the last counts.
    """
    last = {_key(row): row for row in rows}
    results = list(last.values())
    good = sum(not row["problems"] for row in results)
    limits = sum(bool(row["limit"]) for row in results)
    lines = [f"{len(results)} plays: {good} as expected, {limits} known limits, "]
    lines[0] += f"{len(results) - good - limits} failures."
    for name, area in areas():
        lines += ["", f"## {area.title}", "", *_area(name, area, last)]
    notes = {row["limit"]: None for row in results if row["limit"]}
    if notes:
        lines += ["", "## Known limits", ""]
        lines += [f"- {_cell(_cases(reason, results))}: {_cell(reason)}." for reason in notes]
    return "\n".join(lines)


def _key(row: Row) -> tuple[str, ...]:
    return tuple(str(row[key]) for key in ("area", "case", "backend", "user", "profile"))


def _cases(why: str, rows: Iterable[Row]) -> str:
    return ", ".join({f"{row['area']}/{row['case']}": None for row in rows if row["limit"] == why})


def _area(name: str, area: Area, last: Mapping[tuple[str, ...], Row]) -> Iterable[str]:
    bare = area.backends == ["none"] and not any(case.backends for case in area.cases)
    columns = {"seen": ("none", "root")} if bare else _COLUMNS
    yield f"| case | has to hold (strict) | {' | '.join(columns)} |"
    yield f"| --- | --- |{' --- |' * len(columns)}"
    for case in area.cases:
        cells = [_place(name, case, place, last) for place in columns.values()]
        yield f"| {_cell(case.what)} | {case.expect} | {' | '.join(cells)} |"


def _place(
    name: str, case: Case, place: tuple[str, str], last: Mapping[tuple[str, ...], Row]
) -> str:
    """Return a cell: what was seen by each profile; the same by both is written once."""
    outcomes = {}
    for profile in ("strict", "paper"):
        row = last.get((name, case.id, *place, profile))
        if row is None:
            row = last.get((name, case.id, "none", place[1], profile))
        if row is not None:
            word = row["seen"]
            if row["limit"]:
                word += " (limit)"
            elif row["problems"]:
                word = f"**fails**: {'; '.join(row['problems'])[:200]}"
            outcomes[profile] = _cell(word)
    if not outcomes:
        return ""
    if len(set(outcomes.values())) == 1:
        return next(iter(outcomes.values()))
    return "; ".join(f"{profile}: {word}" for profile, word in outcomes.items())


def _cell(text: str) -> str:
    words = " ".join(str(text).split())
    return "".join(
        f"\\{character}" if character in "|<>[]*_`\\" else character for character in words
    ).replace("\\*\\*fails\\*\\*", "**fails**")


def main(record: Path, page: Path = PAGE) -> None:
    """Put the table of a record between the markers of the page."""
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    head, _, rest = page.read_text().partition(BEGIN)
    _, published, tail = rest.partition(END)
    if not published:
        raise SystemExit(f"{page} lacks the lines {BEGIN} and {END}")
    page.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
