"""The list prices that are shipped."""

from __future__ import annotations

from datetime import date

import pytest

from pytest_intercode.gateway.exchange import Price, price_of
from pytest_intercode.gateway.prices import (
    PRICES_DATE,
    SHIPPED,
    SHIPPED_PRICES,
    with_shipped_prices,
)


def test_the_table_says_its_date() -> None:
    assert date.fromisoformat(PRICES_DATE) >= date(2026, 11, 24)


@pytest.mark.parametrize("model", SHIPPED_PRICES)
def test_prices_are_per_million_tokens_and_plausible(model: str) -> None:
    price = SHIPPED_PRICES[model]
    assert price.cached is not None
    assert 0 < price.cached < price.input < price.output < 100
    assert price.cache_write is None or price.input < price.cache_write < price.output


def test_nothing_is_taken_that_was_not_asked_for() -> None:
    own = {"mine": Price(1, 2)}
    assert with_shipped_prices({}) == {}
    assert with_shipped_prices(own) == own
    assert with_shipped_prices({"gpt-6-sol": SHIPPED}) == {"gpt-6-sol": SHIPPED_PRICES["gpt-6-sol"]}


def test_prices_of_the_users_own_come_first() -> None:
    prices = with_shipped_prices({"gpt-6-sol": Price(1, 2), "*": SHIPPED})
    assert prices == {**SHIPPED_PRICES, "gpt-6-sol": Price(1, 2)}
    assert price_of(prices, "claude-haiku-4-5-20251001") == SHIPPED_PRICES["claude-haiku-4-5"]
    assert price_of(prices, "another") is None


def test_a_model_that_is_not_in_it() -> None:
    with pytest.raises(ValueError, match=f"the table of {PRICES_DATE} has no model 'gpt-1'; give"):
        with_shipped_prices({"gpt-1": SHIPPED})
