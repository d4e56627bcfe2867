"""The budget of a whole run: turns, tokens, money and time, over all of its episodes.

A turn is taken before it is run, so that episodes that run at a time never take more of them than
there are. What a request to a model costs is known when it is over, so tokens and money are added
up afterwards.

Under xdist several processes draw on one budget, and on a cluster two. They keep the sums in a
small file that the controller makes and every process locks while it adds to it.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pytest_intercode.core.usage import UNSPENT, RunLimits, Usage, reached
from pytest_intercode.system.platform import lock

__all__ = ["NOTHING", "Amounts", "RunBudget"]


class Amounts(NamedTuple):
    """What is used up, or may be: turns, tokens, and money."""

    turns: int = 0
    tokens: int = 0
    cost: float = 0.0

    def plus(self, other: Amounts) -> Amounts:
        """Return the sums."""
        return Amounts(self.turns + other.turns, self.tokens + other.tokens, self.cost + other.cost)


NOTHING = Amounts()


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
        self._used = NOTHING

    @contextlib.contextmanager
    def shared(self) -> Iterator[Path]:
        """Let other processes draw on it for a while, by a file whose path this gives."""
        with tempfile.NamedTemporaryFile(prefix="intercode-budget-") as file:
            with self._lock:
                Path(file.name).write_text(json.dumps(self._used), encoding="utf-8")
                self._path = Path(file.name)
            try:
                yield self._path
            finally:
                with self._shared():
                    self._path = None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the run's time is up, at least 0; None for no limit."""
        if self.limits.seconds is None:
            return None
        return max(0.0, self.began + self.limits.seconds - time.time())

    def begin_turn(self) -> str:
        """Take a turn that is about to be run; :meth:`end_turn` follows if there was one.

        Returns:
            The empty string, or in a few words which budget of the run is used up: the turn is not
            to be run then. A turn of another episode that is under way counts as used.
        """
        if not self.limits:
            return ""
        with self._shared() as amounts:
            exhausted = self.used_up(amounts)
            if not exhausted:
                self._used = amounts.plus(Amounts(turns=1))
        return exhausted

    def end_turn(self, taken: bool) -> None:
        """Give back the turn of :meth:`begin_turn` if it came to nothing.

        Args:
            taken: whether it is in the trajectory.
        """
        if not taken:
            self.add(Amounts(turns=-1))

    def charge(self, usage: Usage = UNSPENT, turns: int = 0) -> str:
        """Add what was used up, and say in a few words which budget of the run that finishes.

        Args:
            usage: what was used up.
            turns: turns that were run without :meth:`begin_turn`.

        Returns:
            The empty string while there is something left of everything.
        """
        return self.add(Amounts(turns, usage.tokens, usage.cost or 0.0))

    def add(self, more: Amounts) -> str:
        """Add amounts, of which those below 0 are given back; return as :meth:`charge` does."""
        if not self.limits:
            return ""
        with self._shared() as amounts:
            self._used = amounts.plus(more)
            return self.used_up(self._used)

    @property
    def used(self) -> Amounts:
        """What is used up so far."""
        with self._shared() as amounts:
            return amounts

    def used_up(self, used: Amounts) -> str:
        """Say which budget of the run these amounts would finish, or nothing."""
        limits = self.limits
        if limits.turns is not None and used.turns >= limits.turns:
            return f"the run's {limits.turns:,} turns are used up"
        if limits.tokens is not None and used.tokens >= limits.tokens:
            return f"the run's {limits.tokens:,} tokens are used up"
        if limits.cost is not None and reached(used.cost, limits.cost):
            return f"the run's budget of {limits.cost:.4g} in cost is used up"
        if self.seconds_left == 0.0:
            return f"the run's {limits.seconds:.4g} seconds are used up"
        return ""

    @contextlib.contextmanager
    def _shared(self) -> Iterator[Amounts]:
        """Give what is used up to the only thread and process that may change it meanwhile."""
        with self._lock:
            if self._path is None:
                yield self._used
                return
            with self._path.open("r+", encoding="utf-8") as file:
                lock(file.fileno())  # closing it lets it go
                text = file.read()
                self._used = Amounts(*json.loads(text)) if text else NOTHING
                yield self._used
                new_text = json.dumps(self._used)
                # Padded to its old length, so that nothing of the old text is left behind it.
                if new_text != text.rstrip():
                    file.seek(0)
                    file.write(new_text.ljust(len(text)))
