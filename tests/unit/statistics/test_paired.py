"""Whether two runs differ: against scipy, every choice counted, and published examples."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_intercode.statistics.paired import Verdict, mcnemar_exact, paired_test, sign_flip

_TRIES = st.lists(st.booleans(), min_size=1, max_size=4)
_RUNS = st.lists(st.tuples(_TRIES, _TRIES), min_size=1, max_size=30)

Pair = tuple[Sequence[bool], Sequence[bool]]


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Import scipy, which takes a second, outside of a test's time and of the collection."""
    import scipy.stats  # type: ignore[import-untyped]  # noqa: F401


def _test(pairs: Sequence[Pair], **more: float) -> Verdict:
    before = {at: pair[0] for at, pair in enumerate(pairs)}
    after = {at: pair[1] for at, pair in enumerate(pairs)}
    return paired_test(before, after, **more)


def _once(both: int, lost: int, won: int, neither: int) -> list[Pair]:
    """A table of two runs with one try a task."""
    return [
        *[([True], [True])] * both,
        *[([True], [False])] * lost,
        *[([False], [True])] * won,
        *[([False], [False])] * neither,
    ]


# -- McNemar's exact test


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_scipys(lost: int, won: int) -> None:
    from scipy.stats import binomtest

    assume(lost + won)
    assert mcnemar_exact(lost, won) == pytest.approx(binomtest(lost, lost + won).pvalue, rel=1e-9)


@pytest.mark.parametrize(
    ("lost", "won", "p"),
    [
        (1, 7, 0.0703),  # Fagerland, Lydersen and Laake (2013), table 4: airways of children
        (6, 16, 0.0525),
        (0, 5, 0.0625),  # fewer than six changes the same way are never significant
        (0, 6, 0.03125),
        (0, 0, 1.0),
    ],
)
def test_mcnemar_of_published_tables(lost: int, won: int, p: float) -> None:
    assert mcnemar_exact(lost, won) == pytest.approx(p, abs=5e-5)
    assert _test(_once(10, lost, won, 10)).p == mcnemar_exact(lost, won)


def test_mcnemar_of_many() -> None:
    assert mcnemar_exact(5000, 5000) == 1.0
    assert 0 < mcnemar_exact(4700, 5300) < 1e-8
    with pytest.raises(ValueError, match="-1 lost"):
        mcnemar_exact(-1, 2)


# -- the permutation test over repeats


def _every_sign(differences: Sequence[Fraction]) -> float:
    seen = abs(sum(differences, Fraction()))
    sums = [
        abs(sum((s * each for s, each in zip(signs, differences, strict=True)), Fraction()))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return sum(each >= seen for each in sums) / len(sums)


_FRACTIONS = st.lists(st.fractions(-1, 1, max_denominator=6), max_size=9)


@settings(max_examples=60)
@given(_FRACTIONS)
def test_every_choice_of_signs_is_counted(differences: list[Fraction]) -> None:
    p, exact = sign_flip(differences)
    assert exact
    assert p == pytest.approx(_every_sign(differences))


def test_the_permutation_test_is_scipys() -> None:
    from scipy.stats import permutation_test

    random = Random(2)
    before = [random.randint(0, 4) / 4 for _ in range(12)]
    after = [random.randint(0, 3) / 4 for _ in range(12)]
    theirs = permutation_test(
        (np.array(before), np.array(after)),
        lambda x, y, axis: np.sum(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    ).pvalue
    differences = [Fraction(y) - Fraction(x) for x, y in zip(before, after, strict=True)]
    assert sign_flip(differences)[0] == pytest.approx(theirs, rel=1e-9)


@given(st.integers(0, 60), st.integers(0, 60))
def test_with_one_try_it_is_mcnemars(lost: int, won: int) -> None:
    differences = [Fraction(-1)] * lost + [Fraction(1)] * won
    assert sign_flip(differences)[0] == pytest.approx(mcnemar_exact(lost, won), rel=1e-12)


def test_what_is_drawn_is_near_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(4)
    differences = [Fraction(random.randint(-3, 3) - (at % 8 == 0), 3) for at in range(80)]
    exact, counted = sign_flip(differences)
    monkeypatch.setattr("pytest_intercode.statistics.paired._MAX_ADDITIONS", 0)
    drawn, was_counted = sign_flip(differences)
    assert (counted, was_counted) == (True, False)
    assert 0.01 < exact < 0.5
    assert drawn == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 20_000) ** 0.5)
    assert sign_flip(differences)[0] == drawn  # the same each time
    assert sign_flip([Fraction(1, 3)] * 300)[0] == 1 / 20_001  # and never 0


def test_ten_thousand_tasks_take_no_time() -> None:
    random = Random(5)
    pairs = [
        ([random.random() < 0.5 for _ in range(3)], [random.random() < 0.5 for _ in range(3)])
        for _ in range(10_000)
    ]
    began = time.process_time()
    verdict = _test(pairs)
    assert time.process_time() - began < 2
    assert verdict.method == "paired permutation test (20,000 draws)"


# -- the verdict


@given(_RUNS)
def test_the_other_way_round_is_the_mirror_image(pairs: list[Pair]) -> None:
    there = _test(pairs)
    back = _test([(after, before) for before, after in pairs])
    assert back.p == pytest.approx(there.p, rel=1e-12)
    assert back.difference == pytest.approx(-there.difference)
    assert (back.lost, back.won) == (there.won, there.lost)
    assert back.interval == pytest.approx((-there.interval.high, -there.interval.low))
    mirror = {"regressed": "improved", "improved": "regressed"}
    assert mirror.get(back.kind, "not significant") == (
        there.kind if there.kind in mirror else "not significant"
    )


