"""The driver's own thread: takes what nodes send, and decides what begins and what is lost.

A rollout that a node has run is over, however it ended: a broken sandbox was tried again there, by
:class:`~pytest_intercode.rollouts.rollout.Rollout`. What is begun again on another node is what no
node has run to its end: its machine or its process ended, or it could not be begun there.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_intercode.core.record import EpisodeRecord
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
from pytest_intercode.rollouts.budgets import NOTHING, RunBudget
from pytest_intercode.rollouts.cluster.budget import amounts_of
from pytest_intercode.rollouts.cluster.files import FileIndex, with_paths
from pytest_intercode.rollouts.cluster.jobs import Job, JobTable, Node
from pytest_intercode.rollouts.cluster.messages import (
    BadMessage,
    Message,
    decode,
    encode,
    error_from,
    whole,
)
from pytest_intercode.rollouts.cluster.transport import (
    Event,
    Gone,
    Joined,
    Received,
    Refused,
    Transport,
)
from pytest_intercode.rollouts.executor import Handle, Observer, Phase, PhaseName
from pytest_intercode.rollouts.isolation import OUR_THREADS
from pytest_intercode.rollouts.output import captured_pieces
from pytest_intercode.rollouts.records import RecordBuilder
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["Driver"]

_TICK = 0.2  # seconds
_MAX_EVENTS = 64  # that are taken before what they make room for is begun
_PHASES: tuple[PhaseName, ...] = ("prepare", "run", "close")
# What is raised while bytes are read that are not a message: its numbers may be too large, and its
# lists too deep. Nothing is changed before a message is read whole, or its rollout would never end.
_MALFORMED = (
    *(BadMessage, KeyError, TypeError, ValueError, AttributeError),
    *(OverflowError, RecursionError),
)


class Driver:
    """Drives the nodes.

    Args:
        transport: what carries messages to nodes.
        table: the rollouts and the nodes.
        observer: what is notified of the nodes' lines.
        refill: called, with :attr:`lock` held, when there is room and nothing waits; it may add
            something to the table.
        run_budget: what is left for the whole run, nodes and this process together.
        files: the files that nodes may ask for.

    Attributes:
        lock: guards the table.
        changed: notified when something has happened.
        stopped: begin nothing more.
    """

    def __init__(
        self,
        transport: Transport,
        table: JobTable,
        observer: Observer,
        refill: Callable[[], object],
        run_budget: RunBudget,
        files: FileIndex,
    ) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.stopped = False
        self._transport = transport
        self._table = table
        self._observer = observer
        self._refill = refill
        self._budget = run_budget
        self._files = files
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._named: set[str] = set()
        self._closed = self._stalled = False
        self._senders = ThreadPoolExecutor(2, thread_name_prefix=f"{OUR_THREADS}files")
        self._thread = threading.Thread(
            target=self._work, name=f"{OUR_THREADS}cluster", daemon=True
        )

    def start(self, settings: Callable[[], bytes]) -> None:
        """Start the nodes' processes, and the thread.

        Raises:
            ConfigurationError: a node cannot be used.
        """
        for event in self._transport.start(self._inbox.put, settings):
            self._take(event)
        self._thread.start()

    def wake(self) -> None:
        """Look for something to begin."""
        if threading.current_thread() is not self._thread:
            self._inbox.put(None)

    def close(self, timeout: float) -> None:
        """End the nodes' processes and the thread; may be called twice."""
        with self.lock:
            if self._closed:
                return
            self._closed = self.stopped = True
        self._inbox.put(None)
        self._transport.close(timeout)
        self._senders.shutdown(wait=False, cancel_futures=True)
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _work(self) -> None:
        while not self._closed:
            for number in range(_MAX_EVENTS):
                try:
                    event = self._inbox.get(number == 0, _TICK)
                except queue.Empty:
                    break
                if event is not None:
                    with self.lock:
                        self._take(event)
            with self.lock:
                assignments = self._fill()
                self.changed.notify_all()
            for job, node in assignments:  # others may have the lock in between
                with self.lock:
                    self._begin(job, node)

    def _take(self, event: Event) -> None:
        """Take an event of the transport's."""
        if isinstance(event, Joined):
            self._table.add_node(event.node, Node(event.name, event.backend), event.weight)
        elif isinstance(event, Received):
            self._read(event)
        elif isinstance(event, Refused):
            self._table.placement.leave_out(event.name, event.reason)
        elif isinstance(event, Gone):
            self._lose_node(event.node, event.reason, event.process)
        for name, counts in self._table.placement.counts.items():
            if counts.left_out and name not in self._named:
                self._named.add(name)
                self._observer.report(f"node {name} gets no more work: {counts.left_out}")

    def _lose_node(self, node_id: str, reason: str, process: bool) -> None:
        """Give up a node, and have another process started there.

        Args:
            node_id: the node.
            reason: why.
            process: what ran there may have had a part in it.
        """
        node = self._table.remove_node(node_id, reason)
        if node is None:
            return
        for job in list(node.jobs.values()):
            self._lose(job, node, reason, acted=process)
        if not self.stopped and self._table.placement.takes_part(node.name):
            self._transport.replace(node_id)

    def _read(self, event: Received) -> None:
        """Take messages of a node; one that sends anything else is given up."""
        if event.node not in self._table.nodes:
            return
        try:
            for message in decode(event.data):
                handler = getattr(self, f"_on_{message.get('what')}", _refuse)
                handler(event.node, message)
        except _MALFORMED as error:
            self._lose_node(event.node, f"it sends what is not a message: {error!r:.200}", True)

    def _on_line(self, node: str, message: Message) -> None:
        self._observer.report(f"{self._table.nodes[node].name}: {str(message['text'])[:2000]}")

    def _on_need(self, node: str, message: Message) -> None:
        digest = str(message["digest"])
        self._senders.submit(
            self._transport.send_file, node, digest, lambda: self._files.pieces(digest)
        )

    def _on_begin_turn(self, node: str, message: Message) -> None:
        call = whole(message, "call")
        refused = self._budget.begin_turn()
        self._table.nodes[node].open_turns += not refused
        self._answer(node, call, refused)

    def _on_end_turn(self, node: str, message: Message) -> None:
        state = self._table.nodes[node]
        if not state.open_turns:  # it would gain one
            raise BadMessage("a turn that was not begun")
        state.open_turns -= 1
        self._budget.end_turn(message.get("taken") is True)

    def _on_charge(self, node: str, message: Message) -> None:
        call = whole(message, "call")
        self._answer(node, call, self._budget.add(amounts_of(message)))

    def _answer(self, node: str, call: int, refused: str) -> None:
        exhausted = self._budget.add(NOTHING)
        message = {"what": "answer", "call": call, "refused": refused, "exhausted": exhausted}
        self._transport.send(node, encode(message))

    def _on_prepared(self, node: str, message: Message) -> None:
        job = self._job(node, message)
        if job is not None:
            job.acting = True
            _pass_phases(job.handle, "run")

    def _on_turns(self, node: str, message: Message) -> None:
        job, turns = self._job(node, message), whole(message, "turns")
        if job is not None:
            job.turns = turns

    def _on_ended(self, node: str, message: Message) -> None:
        job = self._job(node, message)
        if job is None:  # of an attempt that was given up: its result counts for nothing
            return
        phases, name = _phases_of(message), self._table.nodes[node].name
        record = _record_of(job, str(message["line"]), name)
        self._table.placement.note_end(name)
        self._table.forget(job)
        if job.handle.over:
            return
        job.handle.phases.update(phases)
        job.observer.printed(job.handle, captured_pieces(message.get("output")))
        self._end(job, record)

    def _on_failed(self, node: str, message: Message) -> None:
        job = self._job(node, message)
        if job is None:
            return
        name, placement = self._table.nodes[node].name, self._table.placement
        error, declined = _failure_of(message, name)
        stage, phases = str(message["stage"]), _phases_of(message)
        if declined and not job.handle.over:
            placement.note_fault(name, str(error))
            placement.release(node)
            self._lose(job, self._table.nodes[node], str(error), acted=True, error=error)
            return
        fault = isinstance(error, InfrastructureError) and not job.handle.over
        placement.note_end(name, str(error) if fault else "")
        self._table.forget(job)
        if not job.handle.over:
            if isinstance(error, (ConfigurationError, InfrastructureError)):
                error = _on_node(error, name)  # a module may be missing there, say
            job.handle.phases.update(phases)
            job.observer.printed(job.handle, captured_pieces(message.get("output")))
            self._fail(job, error, stage)

    def _job(self, node: str, message: Message) -> Job | None:
        """Return the rollout that a message is about, unless it is of an attempt given up."""
        return self._table.find(whole(message, "job"), whole(message, "attempt"), node)

    def _fail(self, job: Job, error: BaseException, stage: str) -> None:
        """Give a rollout its failure; ``stage`` is what failed: ``agent``, ``prepare``, ``run``."""
        job.observer.failed(job.handle, error)
        _pass_phases(job.handle, stage)
        job.handle.fail(error)

    def _end(self, job: Job, record: EpisodeRecord) -> None:
        """Give a rollout its record."""
        job.observer.ended(job.handle, record)
        _pass_phases(job.handle, "run")
        job.handle.recorded.set_result(record)

    def _lose(
        self,
        job: Job,
        node: Node,
        reason: str,
        *,
        acted: bool,
        error: Exception | None = None,
    ) -> None:
        """Take note of an attempt without a result, and end a rollout that is not run again.

        Args:
            job: the rollout.
            node: where it ran.
            reason: why it has no result.
            acted: its agent may have had a part in it.
            error: what the node itself says, which could not run it.
        """
        runs_again = self._table.lose(job, node, reason, acted=acted, unexplained=error is None)
        if runs_again and not job.handle.over:
            return
        self._table.forget(job)
        if job.handle.over:
            return
        if job.end_reason:
            record = RecordBuilder(job.handle.spec).failure(AgentError(job.end_reason))
            self._end(job, replace(record, attempts=tuple(job.losses)))
        else:
            self._fail(job, error or SandboxError("; ".join(job.losses)), "prepare")

    # -- what begins

    def _fill(self) -> list[tuple[Job, str]]:
        """Have as much submitted as can begin, and return it with its nodes; lock held."""
        jobs = self._table.jobs
        # Without any slot, one is submitted all the same: it says in its turn that there is none.
        while not (self.stopped or self._stalled):
            if jobs and not self._table.has_room:
                break
            count = len(jobs)
            self._refill()
            if len(jobs) == count:
                break
        assignments = self._table.begin()
        if jobs and not self._stalled:
            reason = self._table.placement.stall_reason(time.monotonic())
            if reason:
                self._give_up(reason)
        return assignments

    def _begin(self, job: Job, node: str) -> None:
        if job.node != node:  # it was lost meanwhile
            return
        handle = job.handle
        if handle.over:  # it was cancelled meanwhile
            self._table.forget(job)
            return
        handle.phases.setdefault("prepare", Phase(time.time()))
        spec = handle.spec
        if job.used_turns:
            spec = replace(spec, max_turns=job.remaining_turns)
        try:
            message = _play_message(job, spec, self._files)
        except Exception as error:  # a file that cannot be read, a task that is not JSON
            self._table.forget(job)
            self._fail(job, error, "prepare")
            return
        self._transport.send(node, message)

    def _give_up(self, reason: str) -> None:
        """End everything: nothing will come of it."""
        self._stalled = True
        error = EngineUnavailable(f"the cluster: {reason}; --intercode-resume goes on from here")
        for job in list(self._table.jobs.values()):
            self._table.forget(job)
            if not job.handle.over:
                self._fail(job, error, "prepare")


