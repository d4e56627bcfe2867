"""Which recorded episode belongs to which task. Pure: records in, records out.

A recorded episode belongs to a task if the ids are equal or, as InterCode numbers tasks by their
position in a file, if the queries are. If a query occurs twice, the number decides; if a query has
been reworded since, file and number decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task

__all__ = ["RecordedRun", "comparable_query", "had_feedback", "is_ours"]


def is_ours(record: EpisodeRecord) -> bool:
    """Whether a run of pytest-intercode, not InterCode, wrote a record."""
    return record.format_version > 0


def had_feedback(record: EpisodeRecord) -> bool:
    """Whether a run of pytest-intercode gave rewards as feedback: several turns were graded."""
    return is_ours(record) and any(turn.parts for turn in record.turns[:-1])


def comparable_query(query: str) -> str:
    """Return a query with each sequence of blanks replaced by one space."""
    return " ".join(query.split())


class RecordedRun:
    """The episodes of a recorded run, to be found by their tasks.

    Args:
        records: the episodes; if a task has several, the last one counts.
    """

    def __init__(self, records: Iterable[EpisodeRecord]) -> None:
        self._by_id: dict[str, list[EpisodeRecord]] = defaultdict(list)
        self._by_query: dict[str, list[EpisodeRecord]] = defaultdict(list)
        self._by_row: dict[tuple[str, str], EpisodeRecord] = {}
        for record in records:
            task = record.task
            self._by_id[task.id].append(record)
            self._by_query[comparable_query(task.query)].append(record)
            self._by_row[Path(task.dataset).name, task.id] = record

    def record_of(self, task: Task) -> EpisodeRecord | None:
        """Return the recorded episode of a task, or None."""
        same_id = _of_env(self._by_id.get(task.id, ()), task)
        # Ids are unique in a suite; in a run of several suites, two tasks may share an id.
        same_suite = [record for record in same_id if record.task.suite in ("", task.suite)]
        query = comparable_query(task.query)
        same_query = [record for record in same_id if comparable_query(record.task.query) == query]
        for records in (same_suite, same_query, same_id):
            if records:
                return records[-1]
        return self._of_query(task) or self._by_row.get(_row_of(task))

    def _of_query(self, task: Task) -> EpisodeRecord | None:
        file, number = _row_of(task)
        records = [
            record
            for record in _of_env(self._by_query.get(comparable_query(task.query), ()), task)
            # Two tasks of one file are different, even if their queries are equal.
            if not file or Path(record.task.dataset).name != file or record.task.id == number
        ]
        if len(records) <= 1:
            return records[0] if records else None
        number = task.id.rpartition("-")[2].lstrip("0") or "0"
        return next((record for record in records if record.task.id == number), records[0])


def _of_env(records: Iterable[EpisodeRecord], task: Task) -> list[EpisodeRecord]:
    return [record for record in records if record.task.env in ("", task.env)]


def _row_of(task: Task) -> tuple[str, str]:
    """Return the name of the file that a task is a row of, and the row's number."""
    path, _, number = task.source.rpartition(", row ")
    return Path(path).name, number
