"""Kendall's tau-b of our own, against scipy's: the same to the last bit."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.rewards.sql_paper import kendall_tau_b

_PAIRS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")), max_size=40)


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Import scipy, which takes a second, outside of a test's time and of the collection."""
    import scipy.stats  # type: ignore[import-untyped]  # noqa: F401


def _scipy(x: list[str], y: list[str]) -> float:
    from scipy.stats import kendalltau

    if len(x) < 2:
        return math.nan  # scipy warns of it, and says the same
    with np.errstate(all="ignore"):
        return float(kendalltau(x, y).statistic)


def _same(x: list[str], y: list[str]) -> None:
    ours, theirs = kendall_tau_b(x, y), _scipy(x, y)
    assert ours == theirs or (math.isnan(ours) and math.isnan(theirs)), (x, y, ours, theirs)


@given(_PAIRS)
def test_with_ties(pairs: list[tuple[str, str]]) -> None:
    _same([x for x, _ in pairs], [y for _, y in pairs])


@given(st.lists(st.text(max_size=3), min_size=2, max_size=60, unique=True), st.randoms())
def test_orders_of_the_same_rows(rows: list[str], random: random.Random) -> None:
    # numpy drops NUL at the end of a text; the text of a tuple ends in a parenthesis
    x = [f"({row!r},)" for row in rows]
    y = list(x)
    random.shuffle(y)
    _same(x, y)


@pytest.mark.parametrize("size", [2, 3, 100, 2500])
def test_long_and_extreme(size: int) -> None:
    x = [f"({n:06d},)" for n in range(size)]
    assert kendall_tau_b(x, x) == _scipy(x, x)
    assert kendall_tau_b(x, x[::-1]) == _scipy(x, x[::-1]) == -1.0
    shuffled = random.Random(size).sample(x, size)
    _same(x, shuffled)


@pytest.mark.parametrize(("x", "y"), [([], []), (["a"], ["a"]), (["a", "a"], ["a", "b"])])
def test_undefined(x: list[str], y: list[str]) -> None:
    assert math.isnan(kendall_tau_b(x, y))


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="zip"):
        kendall_tau_b(["a", "b", "c"], ["a", "b"])
