"""Rollouts without pytest: episode records one after the other, for a program that trains on them.

Each is run by :class:`~pytest_intercode.rollouts.rollout.Rollout` in an executor, as items of
pytest are. The process is the caller's: what a policy changes in it is neither reported nor set
back. Imports no trainer.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from pytest_intercode.agents.loader import factory_of, load_agent
from pytest_intercode.agents.protocol import AgentFactory
from pytest_intercode.core.forks import MakingProcess
from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Feedback, Profile
from pytest_intercode.core.usage import Budget
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS, environment_class
from pytest_intercode.errors import (
    ConfigurationError,
    EngineUnavailable,
    InfrastructureError,
    IntercodeError,
    RolloutCancelled,
    TaskError,
)
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.cluster.connection import (
    Cluster,
    ClusterSession,
    NodeAgent,
    check_agent,
    shared_cluster,
)
from pytest_intercode.rollouts.cluster.output import give_out
from pytest_intercode.rollouts.executors.concurrent import ConcurrentExecutor, ConcurrentObserver
from pytest_intercode.rollouts.executors.handle import Handle
from pytest_intercode.rollouts.executors.inline import InlineExecutor
from pytest_intercode.rollouts.isolation import OUR_THREADS
from pytest_intercode.rollouts.parameters import ParameterSource
from pytest_intercode.rollouts.rollout import (
    Services,
    expect_sandboxes,
    failure_record,
    fresh_agent,
)
from pytest_intercode.rollouts.spec import DEFAULT_TIMEOUT, RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.making import (
    Reached,
    permissions_of,
    reached_hosts,
    runnable,
    runnable_of_endless,
    shared_provider,
    tasks_called,
)

if TYPE_CHECKING:
    import asyncio

__all__ = ["RolloutStream", "run_rollouts"]

_PATIENCE = 10.0  # seconds for cancelled rollouts to close their sandboxes
_FAREWELL = 1.0  # seconds for the iterable of tasks to return


def run_rollouts(
    tasks: str | os.PathLike[str] | Iterable[Task],
    agent: str | Callable[..., object],
    *,
    n: int = 1,
    concurrency: int | None = None,
    ordered: bool = False,
    buffer: int | None = None,
    agent_arguments: Mapping[str, str] | None = None,
    parameters: Mapping[str, object] | None = None,
    parameters_version: int | None = None,
    data: str | os.PathLike[str] | None = None,
    profile: Profile = "strict",
    feedback: Feedback | None = None,
    max_turns: int | None = None,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    timeout: float | None = None,
    action_timeout: float | None = None,
    network: bool | Sequence[str] = False,
    allow_path: Sequence[str | os.PathLike[str]] = (),
    pass_env: Sequence[str] = (),
    provider: SandboxProvider | None = None,
    cluster: str | Cluster | None = None,
    raise_infrastructure_errors: bool = False,
) -> RolloutStream:
    """Run an agent on tasks, and return the episode records as they end.

    ::

        with pytest_intercode.run_rollouts("bash", policy, n=8, concurrency=32) as records:
            for record in records:
                print(record.task.id, record.reward, record.usage.tokens)

    Args:
        tasks: the name of a bundled suite, a dataset or a part of it, the path of a suite or of a
            folder of task folders; or tasks, of which there may be no end. They are taken one by
            one, as late as possible, on a thread of the stream's where ``concurrency`` is not 1.
        agent: an agent as ``--intercode-agent`` names it; a class, or a function without arguments,
            that makes one for each episode; or a callable that is the policy of all of them,
            ``(observation)`` or ``(task, env)``.
        n: tries at each task, one after the other; ``record.task.repeat`` counts them from 1.
        concurrency: episodes that run at a time; by default 1, and on a cluster as many as its
            nodes have CPUs. With 1 an episode runs when a record is asked for, and never beside
            the caller's own work.
        ordered: whether records come in the order of the tasks, and not as they end.
        buffer: while so many finished records wait to be taken, no episode begins; by default as
            many as run at a time. 0 lets episodes begin only while a record is asked for.
        agent_arguments: keyword arguments of an agent that is named.
        parameters: further keyword arguments of an agent that is a class, which
            :meth:`RolloutStream.set_parameters` changes: JSON values, and files as ``pathlib``
            paths, which are copied.
        parameters_version: the caller's number of them, from 1; ``record.parameters_version``.
        data: as for :func:`make`.
        profile: ``strict`` or ``paper``.
        feedback: ``reward`` grades after every action, and ends the episode at 1.0; by default what
            the agent is made for.
        max_turns: actions in an episode; None for each task's own number.
        max_tokens: tokens that an episode has, as far as the agent reports them.
        max_cost: money that it has, likewise.
        timeout: seconds that an episode has; None for each task's own number, else 600.
        action_timeout: seconds for an action; None for each task's own number.
        network: as for :func:`make`.
        allow_path: as for :func:`make`, where tasks are named.
        pass_env: likewise.
        provider: where sandboxes come from; by default that of the process, which stays warm for
            the next stream.
        cluster: the nodes that episodes run on: an address as ``--intercode-cluster`` takes it, for
            the connection of this process, or a :class:`Cluster`. The agent has to be named.
        raise_infrastructure_errors: raise what broke and is neither the agent's nor the task's
            fault, in place of its record.

    Returns:
        An iterator, also for ``async for``. Leaving its ``with`` (or ``async with``) cancels what
        runs. ``record.item`` is the number of the episode in the stream, from 0.

    Raises:
        ConfigurationError: there is no such suite, dataset, profile or agent, a number is wrong, or
            the cluster cannot be used.
    """
    asked = f"run_rollouts({os.fspath(tasks)!r})" if _is_name(tasks) else "run_rollouts()"
    whole = {"n": (n, 1), "concurrency": (concurrency, 1), "buffer": (buffer, 0)}
    amounts = {
        "max_turns": max_turns,
        "max_tokens": max_tokens,
        "max_cost": max_cost,
        "timeout": timeout,
        "action_timeout": action_timeout,
    }
    _check_numbers(whole, amounts, asked)
    if cluster is not None:
        check_agent(agent, asked)
        if provider is not None:
            raise ConfigurationError(
                f"{asked}: provider is of this process, and each node has its own; leave it out, "
                "and say in Cluster(sandbox=...) what nodes are to use"
            )
    reached = reached_hosts(network, asked)
    permissions = permissions_of(reached, allow_path, pass_env)
    task_list = _listed(tasks, data, asked, reached, permissions)
    with contextlib.ExitStack() as made:
        names = frozenset(parameters or ())
        source = ParameterSource(asked, names)
        made.callback(source.close)
        factory = _load(agent, agent_arguments, names, asked)
        made.callback(factory.close)
        if cluster is not None:
            pass
        elif provider is None and (factory.readonly or factory.scratch):
            provider = SandboxProvider(readonly=factory.readonly, scratch=factory.scratch)
            made.callback(provider.close)
        elif factory.readonly or factory.scratch:
            raise ConfigurationError(
                f"{asked}: the agent {factory.name} lives in the sandbox and needs sandboxes of "
                "its own; leave provider out"
            )
        loop = SharedLoop()
        made.callback(loop.close)

        def spec_of(task: Task) -> RolloutSpec:
            return RolloutSpec(
                task=task,
                agent=agent if isinstance(agent, str) else "",
                agent_arguments=dict(agent_arguments or {}),
                agent_folder=Path.cwd(),
                profile=profile,
                feedback=feedback or factory.feedback or "observation",
                max_turns=max_turns,
                action_timeout=action_timeout,
                timeout=timeout or task.timeout or DEFAULT_TIMEOUT,
                budget=Budget(max_tokens, max_cost),
            )

        services = Services(
            sandboxes=provider or shared_provider(),
            make_agent=lambda spec: fresh_agent(factory, spec),
            isolate=lambda: contextlib.nullcontext([]),
            shared_loop=loop,
        )
        work = _Work(services, source, ordered, raise_infrastructure_errors)
        if cluster is not None:
            found = shared_cluster(cluster) if isinstance(cluster, str) else cluster
            arguments = tuple(sorted((agent_arguments or {}).items()))
            played = NodeAgent(factory.name, arguments, names, Path.cwd(), network is True)
            session = found.open(played, concurrency, work, asked)
            made.callback(session.close)
            source.user = work.session = session
            concurrency = session.concurrency
        concurrency = concurrency or 1
        if parameters or parameters_version is not None:
            source.set(parameters or {}, parameters_version)
        specs = _Specs(spec_of, task_list, n, concurrency, profile, asked, cluster is not None)
        on_own_threads = concurrency > 1 or cluster is not None
        buffer = (concurrency if on_own_threads else 0) if buffer is None else buffer
        work.begin(specs, concurrency, buffer)
        work.closing.push(made.pop_all())
    return RolloutStream(work)


class RolloutStream:
    """Episode records as they end; see :func:`run_rollouts`.

    One that is not used in a ``with`` is closed when it is exhausted, when it raises, and when
    nothing refers to it any more.
    """

    def __init__(self, work: _Work) -> None:
        self._work = work
        weakref.finalize(self, _abandon, work).atexit = False

    def __iter__(self) -> RolloutStream:
        return self

    def __next__(self) -> EpisodeRecord:
        """Wait for a record.

        Raises:
            StopIteration: there are no more tasks, or the stream was closed.
            EngineUnavailable: there is no engine for sandboxes, so that no episode can be run.
            InfrastructureError: an episode was spoiled, and that is to be raised.
            ConfigurationError: the agent or a task cannot be used.
            SandboxError: the stream is of the process that this one was forked from.
        """
        try:
            record = self._work.take()
        except BaseException:
            self.close()
            raise
        if record is None:
            self.close()
            raise StopIteration
        return record

    def __aiter__(self) -> RolloutStream:
        return self

    async def __anext__(self) -> EpisodeRecord:
        """Wait for a record; cancelling that loses none. Raises as :meth:`__next__`."""
        try:
            record = await self._work.take_async()
        except Exception:
            await self.aclose()
            raise
        if record is None:
            await self.aclose()
            raise StopAsyncIteration
        return record

    def set_parameters(self, parameters: Mapping[str, object], version: int | None = None) -> int:
        """Have episodes that begin from now on use other parameters; see :func:`run_rollouts`.

        Args:
            parameters: those with new values, all of them.
            version: the caller's number of them; by default one more than before.

        Returns:
            Their version, which the records of these episodes have.

        Raises:
            ConfigurationError: they have other names than before, a value is neither JSON nor a
                path, a file cannot be read, or the stream is closed.
        """
        return self._work.parameters.set(parameters, version)

    def close(self) -> None:
        """Cancel what runs, and wait until its sandboxes are closed; may be called twice."""
        self._work.close()

    async def aclose(self) -> None:
        """Do the same without blocking the event loop."""
        import asyncio

        await asyncio.to_thread(self._work.close)

    def __enter__(self) -> RolloutStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> RolloutStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _abandon(work: _Work) -> None:
    """Close a stream that was forgotten; it may be found so on any thread, under any lock."""
    if not work.over:
        thread = threading.Thread(target=work.close, name=f"{OUR_THREADS}closing", daemon=True)
        with contextlib.suppress(RuntimeError):  # the process ends, and its sandboxes with it
            thread.start()


class _Specs(Iterator[RolloutSpec]):
    """What is to be run, try by try; used by one thread, but for :meth:`upcoming`."""

    def __init__(
        self,
        spec_of: Callable[[Task], RolloutSpec],
        tasks: Iterable[Task],
        n: int,
        concurrency: int,
        profile: Profile,
        asked: str,
        on_nodes: bool,
    ) -> None:
        self.profile = profile
        self._spec_of = spec_of
        self._list = tasks if isinstance(tasks, Sequence) else None
        self._tasks = iter(tasks)
        self._n = n
        self._concurrency = concurrency
        self._asked = asked
        self._on_nodes = on_nodes
        self._taken = 0
        self._tries: Iterator[RolloutSpec] = iter(())
        self._recent: deque[Task] = deque(maxlen=concurrency)
        self._lock = threading.Lock()
        if self._list:
            self._check(self._list[0])  # a mistake in the profile is reported at once

    def __next__(self) -> RolloutSpec:
        for spec in self._tries:
            return spec
        task = next(self._tasks)
        self._check(task)
        with self._lock:
            self._taken += 1
            self._recent.append(task)
        self._tries = (
            self._spec_of(replace(task, repeat=number)) for number in range(1, self._n + 1)
        )
        return next(self._tries)

    def upcoming(self) -> list[Task]:
        """Return the tasks that come next; of tasks that nobody can foresee, those that came."""
        with self._lock:
            taken, recent = self._taken, list(self._recent)
        if self._list is None:
            return recent
        following = self._list[max(0, taken - 1) : taken + self._concurrency]
        tries = itertools.chain.from_iterable(itertools.repeat(each, self._n) for each in following)
        return list(itertools.islice(tries, self._concurrency))

    def _check(self, task: Task) -> None:
        environment = environment_class(task.env, self.profile)
        if self._on_nodes and task.env not in BUILTIN_ENVIRONMENTS:
            raise ConfigurationError(
                f"{self._asked}: the environment {task.env} is registered in this process, and "
                "nodes do not have it; leave cluster out"
            )
        if environment.in_order and (self._concurrency > 1 or self._on_nodes):
            cure = "leave cluster out" if self._on_nodes else "concurrency=1"
            raise ConfigurationError(
                f"{self._asked}: {task.env} episodes of the paper profile depend on those before "
                f"them, so they run one at a time, in one process: {cure}"
            )


class _Work(ConcurrentObserver):
    """The episodes behind a stream, which end up as records that wait to be taken.

    With a concurrency of 1 an episode runs in the thread that asks for a record. Otherwise, on a
    cluster, and for async consumers, an executor runs them: a thread of its own takes the tasks,
    which may be slow to come, and submits an episode whenever there is room for it. Also the
    executor's observer. Who takes the executor's lock and this one's takes the executor's first.

    Attributes:
        over: it was closed.
        closing: what is closed with it.
        parameters: what the trainer gives its agent.
        session: the executor on a cluster; None for one of this process.
    """

    _specs: _Specs
    _concurrency: int
    _buffer: int

    def __init__(
        self,
        services: Services,
        parameters: ParameterSource,
        ordered: bool,
        raises: bool,
    ) -> None:
        self.over = False
        self.parameters = parameters
        self.session: ClusterSession | None = None
        self.closing = contextlib.ExitStack()
        self._services = services
        self._ordered = ordered
        self._raises = raises
        self._process = MakingProcess("these rollouts belong", "a stream")
        self._inline = threading.Lock()  # one episode at a time runs in the threads that ask
        self._expecting = threading.Lock()
        self._executor: ConcurrentExecutor | ClusterSession | None = None
        self._feeder: threading.Thread | None = None
        self._changed = threading.Condition()  # its lock guards all that follows
        self._numbers = itertools.count()
        self._running: dict[Handle, int] = {}
        self._waiting: dict[int, EpisodeRecord] = {}
        self._next = 0  # the number of the record that comes next, where they are ordered
        self._asking = 0
        self._exhausted = False
        self._error: BaseException | None = None
        self._wakers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._printed: deque[list[Any]] = deque()

    def begin(self, specs: _Specs, concurrency: int, buffer: int) -> None:
        """Know what is to be run, and how; nothing is run until a record is asked for."""
        self._specs = specs
        self._concurrency = concurrency
        self._buffer = buffer

    # -- what the consumer asks

    def take(self) -> EpisodeRecord | None:
        """Return a record; None when there are no more."""
        self._process.check()
        if self._concurrency == 1 and self._executor is None and self.session is None:
            return self._run_inline()
        self._start()
        with self._changed:
            self._asking += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(self._has_answer)
                record = self._pop()
            finally:
                self._asking -= 1
        self._give_out()
        return record

    def _give_out(self) -> None:
        """Print what episodes printed on their nodes, on the thread that asks, and unlocked."""
        while self._printed:
            give_out(self._printed.popleft())

    def _run_inline(self) -> EpisodeRecord | None:
        """Run an episode in this thread, and return its record; None when there are no more."""
        with self._inline:
            spec = None if self.over else next(self._specs, None)
            if spec is not None:
                spec = replace(spec, parameters=self.parameters.take())
                handle = InlineExecutor(self._services, self).submit(spec)
                with self._changed:
                    if self.over:
                        return None
                    self._running[handle] = next(self._numbers)
                try:
                    handle.record(handle.agent(), handle.environment())
                except BaseException as error:
                    self.failed(handle, error)
                finally:
                    with contextlib.suppress(IntercodeError):  # as a thread of an executor does
                        handle.close()
            with self._changed:
                return self._pop()

    async def take_async(self) -> EpisodeRecord | None:
        """Do the same, without blocking the event loop."""
        import asyncio

        self._process.check()
        self._start()
        loop = asyncio.get_running_loop()
        with self._changed:
            self._asking += 1
            self._changed.notify_all()
        try:
            while True:
                with self._changed:
                    if self._has_answer():
                        record = self._pop()
                        break
                    waker = (loop, loop.create_future())
                    self._wakers.append(waker)
                await waker[1]
        finally:
            with self._changed:
                self._asking -= 1
        self._give_out()
        return record

    def _has_answer(self) -> bool:
        """Whether a record is there, or none will be; with the lock held."""
        if self.over or self._error is not None:
            return True
        if self._waiting and (not self._ordered or self._next in self._waiting):
            return True
        return self._exhausted and not self._running

    def _pop(self) -> EpisodeRecord | None:
        """Return the next record, if there is one, with the lock held; or raise what went wrong."""
        if not self._ordered and self._waiting:
            self._next = next(iter(self._waiting))
        record = self._waiting.pop(self._next, None)
        if record is not None:
            self._next += 1
            self._changed.notify_all()
            return record
        if self._error is not None and not self.over:
            raise self._error
        return None

    def close(self) -> None:
        """Cancel what runs, wait for its end, and close what the rollouts worked with."""
        if not self._process.is_this:
            return
        with self._changed:
            if self.over:
                return
            self.over = True
            self._waiting.clear()
            self._notify()
        try:
            self._cancel("the stream of rollouts was closed")
            if self._executor is not None:
                self._executor.stop()
                self._executor.join(_PATIENCE)
            if self._feeder not in (None, threading.current_thread()):
                self._feeder.join(_FAREWELL)  # it may wait for a task of the caller's
            if self.session is None:  # what was started for episodes that will not come
                with contextlib.suppress(InfrastructureError):
                    self._services.sandboxes.expect(())
        finally:
            self.closing.close()

    def _cancel(self, reason: str) -> None:
        with self._changed:
            running = list(self._running)
        for handle in running:
            handle.cancel(reason)

    # -- episodes in an executor

    def _start(self) -> None:
        with self._changed:
            if self._executor is None and not self.over:
                self._executor = self.session or ConcurrentExecutor(
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
                spec = next(self._specs, None)  # without the lock: it may take its time
                if spec is None:
                    break
                while self._wait_for_room() and not self._submit(executor, spec):
                    pass
        except BaseException as error:
            self._fail(error)
        with self._changed:
            self._exhausted = True
            self._notify()

    def _submit(self, executor: ConcurrentExecutor | ClusterSession, spec: RolloutSpec) -> bool:
        """Submit an episode if there is room for it; return whether there was."""
        # Nothing is notified of an episode until it is known here.
        with executor.lock, self._changed:
            if self._ended or not self._has_room():
                return False
            spec = replace(spec, parameters=self.parameters.take())
            self._running[executor.submit(spec)] = next(self._numbers)
            return True

    def _wait_for_room(self) -> bool:
        """Return whether an episode may begin, once that is known."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._has_room())
            return not self._ended

    @property
    def _ended(self) -> bool:
        return self.over or self._error is not None

    def _has_room(self) -> bool:
        most = self._buffer or min(1, self._asking)
        return len(self._running) < self._concurrency and len(self._waiting) < most

    def _notify(self) -> None:
        """Wake whoever waits for a change, with the lock held."""
        self._changed.notify_all()
        wakers, self._wakers = self._wakers, []
        for loop, future in wakers:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(_wake, future)

    def _record_of(self, spec: RolloutSpec, error: BaseException) -> EpisodeRecord:
        """Return the record of an episode without one; raise what is no fault of an episode's."""
        if isinstance(error, TaskError):
            return failure_record(spec, error)
        of_all = isinstance(error, EngineUnavailable)  # another episode would end in the same way
        if isinstance(error, InfrastructureError) and not (of_all or self._raises):
            return failure_record(spec, error)
        raise error

    def _fail(self, error: BaseException) -> None:
        """Begin nothing more, and have the consumer meet an error."""
        with self._changed:
            self._error = self._error or error
            self._notify()
        self._cancel("another episode of the stream failed")

    # -- what executors report, on the rollouts' threads

    def preparing(self, handle: Handle, environment: Environment) -> None:
        """Have the sandboxes of what comes next started; an image may be built for them."""
        services = self._services
        ours = getattr(environment, "provider", None) is services.sandboxes
        if ours and not self.over and self._expecting.acquire(blocking=False):
            try:
                services.sandboxes.background(self._expect)
            except BaseException:
                self._expecting.release()
                raise

    def _expect(self) -> None:
        try:
            if not self.over:
                upcoming = self._specs.upcoming()
                expect_sandboxes(self._services.sandboxes, upcoming, self._specs.profile)
        finally:
            self._expecting.release()

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """Let a record wait to be taken."""
        with self._changed:
            number = self._running.pop(handle, None)
            if number is not None and not self.over:
                self._waiting[number] = replace(record, item=number)
            self._notify()
        self.parameters.give_back(handle.spec.parameters)

    def printed(self, pieces: list[Any]) -> None:
        """Keep what an episode printed on its node until a record is asked for."""
        if not self.over:
            self._printed.append(pieces)

    def failed(self, handle: Handle, error: BaseException) -> None:
        """Let what an error comes to wait to be taken."""
        if handle not in self._running:  # it is known already
            return
        record = None
        if not isinstance(error, RolloutCancelled):
            try:
                record = self._record_of(handle.spec, error)
            except BaseException as other:
                self._fail(other)
        with self._changed:
            number = self._running.pop(handle, 0)
            if record is not None and not self.over:
                self._waiting[number] = replace(record, item=number)
            self._notify()
        self.parameters.give_back(handle.spec.parameters)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _is_name(tasks: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(tasks, (str, os.PathLike))


def _check_numbers(
    whole: Mapping[str, tuple[int | None, int]], amounts: Mapping[str, float | None], asked: str
) -> None:
    """Refuse numbers that make no sense.

    Args:
        whole: whole numbers, each with the least that it may be.
        amounts: what has to be above 0.
        asked: what the user called, for the message.
    """
    for name, (number, least) in whole.items():
        right = isinstance(number, int) and not isinstance(number, bool) and number >= least
        if not (right or number is None):
            raise ConfigurationError(
                f"{asked}: {name}={number!r:.40}: a whole number from {least} up is needed"
            )
    for name, amount in amounts.items():
        if amount is not None and not amount > 0:
            raise ConfigurationError(f"{asked}: {name}={amount!r:.40}: it has to be above 0")


def _listed(
    tasks: Any, data: Any, asked: str, network: Reached, permissions: Permissions
) -> Iterable[Task]:
    """Return the tasks that can be run; all at once, where they are given at once."""
    if _is_name(tasks):
        return runnable(tasks_called(os.fspath(tasks), data, asked, permissions), network)
    if not isinstance(tasks, Iterable):
        raise ConfigurationError(
            f"{asked}: tasks are a name, a path or tasks, not {type(tasks).__name__}"
        )
    if isinstance(tasks, Sequence):
        return runnable([_checked(each, asked) for each in tasks], network)
    return runnable_of_endless((_checked(each, asked) for each in tasks), network)


def _checked(task: object, asked: str) -> Task:
    if not isinstance(task, Task):
        raise ConfigurationError(
            f"{asked}: each task is a Task, not {type(task).__name__}: {task!r:.60}"
        )
    return task


def _load(
    agent: str | Callable[..., object],
    arguments: Mapping[str, str] | None,
    parameters: Collection[str],
    asked: str,
) -> AgentFactory:
    if not isinstance(agent, str):
        if arguments:
            raise ConfigurationError(f"{asked}: agent_arguments are for an agent that is named")
        return factory_of(agent, parameters)
    factory = load_agent(agent, arguments, Path.cwd(), parameters=parameters)
    if factory.terminal:
        factory.close()
        raise ConfigurationError(f"{asked}: {agent} talks to your terminal; it plays in pytest")
    return factory
