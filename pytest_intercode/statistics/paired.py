"""Whether a newer run is worse than an older one, on one task and on all that both have.

Tasks differ more from each other than runs do, so each task is compared with itself. Pure functions
over outcomes; docs/statistics.md has the full rule, and how often it errs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, comb, fsum, lcm, sqrt
from random import Random
from typing import Literal, NamedTuple, TypeVar

from pytest_intercode.statistics.corrections import holm
from pytest_intercode.statistics.rates import Interval, quantile_of_normal

__all__ = [
    *("Kind", "Verdict", "describe_kind", "fisher_exact", "mcnemar_exact", "paired_test"),
    *("paired_tests", "sign_flip"),
]

Kind = Literal["regressed", "improved", "no difference", "too few samples"]
Key = TypeVar("Key")

_POWER = 0.8  # the share of runs in which a drop should be found
_MAX_ADDITIONS = 1_000_000  # for an exact distribution
_DRAWS = 20_000  # draws of signs, if counting all of them is more work
_SEED = 0  # always the same draws
# Files have the kinds. To readers, "no difference" would also deny a gain that may be by chance.
_WORDS: Mapping[Kind, str] = {"no difference": "no significant difference"}
_SYMMETRIC_WORDS: Mapping[Kind, str] = {**_WORDS, "improved": "better", "regressed": "worse"}


@dataclass(frozen=True)
class Verdict:
    """The result of comparing two runs.

    Attributes:
        kind: ``regressed`` or ``improved`` if the test is significant; otherwise ``no difference``
            if the interval excludes the drop ``smallest``, and ``too few samples`` if it does not.
        p: the test's p-value, two-sided, without a correction.
        difference: the newer success rate minus the older, the mean over common tasks.
        interval: its confidence interval.
        tasks: how many tasks both runs have.
        lost: on how many of them the newer run succeeds less often.
        won: on how many of them it succeeds more often.
        needed: with too few samples, how many tasks would be enough; otherwise None.
        method: the test, in words.
        level: the p-value up to which a difference is significant.
        smallest: the smallest drop that matters, as a share.
        corrected: the p-value with Holm's correction, which decides; None for a single comparison.
        comparisons: the number of comparisons of which it is one.
        symmetric: whether neither side is the older one, so that ``no difference`` also excludes a
            gain of ``smallest``.
    """

    kind: Kind
    p: float
    difference: float
    interval: Interval
    tasks: int
    lost: int
    won: int
    needed: int | None
    method: str
    level: float = 0.05
    smallest: float = 0.10
    corrected: float | None = None
    comparisons: int = 1
    symmetric: bool = False

    @property
    def word(self) -> str:
        """The kind for people; ``better`` or ``worse`` if neither side is the older one."""
        return describe_kind(self.kind, symmetric=self.symmetric)

    @property
    def sentence(self) -> str:
        """The verdict for people, in one line."""
        if self.tasks == 0:
            sides = "both" if self.symmetric else "both runs"
            return f"too few samples: no task has a graded try in {sides}"
        low, high = self.interval
        tasks = "1 common task" if self.tasks == 1 else f"{self.tasks} common tasks"
        numbers = (
            f"{_points(self.difference)} points ({100 * (1 - self.level):.4g}% interval "
            f"{_points(low)} to {_points(high)}) over {tasks}, {self.lost} worse and "
            f"{self.won} better, p {_p(self.p)}{self._correction}, {self.method}"
        )
        noun = "difference" if self.symmetric else "drop"
        drop = f"a {noun} of {100 * self.smallest:.4g} points"
        if self.kind == "no difference":
            return f"{self.word}: {drop} is excluded; {numbers}"
        if self.kind == "too few samples":
            return (
                f"{self.word}: {drop} is not excluded; about {self.needed} tasks are needed; "
                f"{numbers}"
            )
        return f"{self.word}: {numbers}"

    @property
    def _correction(self) -> str:
        if self.corrected is None:
            return ""
        return f" ({_p(self.corrected)} by Holm's correction)"


def describe_kind(kind: Kind, *, symmetric: bool = False) -> str:
    """Return the kind of a verdict for people.

    Args:
        kind: the kind.
        symmetric: whether neither side is the older one.
    """
    return (_SYMMETRIC_WORDS if symmetric else _WORDS).get(kind, kind)


def fisher_exact(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test (Fisher 1935).

    If nothing changed, the successes of both runs are spread evenly over all tries. The p-value is
    the probability of a spread that is at most as likely as the observed one.

    Args:
        before: successes and tries of the older run.
        after: successes and tries of the newer run.

    Raises:
        ValueError: a count is negative, or there are more successes than tries.
    """
    for solved, tries in (before, after):
        if not 0 <= solved <= tries:
            raise ValueError(f"{solved} of {tries} tries is not possible")
    solved = before[0] + after[0]
    ways = [
        comb(before[1], of_before) * comb(after[1], solved - of_before)
        for of_before in range(max(0, solved - after[1]), min(before[1], solved) + 1)
    ]
    # Whole numbers, so that rounding does not miss a spread that is equally likely.
    observed = comb(before[1], before[0]) * comb(after[1], after[0])
    return sum(count for count in ways if count <= observed) / sum(ways)


