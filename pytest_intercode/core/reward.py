"""What a reward function returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from sys import float_info

__all__ = ["Reward", "is_recordable"]


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


def is_recordable(reward: Reward) -> bool:
    """Whether the parts of a reward are numbers, and its texts are texts; others may make it."""
    texts, parts = (reward.reason, reward.test_output), reward.parts
    return (
        isinstance(parts, Mapping)
        and all(isinstance(part, Real) and abs(part) <= float_info.max for part in parts.values())
        and all(isinstance(text, str) for text in texts)
    )
