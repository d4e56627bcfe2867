"""How often the rules find a drop, against all that can happen, counted one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from math import prod

import pytest

from pytest_intercode.core.rates import PassRule
from pytest_intercode.statistics.paired import fisher_exact, mcnemar_exact
from tests.support.power import (
    chance_to_pass,
    fisher_power,
    mcnemar_power,
    tries_until_decided,
)


def _sequences(tries: int, rate: Fraction) -> Iterator[tuple[tuple[bool, ...], Fraction]]:
    """Yield all sequences of results, with their exact probabilities."""
    for results in itertools.product((False, True), repeat=tries):
        yield results, prod((rate if result else 1 - rate for result in results), start=Fraction(1))


@pytest.mark.parametrize("rate", [Fraction(1, 2), Fraction(4, 5), Fraction(99, 100)])
@pytest.mark.parametrize(("tries", "asked"), [(1, 1.0), (5, 0.8), (5, 1.0), (8, 0.7)])
def test_a_pass_rate(tries: int, asked: float, rate: Fraction) -> None:
    rule = PassRule(tries, asked)
    passed = ran = Fraction(0)
    for results, chance in _sequences(tries, rate):
        passed += chance * (results.count(False) <= rule.allowed_misses)
        count = next(
            count
            for count in range(tries + 1)
            if rule.decide(sum(results[:count]), count - sum(results[:count]))
        )
        ran += chance * count
    arguments = (float(rate), tries, rule.allowed_misses)
    assert chance_to_pass(*arguments) == pytest.approx(float(passed), rel=1e-12)
    assert tries_until_decided(*arguments) == pytest.approx(float(ran), rel=1e-12)


def test_a_drop_on_one_test() -> None:
    tries, before, after = 6, Fraction(9, 10), Fraction(2, 5)
    found = sum(
        old * new
        for (results, old), (later, new) in itertools.product(
            _sequences(tries, before), _sequences(tries, after)
        )
        if sum(later) < sum(results)
        and fisher_exact((sum(results), tries), (sum(later), tries)) <= 0.05
    )
    assert fisher_power(0.9, 0.4, tries) == pytest.approx(float(found), rel=1e-12)


def test_a_drop_over_tasks() -> None:
    lost, won, tasks = Fraction(1, 2), Fraction(1, 10), 7
    found = Fraction(0)
    for changes in itertools.product((-1, 0, 1), repeat=tasks):
        counts = changes.count(-1), changes.count(1)
        if counts[0] > counts[1] and mcnemar_exact(*counts) <= 0.05:
            found += lost ** counts[0] * won ** counts[1] * (1 - lost - won) ** changes.count(0)
    assert found > 0
    assert mcnemar_power(0.5, 0.1, tasks) == pytest.approx(float(found), rel=1e-12)
    assert mcnemar_power(0.0, 0.0, tasks) == 0


def test_what_is_no_chance() -> None:
    with pytest.raises(ValueError, match=r"-0.5 is not between 0 and 1"):
        chance_to_pass(1.5, 5, 1)
    with pytest.raises(ValueError, match="-1 misses of 5 tries"):
        chance_to_pass(0.5, 5, -1)
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        fisher_power(-0.1, 0.5, 5)
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        mcnemar_power(0.8, 0.4, 5)
