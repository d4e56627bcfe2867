"""Rates, pass@k and means with their intervals, against scipy and against their definitions."""

from __future__ import annotations

import time
from itertools import combinations
from math import isclose
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_intercode.statistics.rates import (
    bootstrap_mean,
    effective_tries,
    pass_at_k,
    pass_hat_k,
    wilson,
)

_LEVELS = st.sampled_from([0.5, 0.9, 0.95, 0.99])
_OUTCOMES = st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=12)


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Import scipy, which takes a second, outside of a test's time and of the collection."""
    import scipy.stats  # type: ignore[import-untyped]  # noqa: F401


@st.composite
def _task(draw: st.DrawFn) -> tuple[int, int, int]:
    """Tries, successes and k of a task."""
    tries = draw(st.integers(1, 60))
    return tries, draw(st.integers(0, tries)), draw(st.integers(1, tries))


# -- Wilson's interval


@given(st.integers(1, 500), st.floats(0, 1), _LEVELS)
def test_wilson_is_scipys(tries: int, share: float, level: float) -> None:
    from scipy.stats import binomtest

    successes = round(share * tries)
    theirs = binomtest(successes, tries).proportion_ci(level, "wilson")
    assert wilson(successes, tries, level) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_wilson_of_a_published_example() -> None:
    # Newcombe (1998), Statistics in Medicine 17, table I: method 3.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


@pytest.mark.parametrize(("successes", "tries"), [(0, 0), (2, 1), (-1, 3)])
def test_wilson_of_what_cannot_be(successes: int, tries: int) -> None:
    with pytest.raises(ValueError, match="tries"):
        wilson(successes, tries)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_levels_are_shares(level: float) -> None:
    with pytest.raises(ValueError, match=f"the level is {level}"):
        wilson(1, 2, level)
    with pytest.raises(ValueError, match=f"the level is {level}"):
        bootstrap_mean([[1.0]], level)


# -- tries of one task are alike


@given(_OUTCOMES)
def test_effective_tries_lie_between_tasks_and_tries(groups: list[list[bool]]) -> None:
    assert len(groups) <= effective_tries(groups) <= sum(map(len, groups))


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_one_try_a_task_is_one_try(outcomes: list[bool]) -> None:
    assert effective_tries([[each] for each in outcomes]) == len(outcomes)


def test_tries_that_always_agree_count_once() -> None:
    assert effective_tries([[True] * 5] * 6 + [[False] * 5] * 4) == 10
    assert effective_tries([[True] * 5] * 10) == 10


def test_tries_as_different_as_tasks_all_count() -> None:
    assert effective_tries([[True, False]] * 10) == 20


def test_the_interval_over_clusters_covers_the_rate() -> None:
    random = Random(7)
    runs, covered, plain = 400, 0, 0
    for _ in range(runs):
        chances = [random.betavariate(0.5, 0.5) for _ in range(60)]
        groups = [[random.random() < chance for _ in range(5)] for chance in chances]
        count = effective_tries(groups)
        share = sum(map(sum, groups)) / 300
        low, high = wilson(share * count, count)
        covered += low <= 0.5 <= high
        low, high = wilson(share * 300, 300)
        plain += low <= 0.5 <= high
    assert 0.92 <= covered / runs <= 0.98
    assert plain / runs < 0.85  # as if tries of one task were independent


def test_no_task_and_no_try() -> None:
    nothing: list[list[list[bool]]] = [[], [[]], [[True], []]]
    for groups in nothing:
        with pytest.raises(ValueError, match="needs a"):
            effective_tries(groups)
        with pytest.raises(ValueError, match="needs a"):
            bootstrap_mean([[float(each) for each in group] for group in groups])


# -- pass@k and pass^k


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_both_are_their_definitions(outcomes: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(outcomes)))
    choices = list(combinations(outcomes, k))
    n, c = len(outcomes), sum(outcomes)
    assert isclose(pass_at_k(n, c, k), sum(map(any, choices)) / len(choices))
    assert isclose(pass_hat_k(n, c, k), sum(map(all, choices)) / len(choices))


@given(_task())
def test_pass_at_k_is_the_stable_product_of_its_authors(task: tuple[int, int, int]) -> None:
    tries, successes, k = task
    # Chen et al. (2021), figure 3.
    product = 1.0
    if tries - successes >= k:
        product -= float(np.prod(1.0 - k / np.arange(tries - successes + 1, tries + 1)))
    assert isclose(pass_at_k(tries, successes, k), product, abs_tol=1e-12)


