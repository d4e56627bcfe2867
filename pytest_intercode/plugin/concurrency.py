"""Which episodes are begun and when, and how pytest's items come by them."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.plugin.job import EpisodeAhead
from pytest_intercode.plugin.live_line import LiveLine
from pytest_intercode.plugin.order import Turns
from pytest_intercode.plugin.output import Router
from pytest_intercode.plugin.reporter import reporter_of
from pytest_intercode.plugin.session import task_of
from pytest_intercode.plugin.workarounds import (
    log_level_held,
    may_be_tried_again,
    variables_kept_still,
)
from pytest_intercode.plugin.xdist import is_worker
from pytest_intercode.results.writing import episode_row
from pytest_intercode.rollouts.isolation import OUR_THREADS, Commons
from pytest_intercode.rollouts.owners import followed, owning
from pytest_intercode.rollouts.scheduler import Scheduler

if TYPE_CHECKING:
    from pytest_intercode.core.record import EpisodeRecord
    from pytest_intercode.environments.base import Environment
    from pytest_intercode.plugin.session import IntercodeSession

__all__ = ["Ahead"]

Result = TypeVar("Result")
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
        self._turns = Turns(session.config)
        self._jobs: dict[pytest.Item, EpisodeAhead] = {}  # begun, and their turn not over
        self._failed: set[pytest.Item] = set()  # known to fail, though not reported
        self._ended = self._solved = 0
        self._when = ""
        self._reported: tuple[pytest.Item, EpisodeAhead] | None = None
        self._unreported: list[dict[str, object]] = []
        self._hopeless = False
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
            if not self._turns.is_over(item):
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
            debugged = self._config.getoption("usepdb", False)  # and may be continued
            if isinstance(error, (KeyboardInterrupt, pytest.exit.Exception)) and not debugged:
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
        return self._beside(owner) if self._jobs else None

    @contextlib.contextmanager
    def _beside(self, owner: object) -> Iterator[list[str]]:
        with owning(owner), self._commons.episode(owner) as left:
            yield left

    @property
    def pending(self) -> bool:
        """Whether episodes were begun whose items have not had their turn."""
        with self._scheduler.lock:
            return any(item is not self._turns.current for item in self._jobs)

    # -- pytest's hooks

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Prepare for a run, while pytest captures nothing."""
        self._turns.collected(session.items)
        self._router.route()
        self._stack.enter_context(contextlib.closing(self._router))
        self._stack.enter_context(followed())
        if not is_worker(self._config):
            self._live = LiveLine(self._config)
        self._stack.enter_context(variables_kept_still())
        self._stack.enter_context(log_level_held(self._config))
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Know whose turn it is."""
        with self._scheduler.lock:
            self._turns.come_to(item)
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
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None]:
        """Let go of the episode; a second try of its item is run in its turn."""
        if nextitem is None:  # fixtures of the whole run end now, and what they serve goes first
            self._end_all_but(item)
        try:
            yield from self._phase("teardown")
        finally:
            with self._scheduler.lock:
                job = self._jobs.pop(item, None)
                self._failed.discard(item)
                self._turns.note(item)
            if job is not None:
                job.output.give_out("teardown", last=True)
                if not job.taken:  # somebody skipped the item in its turn
                    job.halt("its item was not run")
                    self._give_up([job])
            self._scheduler.wake()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report how long the episode took, not how long pytest waited for it."""
        report = yield
        if self._reported is not None and self._reported[0] is item:
            job = self._reported[1]
            phase = job.phases.get(call.when)  # the report may be of another, as an error is
            if phase is not None:  # what is more than waiting is the user's own fixtures
                beside = report.duration - job.waited.get(call.when, 0.0)
                report.start = phase.began
                report.duration = phase.seconds + max(0.0, beside)
                report.stop = report.start + report.duration
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Say what ran ahead of a run that is over: nobody will ask for it."""
        self._end_all_but(None)
        if self._live is not None:
            self._live.close()
        with self._scheduler.lock:
            left = [self._jobs[item] for item in self._turns.mine(self._jobs)]
        self._give_up(left)
        ended = sum(job.halted for job in left)
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

    def _end_all_but(self, item: pytest.Item | None) -> None:
        """Begin nothing more, and end what runs, but for the episode of one item."""
        with self._scheduler.lock:
            self._scheduler.stop()
            begun = [job for each, job in self._jobs.items() if each is not item]
        for job in begun:
            job.halt("the run is over")
        self._scheduler.join(_FAREWELL)

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
        if not self._turns.open_from(item) or self._refused():
            return
        self._scheduler.wake()
        self._scheduler.wait_for(lambda: item in self._jobs or self._refused())

    def _refused(self) -> bool:
        """Whether nothing may be begun, as the run will not get as far."""
        current = self._turns.current
        session = current.session if current is not None else None
        if session is None or session.shouldstop or session.shouldfail or self._hopeless:
            return True
        most = self._config.getvalue("maxfail")
        if most and session.testsfailed + len(self._failed) >= most:
            return True
        return bool(self._session.spending.budget.charge())

    def _next(self) -> EpisodeAhead | None:
        """Return the next episode to begin; called with the scheduler's lock held."""
        if self._refused():
            return None
        item = next(self._turns.waiting(), None)
        if item is None:
            return None
        task = task_of(item)
        assert task is not None
        self._turns.note(item)
        job = self._jobs[item] = EpisodeAhead(self._session, task, item, self._commons, self)
        return job

    # -- what episodes tell, on their own threads

    def starting(self, environment: Environment) -> None:
        """Have the sandboxes started of what will be begun next; an image may be built for them."""
        if self._session.provides(environment) and self._expecting.acquire(blocking=False):
            try:
                self._session.provider.background(self._expect)
            except BaseException:
                self._expecting.release()
                raise

    def _expect(self) -> None:
        try:
            with self._scheduler.lock:
                waiting = (
                    [] if self._refused() else itertools.islice(self._turns.waiting(), _FORESIGHT)
                )
                upcoming = [task for task in map(task_of, waiting) if task is not None]
            self._session.expect(upcoming)
        finally:
            self._expecting.release()

    def failed(self, error: BaseException, *, at_once: bool) -> None:
        """Begin nothing more if all the others would fail as this one did."""
        of_all = (EngineUnavailable, ConfigurationError) if at_once else (EngineUnavailable,)
        if isinstance(error, of_all):
            self._hopeless = True

    def ending(self, item: pytest.Item, episode: EpisodeRecord) -> dict[str, Any]:
        """Take note of an episode that has ended, and return its row."""
        row = episode_row(episode, node_id=item.nodeid)
        with self._scheduler.lock:
            self._ended += 1
            self._solved += episode.solved
            again = may_be_tried_again(item)
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
