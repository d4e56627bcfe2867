"""What a run is compared with: the results of an earlier one. Reads that file and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.reading import is_ours, read_results
from pytest_intercode.results.tries import Try, counted, key_of, solved
from pytest_intercode.statistics.paired import Verdict, paired_test

__all__ = ["Baseline"]


class Baseline:
    """An earlier run's tries, by task.

    Args:
        path: its results file (``--intercode-baseline``).
        torn: told of a last line that is only begun, which is left out.

    Raises:
        ConfigurationError: the file is no results file of ours, or has no episode that counts.
    """

    def __init__(self, path: Path, torn: Callable[[str], None]) -> None:
        self.path = path
        rows = read_results(path, torn=torn)
        if not all(map(is_ours, rows)):
            raise ConfigurationError(
                f"--intercode-baseline={path}: has rows without an outcome, as InterCode writes "
                "them; a file that --intercode-results wrote is needed"
            )
        self._solved = solved(counted(rows))
        if not self._solved:
            raise ConfigurationError(
                f"--intercode-baseline={path}: holds no graded episode; write one with "
                "--intercode-results"
            )

    def may_fail(self, task: Task, function: str) -> str | None:
        """Return why a task may fail: the earlier run did not always solve it. None if it did.

        Args:
            task: the task.
            function: the node id of the test function that is run with it.
        """
        tries = self._solved.get(key_of(task.env, task.suite, task.id, function), [])
        if all(tries):
            return None
        return f"{sum(tries)} of {len(tries)} tries solved in {self.path.name}"

    def verdict(self, tries: Iterable[Try]) -> Verdict | None:
        """Compare a run's tries; None if the two have no graded task in common."""
        verdict = paired_test(self._solved, solved(tries))
        return verdict if verdict.tasks else None

    def unknown(self, tries: Iterable[Try]) -> int:
        """Return how many tasks of a run the earlier one did not have."""
        return len({each.key for each in tries} - self._solved.keys())
