"""How often rules find what is there: a pass rate of one test, and the tests of two runs.

Exact sums over binomial distributions, for planning how many tries are enough. Pure functions;
docs/statistics.md has tables of what they return, which a test computes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb, fsum

from pytest_intercode.statistics.paired import fisher_exact, mcnemar_exact

__all__ = ["chance_to_pass", "fisher_power", "mcnemar_power", "tries_until_decided"]


def chance_to_pass(rate: float, tries: int, allowed_misses: int) -> float:
    """Return how likely a test passes of which no more than so many tries may miss.

    As a function of the rate it is the rule's operating characteristic.

    Args:
        rate: how likely the agent solves a try, each independent of the others.
        tries: how many tries there are.
        allowed_misses: how many of them may miss.

    Raises:
        ValueError: the rate is not between 0 and 1, or a number is negative.
    """
    if tries < 0 or allowed_misses < 0:
        raise ValueError(f"{allowed_misses} misses of {tries} tries")
    return fsum(_binomial(tries, _check_share(1 - rate))[: allowed_misses + 1])


def tries_until_decided(rate: float, tries: int, allowed_misses: int) -> float:
    """Return how many tries run on average, if none runs that can no longer change the verdict.

    The arguments and errors are those of :func:`chance_to_pass`. The n-th try runs if, of those
    before it, neither too many missed nor enough were solved.
    """
    enough = tries - allowed_misses
    running = []
    for ran in range(tries):
        chances = _binomial(ran, _check_share(1 - rate))
        running.append(
            fsum(
                chance
                for misses, chance in enumerate(chances)
                if misses <= allowed_misses and ran - misses < enough
            )
        )
    return fsum(running)


def fisher_power(before: float, after: float, tries: int, level: float = 0.05) -> float:
    """Return how likely a drop on one test is significant, with so many tries in each run.

    The test is Fisher's exact test, two-sided, as ``compare`` has it for a single task.

    Args:
        before: how likely a try was solved.
        after: how likely one is now.
        tries: how many tries each run has.
        level: the p-value up to which a difference is significant.

    Raises:
        ValueError: a rate is not between 0 and 1.
    """
    old, new = _binomial(tries, _check_share(before)), _binomial(tries, _check_share(after))
    limits = _fisher_limits(tries, level)
    return fsum(chance * fsum(new[:limit]) for chance, limit in zip(old, limits, strict=True))


@lru_cache(maxsize=64)
def _fisher_limits(tries: int, level: float) -> tuple[int, ...]:
    """Return, for each number of tries that were solved before, from how many on no drop is seen.

    They rise with that number, so that one pass finds all of them.
    """
    limits: list[int] = []
    limit = 0
    for solved in range(tries + 1):
        while limit < solved and fisher_exact((solved, tries), (limit, tries)) <= level:
            limit += 1
        limits.append(limit)
    return tuple(limits)


def mcnemar_power(lost: float, won: float, tasks: int, level: float = 0.05) -> float:
    """Return how likely the paired test of two runs calls them ``regressed``, with one try a task.

    Args:
        lost: how likely a task is solved by the older run alone.
        won: how likely it is solved by the newer run alone.
        tasks: how many tasks both runs have.
        level: the p-value up to which a difference is significant.

    Raises:
        ValueError: a chance, or both together, are not between 0 and 1.
    """
    changed = _check_share(lost + won)
    if not changed:
        return 0.0
    share = _check_share(lost) / changed
    return fsum(
        chance * fsum(_binomial(count, 1 - share)[: _mcnemar_limit(count, level)])
        for count, chance in enumerate(_binomial(tasks, changed))
    )


@lru_cache(maxsize=4096)
def _mcnemar_limit(changed: int, level: float) -> int:
    """Return from how many tasks on that were won, of those that changed, no drop is seen."""
    limit = 0
    while 2 * limit < changed and mcnemar_exact(changed - limit, limit) <= level:
        limit += 1
    return limit


def _binomial(tries: int, chance: float) -> Sequence[float]:
    """Return how likely each number of successes is, from 0 to all."""
    return [
        comb(tries, count) * chance**count * (1 - chance) ** (tries - count)
        for count in range(tries + 1)
    ]


def _check_share(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{value} is not between 0 and 1")
    return value
