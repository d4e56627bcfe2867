"""The result of a reward function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from sys import float_info

__all__ = ["Reward", "is_recordable"]


@dataclass(frozen=True)
class Reward:
    """A reward and its parts.

    Attributes:
        value: 1.0 means solved. In [0, 1], except for ``paper`` SQL, where it can be as low as -1.
        parts: named numbers that explain the value.
        reason: the first thing that is wrong, for people; empty when solved. It may quote the
            agent's own state, never gold's.
        test_output: the end of the output of the task's tests. It is only for people, as it may
            quote hidden tests. Empty if no tests ran.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    test_output: str = ""


def is_recordable(reward: Reward) -> bool:
    """Whether a reward's parts are numbers and its texts strings; user code may make rewards."""
    texts, parts = (reward.reason, reward.test_output), reward.parts
    return (
        isinstance(parts, Mapping)
        and all(isinstance(part, Real) and abs(part) <= float_info.max for part in parts.values())
        and all(isinstance(text, str) for text in texts)
    )