def mcnemar_exact(lost: int, won: int) -> float:
    """Return the exact two-sided p-value of McNemar's test (McNemar 1947).

    If nothing changed, as many of the tasks with a changed outcome are lost as won in the long run,
    so their number is binomial with a probability of one half.

    Args:
        lost: tasks that only the older run solved.
        won: tasks that only the newer run solved.

    Raises:
        ValueError: a count is negative.
    """
    if lost < 0 or won < 0:
        raise ValueError(f"{lost} lost and {won} won tasks are not possible")
    changed = lost + won
    tail, term = 0, 1
    for count in range(min(lost, won) + 1):
        tail += term
        # The next binomial coefficient, so that the division leaves no remainder.
        term = term * (changed - count) // (count + 1)
    return min(1.0, float(2 * tail / 2**changed))


def sign_flip(differences: Sequence[Fraction]) -> tuple[float, bool]:
    """Return the two-sided p-value of the paired permutation test, and whether it is exact.

    If nothing changed, each difference could equally have had the other sign (Fisher 1935). The
    p-value is the share of all choices of signs whose sum is at least as far from 0 as the observed
    sum. All choices are counted if that is little work; otherwise 20,000 are drawn, always the
    same, and the observed one is counted with them (Davison and Hinkley 1997), so that the p-value
    is never 0.

    Args:
        differences: for each task, the newer share of solved tries minus the older.
    """
    # As whole multiples of one unit, so that equal sums compare as equal.
    unit = lcm(*(difference.denominator for difference in differences)) if differences else 1
    sizes = sorted(abs(int(difference * unit)) for difference in differences if difference)
    observed = abs(int(sum(differences) * unit))
    if len(sizes) * sum(sizes) <= _MAX_ADDITIONS:
        return _exact_share(sizes, observed), True
    return _sampled_share(sizes, observed), False


