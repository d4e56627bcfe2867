"""How often the comparison of two runs errs: simulated runs, judged in the same way as real ones.

Nothing is timed and no sandbox is needed; the numbers are the same on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import sqrt
from random import Random
from typing import TypeAlias, get_args

from benchmarks.measuring import Scale
from benchmarks.table import Bound, Part, Row
from pytest_intercode.statistics.paired import Kind, paired_test

__all__ = ["DROP", "DROPS", "LEVEL", "MIXES", "POWER", "judged", "measure"]

LEVEL = 0.05
POWER = 0.8
_TASKS = 200
DROP = 0.10

Chances: TypeAlias = "Callable[[Random], float]"

# How likely an agent solves a task: distributions over tasks, from hard to easy.
MIXES: dict[str, Chances] = {
    "most solved always or never": lambda random: random.betavariate(0.3, 0.3),
    "from easy to hard alike": lambda random: random.random(),
    "mostly solved": lambda random: random.betavariate(4, 1),
    "mostly not solved": lambda random: random.betavariate(1, 3),
    "all alike": lambda random: 0.5,
}


def _everywhere(chance: float, drop: float, _random: Random) -> float:
    return chance - drop


def _some_broke(chance: float, drop: float, random: Random) -> float:
    return 0.0 if random.random() * chance < drop else chance


def _in_part(chance: float, drop: float, random: Random) -> float:
    return chance - 0.3 if random.random() < drop / 0.3 else chance


# How a task's chance drops, so that the mean over tasks drops by the given amount.
DROPS: dict[str, Callable[[float, float, Random], float]] = {
    "all tasks a little": _everywhere,
    "a third of them by 30 points": _in_part,
    "some not solved any more": _some_broke,
}


def judged(
    seed: int,
    runs: int,
    *,
    tasks: int = _TASKS,
    repeats: int,
    chance: Chances,
    change: Callable[[float, Random], float] = lambda chance, _: chance,
    before: int = 0,
) -> dict[Kind, float]:
    """Return the share of each verdict over simulated comparisons.

    Args:
        seed: the seed of the random numbers.
        runs: how many comparisons to simulate.
        tasks: how many tasks each comparison has.
        repeats: how many tries a task has.
        chance: draws the probability that the older run solves a task.
        change: returns the newer run's probability for it.
        before: how many tries the older run has, if not ``repeats``.
    """
    random = Random(seed)
    counts = Counter[Kind]()
    for _ in range(runs):
        old, new = {}, {}
        for task in range(tasks):
            old_chance = chance(random)
            new_chance = change(old_chance, random)
            old[task] = [random.random() < old_chance for _ in range(before or repeats)]
            new[task] = [random.random() < new_chance for _ in range(repeats)]
        counts[paired_test(old, new, level=LEVEL, smallest=DROP).kind] += 1
    return {kind: counts[kind] / runs for kind in get_args(Kind)}


def measure(scale: Scale) -> Part:
    """Simulate runs without a change, and runs with a drop of 10 points."""
    runs = scale.pick(1000, 20)
    part = Part(f"comparing two runs of {_TASKS} tasks, {runs:,} times")
    for repeats, runs_before in ((1, 0), (3, 0), (3, 1)):
        tries = _tries(repeats, runs_before)
        scale.say(f"nothing changed, {tries}")
        for seed, (name, chance) in enumerate(MIXES.items()):
            judgement = judged(seed, runs, repeats=repeats, before=runs_before, chance=chance)
            part.rows.append(_false_alarms(f"false alarms, {tries}, {name}", judgement, runs))
    for repeats in (1, 3):
        scale.say(f"10 points less, {_tries(repeats)}")
        for seed, (name, drop) in enumerate(DROPS.items()):
            judgement = judged(
                seed,
                runs,
                repeats=repeats,
                chance=_middling,
                change=lambda chance, random, drop=drop: drop(chance, DROP, random),  # type: ignore[misc]
            )
            part.rows += _found(f"{_tries(repeats)}, {name}", judgement, repeats, runs)
    part.notes = [
        f"False alarms: regressions and improvements together, at a level of {LEVEL:g}. Bounds "
        f"that are at most allow three standard errors of {runs:,} simulations.",
        "A drop is one of the mean over all tasks, where the older run solves from 30 % to 100 % "
        "of a task's tries. With one try a task 80 % are not promised.",
    ]
    return part


def _middling(random: Random) -> float:
    return 0.3 + 0.7 * random.random()


def _tries(repeats: int, before: int = 0) -> str:
    text = "1 try" if repeats == 1 else f"{repeats} tries"
    return f"{before} before and {text} after" if before else text


def _false_alarms(what: str, found: Mapping[Kind, float], runs: int) -> Row:
    share = found["regressed"] + found["improved"]
    worse = f"worse {found['regressed']:.1%}"
    return Row(what, f"{share:.1%}", worse, None, _at_most(LEVEL, runs), share)


def _found(what: str, found: Mapping[Kind, float], repeats: int, runs: int) -> list[Row]:
    bound = Bound("at least", POWER, f"{POWER:.0%}") if repeats > 1 else None
    worse, missed = found["regressed"], found["no difference"]
    return [
        Row(f"10 points found, {what}", f"{worse:.1%}", "", None, bound, worse),
        # The interval is two-sided, and a drop is excluded at one of its ends.
        Row(
            "... said to be no difference",
            f"{missed:.1%}",
            "",
            None,
            _at_most(LEVEL / 2, runs),
            missed,
        ),
    ]


def _at_most(share: float, runs: int) -> Bound:
    margin = 3 * sqrt(share * (1 - share) / runs)
    return Bound("at most", share + margin, f"{share:.1%} + {margin:.1%}")
