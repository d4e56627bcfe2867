"""Timing: all measures of a part in turn, round by round, and the median of each.

They are taken in turn, so that a machine that slows down affects everything that is compared.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Scale", "Unavailable", "in_turn", "seconds"]

Choice = TypeVar("Choice")


class Unavailable(Exception):
    """Something that a part needs is not on this machine; the message says what."""


@dataclass(frozen=True)
class Scale:
    """How much is measured.

    Attributes:
        quick: whether to measure too little for meaningful numbers, only to check that it works.
    """

    quick: bool = False

    def pick(self, full: Choice, quick: Choice) -> Choice:
        """Return the choice for this scale."""
        return quick if self.quick else full

    def say(self, line: str) -> None:
        """Print a line of progress on standard error."""
        print(f"  {line}", file=sys.stderr, flush=True)


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turn(works: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Take every measure once a round, and return the median of each.

    Args:
        works: measures by name; each returns its measurement.
        rounds: how often each is taken.
    """
    durations: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            durations[name].append(work())
    return {name: statistics.median(values) for name, values in durations.items()}