def _refuse(node: str, message: Message) -> None:
    raise BadMessage(f"{message.get('what')!r:.40}")


_Error = TypeVar("_Error", bound=IntercodeError)


def _on_node(error: _Error, node: str) -> _Error:
    """Return an error that says on which node it was."""
    return type(error)(f"node {node}: {error}")


def _play_message(job: Job, spec: RolloutSpec, index: FileIndex) -> bytes:
    """Return what has a node play a rollout."""
    paths: set[Path] = set()
    with_paths((spec.task, spec.parameters), None, paths)
    refs = [(str(path), index.ref(path)) for path in sorted(paths)]
    message = {
        "what": "play",
        "job": job.number,
        "attempt": job.attempt,
        "files": [[path, list(ref)] for path, ref in refs if ref is not None],
    }
    return encode(message, spec=spec.to_json())


def _record_of(job: Job, line: str, node: str) -> EpisodeRecord:
    """Return the record of a rollout that a node sent; what is not one is its agent's fault."""
    builder = RecordBuilder(job.handle.spec)
    try:
        return builder.received(from_line(line), node, job.losses)
    except (ConfigurationError, ValueError, RecursionError) as error:
        reason = f"node {node} sent what is not a record of it: {error!s:.300}"
        return replace(builder.failure(AgentError(reason)), attempts=tuple(job.losses))


