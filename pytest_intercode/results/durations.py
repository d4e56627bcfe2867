"""How long tasks took in an earlier run, to make shards of equal length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import NamedTuple, TypeAlias

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.files import iterate_records
from pytest_intercode.results.tries import counted_tries
from pytest_intercode.system.digest import file_digest

__all__ = ["Durations", "read_durations"]

Key: TypeAlias = "tuple[str, str, str]"


class Durations(NamedTuple):
    """The times of one results file.

    Attributes:
        seconds: the mean time of a task's graded tries, by env, suite (or dataset) and id.
        digest: the digest of the file's bytes; the same file makes the same shards.
    """

    seconds: Mapping[Key, float]
    digest: str


def read_durations(path: Path) -> Durations:
    """Read the times of a results file.

    Raises:
        OSError: it cannot be read.
        ConfigurationError: it is not a results file, or has no graded episode.
    """
    digest = file_digest(path)[:16]
    light = (record.without_trajectory() for record in iterate_records(path, lambda line: None))
    task_seconds: dict[Key, list[float]] = defaultdict(list)
    for record in counted_tries(light):
        task = record.task
        if record.graded:
            task_seconds[task.env, task.suite_name, task.id].append(record.seconds)
    if not task_seconds:
        raise ConfigurationError(f"{path}: contains no graded episodes, so no task has a time")
    times = {key: mean(seconds) for key, seconds in task_seconds.items()}
    return Durations(times, digest)
