"""The cost of the plugin for a pytest run that does not use it."""

from __future__ import annotations

import statistics

from benchmarks.collection import empty_tests, pytest_process
from benchmarks.measuring import Scale
from benchmarks.runs import temporary_folder
from benchmarks.table import Bound, Part, Row, duration


def measure(scale: Scale) -> Part:
    """Measure runs of one empty test in pairs, with the plugin and without it."""
    pairs: list[tuple[float, float]] = []
    with temporary_folder() as folder:
        empty_tests(folder.path, 1)
        for _ in range(scale.pick(15, 2)):
            without = pytest_process(folder.path, "-p", "no:intercode")
            pairs.append((pytest_process(folder.path), without))
    product, plain = (statistics.median(times) for times in zip(*pairs, strict=True))
    difference = statistics.median(with_ - without for with_, without in pairs)
    row = Row(
        "a pytest run that does not use the plugin",
        f"{duration(product)} ({difference * 1000:+.1f} ms, pair by pair)",
        f"the same without the plugin: {duration(plain)}",
        product / plain,
        Bound("at most", 0.015, "15 ms more"),
        value=difference,
    )
    return Part("start-up", [row])