@given(_RUNS)
def test_bounds(pairs: list[Pair]) -> None:
    verdict = _test(pairs)
    low, high = verdict.interval
    assert 0 < verdict.p <= 1
    assert -1 <= low <= verdict.difference + 1e-12
    assert verdict.difference - 1e-12 <= high <= 1
    assert verdict.tasks == len(pairs) >= verdict.lost + verdict.won
    assert (verdict.needed is not None) == (verdict.kind == "too few samples")
    assert verdict.needed is None or verdict.needed > verdict.tasks


@given(_RUNS)
def test_the_order_of_tasks_is_nothing(pairs: list[Pair]) -> None:
    assert _test(pairs[::-1]) == _test(pairs)


def test_the_interval_is_bonett_and_prices() -> None:
    # Fagerland, Lydersen and Laake (2014), the same children.
    verdict = _test(_once(1, 7, 1, 12))
    assert verdict.interval == pytest.approx((-0.508, -0.013), abs=1e-3)
    assert verdict.difference == pytest.approx(-6 / 21)


def test_the_four_kinds() -> None:
    assert _test(_once(50, 10, 0, 40)).kind == "regressed"
    assert _test(_once(50, 0, 10, 40)).kind == "improved"
    assert _test(_once(90, 2, 3, 100)).kind == "no difference"
    assert _test(_once(5, 2, 1, 5)).kind == "too few samples"
    # Significant, but no drop of ten points: still worse.
    assert _test(_once(500, 12, 0, 0)).kind == "regressed"


def test_one_third_less_is_noise() -> None:
    verdict = _test([([True] * 3, [True, False, True])])
    assert verdict.kind == "too few samples"
    assert verdict.p == 1.0


@pytest.mark.parametrize(("tasks", "kind"), [(25, "too few samples"), (26, "no difference")])
def test_few_tasks_that_stay_as_they_are_show_little(tasks: int, kind: str) -> None:
    verdict = _test(_once(tasks, 0, 0, 0))
    assert verdict.kind == kind
    assert verdict.p == 1.0


def test_the_level_and_the_drop_decide() -> None:
    pairs = _once(90, 12, 3, 40)
    assert _test(pairs).kind == "regressed"
    assert _test(pairs, level=0.01).kind == "too few samples"
    assert _test(pairs, level=0.01, smallest=0.2).kind == "no difference"
    for wrong in ({"level": 1.0}, {"smallest": 0.0}):
        with pytest.raises(ValueError, match="must be between 0 and 1"):
            _test(pairs, **wrong)


def test_what_is_needed_finds_the_drop() -> None:
    """So many tasks as are said to be needed find a drop of ten points in 80 % of runs."""
    random = Random(9)

    def run(tasks: int, drop: float) -> Verdict:
        # A task that is sometimes solved, and one in ten that is broken.
        pairs: list[Pair] = []
        for _ in range(tasks):
            was = random.choice([0.9, 0.6, 0.3])
            now = 0.0 if random.random() < drop / 0.6 else was
            pairs.append(([random.random() < was], [random.random() < now]))
        return _test(pairs)

    first = run(60, 0.0)
    assert first.kind == "too few samples"
    assert first.needed is not None
    assert 100 < first.needed < 500
    found = sum(run(first.needed, 0.1).kind == "regressed" for _ in range(200))
    assert found / 200 > 0.72  # 80 %, and three standard errors of 200 runs


def test_tasks_of_one_run_only_are_left_out() -> None:
    before = {"a": [True], "b": [True], "c": [], "d": [True]}
    after = {"a": [False], "b": [True], "c": [True], "e": [True]}
    verdict = paired_test(before, after)
    assert (verdict.tasks, verdict.lost, verdict.won) == (2, 1, 0)
    nothing = paired_test({"a": [True]}, {"b": [True]})
    assert (nothing.kind, nothing.p, nothing.tasks) == ("too few samples", 1.0, 0)
    assert nothing.sentence == "too few samples: no task has a graded try in both runs"


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (
            _once(50, 10, 1, 40),
            "regressed: -8.9 points (95% interval -15.4 to -2.1) over 101 common tasks, 10 worse "
            "and 1 better, p 0.012, McNemar's exact test",
        ),
        (
            [([True] * 3, [True, True, False])] * 12 + [([True] * 3, [True] * 3)] * 200,
            "regressed: -1.9 points (95% interval -3.5 to -0.2) over 212 common tasks, 12 worse "
            "and 0 better, p 0.0005, paired permutation test",
        ),
    ],
)
def test_sentences(pairs: list[Pair], sentence: str) -> None:
    assert _test(pairs).sentence == sentence


def test_sentences_of_what_is_not_significant() -> None:
    same = _test(_once(90, 2, 3, 100))
    assert same.sentence.startswith(
        "no significant difference: a drop of 10 points is excluded; +0.5 points ("
    )
    # A gain of six tasks of eight, which may be chance, is not called no difference.
    gain = _test(_once(1, 0, 4, 0))
    assert (gain.kind, gain.difference) == ("no difference", 0.8)
    assert gain.sentence.startswith(
        "no significant difference: a drop of 10 points is excluded; +80.0 points ("
    )
    few = _test(_once(5, 2, 1, 5), level=0.1, smallest=0.05)
    assert few.sentence.startswith(
        f"too few samples: a drop of 5 points is not excluded; about {few.needed} tasks are "
        "needed; -7.7 points (90% interval "
    )
