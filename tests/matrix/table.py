"""Writes the table of the page of versions from the results of ``scripts/test --matrix``.

Run as ``python -m tests.matrix.table``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.matrix.cells import LOWEST, Cell, Count, Result, cells, read_results

__all__ = ["BEGIN", "END", "PAGE", "main", "table", "with_table"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "versions.md"
BEGIN = "<!-- versions: scripts/test --matrix writes from here -->"
END = "<!-- versions: to here -->"
_CHECKS = {
    "unit": "unit tests",
    "bubblewrap": "tasks of all suites by the oracle in bubblewrap",
    "docker": "in Docker",
}


def table(results: Mapping[str, Result], columns: Sequence[Cell] | None = None) -> str:
    """Return the table as Markdown, with a line above it that says what passed.

    Args:
        results: the results by the names of their cells.
        columns: the cells; by default all.
    """
    tested_cells = [cell for cell in columns or cells() if cell.name in results]
    if not tested_cells:
        return "Nothing was tried yet."
    pytests = sorted({cell.pytest for cell in tested_cells}, key=_order)
    lines = [_summary(results[cell.name] for cell in tested_cells), ""]
    lines.append(f"| | {' | '.join(_title(pytest, tested_cells, results) for pytest in pytests)} |")
    lines.append(f"| --- |{' --- |' * len(pytests)}")
    for python in dict.fromkeys(cell.python for cell in tested_cells):
        row = [_describe(results.get(Cell(python, pytest).name)) for pytest in pytests]
        [version, *_] = [
            results[cell.name].python for cell in tested_cells if cell.python == python
        ]
        lines.append(f"| Python {version} | {' | '.join(row)} |")
    return "\n".join(lines)


def _order(pytest: str) -> tuple[int, ...]:
    return (0,) if pytest == LOWEST else tuple(map(int, pytest.split(".")))


def _title(pytest: str, tried: Iterable[Cell], results: Mapping[str, Result]) -> str:
    versions = {results[cell.name].pytest for cell in tried if cell.pytest == pytest}
    [version, *_] = sorted(versions)
    if pytest == LOWEST:
        return f"pytest {version}, all dependencies in their lowest versions"
    return f"pytest {version}"


def _describe(result: Result | None) -> str:
    if result is None:
        return ""
    if not result.failed:
        return "passes"
    counts = [
        f"{count.failed} of {count.passed + count.failed} {_CHECKS[name]}"
        for name, count in result.failed.items()
    ]
    return f"**fails**: {', '.join(counts)}"


def _summary(results: Iterable[Result]) -> str:
    """Return what was run in each cell: the smallest numbers, as skips differ a little."""
    results = list(results)
    systems = sorted({result.system for result in results})
    parts = []
    for name, description in _CHECKS.items():
        counts = [result.checks[name] for result in results if name in result.checks]
        if counts:
            parts.append(f"{min(map(_total, counts))} {description}")
    return f"Each was tried on {', '.join(systems)}, with at least {', '.join(parts)}."


def _total(count: Count) -> int:
    return count.passed + count.failed


def with_table(page: str, results: Mapping[str, Result]) -> str:
    """Return a page with the table between its markers.

    Raises:
        ValueError: it has no markers.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the lines {BEGIN} and {END} are missing")
    return f"{head}{BEGIN}\n\n{table(results)}\n\n{END}{tail}"


def main() -> None:
    """Put the table of all results into its page."""
    PAGE.write_text(with_table(PAGE.read_text(), read_results()))


if __name__ == "__main__":
    main()
