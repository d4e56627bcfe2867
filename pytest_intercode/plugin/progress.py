"""How far a run is: a line that a terminal shows while pytest waits, else a line now and then.

It counts episodes as they end, which with ``--intercode-concurrency`` is before they are reported.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import one_line
from pytest_intercode.core.tokens import describe_missing
from pytest_intercode.plugin.episode_items import has_episodes
from pytest_intercode.plugin.output import LiveLine, uncaptured
from pytest_intercode.plugin.settings import Settings

__all__ = ["Progress"]

_REFRESH_INTERVAL = 0.2  # seconds between two looks at what runs
_LINE_INTERVAL = 60.0  # seconds between two lines where none can be replaced


class Progress:
    """Counts a run's episodes, and shows how far it is; a pytest plugin where reports arrive.

    Args:
        config: pytest's.

    Attributes:
        running: returns how many episodes run now; None where they run one at a time.
        concurrent: several episodes run at a time, so that only the main thread may print.
        lines: further lines, which wait for it; see :meth:`show_lines`.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.concurrent = False
        self.lines: deque[str] = deque()
        self.running: Callable[[], int] | None = None
        self._config = config
        self._live = LiveLine()
        self._waits = threading.Event()  # nothing but us writes to the terminal
        self._paused = False
        self._thread: threading.Thread | None = None
        self._began = self._last_line = time.monotonic()
        self._total = self._reused = self._solved = self._tokens = 0
        self._cost: float | None = None
        self._lacks_tokens = False  # an episode did, and that was said
        self._items: set[str] = set()  # that may have an episode
        self._done: set[str] = set()

    # -- what is counted

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which items have an episode."""
        self._expect([item.nodeid for item in session.items if has_episodes(item)])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the items of xdist's workers; which of them have an episode is seen at their end."""
        if not self._items:
            self._expect(ids)

    def _expect(self, ids: Sequence[str]) -> None:
        self._items = set(ids)
        self._total = len(self._items)

    def note(self, record: EpisodeRecord, *, reused: bool = False) -> None:
        """Count an episode that is over; any thread may do so, and twice for one item.

        Args:
            record: the episode, with the node id of its item.
            reused: it is taken from an earlier part of the run.
        """
        if record.node_id in self._done:
            return
        self._done.add(record.node_id)
        self._reused += reused
        self._solved += record.solved
        self._tokens += record.usage.tokens
        if record.usage.cost is not None:
            self._cost = (self._cost or 0.0) + record.usage.cost
        if not (reused or self._lacks_tokens):
            self._check_tokens(record)

    def _check_tokens(self, record: EpisodeRecord) -> None:
        """Say of the first episode that lacks the tokens which were asked for what it lacks."""
        server = Settings.of(self._config).tokens
        missing = describe_missing(record.model_calls) if server and record.graded else ""
        if missing:
            self._lacks_tokens = True
            self.report(f"--intercode-tokens={server}: {record.task.id}: {missing}")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Leave out an item that ended without an episode, and show how far the run is."""
        if nodeid in self._items and nodeid not in self._done:
            self._items.discard(nodeid)
            self._total -= 1
        self.show_now_and_then()

    def __str__(self) -> str:
        """Return how far the run is, in one line."""
        done_count = len(self._done)
        running = self.running() if self.running is not None else 0
        words = [f"{running} running"] if running else []
        words += [f"{done_count} of {max(self._total, done_count)} done", f"{self._solved} solved"]
        fresh, missing = done_count - self._reused, self._total - done_count
        if fresh and missing > 0:
            seconds = (time.monotonic() - self._began) / fresh * missing
            words.append(f"{_duration(seconds)} remaining")
        if self._tokens:
            words.append(f"{_count(self._tokens)} tokens")
        if self._cost is not None:
            words.append(f"cost {self._cost:.4g}")
        return f"intercode: {', '.join(words)}"

    # -- where it is shown

    def report(self, line: str) -> None:
        """Print a line past pytest's capturing, at once or when the main thread next looks."""
        self.lines.append(line)
        if not self.concurrent or threading.current_thread() is threading.main_thread():
            self.show_lines()

    def show_lines(self) -> None:
        """Print the lines that wait."""
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None:
            self.lines.clear()
        with self.hidden(), uncaptured(self._config):
            while self.lines:
                terminal.ensure_newline()
                terminal.write_line(one_line(f"intercode: {self.lines.popleft()}"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Take hold of the terminal, while pytest captures nothing."""
        self._began = self._last_line = time.monotonic()
        self._live.open(self._config)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Show how far the run is for as long as the main thread waits, in this context."""
        if not self._live.usable or self._paused:
            yield
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._refresh, name="intercode-progress", daemon=True
            )
            self._thread.start()
        self._waits.set()
        try:
            yield
        finally:
            self._waits.clear()
            self._live.clear()

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Show nothing for as long as somebody else writes to the terminal, in this context."""
        waits = self._waits.is_set()
        self._waits.clear()
        self._live.clear()
        try:
            yield
        finally:
            if waits:
                self._waits.set()

    def show_now_and_then(self) -> None:
        """Print a line if the last one is old and the terminal shows none; in the main thread."""
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if self._live.usable or reporter is None or self._config.get_verbosity() < -1:
            return
        if time.monotonic() - self._last_line < _LINE_INTERVAL:
            return
        self._last_line = time.monotonic()
        with uncaptured(self._config):
            reporter.ensure_newline()
            if reporter._tw.width_of_current_line:  # of xdist's and of quiet runs it knows nothing
                reporter.write_line("")
            reporter.write_line(one_line(str(self)))

    def _refresh(self) -> None:
        while self._live.usable:
            if self._waits.wait(_REFRESH_INTERVAL):
                self._live.show(str(self), self._waits.is_set)
                time.sleep(_REFRESH_INTERVAL)

    def pause(self) -> None:
        """Show no line that is replaced any more: somebody talks to the user."""
        self._paused = True
        self._waits.clear()
        self._live.clear()

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to the debugger."""
        self.pause()

    def pytest_leave_pdb(self) -> None:
        """Have the terminal back."""
        self._paused = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Take the line away, for good."""
        self._waits.clear()
        self._live.close()


def _count(number: int) -> str:
    """Return a number in a few characters: the line has to fit on a narrow terminal."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1000 if unit == 'k' else size):.3g}{unit}"
    return f"{number:,}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
