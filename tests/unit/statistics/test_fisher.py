"""Fisher's exact test of one task's tries."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.statistics.paired import fisher_exact

_SHARES = st.integers(0, 12).flatmap(lambda tries: st.tuples(st.integers(0, tries), st.just(tries)))


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [
        ((3, 3), (0, 3), 0.1),
        ((5, 5), (0, 5), 2 / comb(10, 5)),
        ((3, 4), (1, 4), 34 / 70),  # Fisher's lady tasting tea, two-sided
        ((1, 1), (0, 1), 1.0),
        ((0, 0), (0, 0), 1.0),
    ],
)
def test_known_values(before: tuple[int, int], after: tuple[int, int], p: float) -> None:
    assert fisher_exact(before, after) == pytest.approx(p)


@given(_SHARES, _SHARES)
def test_both_directions_are_alike(before: tuple[int, int], after: tuple[int, int]) -> None:
    p = fisher_exact(before, after)
    assert 0 < p <= 1
    assert fisher_exact(after, before) == pytest.approx(p)


def test_counts_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="4 of 3 tries"):
        fisher_exact((4, 3), (0, 1))
