"""The budget of a whole run: turns, tokens, money and time, over all of its episodes.

Under xdist several processes draw on one budget. They keep the sums in a small file that the
controller makes and every worker locks while it adds to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_intercode.core.usage import UNSPENT, RunLimits, Usage, reached

__all__ = ["RunBudget"]


@dataclass
class _Sums:
    turns: int = 0
    tokens: int = 0
    cost: float = 0.0


class RunBudget:
    """What is left for the run.

    Args:
        limits: the limits.
        began: when the run began, in seconds since the epoch.
        path: the file that the processes of the run share; None if there is but this one.
    """

    def __init__(
        self, limits: RunLimits, *, began: float | None = None, path: Path | None = None
    ) -> None:
        self.limits = limits
        self.began = time.time() if began is None else began
        self._path = path
        self._lock = threading.Lock()
        self._sums = _Sums()

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the run's time is up, at least 0; None for no limit."""
        if self.limits.seconds is None:
            return None
        return max(0.0, self.began + self.limits.seconds - time.time())

    def charge(self, usage: Usage = UNSPENT, turns: int = 0) -> str:
        """Add what was used up, and say in a few words which budget of the run that finishes.

        Args:
            usage: what was used up.
            turns: actions that were run.

        Returns:
            The empty string while there is something left of everything.
        """
        limits = self.limits
        if not limits:
            return ""
        with self._shared() as sums:
            sums.turns += turns
            sums.tokens += usage.tokens
            sums.cost += usage.cost or 0.0
            if limits.turns is not None and sums.turns >= limits.turns:
                return f"the run's {limits.turns:,} turns are used up"
            if limits.tokens is not None and sums.tokens >= limits.tokens:
                return f"the run's {limits.tokens:,} tokens are used up"
            if limits.cost is not None and reached(sums.cost, limits.cost):
                return f"the run's budget of {limits.cost:.4g} in cost is used up"
        if self.seconds_left == 0.0:
            return f"the run's {limits.seconds:.4g} seconds are used up"
        return ""

    @contextlib.contextmanager
    def _shared(self) -> Iterator[_Sums]:
        with self._lock:
            if self._path is None:
                yield self._sums
                return
            with self._path.open("r+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # closing it lets it go
                text = file.read()
                sums = _Sums(**json.loads(text)) if text else _Sums()
                yield sums
                file.seek(0)
                file.write(json.dumps(asdict(sums)).ljust(len(text)))
