"""The concurrent executor: a few rollouts at a time, each on a thread of its own.

It begins rollouts in the order in which they are submitted, and asks its owner for more when a
thread is free, so that the owner can decide as late as possible.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.base import Environment
from pytest_intercode.rollouts.executors.handle import BackgroundHandle, Observer, Phase, PhaseName
from pytest_intercode.rollouts.isolation import OUR_THREADS
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["ConcurrentExecutor", "ConcurrentHandle", "ConcurrentObserver", "Scheduler"]

Result = TypeVar("Result")


class ConcurrentObserver(Observer, Protocol):
    """Also surrounds rollouts and waiting for them."""

    def surrounding(self, handle: ConcurrentHandle) -> contextlib.AbstractContextManager[Any]:
        """Return a context that the rollout's thread is in while it works."""
        return contextlib.nullcontext()

    def entering(self, handle: ConcurrentHandle, phase: PhaseName) -> None:
        """A phase begins."""
        return

    def wait(self, handle: ConcurrentHandle, future: Future[Result]) -> Result:
        """Return a future's result to the thread that asked the handle for it."""
        return future.result()


class ConcurrentHandle(BackgroundHandle):
    """A rollout that runs on a thread of the executor's; phases are known once they have begun."""

    def __init__(self, rollout: Rollout, observer: ConcurrentObserver) -> None:
        super().__init__(rollout.spec)
        self._rollout = rollout
        self._observer = observer
        self._closed: Future[None] = Future()

    @property
    def over(self) -> bool:
        """Whether its observer hears no more of it."""
        return self._closed.done()

    def agent(self) -> Agent:
        """Wait for the agent."""
        agent: Agent = self._observer.wait(self, self._agent)
        return agent

    def environment(self) -> Environment:
        """Wait for the environment; it is closed as soon as the episode is over."""
        environment: Environment = self._observer.wait(self, self._environment)
        return environment

    def record(self, agent: Agent, environment: Environment) -> EpisodeRecord:
        """Wait for the record; agent and environment are the rollout's own."""
        self.asked = True
        return self._observer.wait(self, self._record)

    def close(self) -> None:
        """Wait for the end of the sandboxes of a rollout whose record was asked for."""
        if self.asked and not self.cancelled:
            self._observer.wait(self, self._closed)

    def cancel(self, reason: str) -> None:
        """End it, ungraded."""
        self._rollout.cancel(reason)

    def __call__(self) -> None:
        """Run it, on the present thread; raises nothing."""
        rollout, observer = self._rollout, self._observer
        with observer.surrounding(self):
            try:
                with self._timed("prepare"):
                    agent = rollout.make_agent()
                    self._agent.set_result(agent)
                    environment = rollout.make_environment()
                    observer.preparing(self, environment)
                    rollout.prepare(environment)
                    observer.prepared(self, environment)
                self._environment.set_result(environment)
                with self._timed("run"):
                    record = rollout.run(agent, environment)
                    observer.ended(self, record)
                self._record.set_result(record)
            except BaseException as error:
                observer.failed(self, error)
                for future in (self._agent, self._environment, self._record):
                    if not future.done():
                        future.set_exception(error)
            try:
                with self._timed("close"):
                    rollout.close()
            except BaseException as error:
                self._closed.set_exception(error)
            else:
                self._closed.set_result(None)

    @contextlib.contextmanager
    def _timed(self, name: PhaseName) -> Iterator[None]:
        phase = self.phases[name] = Phase(time.time())
        self._observer.entering(self, name)
        began = time.monotonic()
        try:
            yield
        finally:
            phase.seconds = time.monotonic() - began


class Scheduler:
    """A few threads that ask for jobs.

    Args:
        threads: how many jobs run at a time; a thread is started when there is a job for it.
        next_job: returns what is to be begun next, or None while there is nothing. It is called
            with :attr:`lock` held, and the job without. A job raises nothing.
        name: what the threads' names begin with.
        patience: seconds after which a thread without a job asks again without being woken;
            None for never.

    Attributes:
        lock: guards what ``next_job`` looks at.
    """

    def __init__(
        self,
        threads: int,
        next_job: Callable[[], Callable[[], None] | None],
        *,
        name: str,
        patience: float | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self._most = threads
        self._next_job = next_job
        self._name = name
        self._patience = patience
        self._changed = threading.Condition(self.lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopped = False

    def wake(self) -> None:
        """Say that there may be something to begin."""
        with self.lock:
            self._changed.notify_all()
            if not self._idle:
                self._add_thread()

    def stop(self) -> None:
        """Begin nothing more; what runs goes on."""
        with self.lock:
            self._stopped = True
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait, with :attr:`lock` held, until something is so or all is over."""
        while not (self._stopped or condition()):
            self._changed.wait(0.1)

    def join(self, patience: float) -> bool:
        """Wait for what runs, after :meth:`stop`.

        Args:
            patience: seconds to wait, for all of them together.

        Returns:
            Whether all of it has ended.
        """
        until = time.monotonic() + patience
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _add_thread(self) -> None:
        """Start a thread if there may be one more, with the lock held."""
        if not self._stopped and len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more; with fewer it only takes longer
                if not self._threads:
                    raise
                return
            self._threads.append(thread)

    def _work(self) -> None:
        while True:
            with self.lock:
                job = self._wait_for_job()
                if job is not None and not self._idle:
                    self._add_thread()  # there may be another one
            if job is None:
                return
            job()

    def _wait_for_job(self) -> Callable[[], None] | None:
        """Return the next job, or None to end."""
        while not self._stopped:
            job = self._next_job()
            if job is not None:
                self._changed.notify_all()
                return job
            self._idle += 1
            self._changed.wait(self._patience)
            self._idle -= 1
        return None


class ConcurrentExecutor(Scheduler):
    """Runs rollouts on a few threads.

    Args:
        services: what rollouts work with.
        observer: what is notified of them.
        concurrency: how many run at a time.
        refill: called, with :attr:`lock` held, when a thread is free and nothing is submitted; it
            may submit something.
        patience: seconds after which a free thread asks again by itself; None for never.

    Attributes:
        lock: guards what ``refill`` looks at.
    """

    def __init__(
        self,
        services: Services,
        observer: ConcurrentObserver,
        concurrency: int,
        refill: Callable[[], object],
        *,
        patience: float | None = None,
    ) -> None:
        self._services = services
        self._observer = observer
        self._refill = refill
        self._submitted: deque[ConcurrentHandle] = deque()
        super().__init__(concurrency, self._next, name=f"{OUR_THREADS}rollout", patience=patience)

    def submit(self, spec: RolloutSpec) -> ConcurrentHandle:
        """Take a rollout; it begins when a thread is free."""
        handle = ConcurrentHandle(Rollout(spec, self._services), self._observer)
        with self.lock:
            self._submitted.append(handle)
            self.wake()
        return handle

    def _next(self) -> Callable[[], None] | None:
        if not self._submitted:
            self._refill()
        return self._submitted.popleft() if self._submitted else None