def _exact_share(sizes: Sequence[int], observed: int) -> float:
    """Return the share of choices of signs that reach a sum, by counting all choices."""
    # A sum of signed sizes is the sum of all sizes minus twice the sum of the negative ones.
    ways, reach = [1], 0
    for size in sizes:
        ways = [
            (ways[index] if index <= reach else 0) + (ways[index - size] if index >= size else 0)
            for index in range(reach + size + 1)
        ]
        reach += size
    far = sum(ways[: (reach - observed) // 2 + 1])  # and as many on the other side
    return min(1.0, float(2 * far / 2 ** len(sizes)))


def _sampled_share(sizes: Sequence[int], observed: int) -> float:
    """Return an estimate of the same share from random signs, one bit for each."""
    random = Random(_SEED)
    counts = Counter(sizes)
    far = 1
    for _ in range(_DRAWS):
        # For equal sizes, only the number of positive signs matters.
        total = sum(
            size * (2 * random.getrandbits(count).bit_count() - count)
            for size, count in counts.items()
        )
        far += abs(total) >= observed
    return far / (_DRAWS + 1)


def paired_test(
    before: Mapping[Key, Sequence[bool]],
    after: Mapping[Key, Sequence[bool]],
    *,
    level: float = 0.05,
    smallest: float = 0.10,
) -> Verdict:
    """Compare two runs, task by task.

    Args:
        before: whether each try was solved in the older run, by task.
        after: the same for the newer run. Tasks that one of them lacks are left out.
        level: the p-value up to which a difference is significant, two-sided.
        smallest: the drop of the success rate that matters, as a share.

    Raises:
        ValueError: the level or the drop is not between 0 and 1.
    """
    return paired_tests([(before, after)], level=level, smallest=smallest)[0]


def paired_tests(
    pairs: Sequence[tuple[Mapping[Key, Sequence[bool]], Mapping[Key, Sequence[bool]]]],
    *,
    level: float = 0.05,
    smallest: float = 0.10,
    symmetric: bool = False,
) -> list[Verdict]:
    """Make several comparisons, each task by task, with Holm's correction for their number.

    A pair without a common task is not compared, and does not count.

    Args:
        pairs: the two sides of each comparison, as for :func:`paired_test`.
        level: the p-value, with the correction, up to which a difference is significant.
        smallest: the difference of the success rate that matters, as a share.
        symmetric: whether neither side is the older one; see :class:`Verdict`.

    Raises:
        ValueError: the level or the difference is not between 0 and 1.
    """
    for name, value in (("level", level), ("smallest", smallest)):
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value}, but must be between 0 and 1")
    measured = [_measure(*pair) for pair in pairs]
    compared = [pair for pair in measured if pair.changes]
    if len(compared) < 2:
        return [_decide(pair, None, 1, level, smallest, symmetric) for pair in measured]
    corrected = iter(holm([pair.p for pair in compared]))
    return [
        _decide(
            pair,
            next(corrected) if pair.changes else None,
            len(compared),
            level,
            smallest,
            symmetric,
        )
        for pair in measured
    ]


class _Measured(NamedTuple):
    """The common tasks of two sides: the change of each task, and the test over all."""

    changes: list[Fraction]
    p: float
    method: str


def _measure(
    before: Mapping[Key, Sequence[bool]], after: Mapping[Key, Sequence[bool]]
) -> _Measured:
    common = [key for key, tries in before.items() if tries and after.get(key)]
    changes = [_share(after[key]) - _share(before[key]) for key in common]
    if all(len(before[key]) == 1 == len(after[key]) for key in common):
        losses, wins = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
        return _Measured(changes, mcnemar_exact(losses, wins), "McNemar's exact test")
    p, exact = sign_flip(changes)
    method = "paired permutation test" + ("" if exact else f" ({_DRAWS:,} draws)")
    return _Measured(changes, p, method)


def _decide(
    measured: _Measured,
    corrected: float | None,
    comparisons: int,
    level: float,
    smallest: float,
    symmetric: bool,
) -> Verdict:
    changes, p, method = measured
    tasks = len(changes)
    difference = float(sum(changes) / tasks) if tasks else 0.0
    interval, spread = _interval([float(change) for change in changes], level)
    excludes_drop = interval.low > -smallest and (interval.high < smallest or not symmetric)
    kind: Kind
    tasks_needed = None
    if (p if corrected is None else corrected) <= level and difference != 0:
        kind = "regressed" if difference < 0 else "improved"
    elif tasks and excludes_drop:
        kind = "no difference"
    else:
        kind = "too few samples"
        # With several comparisons, the smallest p-value has to reach only a part of the level.
        tasks_needed = _tasks_needed(
            tasks,
            -abs(difference) if symmetric else difference,
            spread,
            level / comparisons,
            smallest,
        )
    return Verdict(
        kind,
        p,
        difference,
        interval,
        tasks,
        lost=sum(change < 0 for change in changes),
        won=sum(change > 0 for change in changes),
        needed=tasks_needed,
        method=method,
        level=level,
        smallest=smallest,
        corrected=corrected,
        comparisons=comparisons,
        symmetric=symmetric,
    )


def _share(tries: Sequence[bool]) -> Fraction:
    return Fraction(sum(map(bool, tries)), len(tries))


def _interval(changes: Sequence[float], level: float) -> tuple[Interval, float]:
    """Return the interval of the mean change, and the standard deviation of a task's change.

    Two tasks are added, one lost and one won, and the normal distribution is used. With one try per
    task, this is exactly Bonett and Price's (2012) interval of a paired difference. A few tasks
    without any change do not show that nothing changed, so the interval still has a width.
    """
    tasks = len(changes) + 2
    mean = fsum(changes) / tasks
    spread = sqrt((fsum(change**2 for change in changes) + 2) / tasks - mean**2)
    half = quantile_of_normal(1 - level) * spread / sqrt(tasks)
    return Interval(max(-1.0, mean - half), min(1.0, mean + half)), spread


def _tasks_needed(
    tasks: int, difference: float, spread: float, level: float, smallest: float
) -> int:
    """Return how many tasks would be enough, if changes keep their standard deviation.

    With so many, a drop of ``smallest`` is found in 80 % of runs, and the observed difference, if
    it stays the same, is either significant or excludes such a drop.
    """
    z = quantile_of_normal(1 - level)
    # A two-sided level of 2p - 1 has its upper end at the quantile p.
    power = ((z + quantile_of_normal(2 * _POWER - 1)) * spread / smallest) ** 2
    # Half the interval has to be less than the distance of the difference from 0, or from the drop.
    clear = (z * spread / max(abs(difference), smallest + difference)) ** 2
    return max(ceil(power), ceil(clear), tasks + 1)


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"
