"""List prices of a few models. They are shipped and become outdated: always show their date.

Prices are in US dollars per million tokens, for the vendors' standard service and requests of
normal length. Not included are surcharges for long requests (OpenAI's above 272,000 tokens),
discounts for batches, and models without a single price (``claude-haiku-5-5`` costs five times as
much above 100,000 tokens).

Sources, as these pages were stored at the time of :data:`PRICES_DATE`:

- OpenAI: developers.openai.com/api/docs/models and the pages of its models, and
  developers.openai.com/api/docs/pricing
- Anthropic: platform.claude.com/docs/en/about-claude/pricing and the pages of its models; the cache
  price of ``claude-sonnet-5-5`` as of its change in October 2026
- Google: ai.google.dev/gemini-api/docs/pricing
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_intercode.gateway.exchange import Price

__all__ = ["PRICES_DATE", "SHIPPED", "SHIPPED_PRICES", "with_shipped_prices"]

PRICES_DATE = "2026-11-24"
"""The day on which the table was last compared with its sources."""

SHIPPED_PRICES: Mapping[str, Price] = {
    # OpenAI
    "gpt-6.2-astra": Price(8, 40, 0.40, 10),
    "gpt-6.2-sol": Price(2, 10, 0.10, 2.50),
    "gpt-6.1-sol": Price(2, 10, 0.10, 2.50),
    "gpt-6-astra": Price(10, 50, 1.00, 12.50),
    "gpt-6-sol": Price(2, 10, 0.20, 2.50),
    "gpt-6-luna": Price(0.10, 0.50, 0.01, 0.125),
    # Anthropic; its cache writes are those for five minutes.
    "claude-fable-5-1": Price(10, 50, 0.25, 12.50),
    "claude-opus-5-5": Price(4, 20, 0.20, 5),
    "claude-opus-5": Price(5, 25, 0.50, 6.25),
    "claude-sonnet-5-5": Price(2, 10, 0.10, 2.50),
    "claude-sonnet-5": Price(2, 10, 0.20, 2.50),
    "claude-haiku-4-5": Price(1, 5, 0.10, 1.25),
    # Google
    "gemini-4-neon": Price(3, 15, 0.15),
    "gemini-4-hydrogen": Price(1.50, 7.50, 0.075),
}

SHIPPED = "shipped"
"""Stands for the table's price of a model: ``--intercode-gateway-price '*=shipped'``."""


def with_shipped_prices(prices: Mapping[str, Price | str]) -> dict[str, Price]:
    """Return prices, with those of the table where the user asks for them.

    Args:
        prices: the prices by model; :data:`SHIPPED` for the table's price, or under ``*`` for the
            whole table. A price that the user gives takes precedence.

    Raises:
        ValueError: the table does not have a model; the message names those that it has.
    """
    table: dict[str, Price] = {}
    for name, price in prices.items():
        if isinstance(price, Price):
            continue
        if name == "*":
            table |= SHIPPED_PRICES
        elif name in SHIPPED_PRICES:
            table[name] = SHIPPED_PRICES[name]
        else:
            raise ValueError(
                f"the table of {PRICES_DATE} has no model {name!r:.60}; give its price, or one of "
                f"{', '.join(SHIPPED_PRICES)}"
            )
    return table | {name: price for name, price in prices.items() if isinstance(price, Price)}
