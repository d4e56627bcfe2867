"""The cost of observing a run: without questions, and while ``top`` or its page asks.

The runs are on bubblewrap, with agents that think, so that many episodes run at a time. A usual run
is compared with one that opens no socket. A run that ``top`` asks each second, and one whose page
is visible, are compared with a run that nobody asks. The asker is in another process, as for users.
All kinds of runs are measured in turn.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from benchmarks.machine import backends
from benchmarks.measuring import Scale, Unavailable, in_turn
from benchmarks.runs import Folder, Run, temporary_folder, thinking, warm_up
from benchmarks.table import Bound, Part, Row, against, duration
from pytest_intercode.cli.live_server import LiveServer
from pytest_intercode.cli.living_runs import find_runs

CONCURRENCY = 32
_INTERVAL = 1.0  # seconds between questions, as for top and its page


def measure(scale: Scale) -> Part:
    """Measure runs of each kind."""
    if "bubblewrap" not in backends():
        raise Unavailable("bubblewrap cannot run here")
    episodes, ms, rounds = scale.pick((160, 250, 7), (8, 100, 1))
    asker = Asker(scale.pick(_INTERVAL, 0.05))
    kinds: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
        "no socket": contextlib.nullcontext,
        "nobody": contextlib.nullcontext,
        "top": asker.by_top,
        "page": asker.by_page,
    }
    runs: dict[str, list[Run]] = {kind: [] for kind in kinds}
    with _lone_temporary_directory(), temporary_folder() as folder:
        warm_up(folder, "bubblewrap")

        def play(kind: str) -> float:
            options = ("-p", "benchmarks.socketless") if kind == "no socket" else ()
            with kinds[kind]():
                run = _play(folder, episodes, ms, *options)
            runs[kind].append(run)
            return run.loop

        loops = in_turn({kind: partial(play, kind) for kind in kinds}, rounds)
    part = Part(
        f"a run that is looked at: {episodes} episodes, {CONCURRENCY} at a time on bubblewrap, "
        f"which think {ms} ms a turn"
    )
    processor = {
        kind: statistics.median(run.processor for run in kind_runs)
        for kind, kind_runs in runs.items()
    }
    for kind, reference, title, reference_title, limit in (
        ("nobody", "no socket", "nobody asks", "no socket to ask at", 1.02),
        ("top", "nobody", "`top` asks once a second", "nobody asks", 1.05),
        ("page", "nobody", "a page is in sight", "nobody asks", 1.05),
    ):
        part.rows += [
            against(
                f"{title}: the run loop",
                loops[kind],
                reference_title,
                loops[reference],
                Bound("at most", limit),
            ),
            against(
                f"{title}: processor's time of pytest's process",
                processor[kind],
                reference_title,
                processor[reference],
            ),
        ]
    times, counts = asker.times, asker.counts
    part.rows.append(
        Row(
            f"one answer of the run, with {statistics.median(counts):g} episodes under way",
            duration(statistics.median(times)),
            bound=Bound("at most", 0.05, "50 ms"),
            value=statistics.median(times),
        )
    )
    part.notes.append(f"{len(times)} answers, {rounds} runs of each kind.")
    return part


def _play(folder: Folder, episodes: int, ms: int, *options: str) -> Run:
    return thinking(
        folder, "bubblewrap", *options, episodes=episodes, ms=ms, concurrency=CONCURRENCY
    )


class Asker:
    """Asks for the state of runs repeatedly, on a thread.

    Args:
        interval: seconds between two questions.

    Attributes:
        times: seconds that each answer with an episode took.
        counts: how many episodes each of these answers had.
    """

    def __init__(self, interval: float) -> None:
        self.times: list[float] = []
        self.counts: list[int] = []
        self._interval = interval

    @contextlib.contextmanager
    def by_top(self) -> Iterator[None]:
        """Ask as ``top`` does, in this context."""
        with self._again_and_again(self._ask):
            yield

    @contextlib.contextmanager
    def by_page(self) -> Iterator[None]:
        """Ask as a visible page does, in this context."""
        server = LiveServer(None)
        thread = threading.Thread(target=server.serve)
        thread.start()

        def load() -> None:
            with urllib.request.urlopen(f"{server.address}status") as response:
                response.read()

        try:
            with self._again_and_again(load):
                yield
        finally:
            server.stop()
            thread.join()

    def _ask(self) -> None:
        began = time.perf_counter()
        runs = find_runs(None, lambda line: None)
        took = time.perf_counter() - began
        count = sum(len(run.episodes) for run in runs.values())
        if count:
            self.times.append(took)
            self.counts.append(count)

    @contextlib.contextmanager
    def _again_and_again(self, work: Callable[[], None]) -> Iterator[None]:
        end = threading.Event()

        def repeat() -> None:
            while not end.wait(self._interval):
                work()

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


@contextlib.contextmanager
def _lone_temporary_directory() -> Iterator[None]:
    """Use a temporary directory in which no other run is found, in this context."""
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        yield
