"""The cluster executor: keeps what is left to do, and has nodes do it.

One thread takes what nodes say and decides what begins; callers wait for futures. There is no
thread for each rollout, so that one driver may have tens of thousands running.
"""

from __future__ import annotations

import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.digest import digest
from pytest_intercode.core.record import EpisodeRecord, TaskRecord, lost_on
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import (
    AgentError,
    ConfigurationError,
    EngineUnavailable,
    InfrastructureError,
    IntercodeError,
    RolloutCancelled,
    SandboxError,
)
from pytest_intercode.results.format import from_line
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.cluster.files import Shelf, with_paths
from pytest_intercode.rollouts.cluster.leases import (
    Answer,
    LeasedBudget,
    Leases,
    Order,
    amounts_of,
    limited_kinds,
)
from pytest_intercode.rollouts.cluster.messages import (
    BadMessage,
    Message,
    decode,
    encode,
    error_from,
    whole,
)
from pytest_intercode.rollouts.cluster.output import pieces_of
from pytest_intercode.rollouts.cluster.schedule import Assignment, Loss, NodeCounts, Schedule
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.cluster.transport import (
    Event,
    Heard,
    Joined,
    Refused,
    Said,
    Silent,
    Transport,
)
from pytest_intercode.rollouts.executors.handle import (
    BackgroundHandle,
    Handle,
    Phase,
    PhaseName,
)
from pytest_intercode.rollouts.isolation import OUR_THREADS
from pytest_intercode.rollouts.rollout import failure_record
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["ClusterExecutor", "ClusterHandle", "ClusterObserver"]

Result = TypeVar("Result")

_TICK = 0.2  # seconds
_EVENTS = 64  # that are taken before what they make room for is begun
_PHASES: tuple[PhaseName, ...] = ("prepare", "run", "close")
_HERE = ""  # stands for this process where a node is named
# What is raised while a message is read that is none: its numbers may be too large, and its lists
# too deep. Nothing is changed before a message is read whole, as its rollout would never end then.
_NO_MESSAGE = (
    *(BadMessage, KeyError, TypeError, ValueError, AttributeError),
    *(OverflowError, RecursionError),
)


class ClusterObserver(Protocol):
    """Is notified of what rollouts do, on the executor's thread, and surrounds waiting for them."""

    def printed(self, handle: ClusterHandle, pieces: list[Any]) -> None:
        """A rollout printed and logged this, on its node."""

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """There is a record; it is not returned to anybody yet."""

    def failed(self, handle: Handle, error: BaseException) -> None:
        """There is no record."""

    def said(self, line: str) -> None:
        """A node has a line for the user."""

    def wait(self, handle: ClusterHandle, future: Future[Result]) -> Result:
        """Return a future's result to the thread that asked the handle for it."""
        return future.result()


class ClusterHandle(BackgroundHandle):
    """A rollout that runs on a node; times are those of the node's clock."""

    def __init__(self, job: int, spec: RolloutSpec, executor: ClusterExecutor) -> None:
        super().__init__(spec)
        self.job = job
        self._executor = executor
        # Of the attempts: what they took, and why those before the present one have no result.
        self.turns = self.spent = 0
        self.acting = False
        self.losses: list[str] = []
        self.blamed = 0

    def agent(self) -> Agent:
        """Wait for the agent; what is returned stands for it, and acts nowhere but on its node."""
        self._executor.observer.wait(self, self._agent)
        return Agent("step", name=self.spec.agent)

    def environment(self) -> Environment:
        """Wait for the environment's reset; what is returned stands for it, and was not reset."""
        self._executor.observer.wait(self, self._environment)
        return self._executor.stand_in(self.spec)

    def record(self, agent: Agent, environment: Environment) -> EpisodeRecord:
        """Wait for the record; agent and environment are the rollout's own."""
        self.asked = True
        return self._executor.observer.wait(self, self._record)

    def close(self) -> None:
        """Do nothing: its node ends its sandboxes."""

    def cancel(self, reason: str) -> None:
        """End it, ungraded."""
        self._executor.cancel(self, reason)

    # -- what the executor calls

    def prepared(self) -> None:
        """Its environment was reset."""
        self.acting = True
        for future in (self._agent, self._environment):
            if not future.done():
                future.set_result(None)

    def end(self, record: EpisodeRecord) -> None:
        """Give it its record."""
        self.prepared()
        self._record.set_result(record)

    def fail(self, error: BaseException, stage: str) -> None:
        """Give it its failure; ``stage`` is what failed: ``agent``, ``prepare`` or ``run``."""
        done = {"agent": 0, "prepare": 1, "run": 2}.get(stage, 2)
        for number, future in enumerate((self._agent, self._environment)):
            if not future.done():
                if number < done:
                    future.set_result(None)
                else:
                    future.set_exception(error)
        if not self._record.done():
            self._record.set_exception(error)


