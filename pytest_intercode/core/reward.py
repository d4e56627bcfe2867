"""What a reward function returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Reward"]


@dataclass(frozen=True)
class Reward:
    """A reward and what it is made of.

    Attributes:
        value: 1.0 means solved. In [0, 1], but for ``paper`` SQL, which goes down to -1.
        parts: named numbers that explain the value.
        reason: the first thing that is wrong, for people; empty when solved. It may quote the
            agent's own state, never gold's.
        test_output: the end of what the task's tests printed, for people alone: it may quote hidden
            tests. Empty where no tests ran.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    test_output: str = ""
