"""The episodes of a results file that count, read one by one and more than once.

The file is read twice, so that only one trajectory is in memory at a time: first to find out which
records count, and to name them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.usage import Usage
from pytest_intercode.results.cells import shorten
from pytest_intercode.results.files import iterate_records, no_episodes
from pytest_intercode.results.tries import TaskKey, TryKey, try_key_of

__all__ = ["Brief", "Source"]

_UNUSUAL = re.compile(r"[^\w.()=,:@+ -]+")
_MAX_NAME_LENGTH = 120  # characters; file systems take 255 bytes


class Brief(NamedTuple):
    """What is known of a try before it is written.

    Attributes:
        name: the task's name, unique among the tasks of the file, and suitable for a file's name;
            if the file has several cells, followed by the cell.
        cell: the agent and the treatment, if the file has several cells; otherwise empty.
        repeat: the number of the try.
        suite: the suite's name; if there is none, the environment's.
        model: the model, as far as the agent's arguments name it.
        agent: the agent as it was named.
        reward: the reward, a finite number; None if the try was not graded.
        solved: whether rates count it as solved; for a user's own test, its verdict.
        usage: what the agent used up.
    """

    name: str
    cell: str
    repeat: int
    suite: str
    model: str
    agent: str
    reward: float | None
    solved: bool
    usage: Usage


class Source:
    """The tries of a results file that count, in the file's order.

    Args:
        path: the results file.
        warn: called with one line if the file's last line is truncated; that line is left out.

    Attributes:
        path: the file.
        briefs: what is known of each try.
        environments: the names of their environments.
        modified: when the file was last modified, in UTC.
        digest: changes with the tries; 40 hexadecimal digits.

    Raises:
        ConfigurationError: the file is not a results file, or has no episode.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] | None = None) -> None:
        self.path = path
        counting: dict[TryKey, tuple[int, Brief]] = {}
        warned: list[str] = []
        for index, record in enumerate(iterate_records(path, warn and warned.append)):
            key = try_key_of(record)
            counting.pop(key, None)
            counting[key] = index, _brief(record, key)
        if not counting:
            raise no_episodes(path)
        if warn is not None:
            for line in warned:
                warn(line)
        self._lenient = warn is not None
        names = _Names(counting)
        self._brief_by_index = {
            index: brief._replace(name=names.name(key), cell=names.cells[key.cell])
            for key, (index, brief) in counting.items()
        }
        self._length = 1 + max(self._brief_by_index)
        self.briefs = tuple(self._brief_by_index.values())
        self.environments = tuple(dict.fromkeys(key.task.env for key in counting))
        self.modified = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
        self.digest = hashlib.sha1(repr(self.briefs).encode("utf-8", "replace")).hexdigest()

    def __len__(self) -> int:
        return len(self._brief_by_index)

    def __iter__(self) -> Iterator[tuple[Brief, EpisodeRecord]]:
        """Read the tries again, one by one."""
        records = iterate_records(self.path, (lambda line: None) if self._lenient else None)
        for index, record in zip(range(self._length), records, strict=False):
            if index in self._brief_by_index:
                yield self._brief_by_index[index], record


def _brief(record: EpisodeRecord, key: TryKey) -> Brief:
    """Return what is known of a try, without its name."""
    return Brief(
        name="",
        cell="",
        repeat=record.task.repeat,
        suite=key.task.suite or key.task.env,
        model=record.agent_arguments.get("model", ""),
        agent=record.agent,
        reward=(record.reward if math.isfinite(record.reward) else 0.0) if record.graded else None,
        solved=record.succeeded,
        usage=record.usage,
    )


class _Names:
    """Gives each task a unique name, even if upper and lower case are not distinguished.

    With several cells, each of them has its own name for the task.

    Args:
        keys: the tries.

    Attributes:
        cells: the name of each cell; empty if there is only one.
    """

    def __init__(self, keys: Iterable[TryKey]) -> None:
        short_cells = shorten(dict.fromkeys(key.cell for key in keys))
        self.cells = {
            cell: str(short) if len(short_cells) > 1 else "" for cell, short in short_cells.items()
        }
        self._names: dict[tuple[TaskKey, str], str] = {}
        self._taken: set[str] = set()
        self._counts: Counter[str] = Counter()

    def name(self, key: TryKey) -> str:
        task, label = key.task, self.cells[key.cell]
        if (task, label) not in self._names:
            short, whole = (
                _sanitize("-".join(filter(None, (text, label))))
                for text in (task.task, f"{task.suite}:{task.task}")
            )
            name = whole if short.casefold() in self._taken else short
            while name.casefold() in self._taken:
                self._counts[whole] += 1  # counting from 2 each time would take quadratic time
                name = f"{whole}:{self._counts[whole] + 1}"
            self._taken.add(name.casefold())
            self._names[task, label] = name
        return self._names[task, label]


def _sanitize(text: str) -> str:
    """Return a text without characters that are special in a path or on a terminal."""
    name = _UNUSUAL.sub("_", text.encode("ascii", "replace").decode("ascii"))[:_MAX_NAME_LENGTH]
    return name.strip(".- ") or "_"
