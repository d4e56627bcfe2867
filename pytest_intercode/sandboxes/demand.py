"""How many sandboxes should stand ready, from how they were asked for and how long starts take.

A stock covers what is asked for while its replacement starts. So it is as large as the most that
were asked for, lately, within the time of one start.
"""

from __future__ import annotations

import math
from collections import deque

__all__ = ["LEAST", "Demand"]

LEAST = 4
"""Two items of two sandboxes: enough for an agent that thinks, and for what was not observed."""

_MARGIN = 1.25
_LATELY = 30.0  # seconds
_WEIGHT = 0.2  # of the latest start in the average


class Demand:
    """What was observed of one pool. Times are in seconds, of any one clock.

    Args:
        most: the largest stock.
        start: the time of a start, until one is observed.
    """

    def __init__(self, most: int, start: float = 0.25) -> None:
        self._most = most
        self._start = start
        self._asked: deque[float] = deque()  # within the time of a start
        self._peaks: deque[tuple[float, int]] = deque()  # falling; the first is the highest lately

    def asked(self, now: float) -> None:
        """Note that a sandbox was asked for."""
        self._asked.append(now)
        while self._asked[0] < now - self._start:
            self._asked.popleft()
        count = len(self._asked)
        while self._peaks and self._peaks[-1][1] <= count:
            self._peaks.pop()
        self._peaks.append((now, count))

    def started(self, seconds: float) -> None:
        """Note how long a start took; if somebody waited for it, how long he did."""
        self._start += _WEIGHT * (seconds - self._start)

    def stock(self, now: float) -> int:
        """Return how many should stand ready."""
        while self._peaks and self._peaks[0][0] < now - _LATELY:
            self._peaks.popleft()
        peak = self._peaks[0][1] if self._peaks else 0
        return min(self._most, max(LEAST, math.ceil(_MARGIN * peak)))
