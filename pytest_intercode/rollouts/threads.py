"""The threads executor: a few rollouts at a time, each on its own thread.

It begins rollouts in the order in which they are submitted, and asks its owner for more when a
thread is free, so that the owner can decide as late as possible.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pytest_intercode.rollouts.executor import Handle, Observer, timed
from pytest_intercode.rollouts.isolation import OUR_THREADS
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["Scheduler", "ThreadsExecutor"]

Result = TypeVar("Result")


class Scheduler:
    """A few threads that ask for jobs.

    Args:
        threads: how many jobs run at a time; a thread is started when there is a job for it.
        next_job: returns the next job, or None while there is none. It is called with :attr:`lock`
            held, and the job without. A job must not raise.
        name: the prefix of the threads' names.
        interval: seconds after which a thread without a job asks again without being woken;
            None for never.

    Attributes:
        lock: guards the state that ``next_job`` uses.
    """

    def __init__(
        self,
        threads: int,
        next_job: Callable[[], Callable[[], None] | None],
        *,
        name: str,
        interval: float | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self._max_threads = threads
        self._next_job = next_job
        self._name = name
        self._interval = interval
        self._changed = threading.Condition(self.lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopped = False

    def wake(self) -> None:
        """Check whether a job can begin."""
        with self.lock:
            self._changed.notify_all()
            if not self._idle:
                self._add_thread()

    def stop(self) -> None:
        """Begin no more jobs; running ones go on."""
        with self.lock:
            self._stopped = True
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait, with :attr:`lock` held, until a condition holds or this was stopped."""
        while not (self._stopped or condition()):
            # With a timeout: there is no notification when a budget is used up, or when pytest is
            # to stop.
            self._changed.wait(0.1)

    def join(self, timeout: float) -> bool:
        """Wait for running jobs, after :meth:`stop`.

        Args:
            timeout: seconds to wait, for all of them together.

        Returns:
            Whether all of them have ended.
        """
        deadline = time.monotonic() + timeout
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _add_thread(self) -> None:
        """Start a thread if another one is allowed, with the lock held."""
        if not self._stopped and len(self._threads) < self._max_threads:
            name = f"{self._name}-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # too many threads in the system; with fewer it only takes longer
                if not self._threads:
                    raise
                return
            self._threads.append(thread)

    def _work(self) -> None:
        while True:
            with self.lock:
                job = self._wait_for_job()
                if job is not None and not self._idle:
                    self._add_thread()  # there may be another job
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
            self._changed.wait(self._interval)
            self._idle -= 1
        return None


class ThreadsExecutor(Scheduler):
    """Runs rollouts on a few threads.

    Args:
        services: the services that rollouts use.
        observer: is notified of rollouts.
        concurrency: how many rollouts run at a time.
        refill: called, with :attr:`lock` held, when a thread is free and no rollout is submitted;
            it may submit one.
        interval: seconds after which a free thread asks again without being woken; None for never.

    Attributes:
        lock: guards the state that ``refill`` uses.
    """

    def __init__(
        self,
        services: Services,
        observer: Observer,
        concurrency: int,
        refill: Callable[[], object],
        *,
        interval: float | None = None,
    ) -> None:
        self._services = services
        self._observer = observer
        self._refill = refill
        self._submitted: deque[Handle] = deque()
        super().__init__(concurrency, self._next, name=f"{OUR_THREADS}rollout", interval=interval)

    def submit(self, spec: RolloutSpec) -> Handle:
        """Accept a rollout; it begins when a thread is free."""
        handle = Handle(spec, self, Rollout(spec, self._services))
        with self.lock:
            self._submitted.append(handle)
            self.wake()
        return handle

    def wait(self, handle: Handle, future: Future[Result]) -> Result:
        """Wait for a phase; wait for the end of sandboxes only if the record was asked for."""
        if future is handle.closed and (handle.cancelled or not handle.asked):
            return None  # type: ignore[return-value]  # as the future's own
        return self._observer.wait(handle, future)

    def cancel(self, handle: Handle, reason: str) -> None:
        """End a rollout without grading it."""
        assert handle.rollout is not None
        handle.rollout.cancel(reason)

    def _next(self) -> Callable[[], None] | None:
        if not self._submitted:
            self._refill()
        if not self._submitted:
            return None
        handle = self._submitted.popleft()
        return lambda: self._run(handle)

    def _run(self, handle: Handle) -> None:
        """Run a rollout on the current thread; does not raise."""
        rollout, observer = handle.rollout, self._observer
        assert rollout is not None
        with observer.surrounding(handle):
            try:
                with timed(handle, observer, "prepare"):
                    agent = rollout.make_agent()
                    handle.made_agent.set_result(agent)
                    environment = rollout.make_environment()
                    observer.preparing(handle, environment)
                    rollout.prepare(environment)
                    observer.prepared(handle, environment)
                handle.reset_environment.set_result(environment)
                with timed(handle, observer, "run"):
                    record = rollout.run(agent, environment)
                    observer.ended(handle, record)
                handle.recorded.set_result(record)
            except BaseException as error:
                observer.failed(handle, error)
                handle.fail(error)
            try:
                with timed(handle, observer, "close"):
                    rollout.close()
            except BaseException as error:
                handle.closed.set_exception(error)
            else:
                handle.closed.set_result(None)
