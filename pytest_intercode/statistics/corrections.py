"""P-values of several tests together: with more tests, chance makes more of them small."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["holm"]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values with Holm's step-down correction for their number (Holm 1979).

    The smallest of *n* is multiplied by *n*, the next by *n* - 1, and so on, and no corrected value
    is below that of a smaller p-value. If values of at most a level are called significant, the
    probability that any of them is so by chance alone is at most that level, however the tests
    depend on each other. It finds all that Bonferroni's correction, which multiplies each by *n*,
    finds.

    Args:
        p_values: the tests' p-values.

    Returns:
        The corrected p-values, in the same order.
    """
    count, largest = len(p_values), 0.0
    corrected = [1.0] * count
    for rank, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
