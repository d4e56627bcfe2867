"""What an agent uses up, and what an episode or a run may use up. Pure data."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["UNSPENT", "Budget", "RunLimits", "Usage", "reached"]


@dataclass(frozen=True)
class Usage:
    """What was used up; two of them add.

    Attributes:
        requests: requests to a model.
        input_tokens: tokens that went in.
        output_tokens: tokens that came out.
        cost: in the currency of the user's prices; None where no price is known.
        cached_tokens: tokens of the input that were read from a cache.
        cache_write_tokens: tokens of the input that were written to a cache.
        reasoning_tokens: tokens of the output that no one sees.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens in and out; those of caches and of reasoning are among them."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return Usage(cost=sum(costs) if costs else None, **sums)

    def without(self, other: Usage) -> Usage:
        """Return what is left of this when another is taken out, and never less than nothing."""
        cost = None if self.cost is None else max(0.0, self.cost - (other.cost or 0.0))
        rest = {name: max(0, getattr(self, name) - getattr(other, name)) for name in _COUNTS}
        return Usage(cost=cost, **rest)

    def as_row(self) -> dict[str, Any]:
        """Return it as records and messages have it: parts of the tokens only where there are any.

        So rows of agents without a cache are as they were before caches were counted.
        """
        return {name: value for name, value in vars(self).items() if value or name in _ALWAYS}

    def __bool__(self) -> bool:
        return self != UNSPENT


_COUNTS = tuple(field.name for field in fields(Usage) if field.name != "cost")
_ALWAYS = frozenset({"requests", "input_tokens", "output_tokens", "cost"})

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
