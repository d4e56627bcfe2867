"""Shares of solved tries, pass@k, and means, with their intervals.

Pure functions over numbers. The tries of one task are similar, so if there are several, the task is
the sampled unit, not the try.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb, sqrt
from random import Random
from statistics import NormalDist
from typing import NamedTuple

__all__ = [
    "Interval",
    "bootstrap_mean",
    "clustered_wilson",
    "effective_tries",
    "pass_at_k",
    "pass_hat_k",
    "quantile_of_normal",
    "wilson",
]

_MAX_RESAMPLED = 300  # groups up to which the bootstrap is drawn; with more it is computed


class Interval(NamedTuple):
    """A confidence interval.

    Attributes:
        low: its lower end.
        high: its upper end.
    """

    low: float
    high: float


def wilson(successes: float, tries: float, level: float = 0.95) -> Interval:
    """Return Wilson's score interval of a share (Wilson 1927).

    Tries are assumed to be independent. If tasks have several tries each, pass the share times
    :func:`effective_tries` and that number, which may be a fraction.

    Args:
        successes: the number of successful tries.
        tries: the number of tries.
        level: the share of such intervals that contain the true value.

    Raises:
        ValueError: there was no try, or more succeeded than there were.
    """
    if not 0 <= successes <= tries or tries == 0:
        raise ValueError(f"{successes} successes in {tries} tries are not possible")
    z = quantile_of_normal(level)
    share = successes / tries
    shrink = 1 + z * z / tries
    centre = (share + z * z / (2 * tries)) / shrink
    half = z * sqrt(share * (1 - share) / tries + (z / (2 * tries)) ** 2) / shrink
    # Rounding must not move an end that is known.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == tries else min(1.0, centre + half)
    return Interval(low, high)


def effective_tries(groups: Sequence[Sequence[bool]]) -> float:
    """Return how many independent tries would estimate the rate as precisely as these.

    It is the number of tries divided by the design effect (Kish 1965): the variance of the rate
    with tasks as clusters, over its variance if all tries were independent. It lies between the
    number of tasks (tries of one task always agree) and the number of tries (tries of one task
    differ as much as those of different tasks). If all tries have the same outcome, the design
    effect cannot be estimated, and the number of tasks is returned. With one try per task, it is
    the number of tries.

    Args:
        groups: whether each try was solved, for each task; no task without a try.

    Raises:
        ValueError: there is no task, or one without a try.
    """
    if not groups or not all(groups):
        raise ValueError("at least one task is needed, and each needs a try")
    tasks, tries = len(groups), sum(map(len, groups))
    rate = sum(map(sum, groups)) / tries
    if tasks in (1, tries) or rate in (0, 1):
        return float(tasks)
    among = sum((sum(group) - rate * len(group)) ** 2 for group in groups)
    clustered = among * tasks / (tasks - 1) / tries**2
    independent = rate * (1 - rate) / tries
    return max(float(tasks), tries * min(1.0, independent / clustered)) if among else float(tries)


def clustered_wilson(groups: Sequence[Sequence[bool]]) -> Interval:
    """Return Wilson's 95 % interval of the rate, with tasks as clusters.

    Args:
        groups: whether each try was solved, for each task; no task without a try.

    Raises:
        ValueError: there is no task, or one without a try.
    """
    count = effective_tries(groups)
    return wilson(count * sum(map(sum, groups)) / sum(map(len, groups)), count)


def pass_at_k(tries: int, successes: int, k: int) -> float:
    """Return the probability that at least one of k tries of a task succeeds (Chen et al. 2021).

    The unbiased estimate ``1 - C(n - c, k) / C(n, k)``: the share of choices of k tries, out of all
    tries, that contain a success. Whole numbers are used until the last division, so the result is
    the nearest float.

    Args:
        tries: n, how many tries the task had.
        successes: c, how many of them succeeded.
        k: the number of tries, from 1 to n.

    Raises:
        ValueError: k or the number of successes is out of its range.
    """
    _check(tries, successes, k)
    every = comb(tries, k)
    return (every - comb(tries - successes, k)) / every


def pass_hat_k(tries: int, successes: int, k: int) -> float:
    """Return the probability that all of k tries of a task succeed: pass^k (Yao et al. 2024).

    The unbiased estimate ``C(c, k) / C(n, k)``.

    Args:
        tries: n, how many tries the task had.
        successes: c, how many of them succeeded.
        k: the number of tries, from 1 to n.

    Raises:
        ValueError: k or the number of successes is out of its range.
    """
    _check(tries, successes, k)
    return comb(successes, k) / comb(tries, k)


def _check(tries: int, successes: int, k: int) -> None:
    if not 0 <= successes <= tries:
        raise ValueError(f"{successes} successes in {tries} tries are not possible")
    if not 1 <= k <= tries:
        raise ValueError(f"k is {k}, but a task with {tries} tries allows 1 to {tries}")


def bootstrap_mean(
    groups: Sequence[Sequence[float]],
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return the percentile bootstrap interval of the mean of all values (Efron 1979).

    Groups (tasks) are drawn with replacement, each with all its values. Up to 300 groups are drawn
    ``resamples`` times, the same for the same seed. With more, the quantiles of the bootstrap's
    distribution are computed from its variance, skewness and kurtosis, which are known without
    drawing (Cornish and Fisher 1938): 10,000 groups take milliseconds, and the error is smaller
    than that of drawing.

    Args:
        groups: the values of each task; no task without one.
        level: the share of such intervals that contain the true value.
        resamples: how often groups are drawn.
        seed: the seed of the random numbers.

    Raises:
        ValueError: there is no group, or one without a value.
    """
    if not groups or not all(groups):
        raise ValueError("at least one group is needed, and each needs a value")
    tail = (1 - _check_level(level)) / 2
    sums = [(sum(group), len(group)) for group in groups]
    if len(groups) > _MAX_RESAMPLED:
        return _expanded_interval(sums, NormalDist().inv_cdf(tail))
    return _resampled_interval(tuple(sums), tail, resamples, seed)


