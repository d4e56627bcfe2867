"""Usage of an agent, and limits on the usage of an episode or a run. Pure data."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["UNSPENT", "Budget", "RunLimits", "Usage", "reached"]


@dataclass(frozen=True)
class Usage:
    """Requests, tokens and cost that were used; two objects can be added.

    Attributes:
        requests: requests to a model.
        input_tokens: tokens of the input.
        output_tokens: tokens of the output.
        cost: the cost in the currency of the user's prices; None if no price is known.
        cached_tokens: input tokens that were read from a cache.
        cache_write_tokens: input tokens that were written to a cache.
        reasoning_tokens: hidden output tokens.
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
        """Input and output tokens, including those of caches and of reasoning."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return Usage(cost=sum(costs) if costs else None, **sums)

    def without(self, other: Usage) -> Usage:
        """Subtract another usage; no number becomes negative."""
        cost = None if self.cost is None else max(0.0, self.cost - (other.cost or 0.0))
        rest = {name: max(0, getattr(self, name) - getattr(other, name)) for name in _COUNTS}
        return Usage(cost=cost, **rest)

    def as_row(self) -> dict[str, Any]:
        """Return the form for records and messages; token details that are 0 are left out.

        So rows of agents without a cache look as they did before caches were counted.
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
    """The limits of an episode's usage; None for no limit.

    Attributes:
        tokens: input and output tokens.
        cost: the cost in the currency of the user's prices.
    """

    tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True)
class RunLimits:
    """The limits of the usage of all episodes of a run together; None for no limit.

    Attributes:
        turns: actions of all episodes.
        tokens: input and output tokens.
        cost: the cost in the currency of the user's prices.
        seconds: wall time from the start of the run.
    """

    turns: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def __bool__(self) -> bool:
        return self != RunLimits()


def reached(cost: float, limit: float) -> bool:
    """Whether a sum of costs reaches a limit; rounding is ignored, so ten times 0.1 reaches 1."""
    return cost >= limit or math.isclose(cost, limit)
