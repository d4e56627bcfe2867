"""Whether one task is solved less often than before, or by chance. Pure functions over counts."""

from __future__ import annotations

from math import comb

__all__ = ["fisher_exact"]


def fisher_exact(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test (Fisher 1935).

    If nothing changed, the successes of both runs are spread over all tries alike. The p-value is
    the chance of a spread that is no more likely than the one that was seen.

    Args:
        before: successes and tries of the older run.
        after: successes and tries of the newer run.

    Raises:
        ValueError: a count is negative, or there are more successes than tries.
    """
    for solved, tries in (before, after):
        if not 0 <= solved <= tries:
            raise ValueError(f"{solved} of {tries} tries")
    solved = before[0] + after[0]
    ways = [
        comb(before[1], of_before) * comb(after[1], solved - of_before)
        for of_before in range(max(0, solved - after[1]), min(before[1], solved) + 1)
    ]
    observed = comb(before[1], before[0]) * comb(after[1], after[0])
    return sum(count for count in ways if count <= observed) / sum(ways)
