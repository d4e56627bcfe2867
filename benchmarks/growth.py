"""How runs scale: episodes per second by concurrency, runs and collections by number of tasks.

Nothing may grow faster than linearly, and a backend should be as fast as its sandboxes alone: the
limit is as many sandboxes, started and ended by a few threads without an episode. Runs of many
tasks have an environment that only pretends to have sandboxes, which would take an hour.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.bare import bare_containers
from benchmarks.collection import empty_tests, task_rows
from benchmarks.machine import backends
from benchmarks.measuring import Scale, seconds
from benchmarks.plot import Line, Panel
from benchmarks.runs import plain_pytest, temporary_folder, thinking, warm_up
from benchmarks.table import Bound, Part, Row, duration
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec

THREADS = 4
SANDBOXES = 2  # of an episode
AT_A_TIME = (1, 2, 4, 8, 16, 32, 64)
LIMIT = Bound("at least", 0.85)
STEADY = Bound("at most", 1.15)
TWICE = Bound("at most", 2)
A_TASK = Bound("at most", 3e3, "3 KB more")


def measure(scale: Scale) -> Part:
    """Measure concurrency on each backend, then runs and collections by their tasks."""
    part = Part("growth")
    _by_concurrency(scale, part)
    _by_tasks(scale, part)
    _collections(scale, part)
    part.notes.append(
        f"The limit: bare sandboxes of a backend, started and ended by {THREADS} threads in the "
        f"same run, {SANDBOXES} for each episode. Runs of many tasks pretend to have sandboxes. "
        "Collections: processor's time of the whole process, and its highest memory less that of "
        "one task."
    )
    return part


def _by_concurrency(scale: Scale, part: Part) -> None:
    episodes, levels = scale.pick(64, 4), scale.pick(AT_A_TIME, (1, 2))
    panel = Panel(
        "Speed without thought, and the limit",
        "episodes at a time",
        "episodes per second",
        [],
        True,
    )
    for colour, backend in enumerate(backends()):
        with temporary_folder() as folder, _bare(backend) as cycles:
            warm_up(folder, backend)
            cycles(THREADS)
            rates, limits = [], []
            for level in levels:
                limits.append(episodes / cycles(SANDBOXES * episodes))
                run = thinking(folder, backend, episodes=episodes, concurrency=level, ms=0)
                rates.append(episodes / (run.loop + run.closing))
                scale.say(f"{backend}, {level} at a time: {rates[-1]:.3g}/s of {limits[-1]:.3g}/s")
        for level, rate, limit in zip(levels, rates, limits, strict=True):
            bound = LIMIT if backend == "docker" and level >= THREADS else None
            title, highest = f"{backend}, {level} at a time, no thought", f"bare: {limit:.3g}/s"
            part.rows.append(Row(title, f"{rate:.3g}/s", highest, rate / limit, bound))
        for name, values, dashed in ((backend, rates, False), (f"{backend}, bare", limits, True)):
            points = tuple(zip(map(float, levels), values, strict=True))
            panel.lines.append(Line(name, points, colour, dashed))
    part.panels.append(panel)


@contextlib.contextmanager
def _bare(backend: str) -> Iterator[Callable[[int], float]]:
    """Yield a function that starts and ends a number of sandboxes, and returns the seconds."""
    if backend == "docker":
        with bare_containers() as bare:
            yield lambda count: bare.cycles(count, threads=THREADS)
        return
    with contextlib.closing(Bubblewrap()) as engine:

        def cycles(count: int) -> float:
            def all_of_them() -> None:
                with ThreadPoolExecutor(THREADS) as pool:
                    for _ in pool.map(
                        lambda _: engine.launch(SandboxSpec(HOST)).close(), range(count)
                    ):
                        pass

            return seconds(all_of_them)

        yield cycles


def _by_tasks(scale: Scale, part: Part) -> None:
    sizes = scale.pick((100, 1000, 5000, 20_000), (10, 20))
    times: list[tuple[float, float]] = []
    with temporary_folder() as folder:
        for size in sizes:
            run = thinking(folder, backends()[-1], "-p", "benchmarks.pretend", episodes=size, ms=0)
            times.append((size, run.processor / size))
            scale.say(f"{size:,} tasks in {duration(run.loop)}")
    usual = times[1][1]
    for tasks, mean in times:
        measured, reference = (
            f"{mean * 1e3:.2f} ms each",
            f"{times[1][0]:,.0f}: {usual * 1e3:.2f} ms",
        )
        bound = STEADY if tasks == sizes[-1] else None
        what = f"processor's time of {tasks:,.0f} tasks in one run, pretended"
        part.rows.append(Row(what, measured, reference, mean / usual, bound))
    line = Line("pytest's process", tuple((size, mean * 1e3) for size, mean in times))
    flat = Line("linear growth", tuple((size, usual * 1e3) for size, _ in times), 1, True)
    title, y_label = "Tasks in one run (pretended)", "milliseconds of processor per task"
    part.panels.append(Panel(title, "tasks", y_label, [line, flat], True))


def _collections(scale: Scale, part: Part) -> None:
    sizes = scale.pick((1000, 10_000, 100_000), (20, 40))
    ratios: list[tuple[float, float]] = []
    with temporary_folder() as folder:
        least = _collected(folder.path, 1)
        for size in sizes:  # whole processes: for a thousand tasks, pytest's start dominates
            most = _collected(folder.path, size)
            (empty, of_empty), (product, of_ours) = (
                (took, (peak - low) / size)
                for (took, peak), (_, low) in zip(most, least, strict=True)
            )
            ratios.append((size, product / empty))
            scale.say(f"collecting {size:,}: {duration(product)}, empty tests {duration(empty)}")
            twice, a_task = (TWICE, A_TASK) if size == sizes[-1] else (None, None)
            reference = f"as many empty tests: {duration(empty)}"
            what = f"collecting {size:,} tasks"
            part.rows.append(Row(what, duration(product), reference, product / empty, twice))
            memory = f"{of_ours / 1e3:.1f} KB a task", f"an empty test: {of_empty / 1e3:.1f} KB"
            part.rows.append(Row("their memory", *memory, bound=a_task, value=of_ours - of_empty))
    line = Line("ours / empty tests", tuple(ratios))
    limit = Line("the bound", tuple((size, TWICE.limit) for size, _ in ratios), 1, True)
    title, y_label = "Collection against pytest's own", "times as long"
    part.panels.append(Panel(title, "tasks", y_label, [line, limit], True))


def _collected(folder: Path, size: int) -> list[tuple[float, int]]:
    """Collect empty tests, and tasks; return the CPU time and the memory of each."""
    empty_tests(folder, size)
    task_rows(folder, size)
    return [_process(folder, name) for name in ("test_empty.py", "suite.yaml")]


def _process(folder: Path, *arguments: str) -> tuple[float, int]:
    """Collect; return the CPU seconds and the peak memory in bytes."""
    command = [*plain_pytest(), "--co", *arguments]
    environment = {**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL
    ) as process:
        _, status, resources = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return resources.ru_utime + resources.ru_stime, resources.ru_maxrss * 1024
