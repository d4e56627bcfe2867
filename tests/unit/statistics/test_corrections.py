"""Holm's correction: against its definition and Bonferroni's, and verdicts that go by it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.statistics.corrections import holm
from pytest_intercode.statistics.paired import paired_test, paired_tests

_P_VALUES = st.lists(st.floats(0, 1), max_size=12)


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.4, 0.5, 0.9], [1.0, 1.0, 1.0]),
        ([0.02, 0.02], [0.04, 0.04]),
    ],
)
def test_examples(p_values: list[float], corrected: list[float]) -> None:
    assert holm(p_values) == pytest.approx(corrected)


@given(_P_VALUES, st.sampled_from((0.01, 0.05, 0.2)))
def test_it_is_the_step_down_procedure(p_values: list[float], level: float) -> None:
    # Holm (1979): go on from the smallest while p is at most level / (how many remain).
    rejected = set()
    remaining = sorted(range(len(p_values)), key=p_values.__getitem__)
    while remaining and len(remaining) * p_values[remaining[0]] <= level:
        rejected.add(remaining.pop(0))
    assert {index for index, p in enumerate(holm(p_values)) if p <= level} == rejected


@given(_P_VALUES)
def test_it_lies_between_no_correction_and_bonferronis(p_values: list[float]) -> None:
    for p, corrected in zip(p_values, holm(p_values), strict=True):
        assert p <= corrected <= min(1.0, len(p_values) * p)


def test_the_chance_of_any_false_alarm_is_kept() -> None:
    random = Random(1)
    alarms = 0
    for _ in range(2000):
        alarms += min(holm([random.random() for _ in range(6)])) <= 0.05
    assert alarms / 2000 == pytest.approx(0.05, abs=0.015)  # without it 26 of 100


# -- verdicts of several comparisons


def _pair(
    lost: int, won: int, same: int = 0
) -> tuple[dict[int, list[bool]], dict[int, list[bool]]]:
    before = [True] * lost + [False] * won + [True] * same
    after = [False] * lost + [True] * won + [True] * same
    return ({at: [x] for at, x in enumerate(before)}, {at: [x] for at, x in enumerate(after)})


def test_the_correction_decides() -> None:
    pairs = [_pair(6, 0), _pair(10, 0), _pair(1, 1, 10)]
    assert [paired_test(*pair).kind for pair in pairs[:2]] == ["regressed", "regressed"]
    first, second, third = paired_tests(pairs)
    assert (first.kind, second.kind) == ("too few samples", "regressed")
    assert first.p == 0.03125
    assert first.corrected == 0.0625
    assert second.corrected == pytest.approx(3 * second.p)
    assert third.corrected == 1.0
    assert "p 0.031 (0.062 by Holm's correction)" in first.sentence


def test_a_pair_without_a_common_task_is_no_comparison() -> None:
    nothing: tuple[dict[int, list[bool]], dict[int, list[bool]]] = ({1: [True]}, {2: [True]})
    alone, empty = paired_tests([_pair(0, 6), nothing])
    assert alone == paired_test(*_pair(0, 6))
    assert (empty.tasks, empty.corrected) == (0, None)


def test_of_two_sides_neither_is_older() -> None:
    gained = _pair(0, 5, 45)
    assert paired_test(*gained).kind == "no difference"  # a drop is excluded
    (verdict,) = paired_tests([gained], symmetric=True)
    assert verdict.kind == "too few samples"  # and a gain of 10 points is not
    assert "a difference of 10 points is not excluded" in verdict.sentence
    (verdict,) = paired_tests([_pair(0, 8)], symmetric=True)
    assert verdict.sentence.startswith("better: +100.0 points")
