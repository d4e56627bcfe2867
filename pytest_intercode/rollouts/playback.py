"""The episodes behind a stream: run when there is room, and kept until their records are taken."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.turn import Profile
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import (
    EngineUnavailable,
    InfrastructureError,
    IntercodeError,
    RolloutCancelled,
    TaskError,
)
from pytest_intercode.rollouts.executor import Handle, Observer
from pytest_intercode.rollouts.feed import LookAhead, RecordQueue, Tries
from pytest_intercode.rollouts.inline import InlineExecutor
from pytest_intercode.rollouts.isolation import OUR_THREADS
from pytest_intercode.rollouts.output import print_pieces
from pytest_intercode.rollouts.parameters import ParameterSource
from pytest_intercode.rollouts.records import RecordBuilder
from pytest_intercode.rollouts.rollout import Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.rollouts.threads import ThreadsExecutor
from pytest_intercode.system.forks import MakingProcess

if TYPE_CHECKING:
    from pytest_intercode.core.task import Task
    from pytest_intercode.rollouts.cluster.executor import ClusterExecutor
    from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["Playback"]

_CLOSE_TIMEOUT = 10.0  # seconds for cancelled rollouts to close their sandboxes
_TASK_TIMEOUT = 1.0  # seconds for the iterable of tasks to return
_OTHER_TIMEOUT = 60.0  # seconds to wait for another thread that is already closing


class Playback(Observer):
    """The episodes behind a stream, whose records then wait to be taken.

    With a concurrency of 1 an episode runs in the thread that asks for a record. Otherwise, on a
    cluster, and for async consumers, an executor runs them: a separate thread takes the tasks,
    whose iterable may be slow, and submits an episode whenever there is room for it. This class is
    also the executor's observer. If both locks are needed, the executor's is taken before the
    queue's.

    Attributes:
        resources: resources that are closed with it.
        parameters: the parameters that the trainer gives its agent.
        session: the executor on a cluster; None for one of this process.
        records: the records that wait to be taken; its lock guards the state below.
        running: the numbers of the running episodes.
    """

    _tries: Tries
    _look_ahead: LookAhead
    _concurrency: int
    _buffer: int

    def __init__(
        self, services: Services, parameters: ParameterSource, ordered: bool, raises: bool
    ) -> None:
        self.parameters = parameters
        self.session: ClusterExecutor | None = None
        self.resources = contextlib.ExitStack()
        self.records = RecordQueue(
            ordered=ordered, more_to_come=lambda: bool(self.running) or not self._exhausted
        )
        self.running: dict[Handle, int] = {}
        self._services = services
        self._raises = raises
        self._process = MakingProcess("these rollouts belong", "a stream")
        self._inline = threading.Lock()  # only one calling thread runs an episode at a time
        self._executor: ThreadsExecutor | ClusterExecutor | None = None
        self._feeder: threading.Thread | None = None
        self._numbers = itertools.count()
        self._exhausted = False
        self._closing = 0  # the id of the thread that closes it
        self._closed = threading.Event()
        self._printed: deque[list[Any]] = deque()

    def begin(self, tries: Tries, profile: Profile, concurrency: int, buffer: int) -> None:
        """Set what to run, and how; nothing is run until a record is asked for."""
        self._tries = tries
        self._concurrency = concurrency
        self._buffer = buffer

        def upcoming() -> list[tuple[Task, SandboxProvider]] | None:
            if self.records.closed:  # an empty list would drop the expectations of another stream
                return None
            return [(task, self._services.sandboxes) for task in tries.upcoming()]

        self._look_ahead = LookAhead(lambda: self._services.sandboxes, upcoming, profile)

    # -- called by the consumer

    def take(self) -> EpisodeRecord | None:
        """Wait for a record and return it; None when there are no more."""
        self._process.check()
        if self._concurrency == 1 and self._executor is None and self.session is None:
            return self._run_inline()
        self._start()
        record = self.records.take()
        self._print()
        return record

    async def take_async(self) -> EpisodeRecord | None:
        """Do the same without blocking the event loop."""
        self._process.check()
        self._start()
        record = await self.records.take_async()
        self._print()
        return record

    def _print(self) -> None:
        """Print the output of episodes on nodes, on the calling thread and without a lock."""
        while self._printed:
            print_pieces(self._printed.popleft())

    def _run_inline(self) -> EpisodeRecord | None:
        """Run an episode in this thread, and return its record; None when there are no more."""
        with self._inline:
            spec = None if self.records.closed else next(self._tries, None)
            if spec is not None:
                spec = replace(spec, parameters=self.parameters.take())
                handle = InlineExecutor(self._services, self).submit(spec)
                with self.records.changed:
                    if self.records.closed:
                        return None
                    self.running[handle] = next(self._numbers)
                try:
                    handle.record(handle.agent(), handle.environment())
                except BaseException as error:
                    self.failed(handle, error)
                finally:
                    with contextlib.suppress(IntercodeError):  # as the threads executor does
                        handle.close()
            with self.records.changed:
                return self.records.pop()

    def close(self) -> None:
        """Cancel running episodes, wait for their end, and close their resources."""
        if not self._process.is_this:
            return
        with self.records.changed:
            closing, self._closing = self._closing, self._closing or threading.get_ident()
            self.records.close()
        if closing:
            if closing != threading.get_ident():  # it may be this thread, interrupted by a signal
                self._closed.wait(_OTHER_TIMEOUT)
            return
        try:
            self._close()
        finally:
            self._closed.set()

    def _close(self) -> None:
        try:
            self._cancel("the stream of rollouts was closed")
            if self._executor is not None:
                self._executor.stop()
                self._executor.join(_CLOSE_TIMEOUT)
            if self._feeder not in (None, threading.current_thread()):
                self._feeder.join(_TASK_TIMEOUT)  # it may wait for the caller's iterable
            if self.session is None:  # end the sandboxes of episodes that will not run
                with contextlib.suppress(InfrastructureError):
                    self._services.sandboxes.expect(())
        finally:
            self.resources.close()

    def _cancel(self, reason: str) -> None:
        with self.records.changed:
            running = list(self.running)
        for handle in running:
            handle.cancel(reason)

    # -- episodes in an executor

    def _start(self) -> None:
        with self.records.changed:
            if self._executor is None and not self.records.closed:
                self._executor = self.session or ThreadsExecutor(
                    self._services, self, self._concurrency, refill=lambda: None
                )
                name = f"{OUR_THREADS}tasks"
                self._feeder = threading.Thread(target=self._feed, name=name, daemon=True)
                self._feeder.start()

    def _feed(self) -> None:
        """Submit episodes, each as soon as there is room for it, until there are no more tasks."""
        executor = self._executor
        assert executor is not None
        try:
            while self._wait_for_room():
                spec = next(self._tries, None)  # without the lock, as it may be slow
                if spec is None:
                    break
                while self._wait_for_room() and not self._submit(executor, spec):
                    pass
        except BaseException as error:
            self._fail(error)
        with self.records.changed:
            self._exhausted = True
            self.records.notify()

    def _submit(self, executor: ThreadsExecutor | ClusterExecutor, spec: RolloutSpec) -> bool:
        """Submit an episode if there is room for it; return whether there was."""
        # The locks delay notifications of the episode until it is known here.
        with executor.lock, self.records.changed:
            if self._ended or not self._has_room():
                return False
            spec = replace(spec, parameters=self.parameters.take())
            self.running[executor.submit(spec)] = next(self._numbers)
            return True

    def _wait_for_room(self) -> bool:
        """Wait until there is room for an episode; return False if the stream has ended."""
        with self.records.changed:
            self.records.changed.wait_for(lambda: self._ended or self._has_room())
            return not self._ended

    @property
    def _ended(self) -> bool:
        return self.records.closed or self.records.error is not None

    def _has_room(self) -> bool:
        limit = self._buffer or min(1, self.records.asking)
        return len(self.running) < self._concurrency and len(self.records) < limit

    def _record_of(self, spec: RolloutSpec, error: BaseException) -> EpisodeRecord:
        """Return the record of a failed episode; re-raise an error that concerns the stream."""
        if isinstance(error, TaskError):
            return RecordBuilder(spec).failure(error)
        of_all = isinstance(error, EngineUnavailable)  # all other episodes would fail likewise
        if isinstance(error, InfrastructureError) and not (of_all or self._raises):
            return RecordBuilder(spec).failure(error)
        raise error

    def _fail(self, error: BaseException) -> None:
        """Begin no more episodes, and raise an error in the consumer."""
        with self.records.changed:
            self.records.error = self.records.error or error
            self.records.notify()
        self._cancel("another episode of the stream failed")

    # -- called by executors, on the rollouts' threads

    def preparing(self, handle: Handle, environment: Environment) -> None:
        """Have the sandboxes of the next tasks started."""
        if not self.records.closed:
            self._look_ahead.look(environment)

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """Queue a record."""
        self._end(handle, record)

    def failed(self, handle: Handle, error: BaseException) -> None:
        """Queue the record of a failure, or end the stream with the error."""
        if handle not in self.running:  # it is already handled
            return
        record = None
        if not isinstance(error, RolloutCancelled):
            try:
                record = self._record_of(handle.spec, error)
            except BaseException as raised:
                self._fail(raised)
        self._end(handle, record)

    def _end(self, handle: Handle, record: EpisodeRecord | None) -> None:
        with self.records.changed:
            number = self.running.pop(handle, None)
            if number is not None and record is not None:
                self.records.put(number, record)
            self.records.notify()
        try:
            self.parameters.give_back(handle.spec.parameters)
        except BaseException as error:  # the consumer gets the record anyway
            self._fail(error)

    def printed(self, handle: Handle, pieces: list[Any]) -> None:
        """Keep the output of an episode on a node until a record is asked for."""
        if not self.records.closed:
            self._printed.append(pieces)
