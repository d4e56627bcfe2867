"""One request to a model and its answer, the tokens in it, and what they cost. Pure data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["NOTHING", "Api", "Exchange", "Price", "TokenUsage", "price_of"]

Api: TypeAlias = Literal["chat", "responses", "messages"]
"""OpenAI's chat completions and responses, Anthropic's messages."""

_MILLION = 1e6
_DATE = re.compile(r"[-@]\d{4}-?\d\d-?\d\d$")  # of a model's version, at the end of its name


@dataclass(frozen=True)
class TokenUsage:
    """The tokens of one exchange, in one form for all APIs.

    Attributes:
        input: tokens that went in, those of caches included.
        output: tokens that came out, those of reasoning included.
        cached: tokens of the input that were read from a cache.
        cache_write: tokens of the input that were written to a cache.
        reasoning: tokens of the output that no one sees.
        estimated: the server reported no usage; this is computed from the lengths of the texts.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False


NOTHING = TokenUsage()
"""No tokens."""


@dataclass(frozen=True)
class Price:
    """What a model costs, per million tokens.

    Attributes:
        input: of the input.
        output: of the output.
        cached: of input that was read from a cache; None for the input's price.
        cache_write: of input that was written to a cache; None for the input's price.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for number in (self.input, self.output, self.cached, self.cache_write):
            if number is not None and not (math.isfinite(number) and number >= 0):
                raise ValueError(f"a price is a number from 0 up, found {number!r}")

    def cost(self, usage: TokenUsage) -> float:
        """Return what these tokens cost."""
        cached = min(usage.cached, usage.input)
        written = min(usage.cache_write, usage.input - cached)
        return (
            (usage.input - cached - written) * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + usage.output * self.output
        ) / _MILLION


def price_of(prices: Mapping[str, Price], *models: str) -> Price | None:
    """Return the price of the first model that has one, else the one for all models (``*``).

    Args:
        prices: by model; a name without its version's date stands for all versions.
        models: names of the model, the surest first.
    """
    for model in models:
        for name in (model, _DATE.sub("", model)):
            if name in prices:
                return prices[name]
    return prices.get("*")


@dataclass(frozen=True)
class Exchange:
    """One request that was answered by the server of the API.

    Attributes:
        api: the API.
        model: the model that the answer names, else the one of the request.
        request: the parsed body; of a session that sends more than is kept, only its small fields.
        answer: the parsed answer, a streamed one put together as if it had not been streamed.
        status: the HTTP status.
        usage: the tokens.
        cost: in the currency of the prices; None where no price is known.
        seconds: from the request to the end of the answer.
        complete: False for an answer that broke off.
    """

    api: Api
    model: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    status: int
    usage: TokenUsage = NOTHING
    cost: float | None = None
    seconds: float = field(default=0.0, compare=False)
    complete: bool = True
