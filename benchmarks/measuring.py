"""Timing by the median, and one way of printing what was measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median(work: Callable[[], object], times: int, warm_up: int = 3) -> float:
    """Return the median time of one call, after a few that are not counted."""
    for _ in range(warm_up):
        work()
    return statistics.median(seconds(work) for _ in range(times))


def show(name: str, value: float, reference: float | None = None) -> None:
    """Print a time in milliseconds, and its ratio to a reference."""
    ratio = "" if reference is None else f"   ratio {value / reference:.3f}"
    print(f"{name:58} {value * 1000:10.2f} ms{ratio}")