@lru_cache(maxsize=32)  # a run needs the same groups for its table, its summary and its page
def _resampled_interval(
    sums: Sequence[tuple[float, int]], tail: float, resamples: int, seed: int
) -> Interval:
    random = Random(seed)
    means = []
    for _ in range(resamples):
        sample = random.choices(sums, k=len(sums))
        means.append(sum(total for total, _ in sample) / sum(count for _, count in sample))
    means.sort()
    index = int(tail * resamples)
    return Interval(means[index], means[-1 - index])


def _expanded_interval(sums: Sequence[tuple[float, int]], z: float) -> Interval:
    """Return the same from the Cornish-Fisher expansion, for the linearised ratio of two sums."""
    n = len(sums)
    values = sum(count for _, count in sums)
    mean = sum(total for total, _ in sums) / values
    # How far each group moves the ratio, to the first order.
    parts = [(total - mean * count) * n / values for total, count in sums]
    second, third, fourth = (sum(part**power for part in parts) / n for power in (2, 3, 4))
    if second == 0:
        return Interval(mean, mean)
    # The values for a mean of n groups, from those for one group.
    skew = third / second**1.5 / sqrt(n)
    kurtosis = (fourth / second**2 - 3) / n
    means = [total / count for total, count in sums]
    ends = []
    for quantile in (z, -z):
        moved = (
            quantile
            + skew * (quantile**2 - 1) / 6
            + kurtosis * (quantile**3 - 3 * quantile) / 24
            - skew**2 * (2 * quantile**3 - 5 * quantile) / 36
        )
        # A mean of drawn groups lies between their means, which the expansion does not ensure.
        ends.append(min(max(mean + moved * sqrt(second / n), min(means)), max(means)))
    return Interval(*ends)


def quantile_of_normal(level: float) -> float:
    """Return how many standard deviations a two-sided interval with a level reaches.

    Raises:
        ValueError: the level is not between 0 and 1.
    """
    return NormalDist().inv_cdf(0.5 + _check_level(level) / 2)


def _check_level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"the level is {level}, but must be between 0 and 1")
    return level
