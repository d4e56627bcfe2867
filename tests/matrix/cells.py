"""The cells of the matrix: pairs of a Python and a pytest, and what each has come to.

The results are lines of ``results.jsonl`` next to this module; the page of versions shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.supply.locks import read_lock, requested

__all__ = ["LOWEST", "PYTHONS", "RESULTS", "Cell", "Count", "Result", "cells", "read_results"]

RESULTS = Path(__file__).with_name("results.jsonl")
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LOWEST = "lowest"
"""In the place of a pytest: the lowest versions of all that we need, pytest's included."""

_BETWEEN = ("8.4", "9.0", "9.1")  # the pytest versions between the oldest and the newest
_USUAL_PYTHON = "3.12"  # on which these are tried


@dataclass(frozen=True)
class Cell:
    """A Python with a pytest.

    Attributes:
        python: the version of Python, such as ``3.12``.
        pytest: the version of pytest, such as ``9.0``, or :data:`LOWEST`.
    """

    python: str
    pytest: str

    @property
    def name(self) -> str:
        """How the command line names it."""
        return f"py{self.python}-{'' if self.pytest == LOWEST else 'pytest'}{self.pytest}"

    @property
    def requirement(self) -> str:
        """The pytest to install, for pip: of the oldest the very first, of others the last fix."""
        version = oldest_pytest() if self.pytest == LOWEST else self.pytest
        return f"pytest=={version}.{'0' if version == oldest_pytest() else '*'}"


@dataclass(frozen=True)
class Count:
    """How many tests of a check passed, failed and were skipped."""

    passed: int
    failed: int
    skipped: int


@dataclass(frozen=True)
class Result:
    """What a cell has come to.

    Attributes:
        cell: the name of the cell.
        python: the whole version of Python.
        pytest: the whole version of pytest.
        system: the system and the architecture.
        checks: the counts of each check; what cannot run on this machine is left out.
    """

    cell: str
    python: str
    pytest: str
    system: str
    checks: dict[str, Count] = field(default_factory=dict)

    @property
    def failed(self) -> dict[str, Count]:
        """The checks that failed, or in which nothing passed."""
        return {
            name: count for name, count in self.checks.items() if count.failed or not count.passed
        }


def oldest_pytest() -> str:
    """Return the oldest pytest that pyproject.toml allows, such as ``8.3``."""
    [requirement] = [line for line in requested(()) if line.name == "pytest"]
    [version] = [part.version for part in requirement.specifier if part.operator == ">="]
    return version


def newest_pytest() -> str:
    """Return the pytest that is locked, such as ``9.2``."""
    [version] = {pin.version for pin in read_lock("test") if pin.name == "pytest"}
    return ".".join(version.split(".")[:2])


def cells() -> list[Cell]:
    """Return all cells, in the order in which they are tried."""
    ends = (oldest_pytest(), newest_pytest())
    return [
        *(Cell(python, pytest) for python in PYTHONS for pytest in ends),
        *(Cell(_USUAL_PYTHON, pytest) for pytest in _BETWEEN),
        Cell(PYTHONS[0], LOWEST),
    ]


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """Return the results by the names of their cells."""
    results = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        checks = {name: Count(**count) for name, count in row.pop("checks").items()}
        results[row["cell"]] = Result(**row, checks=checks)
    return results


def write_results(results: Iterable[Result], path: Path = RESULTS) -> None:
    """Write results, in the order of the cells; those of former cells are left out."""
    by_name = {result.cell: result for result in results}
    rows = [by_name[cell.name] for cell in cells() if cell.name in by_name]
    path.write_text("".join(f"{json.dumps(asdict(row))}\n" for row in rows))
