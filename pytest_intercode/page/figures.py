"""What the charts of the page are drawn from, worked out from a run's tries; pure functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pytest_intercode.results.reading import actions_of
from pytest_intercode.results.tries import Try

__all__ = ["Bin", "Failing", "failing_actions", "rewards", "solved_by_turn", "turns", "turns_of"]

_MOST_TURNS = 30
_MOST_WORDS = 10
_LONGEST_WORD = 24


class Bin(NamedTuple):
    """One bar of a distribution: what it is called, and how many tries are in it."""

    name: str
    tries: int


class Failing(NamedTuple):
    """A first word of actions.

    Attributes:
        word: the word.
        failed: actions that begin with it and did not execute.
        used: all actions that begin with it.
        share: of all actions that did not execute, those.
    """

    word: str
    failed: int
    used: int
    share: float


def solved_by_turn(tries: Iterable[Try]) -> list[float]:
    """Return the share of tries whose reward had reached 1 by each turn, the first turn first.

    It is a figure of InterCode's paper. Where rewards were not given as feedback,
    the state is graded once, so that the turn of the submission counts. Spoiled tries do not.
    """
    graded = [each for each in tries if each.graded]
    at = Counter(_solved_at(each) for each in graded if each.solved)
    longest = max((turns_of(each) for each in graded), default=0)
    shares = []
    solved = at[0]
    for turn in range(1, min(max(longest, 1), _MOST_TURNS) + 1):
        solved += at[turn]
        shares.append(solved / len(graded) if graded else 0.0)
    return shares


def _solved_at(each: Try) -> int:
    rewards = each.row["turn_history"].get("rewards") or []
    first = (turn for turn, reward in enumerate(rewards, 1) if reward is not None and reward >= 1)
    return next(first, turns_of(each))


def turns_of(each: Try) -> int:
    """Return how many turns a try took."""
    return len(each.row["turn_history"]["actions"])


def rewards(tries: Iterable[Try]) -> list[Bin]:
    """Return how many tries earned how much; 0 and 1 stand alone. Spoiled tries do not count."""
    counts: Counter[str] = Counter()
    names = ["0", *(f"{tenth / 10:.1f}" for tenth in range(10)), "1"]
    names[1] = ">0"
    for each in tries:
        if not each.graded or not math.isfinite(each.reward):
            continue
        if each.reward < 0:  # InterCode's reward for sql goes down to -1
            counts["<0"] += 1
        elif each.reward in (0, 1) or each.reward > 1:
            counts["0" if each.reward == 0 else "1"] += 1
        else:
            counts[names[1 + int(each.reward * 10)]] += 1
    return [Bin(name, counts[name]) for name in (["<0"] if counts["<0"] else []) + names]


def turns(tries: Iterable[Try]) -> list[Bin]:
    """Return how many tries took how many turns. Spoiled tries do not count."""
    counts = Counter(min(turns_of(each), _MOST_TURNS) for each in tries if each.graded)
    last = max(counts, default=0)
    return [
        Bin(f"{number}+" if number == _MOST_TURNS else f"{number}", counts[number])
        for number in range(min(1, min(counts, default=1)), last + 1)
    ]


def failing_actions(tries: Iterable[Try]) -> list[Failing]:
    """Return the most frequent first words of actions that did not execute, the worst first."""
    used: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for each in tries:
        history = each.row["turn_history"]
        executed: Sequence[Any] = history.get("valid_action") or []
        passed: Sequence[Any] = each.row.get("turn_passed") or []
        for at, action in enumerate(actions_of(each.row)):
            if at < len(passed) and passed[at]:
                continue
            word = _first_word(action)
            used[word] += 1
            if at < len(executed) and executed[at] is False:
                failed[word] += 1
    total = sum(failed.values())
    worst = sorted(failed, key=lambda word: (-failed[word], word))[:_MOST_WORDS]
    return [Failing(word, failed[word], used[word], failed[word] / total) for word in worst]


def _first_word(action: str) -> str:
    words = action.split(None, 1)
    if not words:
        return "(nothing)"
    return words[0] if len(words[0]) <= _LONGEST_WORD else words[0][: _LONGEST_WORD - 1] + "…"
