"""The agent of the benchmarks: it thinks for a given time before every turn.

``--intercode-agent=.../thinker.py:Thinker --intercode-agent-arg ms=50``. Its tasks ask to print a
number; all its actions do nothing, except for the last one, which prints it; then it submits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_intercode.core.task import TaskView


class Thinker:
    """Solves every task, slowly.

    Args:
        ms: milliseconds for each turn.
        turns: turns for an episode, the submission included.
    """

    def __init__(self, ms: str = "0", turns: str = "5") -> None:
        self._seconds = float(ms) / 1000
        self._turns = int(turns)
        self._left: list[str] = []

    def reset(self, task: TaskView) -> None:
        """Plan the episode."""
        number = task.query.split()[-1]
        self._left = [":"] * (self._turns - 2) + [f"echo {number}", "submit"]

    def act(self, observation: str) -> str:
        """Think, and take the next turn."""
        if self._seconds:
            time.sleep(self._seconds)
        return self._left.pop(0)
