"""The cluster executor: each rollout is a coroutine on one event loop, which has its own thread.

So one driver can have tens of thousands of rollouts running. Callers wait for futures. One
:class:`Connection` to the nodes serves any number of executors: one for pytest, or one per stream.
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
_INTERVAL = 0.2  # seconds between two checks of the nodes
_FIND_INTERVAL = 2.0  # seconds between two searches for nodes that have joined


class Connection:
    """The nodes, and the thread that drives them.

    Args:
        machines: the nodes.
        settings: the settings that are sent to their processes first.
        files: the files that nodes may ask for.
        run_budget: the budget of the whole run, nodes and this process together.
        report: called with lines for the user, on the connection's thread.
        advice: the end of the message that no node takes work.
        timeout: seconds that a run waits when no node takes work.

    Attributes:
        backend: the backend of the sandboxes of all nodes.
        counts: the counts of the nodes, by their names.
        executors: the executors that use it.
        given_up: why no submitted rollout can be run any more; None while rollouts can.

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
            if threading.current_thread() is self._thread:  # the loop need not be woken up
                self._loop.call_soon(function, *arguments)
            else:
                self._loop.call_soon_threadsafe(function, *arguments)

    def spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run a coroutine; call this on the loop's thread. An error in it ends everything."""
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
        """End all rollouts of all executors with an error; may be called from any thread."""
        self.given_up = self.given_up or error
        for executor in list(self.executors):
            executor.give_up(self.given_up)

    def close(self, timeout: float = 10.0) -> None:
        """End the nodes' sandboxes and processes; running rollouts are lost. May be called twice.

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
        """Regularly look for nodes that have joined."""
        while True:
            await asyncio.sleep(_FIND_INTERVAL)
            with contextlib.suppress(Exception):  # the head may be gone; running rollouts go on
                await self.pool.find()

    async def _watch(self) -> None:
        """Regularly report nodes that get no more work, and check that any node takes work."""
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
        observer: is notified of rollouts, on the connection's thread, with :attr:`lock` held. An
            error that it raises for a record becomes that rollout's failure; any other error of
            it, or of ``refill``, ends all rollouts.
        substitute: returns the environment that a handle has in place of the node's.
        concurrency: how many rollouts run at a time, on all nodes together; None for the sum of
            the nodes' weights.
        refill: called, with :attr:`lock` held, when fewer rollouts than that are submitted; it may
            submit more.

    Attributes:
        lock: guards the state that ``refill`` uses; take it before any lock of the observer.
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
        self._error: BaseException | None = None  # the owner's error, or our own
        connection.executors.append(self)

    @property
    def concurrency(self) -> int:
        """How many rollouts run at a time."""
        return self._concurrency or self.connection.pool.slots

    @property
    def is_busy(self) -> bool:
        """Whether any rollout does not have a result yet."""
        return bool(self._jobs)

    def submit(self, spec: RolloutSpec) -> Handle:
        """Accept a rollout; it begins as soon as a node takes work.

        Raises:
            EngineUnavailable: the nodes can no longer run it.
            BaseException: the error that ended this executor.
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
        """Wait for a phase; the agent and the environment that it returns are substitutes."""
        result: Any = None if future is handle.closed else self._observer.wait(handle, future)
        if future is handle.made_agent:
            result = Agent("step", name=handle.spec.agent)
        elif future is handle.reset_environment:
            result = self._substitute(handle.spec)
        return result  # type: ignore[no-any-return]

    def cancel(self, handle: Handle, reason: str) -> None:
        """End a rollout without grading it; does nothing if it is over."""
        with self.lock:
            job = self._jobs.get(handle)
            if job is None or handle.over:
                return
            handle.fail(RolloutCancelled(reason))
            self._changed.notify_all()
        self.connection.soon(self._end, job, reason)

    def give_up(self, error: BaseException) -> None:
        """End all rollouts with an error; may be called from any thread."""
        with self.lock:
            self._error = self._error or error
            for job in list(self._jobs.values()):
                with contextlib.suppress(BaseException):  # the first error is what is reported
                    job.end(error, "prepare")
                self.connection.soon(self._end, job, str(error))
            self._changed.notify_all()

    def put(self, path: Path, digest: str) -> None:
        """Offer a file, with its SHA-256, to nodes whose rollouts need it."""
        self.connection.files.put(path, digest)

    def forget(self, path: Path) -> None:
        """Let nodes remove a file."""
        self.connection.forget_file(path)

    def wake(self) -> None:
        """Check whether a rollout can be submitted."""
        self.connection.soon(self.fill)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait, with :attr:`lock` held, until a condition holds or the executor is stopped.

        Raises:
            BaseException: the error that ended this executor before that.
        """
        while not (self._stopped or condition()):
            if self._error is not None:
                raise self._error
            # As in `Scheduler.wait_for`: not every change of the condition is notified.
            self._changed.wait(0.1)

    def stop(self) -> None:
        """Submit no more rollouts; running ones go on."""
        with self.lock:
            self._stopped = True
            self._changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait until no rollout runs on any node; return whether that is so."""
        with self.lock:
            return self._changed.wait_for(lambda: not self._jobs, timeout)

    def close(self) -> None:
        """Leave the nodes to others."""
        with contextlib.suppress(ValueError):
            self.connection.executors.remove(self)

    # -- on the connection's thread

    def fill(self) -> None:
        """Call ``refill`` until as many rollouts are submitted as may run."""
        with self.lock:
            while not (self._stopped or self._error or self.connection.given_up):
                count = len(self._jobs)
                # Even without any node, submit one rollout: its failure then reports the reason.
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
        # A callback, because a task that is cancelled before its first step runs no ``finally``.
        job.task.add_done_callback(lambda _: self._forget(job))

    async def _play(self, job: Job) -> None:
        """Play a rollout; raises only CancelledError."""
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
        """End a rollout with an error if it does not have a result."""
        with contextlib.suppress(BaseException):  # the earlier error is the one that is reported
            job.end(error)

    def _end(self, job: Job, reason: str) -> None:
        if job.worker is not None:
            job.worker.begin_call("cancel", job.number, reason)
        elif job.task is not None:
            job.task.cancel()
