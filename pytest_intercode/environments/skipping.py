"""``skip``, by which InterCode lets an agent give up, for all environments of the paper profile.

Touches nothing but the episode's own record.
"""

from __future__ import annotations

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.turn import Observation, StepResult, Turn
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import BudgetExhausted

__all__ = ["SkippingEnvironment"]


class SkippingEnvironment(Environment):
    """An environment in which the action ``skip`` ends the episode."""

    def step(self, action: str) -> StepResult:
        """Run one action; ``skip`` ends the episode with a reward of 0."""
        if action != "skip":
            return super().step(action)
        with self._lock:
            if self._over:
                raise BudgetExhausted(f"the episode is over ({self._over}); no action is run")
            self.turns.append(Turn(action, "", True))
            self.final = self._best or Reward(0.0)
            self._over = "skipped"
            return Observation(""), 0.0, True, False, {}
