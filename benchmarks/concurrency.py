"""Concurrent episodes: how the cost of a run grows with their number, and what each one takes.

These are real pytest runs of a suite that asks for numbers, with an agent that thinks 0, 50 or 1000
ms before each of its five turns. The ideal is thinking alone: the number of rounds of episodes,
times turns, times thought. Without thought there is no ideal, and a run is compared with the same
run at concurrency 1. The run loop counts; the whole process is shown next to it.

Memory is the peak resident memory of the pytest process, without its children, in two runs of the
same 64 episodes: 32 at a time, and one at a time. Their difference is divided by 31.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.bare import bare_containers
from benchmarks.machine import backends
from benchmarks.measuring import Scale
from benchmarks.plot import Line, Panel
from benchmarks.runs import TURNS, Run, temporary_folder, thinking, warm_up
from benchmarks.table import Bound, Part, Row, against, duration

BOUNDS = {"docker": Bound("at most", 1.25), "bubblewrap": Bound("at most", 1.1)}
ENGINE = Bound("at most", 1.1)
MEMORY = Bound("at most", 3e6, "3 MB")
# Episodes of a run by the agent's milliseconds and the concurrency: enough of them, but no run
# takes more than a quarter of a minute.
FULL = {
    0: {1: 64, 2: 64, 8: 64, 32: 64},
    50: {1: 16, 2: 32, 8: 64, 32: 64},
    1000: {1: 2, 2: 4, 8: 16, 32: 64},
}
QUICK = {0: {1: 2}, 50: {2: 2}}
JUDGED = 1000, 32  # the cell with a bound, which is measured three times


@dataclass(frozen=True)
class Cell:
    """The runs of one backend, agent and concurrency."""

    backend: str
    ms: int
    concurrency: int
    episodes: int
    runs: tuple[Run, ...]

    @property
    def loop(self) -> float:
        """Seconds of the run loop."""
        return statistics.median(run.loop for run in self.runs)

    @property
    def whole(self) -> float:
        """Seconds of the whole process."""
        return statistics.median(run.whole for run in self.runs)

    @property
    def peak(self) -> float:
        """Peak memory of the process, in bytes."""
        return statistics.median(run.peak for run in self.runs)

    @property
    def ideal(self) -> float:
        """Seconds of thinking alone."""
        return math.ceil(self.episodes / self.concurrency) * TURNS * self.ms / 1000


Cells = Mapping[tuple[str, int, int], Cell]


def measure(scale: Scale) -> Part:
    """Measure every cell, backends in turn."""
    plan = scale.pick(FULL, QUICK)
    bare: list[float] = []
    runs: dict[tuple[str, int, int], list[Run]] = {}
    with temporary_folder() as folder:
        for backend in scale.pick(backends(), []):
            warm_up(folder, backend)
        for round_ in range(scale.pick(3, 1)):
            for ms, row in plan.items():
                for concurrency, episodes in row.items():
                    if round_ and (ms, concurrency) != JUDGED:
                        continue
                    for backend in backends():
                        run = thinking(
                            folder, backend, episodes=episodes, concurrency=concurrency, ms=ms
                        )
                        scale.say(
                            f"{backend}, {ms} ms, concurrency {concurrency}: "
                            f"{episodes} episodes in {duration(run.loop)}"
                        )
                        runs.setdefault((backend, ms, concurrency), []).append(run)
                        if (backend, ms, concurrency) == ("docker", *JUDGED):
                            bare.append(engine_alone(episodes))
    cells = {
        key: Cell(*key, episodes=plan[key[1]][key[2]], runs=tuple(durations))
        for key, durations in runs.items()
    }
    rows = [_row(cells, cell) for cell in sorted(cells.values(), key=_order)]
    if bare:
        ms, concurrency = JUDGED
        product, reference = cells["docker", ms, concurrency].loop, statistics.median(bare)
        title = f"docker, {ms} ms a turn, concurrency {concurrency}"
        rows.append(against(title, product, "bare containers in the same order", reference, ENGINE))
    slow = max(plan)
    highest, least = max(plan[slow]), min(plan[0])
    rows += [
        _memory(cells[backend, slow, highest], cells[backend, 0, least]) for backend in backends()
    ]
    notes = [
        "The ideal is thinking alone: rounds of episodes x turns x thought. Whole: the process, "
        "with pytest's start and end. Runs with a bound are made three times, the others once.",
        "Bare containers are two for each episode, in the order of ours; they do nothing.",
    ]
    return Part("episodes side by side", rows, _panels(cells), notes)


def engine_alone(episodes: int) -> float:
    """Return the seconds of the judged episodes with bare containers and no actions."""
    ms, concurrency = JUDGED
    with bare_containers() as bare:
        return bare.schedule(episodes, concurrency=concurrency, thinking=TURNS * ms / 1000)


def _order(cell: Cell) -> tuple[int, int, int]:
    return backends().index(cell.backend), cell.ms, cell.concurrency


def _row(cells: Cells, cell: Cell) -> Row:
    per_second = f"{cell.episodes / cell.loop:.3g}/s"
    measured = (
        f"{cell.episodes} in {duration(cell.loop)}, {per_second} (whole: {duration(cell.whole)})"
    )
    title = f"{cell.backend}, {cell.ms} ms a turn, concurrency {cell.concurrency}"
    if cell.ms:
        bound = BOUNDS[cell.backend] if (cell.ms, cell.concurrency) == JUDGED else None
        ideal = f"ideal: {duration(cell.ideal)}"
        return Row(title, measured, ideal, cell.loop / cell.ideal, bound)
    one = cells[cell.backend, 0, 1]
    if cell is one:
        return Row(title, measured)
    ratio = cell.loop / cell.episodes / (one.loop / one.episodes)
    return Row(title, measured, f"at concurrency 1: {duration(one.loop)}", ratio)


def _memory(many: Cell, one: Cell) -> Row:
    bytes_each = (many.peak - one.peak) / (many.concurrency - one.concurrency)
    return Row(
        f"memory of an episode more at the same time, {many.backend}",
        f"{bytes_each / 1e6:.2f} MB",
        f"the process: {one.peak / 1e6:.0f} MB with {one.concurrency}, "
        f"{many.peak / 1e6:.0f} MB with {many.concurrency} at a time",
        bound=MEMORY,
        value=bytes_each,
    )


def _panels(cells: Cells) -> list[Panel]:
    thought_panel = Panel(
        "Run loop over ideal (1 is thinking alone)",
        "episodes at a time",
        "run time / thinking alone",
        x_log=True,
        y_log=True,
    )
    speed = Panel("Speed", "episodes at a time", "episodes per second", x_log=True, y_log=True)
    engine_panel = Panel(
        "What an episode adds to the thinking",
        "episodes at a time",
        "milliseconds per episode",
        x_log=True,
        y_log=True,
    )
    agents = sorted({cell.ms for cell in cells.values()})
    for colour, ms in enumerate(agents):
        for backend in backends():
            levels = sorted(
                (c for c in cells.values() if (c.backend, c.ms) == (backend, ms)),
                key=lambda cell: cell.concurrency,
            )
            name, dashed = f"{backend}, {ms} ms agent", backend == "bubblewrap"
            if ms:
                points = tuple((c.concurrency, c.loop / c.ideal) for c in levels)
                thought_panel.lines.append(Line(name, points, colour, dashed))
            points = tuple(
                (c.concurrency, max(0.1, (c.loop - c.ideal) * 1000 / c.episodes)) for c in levels
            )
            engine_panel.lines.append(Line(name, points, colour, dashed))
            points = tuple((c.concurrency, c.episodes / c.loop) for c in levels)
            speed.lines.append(Line(name, points, colour, dashed))
    return [thought_panel, engine_panel, speed]
