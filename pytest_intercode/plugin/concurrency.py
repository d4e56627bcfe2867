"""``--intercode-concurrency``: rollouts that run before their items' turns, in one process.

Items are reported in order, as without it. While pytest waits for an item, the rollouts of later
items run on their own threads. In an item's turn, its fixtures get its rollout, running or over.

Two kinds of threads use this module. pytest's main thread calls the hooks, and the methods that
fixtures need. The executor's threads ask for the next rollout, and report what rollouts do. The
executor's lock guards what both of them use: the order, the rollouts that have begun, and the items
that are known to fail. The executor holds it while it asks for the next rollout.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.plugin.execution import Equip, InlineExecution
from pytest_intercode.plugin.hooks import HookError
from pytest_intercode.plugin.order import ItemOrder
from pytest_intercode.plugin.output import Router, replay
from pytest_intercode.plugin.pass_rates import pass_rates_of
from pytest_intercode.plugin.reporter import reporter_of
from pytest_intercode.plugin.run import Run, agent_of, is_own_test, spec_of, task_of
from pytest_intercode.plugin.workarounds import (
    log_level_held,
    may_be_tried_again,
    variables_kept_still,
)
from pytest_intercode.plugin.xdist import is_worker
from pytest_intercode.results.format import to_line
from pytest_intercode.rollouts.executor import BackgroundExecutor, Handle, Observer, PhaseName
from pytest_intercode.rollouts.feed import LookAhead
from pytest_intercode.rollouts.isolation import SharedProcess, followed, isolated, owner, owning
from pytest_intercode.rollouts.output import CapturedOutput
from pytest_intercode.rollouts.threads import ThreadsExecutor
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["ConcurrentExecution"]

Result = TypeVar("Result")
_REFRESH_INTERVAL = 0.2  # seconds between two checks of a rollout, while pytest waits
_CLOSE_TIMEOUT = 10.0  # seconds for cancelled rollouts to close their sandboxes
_MAX_LOOK_AHEAD = 64  # items whose sandboxes the pool may prepare
_PHASES: dict[str, PhaseName] = {"setup": "prepare", "call": "run", "teardown": "close"}
_PYTEST_PHASES = {phase: pytest_phase for pytest_phase, phase in _PHASES.items()}


@dataclass(eq=False)
class _Running:
    """A rollout that has begun, and its item.

    Attributes:
        item: the item.
        handle: the rollout.
        output: what it printed.
        waited: seconds that pytest waited for it in its item's turn, by pytest's phases.
    """

    item: pytest.Item
    handle: Handle
    output: CapturedOutput
    waited: dict[str, float] = field(default_factory=dict)

    def retime(self, report: pytest.TestReport, when: str) -> None:
        """Make a report show how long the rollout took, not how long pytest waited for it."""
        phase = self.handle.phases.get(_PHASES[when])  # an error is reported as one of setup
        if phase is not None:  # the rest of the time was spent in the user's own fixtures
            fixture_seconds = report.duration - self.waited.get(when, 0.0)
            report.start = phase.began
            report.duration = phase.seconds + max(0.0, fixture_seconds)
            report.stop = report.start + report.duration


class ConcurrentExecution(Observer):
    """Runs the rollouts of this process concurrently; also a pytest plugin.

    Args:
        run: the run.
        concurrency: how many rollouts run at a time; None for as many as there is room for.
    """

    def __init__(self, run: Run, concurrency: int | None) -> None:
        self._run = run
        self._concurrency = concurrency
        self._config = run.config
        self._process = SharedProcess()
        self._pass_rates = pass_rates_of(run.config)
        self._order = ItemOrder(run.config)
        self._running: dict[pytest.Item, _Running] = {}  # begun, and the item's turn is not over
        # The same by their handles, for as long as their threads may call the observer's methods.
        self._of: dict[Handle, _Running] = {}
        self._failed: set[pytest.Item] = set()  # known to fail, but not reported yet
        self._reported: _Running | None = None
        self._unreported: list[EpisodeRecord] = []
        self._exhausted = False  # a rollout failed in a way in which all others would
        self._stack = contextlib.ExitStack()
        self._router = Router()
        run.config.pluginmanager.register(self._router, "intercode-router")
        # Made here, as several threads write to it and only one may make it.
        self._reporter = None if is_worker(self._config) else reporter_of(self._config)
        self._look_ahead = LookAhead(
            lambda: run.composition.provider, self._upcoming, run.settings.profile
        )
        self._executor = self._make_executor()
        inline_services = replace(run.composition.services, isolate=self._isolate)
        self._inline = InlineExecution(
            run, self._order, inline_services, pending=lambda: self._pending
        )

    def _make_executor(self) -> BackgroundExecutor:
        """Return the executor, which may ask for the next rollout immediately."""
        return ThreadsExecutor(
            replace(self._run.composition.services, isolate=lambda: self._process.episode(owner())),
            self,
            self._concurrency or 1,
            self._begin_next,
            interval=_REFRESH_INTERVAL if is_worker(self._config) else None,
        )

    # -- what the fixtures ask

    def handle(self, item: pytest.Item, task: Task, equip: Equip | None = None) -> Handle:
        """Return the rollout of the item whose turn it is.

        The first item of a concurrency group lets those after it begin. An item that has no group
        runs inline.
        """
        with self._executor.lock:
            if not self._order.is_over(item):
                self._begin_from(item)
            running = self._running.get(item)
        if running is None:
            return self._inline.handle(item, task, equip)
        self._reported = running
        return running.handle

    def wait(self, handle: Handle, future: Future[Result]) -> Result:
        """Return a rollout's result or raise its error; show progress while waiting."""
        running = self._of.get(handle)
        if running is None:  # its turn is over, but a plugin has kept its fixtures alive
            return future.result()
        began = time.monotonic()
        try:
            with self._run.progress.waiting():
                while not future.done():
                    with contextlib.suppress(NotYet):
                        future.exception(_REFRESH_INTERVAL)
                    self._run.progress.show_lines()
        except BaseException as error:
            debugged = self._config.getoption("usepdb", False)  # the run may be continued
            if isinstance(error, (KeyboardInterrupt, pytest.exit.Exception)) and not debugged:
                self._executor.stop()  # otherwise another rollout would begin instead
            handle.cancel("interrupted")
            raise
        finally:
            waited = time.monotonic() - began
            phase = self._router.phase
            running.waited[phase] = running.waited.get(phase, 0.0) + waited
            replay(running.output, phase)
        if not self._pending:
            self._run.workers.stop_if_exhausted(running.item.session)
        return future.result()

    @property
    def _pending(self) -> bool:
        """Whether rollouts have begun whose items have not had their turn."""
        with self._executor.lock:
            return any(item is not self._order.current for item in self._running)

    @contextlib.contextmanager
    def _isolate(self) -> Iterator[list[str]]:
        """Restore the process after a rollout that runs inline, alone or while others run."""
        if not self._running:
            with isolated() as leftovers:
                yield leftovers
            return
        episode = object()
        with owning(episode), self._process.episode(episode) as leftovers:
            yield leftovers

    # -- pytest's hooks

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Prepare the process for a run; :meth:`pytest_unconfigure` restores it."""
        self._stack.enter_context(followed())
        self._stack.enter_context(variables_kept_still())
        self._stack.enter_context(log_level_held(self._config))
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Note whose turn it is."""
        with self._executor.lock:
            self._order.begin_turn(item, nextitem)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Forget the rollout of the last report; a second try of an item runs inline."""
        self._reported = None

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None]:
        """Forget the item's rollout; a second try of the item runs inline."""
        if nextitem is None:  # session fixtures end now, so first end the rollouts that use them
            self._end_all_but(item)
        try:
            yield
        finally:
            with self._executor.lock:
                running = self._running.pop(item, None)
                self._failed.discard(item)
                self._order.mark_begun(item)
            if running is not None:
                replay(running.output, "teardown", last=True)
                if not running.handle.asked:  # the item was skipped in its turn
                    running.handle.cancel("its item was not run")
                    self._keep_records([running])
                # Until it is over, its thread still looks it up.
                running.handle.when_over(partial(self._of.pop, running.handle, None))
            self._executor.wake()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report how long the rollout took, not how long pytest waited for it."""
        report = yield
        running = self._reported
        if running is not None and running.item is item:
            running.retime(report, call.when)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report the rollouts whose items had no turn before the run ended."""
        self._end_all_but(None)
        with self._executor.lock:
            unfinished = [self._running[item] for item in self._order.own_items_of(self._running)]
        self._keep_records(unfinished)
        cancelled = sum(running.handle.cancelled for running in unfinished)
        if self._unreported or cancelled:
            if self._reporter is not None:
                self._reporter.take_unreported(self._unreported, cancelled)
            else:
                lines = [to_line(record) for record in self._unreported]
                unreported = {"lines": lines, "ended": cancelled}
                vars(self._config)["workeroutput"]["intercode_unreported"] = unreported

    def pytest_unconfigure(self) -> None:
        """Restore the process."""
        self._stack.close()

    def _end_all_but(self, item: pytest.Item | None) -> None:
        """Begin no more rollouts, and cancel the running ones except that of one item."""
        with self._executor.lock:
            self._executor.stop()
            rollouts = list(self._running.values())
        for running in rollouts:
            if running.item is not item:
                running.handle.cancel("the run is over")
        self._executor.join(_CLOSE_TIMEOUT)

    def running(self) -> list[Handle]:
        """Return the rollouts that are running; may be called from any thread."""
        with self._executor.lock:
            handles = [running.handle for running in self._running.values()]
        return [*(handle for handle in handles if handle.running), *self._inline.running()]

    # -- which rollouts begin, and when

    def _begin_from(self, item: pytest.Item) -> None:
        """Let rollouts begin from an item on, and wait until its own has begun; needs the lock."""
        if not self._order.open_from(item) or self._refused():
            return
        self._executor.wake()
        self._executor.wait_for(lambda: item in self._running or self._refused())

    def _refused(self) -> bool:
        """Whether no rollout may begin, because the run will end before its item's turn."""
        current = self._order.current
        session = current.session if current is not None else None
        if session is None or session.shouldstop or session.shouldfail or self._exhausted:
            return True
        max_failures = self._config.getvalue("maxfail")
        if max_failures and session.testsfailed + len(self._failed) >= max_failures:
            return True
        return bool(self._run.workers.budget.charge())

    def _begin_next(self) -> None:
        """Submit the next rollout, if there is one; called with the executor's lock held."""
        waiting = iter(()) if self._refused() else self._order.waiting()
        items = (i for i in waiting if i is self._order.current or self._pass_rates.needs(i))
        item = next(items, None)
        if item is None:
            return
        task = task_of(item)
        assert task is not None
        self._order.mark_begun(item)
        output = CapturedOutput()
        try:
            spec = spec_of(item, task)
        except ConfigurationError:  # the agent cannot be loaded: the item says so in its turn
            self._exhausted = True
            return
        handle = self._executor.submit(spec)
        self._running[item] = self._of[handle] = _Running(item, handle, output)

    # -- what rollouts report, on their own threads

    @contextlib.contextmanager
    def surrounding(self, handle: Handle) -> Iterator[None]:
        """Keep what a rollout prints and logs for its item's turn."""
        with self._executor.lock:  # it may begin before _begin_next has noted it
            output = self._of[handle].output
        with owning(output):
            yield

    def entering(self, handle: Handle, phase: PhaseName) -> None:
        """Note the phase to which further output belongs."""
        self._of[handle].output.phase = _PYTEST_PHASES[phase]

    def preparing(self, handle: Handle, environment: Environment) -> None:
        """Start the sandboxes of the next rollouts; an image may be built for them."""
        if self._run.composition.provider.lacks:
            self._look_ahead.look(environment)

    def _upcoming(self) -> list[tuple[Task, SandboxProvider]]:
        sandboxes = self._run.composition.sandboxes
        with self._executor.lock:
            waiting = () if self._refused() else self._order.waiting()
            items = itertools.islice(waiting, _MAX_LOOK_AHEAD)
            return [
                (task, sandboxes(agent_of(item)))
                for item in items
                if (task := task_of(item)) is not None
            ]

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """Count a record, and write it to the results file immediately."""
        item = self._of[handle].item
        with self._executor.lock:
            retried = may_be_tried_again(item)
            forgiven = retried or item.get_closest_marker("xfail") is not None
            own_test = is_own_test(item)  # its verdict is known only after its turn
            if not (own_test or forgiven) and record.graded:
                self._pass_rates.note(item, solved=record.solved)
            forgiven = forgiven or record.task.pass_rate is not None  # some tries may miss
            if not (own_test or record.solved or forgiven) and item in self._running:
                self._failed.add(item)
        if not retried:  # otherwise the record may be superseded
            self._run.progress.note(record)
            if self._reporter is not None and not own_test:
                self._reporter.write_early(record)

    def failed(self, handle: Handle, error: BaseException) -> None:
        """Begin no more rollouts if all others would fail in the same way."""
        running = self._of.get(handle)
        unmade = running is not None and not running.handle.has_agent
        of_all = (EngineUnavailable, ConfigurationError) if unmade else (EngineUnavailable,)
        if isinstance(error, of_all) and not isinstance(error, HookError):
            self._exhausted = True

    def _keep_records(self, unreported: list[_Running]) -> None:
        """Keep the records of rollouts that will not be reported."""
        records = (running.handle.result for running in unreported)
        self._unreported += [record for record in records if record is not None]