def _pass_phases(handle: Handle, stage: str) -> None:
    """Let whoever waits for what comes before a stage go on."""
    futures: tuple[Future[Any], ...] = (handle.made_agent, handle.reset_environment)
    for future in futures[: {"agent": 0, "prepare": 1}.get(stage, 2)]:
        if not future.done():
            future.set_result(None)  # ``wait`` returns what is used instead


def _failure_of(message: Message, node: str) -> tuple[Exception, bool]:
    """Return what ended an attempt, and whether another node is to begin it."""
    error = error_from(message["error"], node)
    declined = message.get("declined") is True
    if isinstance(error, RolloutCancelled):  # not by its owner: the process is ending
        return SandboxError(f"it was ended there: {error}"), True
    if isinstance(error, EngineUnavailable) and not declined:  # one node's, not everybody's
        return InfrastructureError(str(error)), False
    return error, declined and isinstance(error, InfrastructureError)


def _phases_of(message: Message) -> dict[PhaseName, Phase]:
    """Return when the phases of a rollout were.

    Raises:
        BadMessage: they are not times.
    """
    times, phases = message.get("phases") or {}, {}
    for name in _PHASES:
        if name in times:
            began, seconds = map(float, times[name])
            if not (math.isfinite(began) and math.isfinite(seconds)):
                raise BadMessage(f"{name} took {seconds} s from {began}")
            phases[name] = Phase(began, seconds)
    return phases