@dataclass
class _Node:
    name: str
    weight: float
    backend: str = ""  # it is ready where there is one
    unfit: str = ""
    closed: bool = False


class ClusterExecutor:
    """Runs rollouts on nodes.

    Args:
        transport: what carries messages to nodes.
        settings: what nodes are told first.
        observer: what is notified of rollouts.
        refill: called, with :attr:`lock` held, when a slot is free and nothing is submitted; it
            may submit something.
        concurrency: how many rollouts run at a time, on all nodes together; None for as many as
            the nodes' weights add up to.
        run_budget: what is left for the whole run. Rollouts of this process draw on
            :attr:`own_budget`, as the others do on what is leased to their nodes.
        shelf: the files that nodes may ask for.
        stand_in: gives what stands for the environment of a rollout here.
        patience: seconds that the run waits when no node takes work.

    Attributes:
        lock: guards what ``refill`` looks at.
        observer: the same.
        own_budget: what is left of the run for rollouts of this process.
    """

    def __init__(
        self,
        transport: Transport,
        settings: NodeSettings,
        observer: ClusterObserver,
        refill: Callable[[], object],
        *,
        concurrency: int | None,
        run_budget: RunBudget,
        shelf: Shelf,
        stand_in: Callable[[RolloutSpec], Environment],
        patience: float = 300.0,
    ) -> None:
        self.lock = threading.RLock()
        self.stand_in = stand_in
        self._transport = transport
        self._settings = settings
        self.observer = observer
        self._refill = refill
        self._budget = run_budget
        self._leases = Leases(run_budget)
        self.own_budget = LeasedBudget(
            limited_kinds(run_budget.limits),
            RunLimits(seconds=run_budget.seconds_left),
            lambda message: self._inbox.put(Said(_HERE, encode(message))),
        )
        self._shelf = shelf
        self._schedule = Schedule(concurrency, patience=patience)
        self._changed = threading.Condition(self.lock)
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._handles: dict[int, ClusterHandle] = {}
        self._nodes: dict[str, _Node] = {}
        self._named: set[str] = set()
        self._given_up: dict[str, list[Loss]] = {}  # what silent nodes go on with, for nothing
        self._stopped = False
        self._ended = False
        self._hopeless = ""
        self._files = ThreadPoolExecutor(2, thread_name_prefix=f"{OUR_THREADS}files")
        self._thread = threading.Thread(
            target=self._work, name=f"{OUR_THREADS}cluster", daemon=True
        )
        self._thread.start()
        transport.start(self._inbox.put)

    # -- what its owner calls

    @property
    def counts(self) -> Mapping[str, NodeCounts]:
        """What happened on the nodes, by their names."""
        return self._schedule.counts

    @property
    def slots(self) -> int:
        """How many rollouts the nodes take at a time."""
        with self.lock:
            return self._schedule.slots

    @property
    def nodes_at_work(self) -> int:
        """How many nodes take work."""
        with self.lock:
            return sum(bool(self._schedule.slots_of(node)) for node in self._nodes)

    def wait_until_ready(self, patience: float = 60.0) -> str:
        """Wait until the nodes that have joined say that they can play.

        Args:
            patience: seconds to wait for it.

        Returns:
            The backend of the sandboxes of all of them.

        Raises:
            ConfigurationError: one cannot, or they differ in what they have.
        """
        until = time.monotonic() + patience
        with self.lock:

            def waited_for() -> list[_Node]:
                return [node for node in self._nodes.values() if not (node.backend or node.unfit)]

            while (waited_for() or not self._nodes) and time.monotonic() < until:
                self._changed.wait(0.1)
            wrong = [f"{node.name}: {node.unfit}" for node in self._nodes.values() if node.unfit]
            wrong += [f"{node.name}: it does not answer" for node in waited_for()]
            found = {node.backend: node.name for node in self._nodes.values() if node.backend}
        if len(found) > 1:
            each = ", ".join(f"{name} has {backend}" for backend, name in found.items())
            wrong.append(f"{each}: say which with --intercode-sandbox")
        if wrong or not found:
            raise ConfigurationError("; ".join(wrong) or "there is no node")
        return next(iter(found))

    def submit(self, spec: RolloutSpec) -> ClusterHandle:
        """Take a rollout; it begins when a node has a free slot."""
        with self.lock:
            handle = ClusterHandle(next(self._numbers), spec, self)
            self._handles[handle.job] = handle
            self._schedule.submit(handle.job)
        self.wake()
        return handle

    def cancel(self, handle: ClusterHandle, reason: str) -> None:
        """End a rollout, ungraded; does nothing to one that is over."""
        with self.lock:
            if handle.over:
                return
            if self._schedule.withdraw(handle.job):
                self._handles.pop(handle.job, None)
            else:
                for node, state in self._schedule.nodes().items():
                    attempt = state.running.get(handle.job)
                    if attempt is not None:
                        message = {"what": "cancel", "job": handle.job, "attempt": attempt}
                        self._transport.send(node, encode({**message, "reason": reason}))
            handle.fail(RolloutCancelled(reason), "agent")
            self._changed.notify_all()

    def wait_for_end(self, handles: Collection[ClusterHandle], patience: float) -> bool:
        """Wait until nothing of some rollouts, which were cancelled, runs on any node.

        Args:
            handles: the rollouts.
            patience: seconds to wait, for all of them together.

        Returns:
            Whether that is so.
        """
        until = time.monotonic() + patience
        with self.lock:
            while left := any(handle.job in self._handles for handle in handles):
                if self._stopped or time.monotonic() > until:
                    break
                self._changed.wait(0.1)
        return not left

    def resize(self, concurrency: int | None) -> None:
        """Have so many rollouts run at a time, on all nodes together; as in the constructor."""
        with self.lock:
            self._schedule.resize(concurrency)
        self.wake()

    def forget(self, path: Path) -> None:
        """Let nodes remove a file that no rollout will need any more."""
        with self.lock:
            digest = self._shelf.forget(path)
            for node in self._nodes if digest else ():
                self._transport.send(node, encode({"what": "forget", "digest": digest}))

    def wake(self) -> None:
        """Say that there may be something to begin."""
        if threading.current_thread() is not self._thread:
            self._inbox.put(None)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait, with :attr:`lock` held, until something is so or all is over."""
        while not (self._stopped or condition()):
            self._changed.wait(0.1)

    def stop(self) -> None:
        """Begin nothing more; what runs goes on."""
        with self.lock:
            self._stopped = True
            self._changed.notify_all()

    def join(self, patience: float) -> bool:
        """Wait for what runs, after :meth:`stop`.

        Args:
            patience: seconds to wait, for all of them together.

        Returns:
            Whether all of it has ended.
        """
        until = time.monotonic() + patience
        with self.lock:
            while self._schedule.running and time.monotonic() < until:
                self._changed.wait(0.1)
            return not self._schedule.running

    def close(self, patience: float = 10.0) -> None:
        """End the nodes' sandboxes and processes; what runs is lost. May be called twice.

        Args:
            patience: seconds that nodes have for it.
        """
        self.stop()
        with self.lock:
            if self._ended:
                return
            for node in self._nodes:
                self._transport.send(node, encode({"what": "close"}))
            until = time.monotonic() + patience
            silent = {n for n, state in self._schedule.nodes().items() if state.silent}
            while time.monotonic() < until and any(
                not state.closed for node, state in self._nodes.items() if node not in silent
            ):
                self._changed.wait(0.1)
            self._ended = True
        self.own_budget.close()
        self._inbox.put(None)
        self._transport.close()
        self._files.shutdown(wait=False, cancel_futures=True)
        self._thread.join(patience)

    # -- the executor's own thread

    def _work(self) -> None:
        while not self._ended:
            for number in range(_EVENTS):
                try:
                    event = self._inbox.get(number == 0, _TICK)
                except queue.Empty:
                    break
                if event is not None:
                    with self.lock:
                        self._take(event)
            with self.lock:
                begun = self._fill()
                self._changed.notify_all()
            for assignment in begun:  # others may have the lock in between
                with self.lock:
                    self._begin(assignment)

    def _take(self, event: Event) -> None:
        """Take an event of the transport's."""
        if isinstance(event, Joined):
            self._nodes[event.node] = _Node(event.name, event.weight)
            if self._schedule.takes_part(event.name):
                fields = {**self._settings.to_fields(), "seconds": self._budget.seconds_left}
                self._transport.send(event.node, encode({"what": "set_up", "settings": fields}))
        elif isinstance(event, Said):
            self._read(event)
        elif isinstance(event, Silent):
            losses = self._schedule.silence(event.node, event.reason)
            self._given_up.setdefault(event.node, []).extend(losses)
            orders = self._leases.silence(event.node, self._acting(losses))
            self._lost(losses, event.reason, True)
            self._give(orders)
        elif isinstance(event, Heard):
            self._schedule.hear(event.node)
            for loss in self._given_up.pop(event.node, ()):
                message = {"what": "cancel", "job": loss.job, "attempt": loss.attempt}
                self._transport.send(event.node, encode({**message, "reason": "it was given up"}))
            self._give(self._leases.hear(event.node))
        elif isinstance(event, Refused):
            self._leave_out(event.name, event.reason)
        else:
            self._end_node(event.node, event.reason, event.process)
        self._name_left_out()

    def _end_node(self, node: str, reason: str, process: bool) -> None:
        """Give up a node whose process has ended or cannot be used, and have another one started.

        Args:
            node: the node.
            reason: why.
            process: what ran there may have had a part in it.
        """
        state = self._nodes.pop(node, None)
        self._given_up.pop(node, None)
        losses = self._schedule.lose_node(node, reason)
        orders = self._leases.lose(node, self._acting(losses))
        self._lost(losses, reason, process)
        self._give(orders)
        if state is not None and not self._stopped and self._schedule.takes_part(state.name):
            self._transport.replace(node)

    def _acting(self, losses: list[Loss]) -> int:
        """Return in how many of these attempts the agent may have been acting."""
        return sum(self._handles[loss.job].acting for loss in losses)

    def _read(self, event: Said) -> None:
        """Take what a node said; a node that says what it may not is none that can be used."""
        if event.node not in self._nodes and event.node != _HERE:
            return
        try:
            for message in decode(event.data):
                getattr(self, f"_on_{message.get('what')}", self._on_unknown)(event.node, message)
        except _NO_MESSAGE as error:
            self._end_node(event.node, f"it says what is no message: {error!r:.200}", True)

    def _on_unknown(self, node: str, message: Message) -> None:
        raise BadMessage(f"{message.get('what')!r:.40}")

    def _on_ready(self, node: str, message: Message) -> None:
        state = self._nodes[node]
        if not state.backend:
            state.backend = str(message["backend"])
            self._schedule.add_node(node, state.name, state.weight)

    def _on_unfit(self, node: str, message: Message) -> None:
        state = self._nodes[node]
        state.unfit = str(error_from(message["error"], state.name))
        self._leave_out(state.name, state.unfit)

    def _leave_out(self, name: str, reason: str) -> None:
        """Give a node no work, as it cannot play."""
        self._schedule.counts.setdefault(name, NodeCounts()).left_out = reason

    def _on_closed(self, node: str, message: Message) -> None:
        self._nodes[node].closed = True

    def _on_line(self, node: str, message: Message) -> None:
        self.observer.said(f"{self._nodes[node].name}: {str(message['text'])[:2000]}")

    def _on_need(self, node: str, message: Message) -> None:
        found = str(message["digest"])
        self._files.submit(
            lambda: self._transport.send_file(node, found, self._shelf.pieces(found))
        )

    def _on_spend(self, node: str, message: Message) -> None:
        self._leases.spend(node, amounts_of(message["total"]))

    def _on_ask(self, node: str, message: Message) -> None:
        self._give(self._leases.ask(node, whole(message, "call"), amounts_of(message["unused"])))

    def _on_give_back(self, node: str, message: Message) -> None:
        self._give(self._leases.give_back(node, amounts_of(message["unused"])))

    def _give(self, orders: list[Order]) -> None:
        """Tell nodes, and this process, what they may use up of the run's budget."""
        for order in orders:
            if isinstance(order, Answer):
                message: Message = {
                    "what": "granted",
                    "call": order.call,
                    "lease": order.lease,
                    "spent": order.spent,
                }
            else:
                message = {"what": "recall"}
            if order.node != _HERE:
                self._transport.send(order.node, encode(message))
            elif isinstance(order, Answer):
                self.own_budget.granted({**message, "lease": list(order.lease)})
            else:
                self.own_budget.recall()

    def _on_prepared(self, node: str, message: Message) -> None:
        handle = self._handle(node, message)
        if handle is not None:
            handle.prepared()

    def _on_turns(self, node: str, message: Message) -> None:
        handle, turns = self._handle(node, message), whole(message, "turns")
        if handle is not None:
            handle.turns = turns

    def _on_ended(self, node: str, message: Message) -> None:
        job, attempt = whole(message, "job"), whole(message, "attempt")
        handle = self._handle(node, message)
        name = self._nodes[node].name
        if handle is None:  # of an attempt that was given up: its result counts for nothing
            return
        phases = _phases_of(message)
        try:
            record = _own(from_line(str(message["line"])), handle, name)
        except (ConfigurationError, ValueError, RecursionError) as error:
            record = _unreadable(handle, f"node {name} sent no record of it: {error!s:.300}")
        self._schedule.finish(job, attempt, node)
        del self._handles[job]
        if handle.over:
            return
        handle.phases.update(phases)
        self.observer.printed(handle, pieces_of(message.get("output")))
        self.observer.ended(handle, record)
        handle.end(record)

    def _on_failed(self, node: str, message: Message) -> None:
        job, attempt = whole(message, "job"), whole(message, "attempt")
        handle = self._handle(node, message)
        if handle is None:
            return
        name = self._nodes[node].name
        error = error_from(message["error"], name)
        stage, phases = str(message["stage"]), _phases_of(message)
        if isinstance(error, RolloutCancelled) and not handle.over:  # not by us: the node ends
            error = SandboxError(f"it was ended there: {error}")
        if handle.over or not isinstance(error, InfrastructureError):
            self._schedule.finish(job, attempt, node)
            del self._handles[job]
            if not handle.over:
                if isinstance(error, ConfigurationError):  # of a module that is missing there, say
                    error = _on_node(error, name)
                handle.phases.update(phases)
                self.observer.printed(handle, pieces_of(message.get("output")))
                self.observer.failed(handle, error)
                handle.fail(error, stage)
            return
        loss = self._schedule.spoil(job, attempt, node, str(error))
        if loss is not None:
            self._lost([loss], str(error), True, _on_node(error, name))

    def _handle(self, node: str, message: Message) -> ClusterHandle | None:
        """Return the rollout that a message is about, unless it is of an attempt given up."""
        job, attempt = whole(message, "job"), whole(message, "attempt")
        return self._handles[job] if self._schedule.current(job, attempt, node) else None

    def _lost(
        self,
        losses: list[Loss],
        reason: str,
        keep_turns: bool,
        error: InfrastructureError | None = None,
    ) -> None:
        """Take note of attempts without a result, and end the rollouts that are not run again.

        Args:
            losses: the attempts.
            reason: why.
            keep_turns: what ran may have had a part in it, so the turns that it took stay used.
            error: what the node itself says.
        """
        for loss in losses:
            handle = self._handles.get(loss.job)
            if handle is None:  # its owner has cancelled it, as it heard of another loss
                continue
            handle.losses.append(lost_on(loss.node, reason))
            if keep_turns:
                handle.spent += handle.turns
                handle.blamed += handle.acting and error is None
            acting, handle.acting, handle.turns = handle.acting, False, 0
            used_up = keep_turns and acting and self._turns_left(handle) <= 0
            if handle.over:
                self._drop(loss)
            elif not loss.again or used_up:
                self._drop(loss)
                self._end_lost(handle, used_up, error)

    def _drop(self, loss: Loss) -> None:
        if loss.again:
            self._schedule.withdraw(loss.job)
        self._handles.pop(loss.job, None)

    def _end_lost(
        self, handle: ClusterHandle, used_up: bool, error: InfrastructureError | None
    ) -> None:
        """End a rollout that is not run again.

        One whose agent acted in each process that died under it has no excuse, nor one that has
        used its turns up.
        """
        if handle.blamed and (used_up or handle.blamed == len(handle.losses)):
            times = "time" if handle.blamed == 1 else "times"
            record = _unreadable(
                handle, f"the process that it ran in ended under it {handle.blamed} {times}"
            )
            self.observer.ended(handle, record)
            handle.end(record)
            return
        found = error or SandboxError("; ".join(handle.losses))
        self.observer.failed(handle, found)
        handle.fail(found, "prepare")

    def _turns_left(self, handle: ClusterHandle) -> int:
        return (handle.spec.max_turns or handle.spec.task.max_turns) - handle.spent

    def _name_left_out(self) -> None:
        for name, counts in self._schedule.counts.items():
            if counts.left_out and name not in self._named:
                self._named.add(name)
                self.observer.said(f"node {name} gets no more work: {counts.left_out}")

    # -- what begins

    def _fill(self) -> list[Assignment]:
        """Have as much submitted as can begin, and return it; with the lock held."""
        # Without any slot, one is submitted all the same: it says in its turn that there is none.
        while not (self._stopped or self._hopeless):
            before = self._schedule.left
            if self._schedule.free <= 0 and before:
                break
            self._refill()
            if self._schedule.left == before:
                break
        begun = self._schedule.assign()
        if self._schedule.left:
            reason = self._schedule.hopeless(time.monotonic())
            if reason and not self._hopeless:
                self._give_up(reason)
        return begun

    def _begin(self, assignment: Assignment) -> None:
        handle = self._handles[assignment.job]
        if handle.over:  # it was cancelled meanwhile
            self._schedule.finish(*assignment)
            del self._handles[assignment.job]
            return
        handle.phases.setdefault("prepare", Phase(time.time()))
        spec = handle.spec
        if handle.spent:
            spec = replace(spec, max_turns=self._turns_left(handle))
        try:
            message = self._play(assignment, spec)
        except Exception as error:  # a file that cannot be read, a task that is no JSON
            self._schedule.finish(*assignment)
            del self._handles[assignment.job]
            self.observer.failed(handle, error)
            handle.fail(error, "prepare")
            return
        self._transport.send(assignment.node, message)

    def _play(self, assignment: Assignment, spec: RolloutSpec) -> bytes:
        paths: set[Path] = set()
        with_paths((spec.task, spec.parameters), None, paths)
        parcels = [(str(path), self._shelf.parcel(path)) for path in sorted(paths)]
        message = {
            "what": "play",
            "job": assignment.job,
            "attempt": assignment.attempt,
            "files": [[path, list(parcel)] for path, parcel in parcels if parcel is not None],
        }
        return encode(message, spec=spec.to_json())

    def _give_up(self, reason: str) -> None:
        """End all that is left: nothing will come of it."""
        self._hopeless = reason
        error = EngineUnavailable(f"the cluster: {reason}; --intercode-resume goes on from here")
        for handle in list(self._handles.values()):
            self._schedule.withdraw(handle.job)
            self._handles.pop(handle.job, None)
            if not handle.over:
                self.observer.failed(handle, error)
                handle.fail(error, "prepare")


