"""A thousand episodes in one run: memory and descriptors of the pytest process stay flat.

They run on bubblewrap, which takes half a minute, eight at a time, with an agent that does not
think. pytest keeps every item and its reports, so memory grows with every test: as many empty tests
show by how much. Other installed plugins are disabled, as they take time and memory, too.
"""

from __future__ import annotations

import statistics

from benchmarks.collection import empty_tests
from benchmarks.machine import backends
from benchmarks.measuring import Scale
from benchmarks.plot import Line, Panel
from benchmarks.runs import Run, temporary_folder, thinking
from benchmarks.table import Bound, Part, Row, duration

CONCURRENCY = 8


def measure(scale: Scale) -> Part:
    """Run the episodes, and compare the last fifth of the run with the second fifth."""
    episodes = scale.pick(1000, 50)
    backend = backends()[-1]
    with temporary_folder() as folder:
        empty_tests(folder.path, episodes)
        empty = folder.pytest("test_empty.py")
        run = thinking(folder, backend, episodes=episodes, concurrency=CONCURRENCY, ms=0)
    processor = run.processor / episodes
    rows = [
        Row(
            "processor's time of pytest's process, for each episode",
            duration(processor),
            f"an empty test: {duration(empty.processor / episodes)}",
            bound=Bound("at most", 8e-3, "8 ms"),
            value=processor,
        ),
        *leak_rows(run, episodes, "episode", f"an empty test: {growth(empty) / 1e3:+.1f} KB"),
    ]
    first, last = run.samples[0][1], run.samples[-1][1]
    notes = [
        f"They took {duration(run.loop)}; the process grew from {first / 1e6:.0f} to "
        f"{last / 1e6:.0f} MB."
    ]
    panel = Panel(
        f"{episodes} episodes in one run",
        "episodes done",
        "MB of memory; open descriptors",
        [
            Line(
                "memory (MB)", tuple((seconds, memory / 1e6) for seconds, memory, _ in run.samples)
            ),
            Line(
                "open descriptors",
                tuple((seconds, open_) for seconds, _, open_ in run.samples),
                1,
                True,
            ),
        ],
    )
    title = f"{episodes} episodes in one run, {CONCURRENCY} at a time on {backend}"
    return Part(title, rows, [panel], notes)


def leak_rows(run: Run, items: int, word: str, reference: str = "") -> list[Row]:
    """Return rows on what a run's process keeps of each item: memory and open descriptors.

    Args:
        run: the run.
        items: how many items there were.
        word: the noun for an item.
        reference: what the memory is compared with.
    """
    grown, fifth = growth(run), items // 5
    early, late = (
        statistics.median(open_ for number, _, open_ in run.samples if low < number <= low + fifth)
        for low in (fifth, items - fifth)
    )
    return [
        Row(
            f"memory, for each {word} that is done",
            f"{grown / 1e3:+.1f} KB",
            reference,
            bound=Bound("at most", 8e3, "8 KB"),
            value=grown,
        ),
        Row(
            f"open descriptors in the last {fifth} (median)",
            f"{late:g}",
            f"{word}s {fifth} to {2 * fifth}: {early:g}",
            late / early,
            Bound("at most", 1.1),
        ),
    ]


def growth(run: Run) -> float:
    """Return the bytes that an item adds to the process, after the first fifth of a run."""
    settled = run.samples[len(run.samples) // 5 :]
    return statistics.linear_regression(
        [seconds for seconds, _, _ in settled], [memory for _, memory, _ in settled]
    ).slope
