"""What is next, the sandboxes of it, and the records on their way out.

Shared by the executors' owners: concurrent items of pytest, streams of rollouts, and the nodes of
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
    """Has the sandboxes of what comes next started while the present rollouts run.

    It looks ahead once at a time, on a thread of the provider's, as an image may be built for it.

    Args:
        provider: returns where sandboxes come from.
        upcoming: returns the tasks that come next, each with the provider or the view of it that
            its sandboxes are from, or None to leave what is expected as it is; called on that
            thread.
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
        """Start what comes next, if this environment has its sandboxes from the provider."""
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
    """What is to be run, try by try; used by one thread, but for :meth:`upcoming`.

    Args:
        spec_of: what is to be done with a task.
        tasks: the tasks, of which there may be no end.
        count: tries at each task, one after the other.
        check: called with each task before it is run; raises for one that cannot be.
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
        self._position = 0  # of the task whose tries come next
        self._tries: Iterator[RolloutSpec] = iter(())
        self._recent: deque[Task] = deque(maxlen=concurrency)
        self._lock = threading.Lock()
        if self._list:
            check(self._list[0])  # a mistake in the profile is reported at once

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
        """Return the tasks that come next; of tasks that nobody can foresee, those that came."""
        with self._lock:
            position, recent = self._position, list(self._recent)
        if self._list is None:
            return recent
        # With the task that was taken last: some of its tries may be yet to come.
        following = self._list[max(0, position - 1) : position + self._concurrency]
        tries = itertools.chain.from_iterable(
            itertools.repeat(task, self._count) for task in following
        )
        return list(itertools.islice(tries, self._concurrency))


class RecordQueue:
    """Records that wait to be taken, in the order of their numbers or as they come.

    Attributes:
        changed: its lock guards the queue and all that decides whether a record will come; it is
            notified of every change.
        closed: nothing is put in or taken out any more.
        error: raised for those that ask for a record when none will come any more.
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
        self._next = 0  # the number of the record that comes next, where they are ordered
        self._wakers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        return len(self._records)

    def put(self, number: int, record: EpisodeRecord) -> None:
        """Let a record wait, unless nobody will take it; with the lock held."""
        if not self.closed:
            self._records[number] = replace(record, item=number)

    def take(self) -> EpisodeRecord | None:
        """Return a record; None when there are no more.

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
        """Do the same without blocking the event loop; being cancelled loses no record."""
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
                    # With the lock still held, so that no change comes between the look and the
                    # wait.
                    waker = (loop, loop.create_future())
                    self._wakers.append(waker)
                await waker[1]
        finally:
            with self.changed:
                self.asking -= 1

    def pop(self) -> EpisodeRecord | None:
        """Return the next record, if there is one, with the lock held; or raise :attr:`error`."""
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
        """Drop what waits, and wake all that wait for it."""
        with self.changed:
            self.closed = True
            self._records.clear()
            self.notify()

    def notify(self) -> None:
        """Wake all that wait for a change, with the lock held."""
        self.changed.notify_all()
        wakers, self._wakers = self._wakers, []
        for loop, future in wakers:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(_wake, future)

    def _has_answer(self) -> bool:
        """Whether a record is there, or none will be; with the lock held."""
        if self.closed or self.error is not None:
            return True
        if self._records and (not self._ordered or self._next in self._records):
            return True
        return not self._more_to_come()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