_Ours = TypeVar("_Ours", bound=IntercodeError)


def _on_node(error: _Ours, node: str) -> _Ours:
    """Return an error that says on which node it was."""
    return type(error)(f"node {node}: {error}")


def _own(record: EpisodeRecord, handle: ClusterHandle, node: str) -> EpisodeRecord:
    """Return a node's record with what the driver knows better than any node."""
    spec = handle.spec
    return replace(
        record,
        task=TaskRecord.of(spec.task, digest(spec.task)),
        profile=spec.profile,
        agent=spec.agent,
        agent_arguments=spec.agent_arguments,
        parameters_version=spec.parameters_version,
        node_id=spec.node_id,
        host=node,
        item=None,
        attempts=(*handle.losses, *record.attempts),
    )


def _unreadable(handle: ClusterHandle, reason: str) -> EpisodeRecord:
    """Return the record of a rollout that did not come to a readable one: its agent's fault."""
    record = failure_record(handle.spec, AgentError(reason))
    return replace(record, outcome="agent-error", attempts=tuple(handle.losses))


def _phases_of(message: Message) -> dict[PhaseName, Phase]:
    """Return when the phases of a rollout were.

    Raises:
        BadMessage: they are no times.
    """
    times, phases = message.get("phases") or {}, {}
    for name in _PHASES:
        if name in times:
            began, seconds = map(float, times[name])
            if not (math.isfinite(began) and math.isfinite(seconds)):
                raise BadMessage(f"{name} took {seconds} s from {began}")
            phases[name] = Phase(began, seconds)
    return phases
