"""The budget of a whole run: turns, tokens, money and time, over all of its episodes.

A turn is charged before it is run, so that simultaneous episodes never take more turns than there
are. The cost of a request to a model is only known afterwards, so tokens and money are added then.

Under xdist several processes share one budget, and on a cluster two. They keep the sums in a small
file that the controller creates and every process locks while it adds to it.
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
    """Used or allowed amounts of turns, tokens, and money."""

    turns: int = 0
    tokens: int = 0
    cost: float = 0.0

    def plus(self, other: Amounts) -> Amounts:
        """Return the sums."""
        return Amounts(self.turns + other.turns, self.tokens + other.tokens, self.cost + other.cost)


NOTHING = Amounts()


class RunBudget:
    """The remaining budget of a run.

    Args:
        limits: the limits.
        began: when the run began, in seconds since the epoch.
        path: the file that the processes of the run share; None if this is the only process.
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
        """Share the budget with other processes in this context; yields the path of a file."""
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
            The empty string, or in a few words which budget of the run is used up: then the turn
            must not be run. A turn of another episode that is under way counts as used.
        """
        if not self.limits:
            return ""
        with self._shared() as amounts:
            exhausted = self.used_up(amounts)
            if not exhausted:
                self._used = amounts.plus(Amounts(turns=1))
        return exhausted

    def end_turn(self, taken: bool) -> None:
        """Give back the turn of :meth:`begin_turn` if it was not taken.

        Args:
            taken: whether the turn is in the trajectory.
        """
        if not taken:
            self.add(Amounts(turns=-1))

    def charge(self, usage: Usage = UNSPENT, turns: int = 0) -> str:
        """Add usage, and return in a few words which budget of the run is then used up.

        Args:
            usage: the usage to add.
            turns: turns that were run without :meth:`begin_turn`.

        Returns:
            The empty string while no budget is used up.
        """
        return self.add(Amounts(turns, usage.tokens, usage.cost or 0.0))

    def add(self, more: Amounts) -> str:
        """Add amounts (negative ones are given back); return the same as :meth:`charge`."""
        if not self.limits:
            return ""
        with self._shared() as amounts:
            self._used = amounts.plus(more)
            return self.used_up(self._used)

    @property
    def used(self) -> Amounts:
        """The amounts used so far."""
        with self._shared() as amounts:
            return amounts

    def used_up(self, used: Amounts) -> str:
        """Return which budget of the run is used up with these amounts; empty if none is."""
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
        """Yield the used amounts; in this context no other thread or process can change them."""
        with self._lock:
            if self._path is None:
                yield self._used
                return
            with self._path.open("r+", encoding="utf-8") as file:
                lock(file.fileno())  # closing the file releases the lock
                text = file.read()
                self._used = Amounts(*json.loads(text)) if text else NOTHING
                yield self._used
                new_text = json.dumps(self._used)
                # Pad it to the old length, so that nothing of the old text remains after it.
                if new_text != text.rstrip():
                    file.seek(0)
                    file.write(new_text.ljust(len(text)))
