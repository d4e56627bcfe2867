"""Rates that a run is judged by."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from pytest_intercode.core.rates import FailUnder, PassRule, parse_fail_under, parse_rate


@pytest.mark.parametrize(
    ("tries", "rate", "allowed"),
    [
        *((5, 0.8, 1), (10, 0.9, 1), (10, 0.7, 3), (3, 0.67, 0), (3, 0.66, 1), (4, 0.8, 0)),
        *((1, 0.8, 0), (5, 1.0, 0), (5, 1, 0), (100, 0.01, 99), (1000, 0.999, 1), (20, 0.35, 13)),
    ],
)
def test_so_many_may_miss(tries: int, rate: float, allowed: int) -> None:
    assert PassRule(tries, rate).allowed_misses == allowed


def test_no_rounding_of_floats_decides() -> None:
    for tries, hundredths in itertools.product(range(1, 41), range(1, 101)):
        exact = tries * (100 - hundredths) // 100
        assert PassRule(tries, hundredths / 100).allowed_misses == exact


def test_what_is_decided_is_the_verdict_whatever_comes() -> None:
    """Of all orders of five tries: nothing is decided that a later try could change."""
    for rate, tries in itertools.product((0.2, 0.5, 0.8, 1.0), range(1, 7)):
        rule = PassRule(tries, rate)
        needed = Fraction(str(rate)) * tries
        for results in itertools.product((False, True), repeat=tries):
            verdict = "reached" if sum(results) >= needed else "missed"
            decisions = [
                rule.decide(sum(results[:ran]), ran - sum(results[:ran]))
                for ran in range(tries + 1)
            ]
            assert decisions[-1] == verdict
            assert set(decisions) <= {None, verdict}


def test_what_is_said() -> None:
    rule = PassRule(5, 0.8)
    assert rule.describe_allowed(1) == "1 of 1 misses that pass_rate=0.8 allows"
    assert rule.describe_missed(2, 1) == "2 of 3 tries missed, and pass_rate=0.8 allows 1 of 5"
    assert rule.describe_missed(2, 3) == "2 of 5 tries missed, and pass_rate=0.8 allows 1"
    assert PassRule(1, 0.8).describe_missed(1, 0) == (
        "the only try missed, and pass_rate=0.8 allows none"
    )
    assert rule.describe_rest(4, 0) == "not run: pass_rate=0.8 is reached (4 of 5 tries solved)"
    assert rule.describe_rest(0, 2) == (
        "not run: pass_rate=0.8 is missed (2 of 2 tries missed, and pass_rate=0.8 allows 1 of 5)"
    )


@pytest.mark.parametrize(
    ("text", "rate"), [("0.8", 0.8), ("80%", 0.8), (" 1 ", 1.0), ("5%", 0.05), ("99.9%", 0.999)]
)
def test_a_rate(text: str, rate: float) -> None:
    assert parse_rate(text) == rate
    assert parse_fail_under(f"lower:{text}") == FailUnder(rate, True)


@pytest.mark.parametrize("text", ["0", "1.1", "101%", "-0.5", "half", "", "nan", "lower:0.8", "%"])
def test_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="a rate above 0 and up to 1 is needed"):
        parse_rate(text)
