"""The tables of a run with several cells: a column for each cell. Pure: tries in, rows out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import pluralize
from pytest_intercode.results.cells import Cell
from pytest_intercode.results.differences import CellDifference, differences, heading_of
from pytest_intercode.results.summary import format_percent, rank_of_hardness, summarise
from pytest_intercode.results.tries import by_task

__all__ = ["cell_labels", "difference_lines", "result_rows", "share_text"]

_MAX_TASKS = 40  # tasks that get a row each; in larger runs, tasks are grouped
_MAX_DIFFERENCES = 20  # comparisons that get a line each, but all significant ones do
_ABSENT = "-"

_Tries = Sequence[EpisodeRecord]


def cell_labels(cells: Sequence[Cell]) -> tuple[list[str], dict[Cell, list[str]]]:
    """Return the headings of the columns that name a cell, and each cell's values in them.

    Columns with the same value for all cells are left out.

    Args:
        cells: the cells of the run.
    """
    names = {
        "agent": [cell.agent_label for cell in cells],
        "treatment": [cell.treatment or _ABSENT for cell in cells],
    }
    columns = {heading: values for heading, values in names.items() if len(set(values)) > 1}
    rows = zip(*columns.values(), strict=True)
    return list(columns), {cell: list(row) for cell, row in zip(cells, rows, strict=True)}


def result_rows(tries_by_cell: Mapping[Cell, _Tries]) -> tuple[list[list[str]], int]:
    """Return a heading and rows with a column for each cell, and how many columns are labels.

    There is a row for each task, with its result, or in a large run for each environment, dataset
    and hardness, with the success rate.
    """
    tasks_by_cell = {cell: by_task(tries) for cell, tries in tries_by_cell.items()}
    keys = list(dict.fromkeys(key for tasks in tasks_by_cell.values() for key in tasks))
    names = [str(cell) for cell in tries_by_cell]
    if len(keys) > _MAX_TASKS:
        return _group_rows(tries_by_cell, names), 3
    rows = [["suite", "task", *names]]
    for key in keys:
        shares = [share_text(tasks.get(key, ())) for tasks in tasks_by_cell.values()]
        rows.append([key.suite or _ABSENT, key.task, *shares])
    return rows, 2


def _group_rows(tries_by_cell: Mapping[Cell, _Tries], names: Sequence[str]) -> list[list[str]]:
    groups: dict[tuple[str, str, str], dict[Cell, list[EpisodeRecord]]] = {}
    for cell, tries in tries_by_cell.items():
        for record in tries:
            task = record.task
            labels = task.env, task.dataset, task.hardness or _ABSENT
            groups.setdefault(labels, {}).setdefault(cell, []).append(record)
    rows = [["env", "dataset", "hardness", *names]]
    for labels in sorted(groups, key=lambda group: (*group[:2], *rank_of_hardness(group[2]))):
        tries_of_group = groups[labels]
        rates = [
            format_percent(summarise(tries_of_group.get(cell, ())).rate) for cell in tries_by_cell
        ]
        rows.append([*labels, *rates])
    return rows


def share_text(tries: Sequence[EpisodeRecord]) -> str:
    """Return the result of a task in one cell: its outcome, or how many tries were solved."""
    graded = [record for record in tries if record.graded]
    if not tries:
        return _ABSENT
    if len(tries) > 1 and graded:
        return f"{sum(record.succeeded for record in graded)}/{len(graded)}"
    record = tries[0]
    if record.succeeded:
        return "solved"
    return "failed" if record.solved else record.outcome  # the user's own test decides


def difference_lines(tries_by_cell: Mapping[Cell, _Tries]) -> list[str]:
    """Return a heading and a line for each comparison; nothing if no cells are compared."""
    cell_differences = differences(tries_by_cell)
    if not cell_differences:
        return []
    selected = _select(cell_differences)
    lines = [heading_of(cell_differences), *(f"  {pair.sentence}" for pair in selected)]
    if hidden_count := len(cell_differences) - len(selected):
        pairs = pluralize(hidden_count, "pair")
        lines.append(f"  ... and {pairs} more without a significant difference")
    return lines


def _select(cell_differences: Sequence[CellDifference]) -> list[CellDifference]:
    """Return the comparisons that get a line, in order; these include all significant ones."""
    selected = []
    significant = sum(_is_significant(difference) for difference in cell_differences)
    remaining = max(0, _MAX_DIFFERENCES - significant)
    for difference in cell_differences:
        if _is_significant(difference):
            selected.append(difference)
        elif remaining:
            selected.append(difference)
            remaining -= 1
    return selected


def _is_significant(difference: CellDifference) -> bool:
    return difference.verdict.kind in ("regressed", "improved")
