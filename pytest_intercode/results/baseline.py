"""An earlier run that a run is compared with: which tasks may fail, and whether cells got worse.

Reads only a results file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.cells import Cell, group_by_cell, pair_cells, shorten
from pytest_intercode.results.files import iterate_records
from pytest_intercode.results.recorded import is_ours
from pytest_intercode.results.tries import TaskKey, counted_tries, key_of, solved, task_key
from pytest_intercode.statistics.paired import Verdict, paired_tests

__all__ = ["Baseline"]


class Baseline:
    """An earlier run's tries, by cell and task.

    Args:
        path: its results file (``--intercode-baseline``).
        warn: called with one line if the last line is truncated; that line is left out.
        option: the option that names the file, for messages.

    Raises:
        ConfigurationError: it is not a results file of pytest-intercode, or has no graded episode.
    """

    def __init__(
        self, path: Path, warn: Callable[[str], None], option: str = "--intercode-baseline"
    ) -> None:
        self.path = path
        records = [record.for_statistics() for record in iterate_records(path, warn)]
        if not all(map(is_ours, records)):
            raise ConfigurationError(
                f"{option}={path}: has rows without an outcome, as InterCode writes "
                "them; a file that --intercode-results wrote is needed"
            )
        solved_by_cell = {
            cell: solved(tries) for cell, tries in group_by_cell(counted_tries(records)).items()
        }
        self._solved: Mapping[Cell, Mapping[TaskKey, list[bool]]] = {
            cell: tasks for cell, tasks in solved_by_cell.items() if tasks
        }
        self._names = shorten(self._solved)
        if not self._solved:
            raise ConfigurationError(
                f"{option}={path}: contains no graded episodes; record a run with "
                "--intercode-results"
            )

    def may_fail(self, task: Task, function: str, cell: Cell, *, is_only_agent: bool) -> str | None:
        """Return why a task may fail: the earlier run did not always solve it. None if it did.

        Args:
            task: the task.
            function: the node id of the test function that is run with it.
            cell: the cell of the item, with all arguments of its agent or with those that
                distinguish it.
            is_only_agent: whether the run has no other agent. If the earlier run lacks it, it is
                compared with all agents of the earlier run.
        """
        key = task_key(task.env, task.suite_name, task.id, function)
        return self.explain(key, cell, is_only_agent=is_only_agent)

    def explain(self, key: TaskKey, cell: Cell, *, is_only_agent: bool) -> str | None:
        """Return the same for the task of a key."""
        cells = self._find(cell)
        if is_only_agent and not cells:
            cells = self._find_treated(cell.treatment)
        tries = [is_solved for old in cells for is_solved in self._solved[old].get(key, [])]
        # A task that the earlier run did not have has no tries, so it has to be solved.
        if all(tries):
            return None
        return f"{sum(tries)} of {len(tries)} tries solved in {self.path.name}"

    def _find_treated(self, treatment: str) -> list[Cell]:
        """Return the earlier run's cells with a treatment; if it has only one cell, that one."""
        cells = list(self._solved)
        return cells if len(cells) == 1 else [old for old in cells if old.treatment == treatment]

    def _find(self, cell: Cell) -> list[Cell]:
        """Return the cells of the earlier run that an item's cell is compared with."""
        # Cells with the same label; with another model than before, the cell that it replaces.
        for text_of in (str, _without_arguments):
            candidates = [
                old
                for old, short in self._names.items()
                if text_of(cell) in (text_of(old), text_of(short))
            ]
            if len(candidates) == 1:
                return candidates
        return []

    def verdicts(self, tries: Iterable[EpisodeRecord]) -> dict[Cell, Verdict]:
        """Compare the cells of a run, with Holm's correction for their number.

        Args:
            tries: the run's tries.

        Returns:
            The verdict on each cell that has a graded task in common with its cell of the earlier
            run, by the cell's short name.
        """
        tries_by_cell = group_by_cell(tries)
        pairs = pair_cells(self._solved, tries_by_cell)
        verdicts = paired_tests(
            [(self._solved[old], solved(tries_by_cell[new])) for new, old in pairs.items()]
        )
        short_cells = shorten(tries_by_cell)
        return {
            short_cells[cell]: verdict
            for cell, verdict in zip(pairs, verdicts, strict=True)
            if verdict.tasks
        }

    def unknown(self, tries: Iterable[EpisodeRecord]) -> int:
        """Return how many tasks of a run the earlier one did not have in any cell."""
        tasks = {key for tasks in self._solved.values() for key in tasks}
        return len({key_of(record) for record in tries} - tasks)

    def unknown_cells(self, tries: Iterable[EpisodeRecord]) -> list[Cell]:
        """Return the cells of a run that the earlier one did not have, by their short names."""
        tries_by_cell = group_by_cell(tries)
        pairs = pair_cells(self._solved, tries_by_cell)
        short_cells = shorten(tries_by_cell)
        return [short_cells[cell] for cell in tries_by_cell if cell not in pairs]


def _without_arguments(cell: Cell) -> str:
    return str(cell._replace(arguments=()))
