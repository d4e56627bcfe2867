"""What the plugin costs a pytest run that does not use it."""

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
    ours, plain = (statistics.median(times) for times in zip(*pairs, strict=True))
    more = statistics.median(with_ - without for with_, without in pairs)
    row = Row(
        "a pytest run that does not use the plugin",
        f"{duration(ours)} ({more * 1000:+.1f} ms, pair by pair)",
        f"the same without the plugin: {duration(plain)}",
        ours / plain,
        Bound("at most", 0.015, "15 ms more"),
        value=more,
    )
    return Part("start-up", [row])
