"""How far a run is: a line that is updated while pytest waits, or else a new line now and then.

It counts episodes as they end, which with ``--intercode-concurrency`` is before they are reported.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.status import EpisodeStatus, RunStatus
from pytest_intercode.core.tokens import describe_missing
from pytest_intercode.plugin.episode_items import has_episodes
from pytest_intercode.plugin.output import LiveLine, PlainLines
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.plugin.xdist import call_in_loop, is_distributed, is_worker
from pytest_intercode.rollouts.executor import Handle

__all__ = ["Progress"]

_REFRESH_INTERVAL = 0.2  # seconds between two updates of the line


class Progress:
    """Counts a run's episodes, and shows how far it is; a pytest plugin where reports arrive.

    Args:
        config: pytest's.
        interval: seconds between two lines where none can be replaced; 0 for none.

    Attributes:
        done: the node ids of items whose episodes are over.
        handles: returns the rollouts that are running in this process.
        under_way: returns the episodes that are running; by default, those of this process.
        concurrent: whether several episodes run at a time, so that only the main thread may print.
        lines: lines that wait for the main thread; see :meth:`show_lines`.
    """

    def __init__(self, config: pytest.Config, interval: float = 0.0) -> None:
        self.concurrent = False
        self.lines: deque[str] = deque()
        self.handles: Callable[[], Sequence[Handle]] = tuple
        self.under_way: Callable[[], Sequence[EpisodeStatus]] = self.own_episodes
        self._config = config
        self._interval = interval
        self._live = LiveLine()
        self._plain = PlainLines(config)
        self._says_lines = False
        self._waits = threading.Event()  # pytest waits, so only we write to the terminal
        self._writing = threading.RLock()  # held by our thread while it writes
        self._closed = threading.Event()
        self._paused = False
        self._thread: threading.Thread | None = None
        self._began = self._last_line = time.monotonic()
        self._counting = threading.Lock()
        self._total = self._reused = self._solved = self._tokens = 0
        self._cost: float | None = None
        self._lacks_tokens = False  # an episode did, and that was reported
        self._items: set[str] = set()  # node ids of those that may have an episode
        self.done: set[str] = set()

    # -- what is counted

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which items have an episode."""
        self._expect([item.nodeid for item in session.items if has_episodes(item)])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the items of xdist's workers; which have an episode is known when they end."""
        if not self._items:
            self._expect(ids)

    def _expect(self, ids: Sequence[str]) -> None:
        self._items = set(ids)
        self._total = len(self._items)

    def note(self, record: EpisodeRecord, *, reused: bool = False) -> None:
        """Count an episode that is over, once for each item; may be called from any thread.

        Args:
            record: the episode, with the node id of its item.
            reused: whether it is taken from an earlier part of the run.
        """
        with self._counting:
            if record.node_id in self.done:
                return
            self.done.add(record.node_id)
            self._reused += reused
            self._solved += record.solved
            self._tokens += record.usage.tokens
            if record.usage.cost is not None:
                self._cost = (self._cost or 0.0) + record.usage.cost
            missing = "" if reused or self._lacks_tokens else self._describe_missing(record)
            self._lacks_tokens = self._lacks_tokens or bool(missing)
        if missing:
            self.report(missing)

    def _describe_missing(self, record: EpisodeRecord) -> str:
        """Return a message about requested tokens that an episode lacks; empty if it has all."""
        server = Settings.of(self._config).tokens
        missing = describe_missing(record.model_calls) if server and record.graded else ""
        return missing and f"--intercode-tokens={server}: {record.task.id}: {missing}"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Leave out an item that ended without an episode, and show how far the run is."""
        if nodeid in self._items and nodeid not in self.done:
            self._items.discard(nodeid)
            self._total -= 1
        self.show_now_and_then()

    def own_episodes(self, *, whole: bool = False) -> list[EpisodeStatus]:
        """Return the episodes that are running in this process; may be called from any thread.

        Args:
            whole: include all that is shown of an episode, not only what the line adds up.
        """
        # A rollout that has just ended may still be listed.
        handles = [handle for handle in self.handles() if handle.spec.node_id not in self.done]
        return [handle.status(whole=whole) for handle in handles]

    def status(self) -> RunStatus:
        """Return how far the run is; may be called from any thread."""
        return RunStatus(
            pid=os.getpid(),
            folder=str(self._config.rootpath),
            seconds=time.monotonic() - self._began,
            total=self._total,
            done=len(self.done),
            reused=self._reused,
            solved=self._solved,
            tokens=self._tokens,
            cost=self._cost,
            episodes=tuple(self.under_way()),
        )

    def __str__(self) -> str:
        """Return how far the run is, in one line."""
        return f"intercode: {self.status().describe()}"

    # -- where it is shown

    def report(self, line: str) -> None:
        """Print a line past pytest's capturing, now or when the main thread next shows lines."""
        self.lines.append(line)
        if not self.concurrent or threading.current_thread() is threading.main_thread():
            self.show_lines()

    def show_lines(self) -> None:
        """Print the waiting lines."""
        if self.lines:
            with self.hidden():
                while self.lines:
                    self._plain.print(f"intercode: {self.lines.popleft()}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Open the terminal, while pytest captures nothing."""
        config = self._config
        self._began = self._last_line = time.monotonic()
        if not is_distributed(config):  # xdist's controller writes without waiting for anything
            self._live.open(config)
        self._plain.open()
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        is_quiet = reporter is None or config.get_verbosity() < -1 or is_worker(config)
        self._says_lines = bool(self._interval) and not (self._live.usable or is_quiet)
        if self._says_lines and is_distributed(config):
            self._start_thread()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Show how far the run is while the main thread waits in this context."""
        if not (self._live.usable or self._says_lines) or self._paused:
            yield
            return
        self._start_thread()
        self._waits.set()
        try:
            yield
        finally:
            self._take_over()

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Show nothing while something else writes to the terminal in this context."""
        waits = self._waits.is_set()
        self._take_over()
        try:
            yield
        finally:
            if waits:
                self._waits.set()

    def _take_over(self) -> None:
        """Keep our thread from writing, and clear its line."""
        self._waits.clear()
        with self._writing:  # it may be writing now
            self._live.clear()

    def show_now_and_then(self) -> None:
        """Print a line if the last one is old and the terminal shows none; in the main thread."""
        if self._says_lines and self._pause() <= 0:
            with self.hidden():
                self._print_line()

    def _pause(self) -> float:
        """Return the seconds until the next line is due."""
        return self._last_line + self._interval - time.monotonic()

    def _print_line(self) -> None:
        status = self.status()
        self._last_line = time.monotonic()
        if status.done or status.episodes:  # under xdist it may be a run of other tests
            self._plain.print(f"intercode: {status.describe()}")

    def _start_thread(self) -> None:
        if self._thread is None:
            work = self._say_lines if self._says_lines else self._refresh
            self._thread = threading.Thread(target=work, name="intercode-progress", daemon=True)
            self._thread.start()

    def _refresh(self) -> None:
        while self._live.usable:
            if self._waits.wait(_REFRESH_INTERVAL):
                self._live.show(str(self), self._waits.is_set)
                time.sleep(_REFRESH_INTERVAL)

    def _say_lines(self) -> None:
        """Print lines when they are due: with xdist in the main thread, else while that waits."""
        while not self._closed.wait(max(0.0, self._pause())):
            if is_distributed(self._config):
                call_in_loop(self._config, self.show_now_and_then)
                self._closed.wait(_REFRESH_INTERVAL)
            elif self._waits.wait(_REFRESH_INTERVAL):
                with self._writing:
                    if self._waits.is_set() and self._pause() <= 0:
                        self._print_line()

    def pause(self) -> None:
        """Stop showing the line that is updated, as a debugger or an agent uses the terminal."""
        self._paused = True
        self._take_over()

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to the debugger."""
        self.pause()

    def pytest_leave_pdb(self) -> None:
        """Use the terminal again."""
        self._paused = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Clear the line, and show no other."""
        self._closed.set()
        self._take_over()
        self._live.close()
        self._says_lines = False

    def pytest_unconfigure(self) -> None:
        """Close the terminal."""
        self._plain.close()
