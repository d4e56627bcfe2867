"""Which cells of a run differ: treatments against the control, agents against each other.

Pure: tries in, verdicts out. Every pair is compared by the paired test for two runs, over the tasks
that both have; docs/statistics.md has the rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any, NamedTuple

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import pluralize
from pytest_intercode.results.cells import CONTROL, Cell
from pytest_intercode.results.tries import solved
from pytest_intercode.statistics.paired import Verdict, paired_tests

__all__ = ["CellDifference", "differences", "heading_of"]


class CellDifference(NamedTuple):
    """Two cells of a run, compared.

    Attributes:
        cell: the cell that the verdict is about.
        reference: the cell that it is compared with: the control's, or another agent's.
        verdict: ``improved`` if the cell is better than its reference.
    """

    cell: Cell
    reference: Cell
    verdict: Verdict

    @property
    def name(self) -> str:
        """The two cells: ``codex-skill against codex-control``."""
        return f"{self.cell} against {self.reference}"

    @property
    def sentence(self) -> str:
        """The comparison for people, in one line."""
        return f"{self.name}: {self.verdict.sentence}"

    def data(self) -> dict[str, Any]:
        """Return it as builtins, ready for JSON."""
        return {
            "cell": str(self.cell),
            "reference": str(self.reference),
            **asdict(self.verdict),
            "sentence": self.verdict.sentence,
        }


def differences(tries_by_cell: Mapping[Cell, Sequence[EpisodeRecord]]) -> list[CellDifference]:
    """Compare the cells of a run, with Holm's correction over all of the comparisons.

    First, for each agent, every treatment is compared with the control, if there is one. Then, for
    each treatment, every agent is compared with every other. Cells that differ in both are not
    compared, as the result would not show which of the two makes the difference.

    Args:
        tries_by_cell: the tries of each cell, as :func:`~pytest_intercode.results.cells.by_cell`
            returns them.
    """
    pairs = [
        (cell, reference)
        for reference, cell in combinations(tries_by_cell, 2)
        if _are_compared(reference, cell)
    ]
    pairs.sort(key=lambda pair: pair[0].agent_label != pair[1].agent_label)
    solved_by_cell = {cell: solved(tries) for cell, tries in tries_by_cell.items()}
    verdicts = paired_tests(
        [(solved_by_cell[reference], solved_by_cell[cell]) for cell, reference in pairs],
        symmetric=True,
    )
    return [
        CellDifference(cell, reference, verdict)
        for (cell, reference), verdict in zip(pairs, verdicts, strict=True)
    ]


def _are_compared(reference: Cell, cell: Cell) -> bool:
    """Whether two cells, with the control first, differ only in the agent or the treatment."""
    if reference.agent_label == cell.agent_label:
        return reference.treatment == CONTROL and cell.treatment != ""  # of a test without any
    return reference.treatment == cell.treatment


def heading_of(cell_differences: Sequence[CellDifference]) -> str:
    """Return the heading of the comparisons, with their number."""
    count = sum(difference.verdict.tasks > 0 for difference in cell_differences)
    if count < 2:
        return "cells compared, task by task:"
    pairs = pluralize(count, "pair")
    return f"cells compared, task by task: {pairs}, with Holm's correction over all of them:"
