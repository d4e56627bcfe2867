"""Runs jobs on a few threads, in order, for somebody who takes their results one by one.

It knows neither episodes nor pytest. What is next is asked of its owner each time a thread is
free, so that the owner may change its mind until then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Scheduler"]


class Scheduler:
    """A few threads that ask for jobs.

    Args:
        threads: how many jobs run at a time; a thread is started when there is a job for it.
        next_job: returns what is to be begun next, or None while there is nothing. It is called
            with :attr:`lock` held, and the job without. A job raises nothing.
        name: what the threads' names begin with.
        patience: seconds after which a thread without a job asks again, though nobody woke it;
            None if everybody does.

    Attributes:
        lock: guards whatever ``next_job`` looks at.
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
