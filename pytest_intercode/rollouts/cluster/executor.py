"""The cluster executor: each rollout is a coroutine of one event loop, on a thread of its own.

So one driver may have tens of thousands of rollouts running. Whoever asks waits for futures. One
:class:`Connection` to the nodes serves any number of executors: one of pytest, or one a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import ConfigurationError, EngineUnavailable, RolloutCancelled
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.cluster.budget import budget_message
from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.jobs import Job, JobRunner
from pytest_intercode.rollouts.cluster.nodes import Machines, NodePool
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.executor import Handle, Observer
from pytest_intercode.rollouts.isolation import OUR_THREADS
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["ClusterExecutor", "Connection"]

Result = TypeVar("Result")
_INTERVAL = 0.2  # seconds between two looks at the nodes
_FIND_INTERVAL = 2.0  # seconds between two looks for nodes that have joined


class Connection:
    """The nodes, and the thread that drives them.

    Args:
        machines: the nodes.
        settings: what their processes are to know first.
        files: the files that nodes may ask for.
        run_budget: what is left for the whole run, nodes and this process together.
        report: takes lines for the user, on the connection's thread.
        advice: what a message ends with that nothing will come of what remains.
        timeout: seconds that a run waits when no node takes work.

    Attributes:
        backend: the backend of the sandboxes of all nodes.
        counts: what happened on the nodes, by their names.
        executors: those that use it.
        given_up: why nothing will come of what is submitted; None while something may.

    Raises:
        ConfigurationError: a node cannot be used, or nodes differ in their sandboxes.
    """

    def __init__(
        self,
        machines: Machines,
        settings: NodeSettings,
        files: FileIndex,
        run_budget: RunBudget,
        report: Callable[[str], None],
        *,
        advice: str = "",
        timeout: float = 300.0,
    ) -> None:
        self.files = files
        self.executors: list[ClusterExecutor] = []
        self.given_up: BaseException | None = None
        self._settings = settings
        self._budget = run_budget
        self._report = report
        self._advice = advice
        self.pool = NodePool(machines, self._present_settings, timeout)
        self.runner = JobRunner(self.pool, files, report)
        self.counts = self.pool.counts
        self._background: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._stack = contextlib.ExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"{OUR_THREADS}cluster", daemon=True
        )
        self._thread.start()
        try:
            limits = run_budget.limits
            if limits != RunLimits(seconds=limits.seconds):
                path = self._stack.enter_context(run_budget.shared())
                name = machines.count(budget_message(run_budget, path))
                self._settings = replace(settings, budget=name)
            self._run(self.pool.start(self.runner.take_news, self.give_up))
            self.backend = self._find_backend()
            self.soon(self.spawn, self._find())
            self.soon(self.spawn, self._watch())
        except BaseException:
            self.close()
            raise

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the loop's thread, unless the loop has ended."""
        with contextlib.suppress(RuntimeError):
            if threading.current_thread() is self._thread:  # it need not be woken
                self._loop.call_soon(function, *arguments)
            else:
                self._loop.call_soon_threadsafe(function, *arguments)

    def spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run a coroutine from the loop's thread; what it raises ends everything."""
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.give_up(error)

    def forget_file(self, path: Path) -> None:
        """Let nodes remove a file that no rollout will need any more."""
        digest = self.files.forget(path)

        def forget() -> None:
            for worker in self.pool.workers.values():
                worker.begin_call("forget", digest)

        if digest:
            self.runner.let_go(digest)
            self.soon(forget)

    def give_up(self, error: BaseException) -> None:
        """End everything, from any thread, with an error: nothing will come of it."""
        self.given_up = self.given_up or error
        for executor in list(self.executors):
            executor.give_up(self.given_up)

    def close(self, timeout: float = 10.0) -> None:
        """End the nodes' sandboxes and processes; what runs is lost. May be called twice.

        Args:
            timeout: seconds that nodes have for it.
        """
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(NoAnswer):
            self._run(self._end(timeout), 2 * timeout)
        self.soon(self._loop.stop)
        self._thread.join(timeout)
        if not self._loop.is_running():
            self._loop.close()
        self.pool.machines.close()
        self._stack.close()

    def _run(self, work: Coroutine[Any, Any, None], timeout: float | None = None) -> None:
        """Run a coroutine on the loop, and wait for its end."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    async def _end(self, timeout: float) -> None:
        await self.pool.close(timeout)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    def _present_settings(self) -> NodeSettings:
        return replace(self._settings, seconds=self._budget.seconds_left)

    def _find_backend(self) -> str:
        names = {worker.backend: worker.name for worker in self.pool.workers.values()}
        if len(names) > 1:
            backends = ", ".join(f"{name} has {backend}" for backend, name in names.items())
            raise ConfigurationError(
                f"--intercode-cluster: {backends}: say which with --intercode-sandbox"
            )
        return next(iter(names), "")

    async def _find(self) -> None:
        """Now and then, look for nodes that have joined."""
        while True:
            await asyncio.sleep(_FIND_INTERVAL)
            with contextlib.suppress(Exception):  # the head may be gone; what runs goes on
                await self.pool.find()

    async def _watch(self) -> None:
        """Now and then, look for nodes that were left out, and whether any takes work."""
        reported_names: set[str] = set()
        while True:
            for name, counts in self.counts.items():
                if counts.left_out and name not in reported_names:
                    reported_names.add(name)
                    self._report(f"node {name} gets no more work: {counts.left_out}")
            reason = self.pool.stall_reason(time.monotonic())
            if reason and any(executor.is_busy for executor in self.executors):
                self.give_up(EngineUnavailable(f"the cluster: {reason}{self._advice}"))
            for executor in list(self.executors):
                executor.fill()
            await asyncio.sleep(_INTERVAL)


class ClusterExecutor:
    """Runs rollouts on nodes.

    Args:
        connection: the nodes.
        observer: what is notified of rollouts, on the connection's thread, with :attr:`lock` held.
            What it raises at a record becomes that rollout's failure; what it raises otherwise ends
            all rollouts, as what ``refill`` raises does.
        substitute: returns what a handle has as its environment.
        concurrency: how many rollouts run at a time, on all nodes together; None for as many as
            the nodes' weights add up to.
        refill: called, with :attr:`lock` held, when fewer than that are submitted; it may submit
            something.

    Attributes:
        lock: guards what ``refill`` looks at; take it before any lock that the observer takes.
    """

    def __init__(
        self,
        connection: Connection,
        observer: Observer,
        substitute: Callable[[RolloutSpec], Environment],
        concurrency: int | None,
        refill: Callable[[], object] = lambda: None,
    ) -> None:
        self.lock = threading.RLock()
        self.connection = connection
        self._observer = observer
        self._substitute = substitute
        self._concurrency = concurrency
        self._refill = refill
        self._changed = threading.Condition(self.lock)
        self._jobs: dict[Handle, Job] = {}
        self._stopped = False
        self._error: BaseException | None = None  # of the owner, or of ours
        connection.executors.append(self)

    @property
    def concurrency(self) -> int:
        """How many rollouts run at a time."""
        return self._concurrency or self.connection.pool.slots

    @property
    def is_busy(self) -> bool:
        """Whether a rollout has no result."""
        return bool(self._jobs)

    def submit(self, spec: RolloutSpec) -> Handle:
        """Take a rollout; it begins as soon as a node takes work.

        Raises:
            EngineUnavailable: nothing would come of it.
            BaseException: what ended this executor.
        """
        error = self._error or self.connection.given_up
        if error is not None:
            raise error
        handle = Handle(spec, self, None)
        handle.closed.set_result(None)  # its node ends its sandboxes
        job = Job(handle, self._observer, self.lock)
        with self.lock:
            self._jobs[handle] = job
        self.connection.soon(self._begin, job)
        return handle

    def wait(self, handle: Handle, future: Future[Result]) -> Result:
        """Wait for a phase; what is returned for agent and environment acts nowhere."""
        result: Any = None if future is handle.closed else self._observer.wait(handle, future)
        if future is handle.made_agent:
            result = Agent("step", name=handle.spec.agent)
        elif future is handle.reset_environment:
            result = self._substitute(handle.spec)
        return result  # type: ignore[no-any-return]

    def cancel(self, handle: Handle, reason: str) -> None:
        """End a rollout, ungraded; does nothing to one that is over."""
        with self.lock:
            job = self._jobs.get(handle)
            if job is None or handle.over:
                return
            handle.fail(RolloutCancelled(reason))
            self._changed.notify_all()
        self.connection.soon(self._end, job, reason)

    def give_up(self, error: BaseException) -> None:
        """End all rollouts, from any thread, with an error: nothing will come of them."""
        with self.lock:
            self._error = self._error or error
            for job in list(self._jobs.values()):
                with contextlib.suppress(BaseException):  # the first error is what is reported
                    job.end(error, "prepare")
                self.connection.soon(self._end, job, str(error))
            self._changed.notify_all()

    def put(self, path: Path, digest: str) -> None:
        """Have nodes get a file with a SHA-256 when a rollout needs it."""
        self.connection.files.put(path, digest)

    def forget(self, path: Path) -> None:
        """Let nodes remove it."""
        self.connection.forget_file(path)

    def wake(self) -> None:
        """Look for something to begin."""
        self.connection.soon(self.fill)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait, with :attr:`lock` held, until a condition holds or all is over.

        Raises:
            BaseException: what ended this executor before that.
        """
        while not (self._stopped or condition()):
            if self._error is not None:
                raise self._error
            # As in `Scheduler.wait_for`: not everything that the condition asks is notified.
            self._changed.wait(0.1)

    def stop(self) -> None:
        """Have nothing more submitted; what runs goes on."""
        with self.lock:
            self._stopped = True
            self._changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait until nothing runs on any node; return whether that is so."""
        with self.lock:
            return self._changed.wait_for(lambda: not self._jobs, timeout)

    def close(self) -> None:
        """Leave the nodes to others."""
        with contextlib.suppress(ValueError):
            self.connection.executors.remove(self)

    # -- on the connection's thread

    def fill(self) -> None:
        """Have as much submitted as may run."""
        with self.lock:
            while not (self._stopped or self._error or self.connection.given_up):
                count = len(self._jobs)
                # Without any node, one is submitted all the same: it says in its turn why.
                if count >= max(1, self.concurrency):
                    break
                try:
                    self._refill()
                except BaseException as error:
                    self.give_up(error)
                if len(self._jobs) == count:
                    break
            self._changed.notify_all()

    def _begin(self, job: Job) -> None:
        job.task = self.connection.spawn(self._play(job))
        # Of a task that is cancelled before its first step, not even a ``finally`` is run.
        job.task.add_done_callback(lambda _: self._forget(job))

    async def _play(self, job: Job) -> None:
        """Play a rollout; raises nothing, but for being cancelled."""
        try:
            await self.connection.runner.run(job)
        except asyncio.CancelledError:
            self._fail(job, EngineUnavailable("the cluster was left"))
            raise
        except BaseException as error:
            self._fail(job, error)
            self.give_up(error)

    def _forget(self, job: Job) -> None:
        with self.lock:
            del self._jobs[job.handle]
        self.fill()

    def _fail(self, job: Job, error: BaseException) -> None:
        """Give a rollout that has no result an error."""
        with contextlib.suppress(BaseException):  # the error before that is what is reported
            job.end(error)

    def _end(self, job: Job, reason: str) -> None:
        if job.worker is not None:
            job.worker.begin_call("cancel", job.number, reason)
        elif job.task is not None:
            job.task.cancel()
