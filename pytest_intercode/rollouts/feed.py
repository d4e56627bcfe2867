"""The next tries, the look-ahead for their sandboxes, and the queue of records.

Shared by the owners of executors: concurrent items of pytest, streams of rollouts, and the nodes of
a cluster have the same look-ahead.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Profile
from pytest_intercode.environments.base import Environment
from pytest_intercode.rollouts.rollout import expect_sandboxes
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

if TYPE_CHECKING:
    import asyncio

__all__ = ["LookAhead", "RecordQueue", "Tries"]


class LookAhead:
    """Has the sandboxes of the next tasks started while the current rollouts run.

    Only one look-ahead runs at a time. It uses a thread of the provider, because it may build an
    image.

    Args:
        provider: returns the provider of sandboxes.
        upcoming: returns the next tasks, each with the provider (or a view of it) of its sandboxes,
            or None to leave the expected sandboxes unchanged; called on that thread.
        profile: the profile that they are played under.
    """

    def __init__(
        self,
        provider: Callable[[], SandboxProvider],
        upcoming: Callable[[], Iterable[tuple[Task, SandboxProvider]] | None],
        profile: Profile,
    ) -> None:
        self._provider = provider
        self._upcoming = upcoming
        self._profile = profile
        self._looking = threading.Lock()

    def look(self, environment: Environment) -> None:
        """Start the next sandboxes, if this environment gets its own from the provider."""
        provider = self._provider()
        if not provider.provides_for(environment):
            return
        if self._looking.acquire(blocking=False):
            try:
                provider.background(self._expect)
            except BaseException:
                self._looking.release()
                raise

    def _expect(self) -> None:
        try:
            upcoming = self._upcoming()
            if upcoming is not None:
                expect_sandboxes(self._provider(), upcoming, self._profile)
        finally:
            self._looking.release()


class Tries(Iterator[RolloutSpec]):
    """The tries to run; used by one thread, except for :meth:`upcoming`.

    Args:
        spec_of: returns the spec of a rollout of a task.
        tasks: the tasks, which may be an infinite iterable.
        count: tries at each task, one after the other.
        check: called with each task before it is run; raises for a task that cannot be run.
        concurrency: how many rollouts run at a time.
    """

    def __init__(
        self,
        spec_of: Callable[[Task], RolloutSpec],
        tasks: Iterable[Task],
        count: int,
        check: Callable[[Task], None],
        concurrency: int,
    ) -> None:
        self._spec_of = spec_of
        self._list = tasks if isinstance(tasks, Sequence) else None
        self._tasks = iter(tasks)
        self._count = count
        self._check = check
        self._concurrency = concurrency
        self._position = 0  # the index of the task whose tries come next
        self._tries: Iterator[RolloutSpec] = iter(())
        self._recent: deque[Task] = deque(maxlen=concurrency)
        self._lock = threading.Lock()
        if self._list:
            check(self._list[0])  # report a mistake in the profile immediately

    def __next__(self) -> RolloutSpec:
        for spec in self._tries:
            return spec
        task = next(self._tasks)
        self._check(task)
        with self._lock:
            self._position += 1
            self._recent.append(task)
        self._tries = (
            self._spec_of(replace(task, repeat=number)) for number in range(1, self._count + 1)
        )
        return next(self._tries)

    def upcoming(self) -> list[Task]:
        """Return the next tasks; if they cannot be foreseen, the most recent tasks instead."""
        with self._lock:
            position, recent = self._position, list(self._recent)
        if self._list is None:
            return recent
        # Include the task that was taken last, as some of its tries may not have begun.
        following = self._list[max(0, position - 1) : position + self._concurrency]
        tries = itertools.chain.from_iterable(
            itertools.repeat(task, self._count) for task in following
        )
        return list(itertools.islice(tries, self._concurrency))


class RecordQueue:
    """Records that wait to be taken, in the order of their numbers or of their arrival.

    Attributes:
        changed: its lock guards the queue and all state that decides whether another record will
            come; it is notified of every change.
        closed: whether no record is put in or taken out any more.
        error: raised for callers that ask for a record when no more will come.
        asking: how many threads and coroutines wait for a record.
    """

    def __init__(self, *, ordered: bool, more_to_come: Callable[[], bool]) -> None:
        self.changed = threading.Condition()
        self.closed = False
        self.error: BaseException | None = None
        self.asking = 0
        self._ordered = ordered
        self._more_to_come = more_to_come
        self._records: dict[int, EpisodeRecord] = {}
        self._next = 0  # the number of the next record, if they are ordered
        self._wakers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        return len(self._records)

    def put(self, number: int, record: EpisodeRecord) -> None:
        """Add a record, unless the queue is closed; with the lock held."""
        if not self.closed:
            self._records[number] = replace(record, item=number)

    def take(self) -> EpisodeRecord | None:
        """Wait for a record and return it; None when there are no more.

        Raises:
            BaseException: :attr:`error`.
        """
        with self.changed:
            self.asking += 1
            self.changed.notify_all()
            try:
                self.changed.wait_for(self._has_answer)
                return self.pop()
            finally:
                self.asking -= 1

    async def take_async(self) -> EpisodeRecord | None:
        """Do the same without blocking the event loop; a cancellation does not lose a record."""
        import asyncio

        loop = asyncio.get_running_loop()
        with self.changed:
            self.asking += 1
            self.changed.notify_all()
        try:
            while True:
                with self.changed:
                    if self._has_answer():
                        return self.pop()
                    # Add it with the lock still held, so that no change is missed between the check
                    # and the wait.
                    waker = (loop, loop.create_future())
                    self._wakers.append(waker)
                await waker[1]
        finally:
            with self.changed:
                self.asking -= 1

    def pop(self) -> EpisodeRecord | None:
        """Return the next record, if there is one, or raise :attr:`error`; with the lock held."""
        if not self._ordered and self._records:
            self._next = next(iter(self._records))
        record = self._records.pop(self._next, None)
        if record is not None:
            self._next += 1
            self.changed.notify_all()
            return record
        if self.error is not None and not self.closed:
            raise self.error
        return None

    def close(self) -> None:
        """Drop all records, and wake all waiting callers."""
        with self.changed:
            self.closed = True
            self._records.clear()
            self.notify()

    def notify(self) -> None:
        """Wake all callers that wait for a change; with the lock held."""
        self.changed.notify_all()
        wakers, self._wakers = self._wakers, []
        for loop, future in wakers:
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                loop.call_soon_threadsafe(_wake, future)

    def _has_answer(self) -> bool:
        """Whether there is a record, or no more will come; with the lock held."""
        if self.closed or self.error is not None:
            return True
        if self._records and (not self._ordered or self._next in self._records):
            return True
        return not self._more_to_come()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
