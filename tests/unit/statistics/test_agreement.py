"""Cohen's kappa, against published numbers."""

from __future__ import annotations

import pytest

from pytest_intercode.statistics.agreement import cohen_kappa


def pairs(both: int, first: int, second: int, neither: int) -> list[tuple[bool, bool]]:
    return [
        *[(True, True)] * both,
        *[(True, False)] * first,
        *[(False, True)] * second,
        *[(False, False)] * neither,
    ]


@pytest.mark.parametrize(
    ("table", "kappa"),
    [
        ((20, 5, 10, 15), 0.4),  # the grants of Wikipedia's article
        ((45, 15, 25, 15), 0.1304),  # its two cases of equal agreement
        ((25, 35, 5, 35), 0.2593),
        ((5, 0, 0, 5), 1.0),
        ((0, 5, 5, 0), -1.0),
    ],
)
def test_published_numbers(table: tuple[int, int, int, int], kappa: float) -> None:
    agreement = cohen_kappa(pairs(*table))
    assert agreement.kappa == pytest.approx(kappa, abs=1e-4)
    assert agreement.total == sum(table)
    assert agreement.interval is not None
    assert agreement.interval.low <= kappa + 1e-4
    assert agreement.interval.high >= kappa - 1e-4


def test_an_interval_has_a_width_where_all_agree() -> None:
    few, many = (cohen_kappa(pairs(n, 0, 0, n)).interval for n in (3, 300))
    assert few is not None
    assert many is not None
    assert few.low < 0.5 < 0.98 < many.low
    assert few.high == many.high == 1.0


def test_labels_that_are_all_alike_say_nothing() -> None:
    agreement = cohen_kappa(pairs(9, 0, 0, 0))
    assert (agreement.agreed, agreement.kappa, agreement.interval) == (9, None, None)
    with pytest.raises(ValueError, match="0 successes in 0 tries"):
        cohen_kappa([])
