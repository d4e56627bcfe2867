"""What an agent uses up, and what an episode or a run may use up. Pure data."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["UNSPENT", "Budget", "RunLimits", "Usage", "reached"]


@dataclass(frozen=True)
class Usage:
    """What was used up; two of them add.

    Attributes:
        requests: requests to a model.
        input_tokens: tokens that went in.
        output_tokens: tokens that came out.
        cost: in the currency of the user's prices; None where no price is known.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            sum(costs) if costs else None,
        )

    def __bool__(self) -> bool:
        return self != UNSPENT


UNSPENT = Usage()
"""Nothing was used up."""


@dataclass(frozen=True)
class Budget:
    """What an episode may use up; None for no limit.

    Attributes:
        tokens: tokens in and out.
        cost: in the currency of the user's prices.
    """

    tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True)
class RunLimits:
    """What all episodes of a run may use up together; None for no limit.

    Attributes:
        turns: actions of all episodes.
        tokens: tokens in and out.
        cost: in the currency of the user's prices.
        seconds: wall time from the start of the run.
    """

    turns: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def __bool__(self) -> bool:
        return self != RunLimits()


def reached(cost: float, limit: float) -> bool:
    """Whether a sum of costs comes up to a limit, as ten times 0.1 do to 1 but for rounding."""
    return cost >= limit or math.isclose(cost, limit)