@given(_task())
def test_bounds_and_order(task: tuple[int, int, int]) -> None:
    tries, successes, k = task
    assert 0 <= pass_hat_k(*task) <= successes / tries <= pass_at_k(*task) <= 1
    if k > 1:
        assert pass_at_k(tries, successes, k) >= pass_at_k(tries, successes, k - 1)
        assert pass_hat_k(tries, successes, k) <= pass_hat_k(tries, successes, k - 1)
    assert pass_at_k(tries, successes, 1) == successes / tries == pass_hat_k(tries, successes, 1)


def test_they_mirror_each_other() -> None:
    assert pass_at_k(10, 3, 4) == 1 - pass_hat_k(10, 7, 4)


def test_small_chances_keep_their_digits() -> None:
    assert pass_at_k(10**6, 1, 1) == 1e-6
    assert pass_hat_k(1000, 999, 999) == pytest.approx(1e-3, rel=1e-15)


@pytest.mark.parametrize("estimate", [pass_at_k, pass_hat_k])
def test_what_cannot_be_estimated(estimate: object) -> None:
    assert callable(estimate)
    with pytest.raises(ValueError, match="k is 4, but a task with 3 tries allows 1 to 3"):
        estimate(3, 1, 4)
    with pytest.raises(ValueError, match="k is 0"):
        estimate(3, 1, 0)
    with pytest.raises(ValueError, match="4 successes in 3 tries"):
        estimate(3, 4, 1)


# -- the bootstrap of a mean


def _values(count: int, *, seed: int = 3) -> list[float]:
    random = Random(seed)
    return [random.choice([0.0, 1.0, 1.0, 1.0, random.random()]) for _ in range(count)]


@pytest.mark.parametrize("count", [20, 300, 301, 2000])
def test_the_bootstrap_is_scipys(count: int) -> None:
    from scipy.stats import bootstrap

    values = _values(count)
    theirs = bootstrap(
        (np.array(values),), np.mean, n_resamples=4000, method="percentile", rng=1
    ).confidence_interval
    width = theirs.high - theirs.low
    ours = bootstrap_mean([[value] for value in values])
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.05 * width)


@pytest.mark.parametrize("rare", [3, 30, 200])
def test_what_is_computed_is_what_would_be_drawn(rare: int) -> None:
    # 400 tasks of one to three tries, with few failures: far from the normal distribution
    random = Random(rare)
    groups = [
        [float(at >= rare)] * random.randint(1, 2) + [float(random.random() > 0.01)]
        for at in range(400)
    ]
    sums = [(sum(group), len(group)) for group in groups]
    means = []
    for _ in range(4000):
        drawn = random.choices(sums, k=len(sums))
        means.append(sum(total for total, _ in drawn) / sum(count for _, count in drawn))
    means.sort()
    low, high = bootstrap_mean(groups)
    width = means[3900] - means[99]
    assert low == pytest.approx(means[99], abs=0.06 * width)
    assert high == pytest.approx(means[3900], abs=0.06 * width)


def test_tasks_are_drawn_and_not_tries() -> None:
    tasks = [[0.0] * 9] * 5 + [[1.0] * 9] * 5
    assert bootstrap_mean(tasks) == bootstrap_mean([[0.0]] * 5 + [[1.0]] * 5)


def test_the_same_seed_gives_the_same() -> None:
    groups = [[value] for value in _values(40)]
    assert bootstrap_mean(groups, seed=5) == bootstrap_mean(groups, seed=5)
    assert bootstrap_mean(groups, seed=5) != bootstrap_mean(groups, seed=6)


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=3), min_size=1, max_size=8)
    | st.lists(st.sampled_from([[0.0], [1.0], [0.5, 1.0]]), min_size=301, max_size=320)
)
def test_it_stays_between_the_least_and_the_most(groups: list[list[float]]) -> None:
    low, high = bootstrap_mean(groups, resamples=50)
    every = [value for group in groups for value in group]
    assert min(every) - 1e-12 <= low <= high <= max(every) + 1e-12


def test_ten_thousand_tasks_take_no_time() -> None:
    groups = [[value, value / 2] for value in _values(10_000)]
    began = time.process_time()
    bootstrap_mean(groups)
    assert time.process_time() - began < 2
