"""What models cost. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_intercode.gateway.exchange import TokenUsage

__all__ = ["Price", "parse_price", "price_of"]

_MILLION = 1e6
_DATE = r"[-@]\d{4}-?\d\d-?\d\d$"  # of a model's version, at the end of its name


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
        cache_write = min(usage.cache_write, usage.input - cached)
        return (
            (usage.input - cached - cache_write) * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + cache_write * (self.input if self.cache_write is None else self.cache_write)
            + usage.output * self.output
        ) / _MILLION


def price_of(prices: Mapping[str, Price], *models: str) -> Price | None:
    """Return the price of the first model that has one, else the one for all models (``*``).

    Args:
        prices: by model; a name without its version's date is for all versions.
        models: names of the model, the surest first.
    """
    for model in models:
        for name in (model, re.sub(_DATE, "", model)):
            if name in prices:
                return prices[name]
    return prices.get("*")


def parse_price(text: str) -> Price:
    """Read a price: ``INPUT/OUTPUT``, ``INPUT/OUTPUT/CACHED`` or ``.../CACHE_WRITE``.

    Raises:
        ValueError: it is not written like that; the message says what is needed.
    """
    try:
        numbers = [float(part) for part in text.split("/")]
        if not 2 <= len(numbers) <= 4:
            raise ValueError
        return Price(*numbers)
    except ValueError:
        raise ValueError(
            "prices per million tokens are needed, INPUT/OUTPUT or INPUT/OUTPUT/CACHED, such as "
            f"3/15/0.3; found {text!r:.60}"
        ) from None
