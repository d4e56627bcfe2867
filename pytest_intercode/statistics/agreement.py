"""How far two raters agree beyond chance: Cohen's kappa."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_intercode.statistics.rates import Interval, wilson

__all__ = ["Agreement", "cohen_kappa"]


class Agreement(NamedTuple):
    """How far two raters agree.

    Attributes:
        agreed: how often they agreed.
        total: how many cases both rated.
        kappa: 1 for always, 0 for as often as by chance; None if chance alone explains everything.
        interval: the 95 % interval of kappa; None likewise.
    """

    agreed: int
    total: int
    kappa: float | None
    interval: Interval | None


def cohen_kappa(pairs: Sequence[tuple[bool, bool]]) -> Agreement:
    """Return Cohen's kappa (1960): ``(p - e) / (1 - e)``.

    ``p`` is the share of pairs that are equal, and ``e`` the share that would be equal if both
    raters gave their ratings in a random order. Like Cohen's own, the interval takes ``e`` as
    known; its ends come from those of Wilson's interval of ``p``, so that it has a width even if
    all pairs agree.

    Args:
        pairs: for each case, the rating of the first and of the second rater.

    Raises:
        ValueError: there is no pair.
    """
    total = len(pairs)
    agreed = sum(first == second for first, second in pairs)
    ends = wilson(agreed, total)
    first_share = sum(first for first, _ in pairs) / total
    second_share = sum(second for _, second in pairs) / total
    chance = first_share * second_share + (1 - first_share) * (1 - second_share)
    if chance >= 1:  # both gave one and the same rating to all cases
        return Agreement(agreed, total, None, None)
    low, kappa, high = (
        (share - chance) / (1 - chance) for share in (*ends[:1], agreed / total, ends[1])
    )
    return Agreement(agreed, total, kappa, Interval(low, high))
