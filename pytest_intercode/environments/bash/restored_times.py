"""The one thing that InterCode carries from episode to episode and that rewards depend on.

InterCode cleans its two containers with ``git reset --hard`` between episodes. What an episode had
changed comes back with a new time of modification, and from then on ``find -mtime`` and ``ls -l``
see a young file where the data set has an old one, on the agent's side or on gold's. The paper
profile gives every episode fresh sandboxes, and then gives these files the times that InterCode's
would have. Nothing else crosses from one episode to the next.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, TypeAlias

__all__ = ["RestoredTimes", "Side"]

Side: TypeAlias = Literal["agent", "gold"]


class RestoredTimes:
    """When each file of a data set was last brought back, as seconds since the epoch."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, Side], dict[str, float]] = defaultdict(dict)
        self._lock = threading.Lock()

    def note(self, dataset: str, side: Side, paths: Iterable[str]) -> None:
        """Remember that InterCode would bring these files back now."""
        now = time.time()
        with self._lock:
            self._times[dataset, side].update(dict.fromkeys(paths, now))

    def command(self, dataset: str, side: Side) -> str:
        """Return the command that gives a fresh sandbox's files their times; empty if none."""
        with self._lock:
            times = dict(self._times[dataset, side])
        return "; ".join(
            f"touch -c -d @{when:.6f} -- {shlex.quote(path)}" for path, when in times.items()
        )
