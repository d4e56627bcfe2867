"""Which episodes are begun and when, and how pytest's items come by them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest
from _pytest import runner

from pytest_intercode.ahead.eligible import company
from pytest_intercode.ahead.job import EpisodeAhead
from pytest_intercode.ahead.live import LiveLine
from pytest_intercode.ahead.output import Router
from pytest_intercode.isolation import OUR_THREADS, Commons
from pytest_intercode.owners import followed
from pytest_intercode.reporting.results import episode_row
from pytest_intercode.reporting.terminal import reporter_of
from pytest_intercode.scheduler import Scheduler
from pytest_intercode.session import task_of
from pytest_intercode.workers import is_worker, queued

if TYPE_CHECKING:
    from pytest_intercode.environments.base import Environment
    from pytest_intercode.episode import Episode
    from pytest_intercode.session import IntercodeSession
    from pytest_intercode.suites.task import Task

__all__ = ["Ahead"]

Result = TypeVar("Result")
_CURRENT_TEST = "_update_current_test_var"
_GLANCE = 0.2  # seconds between two looks at what runs, while pytest waits
_FAREWELL = 10.0  # seconds for what is halted to close its sandboxes
_FORESIGHT = 64  # items whose sandboxes the pool may think of


class Ahead:
    """The episodes that run ahead in this process; also a pytest plugin.

    Args:
        session: the run.
        concurrency: how many episodes run at a time.
    """

    def __init__(self, session: IntercodeSession, concurrency: int) -> None:
        self._session = session
        self._config = session.config
        self._scheduler = Scheduler(
            concurrency,
            self._next,
            name=f"{OUR_THREADS}ahead",
            patience=_GLANCE if is_worker(self._config) else None,
        )
        self._commons = Commons()
        self._items: list[pytest.Item] = []
        self._cursor = 0  # no item before it is still to be begun
        self._current: pytest.Item | None = None
        self._company: Hashable | None = None  # of what may be begun now
        self._jobs: dict[pytest.Item, EpisodeAhead] = {}  # begun, and their turn not over
        self._finished: set[pytest.Item] = set()
        self._failed: set[pytest.Item] = set()  # known to fail, though not reported
        self._ended = self._solved = 0
        self._when = ""
        self._reported: tuple[pytest.Item, EpisodeAhead] | None = None
        self._unreported: list[dict[str, object]] = []
        self._expecting = threading.Lock()
        self._stack = contextlib.ExitStack()
        # Threads write to it, and only one of them could make it.
        self._reporter = None if is_worker(self._config) else reporter_of(self._config)
        self._router = Router()
        self._live: LiveLine | None = None

    # -- what the fixtures ask

    def of(self, item: pytest.Item) -> EpisodeAhead | None:
        """Return the episode of the item whose turn it is; None for one that is run only now.

        The first item that may have company lets those after it begin.
        """
        with self._scheduler.lock:
            if item not in self._jobs and item not in self._finished:
                self._begin_from(item)
            job = self._jobs.get(item)
        if job is not None:
            self._reported = item, job
        return job

    def wait(self, job: EpisodeAhead, future: Future[Result]) -> Result:
        """Return what an episode comes to, or raise what it raises; show what runs meanwhile."""
        began = time.monotonic()
        try:
            while not future.done():
                with contextlib.suppress(NotYet):
                    future.exception(_GLANCE)
                self._show()
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, pytest.exit.Exception)):
                self._scheduler.stop()  # or one more would begin in place of this one
            job.halt("interrupted")
            raise
        finally:
            waited = time.monotonic() - began
            job.waited[self._when] = job.waited.get(self._when, 0.0) + waited
            if self._live is not None:
                self._live.clear()
            job.output.give_out(self._when)
        return future.result()

    def apart(self, owner: object) -> contextlib.AbstractContextManager[list[str]] | None:
        """Return what keeps the process as it is for an episode; None if it is the only one."""
        return self._commons.episode(owner) if self._jobs else None

    @property
    def pending(self) -> bool:
        """Whether episodes were begun whose items have not had their turn."""
        with self._scheduler.lock:
            return any(item is not self._current for item in self._jobs)

    # -- pytest's hooks

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Prepare for a run, while pytest captures nothing."""
        self._items = list(session.items)
        self._router.route()
        self._stack.enter_context(contextlib.closing(self._router))
        self._stack.enter_context(followed())
        if not is_worker(self._config):
            self._live = LiveLine(self._config)
        self._stack.callback(_keep_variables_still())
        root = logging.getLogger()
        level = getattr(self._config.pluginmanager.get_plugin("logging-plugin"), "log_level", None)
        if level is not None:  # pytest sets it only for the phases of an item
            self._stack.callback(root.setLevel, root.level)
            root.setLevel(min(root.level, level))
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Know whose turn it is."""
        self._current = item
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self) -> Generator[None]:
        """Route the streams that pytest has just put in place."""
        self._reported = None
        yield from self._phase("setup")

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Generator[None]:
        """Route the streams of the call."""
        yield from self._phase("call")

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Let go of the episode; a second try of its item is run in its turn."""
        try:
            yield from self._phase("teardown")
        finally:
            with self._scheduler.lock:
                job = self._jobs.pop(item, None)
                self._failed.discard(item)
                self._finished.add(item)
            if job is not None and not job.taken:  # somebody skipped the item in its turn
                job.halt("its item was not run")
                self._give_up([job])
            self._scheduler.wake()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report how long the episode took, not how long pytest waited for it."""
        report = yield
        if self._reported is not None and self._reported[0] is item:
            job = self._reported[1]
            phase = job.phases.get(report.when or "")
            if phase is not None:  # what is more than waiting is the user's own fixtures
                beside = report.duration - job.waited.get(report.when or "", 0.0)
                report.start = phase.began
                report.duration = phase.seconds + max(0.0, beside)
                report.stop = report.start + report.duration
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End what runs ahead of a run that is over: nobody will ask for it."""
        with self._scheduler.lock:
            self._scheduler.stop()
            mine = self._jobs
            if is_worker(self._config):  # the rest was taken away, and another worker reports it
                known = {self._current, *queued(self._config, self._items)}
                mine = {item: job for item, job in mine.items() if item in known}
            begun, left = list(self._jobs.values()), list(mine.values())
        if self._live is not None:
            self._live.close()
        for job in begun:
            job.halt("the run is over")
        self._scheduler.join(_FAREWELL)
        self._give_up(left)
        ended = sum(job.began and not job.row for job in left)
        if self._unreported or ended:
            if self._reporter is not None:
                self._reporter.take_unreported(self._unreported, ended)
            else:
                output = vars(self._config)["workeroutput"]
                output["intercode_ahead"] = {"rows": self._unreported, "ended": ended}

    def pytest_unconfigure(self) -> None:
        """Leave the process as it was; until now an agent that is deaf may have printed."""
        self._stack.close()

    # -- inside

    def _phase(self, when: str) -> Iterator[None]:
        self._when = when
        self._router.route()
        yield

    def _show(self) -> None:
        """Say what is to be said, and show what runs; in the main thread."""
        if self._session.lines:
            if self._live is not None:
                self._live.clear()
            self._session.tell_lines()
        if self._live is not None:
            with self._scheduler.lock:
                jobs = list(self._jobs.values())
            running = sum(job.began and not job.episode.done() for job in jobs)
            self._live.show(
                f"intercode: {running} running, {self._ended} done, {self._solved} solved"
            )

    def _begin_from(self, item: pytest.Item) -> None:
        """Let episodes begin from an item on, and wait until its own is; holds the lock."""
        self._company = company(item)
        if self._company is None or self._refused():
            return
        if not is_worker(self._config):
            self._cursor = self._items.index(item, 0)
        self._scheduler.wake()
        self._scheduler.wait_for(lambda: item in self._jobs or self._refused())

    def _upcoming(self) -> Iterable[pytest.Item]:
        """Return the items from the present one on, as far as they are known, in order."""
        if is_worker(self._config):
            present = [self._current] if self._current is not None else []
            return [*present, *queued(self._config, self._items, kept=True)]
        while self._cursor < len(self._items) and self._is_begun(self._items[self._cursor]):
            self._cursor += 1
        return itertools.islice(self._items, self._cursor, None)

    def _is_begun(self, item: pytest.Item) -> bool:
        return item in self._jobs or item in self._finished

    def _waiting(self) -> Iterator[pytest.Item]:
        """Yield the items that may be begun, in order: up to the first that needs other company."""
        for item in self._upcoming():
            if not self._is_begun(item):
                if company(item) != self._company:
                    return
                yield item

    def _refused(self) -> bool:
        """Whether nothing may be begun, as the run will not get as far."""
        session = self._current.session if self._current is not None else None
        if session is None or session.shouldstop or session.shouldfail:
            return True
        most = self._config.getvalue("maxfail")
        if most and session.testsfailed + len(self._failed) >= most:
            return True
        return bool(self._session.spending.budget.charge())

    def _next(self) -> EpisodeAhead | None:
        """Return the next episode to begin; called with the scheduler's lock held."""
        if self._company is None or self._refused():
            return None
        item = next(self._waiting(), None)
        if item is None:
            return None
        task = task_of(item)
        assert task is not None
        job = self._jobs[item] = EpisodeAhead(
            self._session, task, self._commons, self._expect, partial(self._take_down, item)
        )
        return job

    def _expect(self, environment: Environment) -> None:
        """Have the sandboxes started of what will be begun next."""
        if not self._session.provides(environment):
            return
        with self._expecting:
            with self._scheduler.lock:
                tasks = map(task_of, itertools.islice(self._waiting(), _FORESIGHT))
                upcoming: list[Task] = [task for task in tasks if task is not None]
            self._session.expect(upcoming)

    def _take_down(self, item: pytest.Item, episode: Episode) -> dict[str, object]:
        """Take note of an episode that has ended, and return its row; on its own thread."""
        row = episode_row(episode, node_id=item.nodeid)
        with self._scheduler.lock:
            self._ended += 1
            self._solved += episode.solved
            again = self._config.getoption("reruns", None) or item.get_closest_marker("flaky")
            forgiven = again or item.get_closest_marker("xfail")
            if not (episode.solved or forgiven) and item in self._jobs:
                self._failed.add(item)
        if not again and self._reporter is not None:  # else the row may be superseded
            with contextlib.suppress(OSError):  # it is tried again when the item is reported
                self._reporter.write_early(row)
        return row

    def _give_up(self, jobs: list[EpisodeAhead]) -> None:
        """Keep the records of episodes that will not be reported."""
        self._unreported += [job.row for job in jobs if job.row]


def _keep_variables_still() -> Callable[[], None]:
    """Keep pytest from removing the environment variable with the name of the present test.

    It does so after each item; a thread that copies ``os.environ`` in that moment, as libraries
    for HTTP do, gets a ``KeyError``. Setting a variable anew does no harm.

    Returns:
        What makes it as it was.
    """
    update = getattr(runner, _CURRENT_TEST, None)  # pytest's own, and no part of its interface
    if update is None:
        return lambda: None

    def only_set(item: pytest.Item, when: str | None) -> None:
        if when:
            update(item, when)

    setattr(runner, _CURRENT_TEST, only_set)
    return lambda: setattr(runner, _CURRENT_TEST, update)
