"""Two runs compared by cell: each agent and treatment with its older results. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.core.text import pluralize
from pytest_intercode.results.cells import Cell, pair_tries
from pytest_intercode.results.comparison import Compared, Run, run_data
from pytest_intercode.results.tries import solved
from pytest_intercode.statistics.paired import Kind, Verdict, describe_kind, paired_tests

__all__ = ["ComparedCells", "describe_verdicts"]

_KINDS: tuple[Kind, ...] = ("regressed", "improved", "no difference", "too few samples")


class ComparedCells:
    """Two runs, compared by cell, with Holm's correction for the number of cells.

    Args:
        before: the older run.
        after: the newer run.
        level: the p-value, with the correction, up to which a difference is significant.
        smallest: the drop that matters, as a share.

    Attributes:
        before: the older run.
        after: the newer run.
        cells: the comparison of each cell that both runs have, by the cell's short name.
        only_before: cells that only the older run has.
        only_after: cells that only the newer run has.
    """

    def __init__(self, before: Run, after: Run, *, level: float, smallest: float) -> None:
        self.before = before
        self.after = after
        sides = pair_tries(before.tries, after.tries)
        common = {cell: tries for cell, tries in sides.items() if all(tries)}
        verdicts = paired_tests(
            [(solved(old), solved(new)) for old, new in common.values()],
            level=level,
            smallest=smallest,
        )
        self.cells: dict[Cell, Compared] = {
            cell: Compared(Run(before.path, old), Run(after.path, new), verdict)
            for (cell, (old, new)), verdict in zip(common.items(), verdicts, strict=True)
        }
        self.only_before: list[Cell] = [cell for cell, (_, new) in sides.items() if not new]
        self.only_after: list[Cell] = [cell for cell, (old, _) in sides.items() if not old]

    @property
    def single(self) -> Compared | None:
        """The comparison of the two runs, if each has one cell; otherwise None."""
        if len(self.cells) == 1 and not self.only_before and not self.only_after:
            return next(iter(self.cells.values()))
        return None

    @property
    def verdicts(self) -> dict[Cell, Verdict]:
        """The verdict on each cell that has a graded task in both runs."""
        return {
            cell: compared.verdict
            for cell, compared in self.cells.items()
            if compared.verdict.tasks
        }

    @property
    def kind(self) -> Kind:
        """The verdict on the whole, in a word."""
        return _whole_kind(self.verdicts) if self.single is None else self.single.verdict.kind

    @property
    def regressed(self) -> bool:
        """Whether the newer run is worse: at least one cell is."""
        return any(verdict.kind == "regressed" for verdict in self.verdicts.values())

    @property
    def sentence(self) -> str:
        """The verdict on the whole for people, in one line."""
        if self.single is not None:
            return self.single.verdict.sentence
        return describe_verdicts(self.verdicts)

    def warnings(self) -> list[str]:
        """Return what makes the two runs hard to compare, a line each."""
        cells_by_line: dict[str, list[Cell]] = {}
        for cell, compared in self.cells.items():
            for line in compared.warnings():
                cells_by_line.setdefault(line, []).append(cell)
        return [
            line if len(cells) == len(self.cells) else f"{_join(cells)}: {line}"
            for line, cells in cells_by_line.items()
        ]

    def data(self) -> dict[str, Any]:
        """Return all of it as builtins, ready for JSON."""
        if self.single is not None:
            return self.single.data()
        return {
            "before": run_data(self.before),
            "after": run_data(self.after),
            "warnings": self.warnings(),
            "verdict": {"kind": self.kind, "sentence": self.sentence},
            "cells": [
                {"agent": cell.agent_label, "treatment": cell.treatment, **compared.data()}
                for cell, compared in self.cells.items()
            ],
            "only_before": [str(cell) for cell in self.only_before],
            "only_after": [str(cell) for cell in self.only_after],
        }


def describe_verdicts(verdicts: Mapping[Cell, Verdict]) -> str:
    """Return the verdict on several cells together, and how many cells have which verdict.

    Args:
        verdicts: the verdict on each cell.
    """
    if not verdicts:
        return "too few samples: no cell has a task with a graded try in both runs"
    cells_by_kind = {
        kind: [cell for cell, verdict in verdicts.items() if verdict.kind == kind]
        for kind in _KINDS
    }
    parts = [
        f"{len(cells)} {describe_kind(kind)} ({_join(cells)})"
        for kind, cells in cells_by_kind.items()
        if cells
    ]
    correction = ", with Holm's correction" if len(verdicts) > 1 else ""
    count = pluralize(len(verdicts), "cell")
    return f"{describe_kind(_whole_kind(verdicts))}: of {count}{correction}: {', '.join(parts)}"


def _whole_kind(verdicts: Mapping[Cell, Verdict]) -> Kind:
    """Return the verdict on the whole: a cell that improved does not hide one that regressed."""
    kinds = {verdict.kind for verdict in verdicts.values()}
    if "regressed" in kinds:
        return "regressed"
    if "improved" in kinds:
        return "improved"
    return "no difference" if kinds == {"no difference"} else "too few samples"


def _join(cells: Sequence[Cell]) -> str:
    return ", ".join(map(str, cells))
