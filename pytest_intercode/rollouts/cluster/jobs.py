"""A rollout on a cluster: its attempts, the answers of nodes, and whether it is run again.

A rollout that a node has run is over, however it ended: a broken sandbox was already retried there,
by :class:`~pytest_intercode.rollouts.rollout.Rollout`. A rollout is restarted on another node only
if no node has run it to its end: the machine or the process ended, or the rollout could not be
begun there. A rollout waits for the answer of one attempt at a time, so a late answer of an
abandoned attempt is ignored.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pytest_intercode.core.record import EpisodeRecord, lost_on
from pytest_intercode.errors import (
    AgentError,
    ConfigurationError,
    EngineUnavailable,
    InfrastructureError,
    JudgeError,
    RolloutCancelled,
    SandboxError,
)
from pytest_intercode.results.format import from_line
from pytest_intercode.rollouts.cluster.files import FileIndex, FileRef, with_paths
from pytest_intercode.rollouts.cluster.messages import (
    BadMessage,
    Message,
    decode,
    encode,
    error_from,
    error_of,
    phases_of,
    reading,
)
from pytest_intercode.rollouts.cluster.nodes import Loss, News, NodePool, Worker
from pytest_intercode.rollouts.executor import Handle, Observer, Phase, PhaseName
from pytest_intercode.rollouts.output import captured_pieces
from pytest_intercode.rollouts.records import RecordBuilder
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["Job", "JobRunner"]

_MAX_LOSSES = 2  # how often a lost rollout is run again
_LOSS_TIMEOUT = 30.0  # seconds after a failed call until its process is considered lost
_MAX_STORED = 16  # files that the object store keeps for the next node that asks


@dataclass(eq=False)
class Job:
    """A rollout that has no result yet.

    Attributes:
        handle: the handle that its owner has.
        observer: the observer that is notified of it.
        lock: held while the observer is notified.
        task: the asyncio task that runs it.
        number: identifies its current attempt in messages; 0 while there is none.
        worker: the worker on which that attempt runs.
        turns: turns of the current attempt; None while its agent cannot have acted.
        losses: why earlier attempts have no result.
        avoid: names of nodes that it was lost on.
        used_turns: turns of lost attempts whose loss its agent may have caused.
        deaths: how many processes ended, without another explanation, while its agent acted.
    """

    handle: Handle
    observer: Observer
    lock: threading.RLock
    task: asyncio.Task[None] | None = None
    number: int = 0
    worker: Worker | None = None
    turns: int | None = None
    losses: list[str] = field(default_factory=list)
    avoid: set[str] = field(default_factory=set)
    used_turns: int = 0
    deaths: int = 0

    @property
    def remaining_turns(self) -> int:
        """How many more turns its agent may take."""
        spec = self.handle.spec
        return (spec.max_turns or spec.task.max_turns) - self.used_turns

    @property
    def spec(self) -> RolloutSpec:
        """The spec of the next attempt."""
        spec = self.handle.spec
        return replace(spec, max_turns=self.remaining_turns) if self.used_turns else spec

    @property
    def end_reason(self) -> str:
        """Why the lost attempts are considered the agent's fault; empty if they are not.

        They are if it acted in every process that was lost, or has used up its turns.
        """
        if self.deaths and (self.deaths == len(self.losses) or self.remaining_turns <= 0):
            times = "time" if self.deaths == 1 else "times"
            return f"the process that it ran in ended under it {self.deaths} {times}"
        return ""

    def note_loss(self, node: str, reason: str, *, acted: bool, unexplained: bool) -> bool:
        """Record an attempt without a result; return whether the rollout is run again.

        Args:
            node: the name of the node where it ran.
            reason: why it has no result.
            acted: whether its agent may have caused this, so that the turns it took stay used.
            unexplained: whether no other cause is known.
        """
        self.losses.append(lost_on(node, reason))
        self.avoid.add(node)
        began = acted and self.turns is not None
        if began:
            self.used_turns += self.turns or 0
            self.deaths += unexplained
        return len(self.losses) <= _MAX_LOSSES and not (began and self.remaining_turns <= 0)

    def end(
        self,
        result: EpisodeRecord | BaseException,
        stage: str = "run",
        pieces: Sequence[Any] = (),
    ) -> None:
        """Set its record or its failure; does nothing if it is over.

        An error that its observer raises for the record becomes its failure, as with every
        executor.

        Args:
            result: the record, or the failure.
            stage: the stage that failed: ``agent``, ``prepare`` or ``run``.
            pieces: its output.

        Raises:
            BaseException: its observer raised for output or a failure; the result is set anyway.
        """
        with self.lock:
            if not self.handle.over:
                try:
                    if pieces:
                        self.observer.printed(self.handle, list(pieces))
                finally:
                    self._deliver(result, stage)

    def _deliver(self, result: EpisodeRecord | BaseException, stage: str) -> None:
        try:
            if isinstance(result, EpisodeRecord):
                try:
                    self.observer.ended(self.handle, result)
                except BaseException as error:
                    result, stage = error, "run"
            if not isinstance(result, EpisodeRecord):
                self.observer.failed(self.handle, result)
        finally:
            _pass_phases(self.handle, stage)
            if isinstance(result, EpisodeRecord):
                self.handle.recorded.set_result(result)
            else:
                self.handle.fail(result)


class _Answer(NamedTuple):
    """A node's answer to an attempt.

    Attributes:
        result: the rollout's record, or the error that ended it.
        stage: the stage that failed: ``agent``, ``prepare`` or ``run``.
        declined: whether it could not be begun there, so that another node must begin it.
        phases: the times of its phases.
        pieces: its output.
    """

    result: EpisodeRecord | Exception
    stage: str
    declined: bool
    phases: dict[PhaseName, Phase]
    pieces: list[Any]

    @classmethod
    def read_from(cls, message: Message, job: Job, node: str) -> _Answer:
        """Parse a message.

        Args:
            message: the message.
            job: the rollout that it is about.
            node: the node's name.

        Raises:
            BadMessage: the message is malformed.
        """
        with reading():
            phases, pieces = phases_of(message), captured_pieces(message.get("output"))
            if "line" in message:
                record = _record_of(job, str(message["line"]), node)
                return cls(record, "run", False, phases, pieces)
            error, declined = _failure_of(message, job, node)
            return cls(error, str(message["stage"]), declined, phases, pieces)


class JobRunner:
    """Has nodes play rollouts, one attempt after the other; runs on the executor's event loop.

    Args:
        pool: the nodes.
        files: the files that nodes may ask for.
        report: called with a line for the user.
    """

    def __init__(self, pool: NodePool, files: FileIndex, report: Callable[[str], None]) -> None:
        self._pool = pool
        self._files = files
        self._report = report
        self._numbers = itertools.count(1)
        self._attempts: dict[int, Job] = {}  # by number
        self._storing = threading.Lock()
        self._stored: dict[str, list[object]] = {}  # references to pieces of files, by digest

    def take_news(self, worker: Worker, news: News) -> None:
        """Handle the news of a process."""
        for line in news.lines:
            self._report(f"{worker.name}: {line}")
        for number, count in news.turns.items():
            job = self._attempts.get(number)
            if job is not None and job.worker is worker:
                job.turns = count
                job.handle.node_turns = job.used_turns + count
                with job.lock:
                    _pass_phases(job.handle, "run")

    def let_go(self, digest: str) -> None:
        """Stop keeping a file in the object store."""
        with self._storing:
            self._stored.pop(digest, None)

    async def run(self, job: Job) -> None:
        """Have a rollout played; if it is lost, on another node."""
        runs_again = True
        while runs_again and not job.handle.over:
            worker = await self._pool.take(job.avoid)
            job.worker, job.turns, job.number = worker, None, next(self._numbers)
            job.handle.phases.setdefault("prepare", Phase(time.time()))
            # Before the node is asked, because news of the attempt may come at any time after that.
            self._attempts[job.number] = job
            try:
                runs_again = await self._play(job, worker)
            finally:
                # `take` has counted it.
                worker.add_running(-1)
                job.worker = None
                del self._attempts[job.number]

    async def _play(self, job: Job, worker: Worker) -> bool:
        try:
            reply = await self._ask_to_play(job, worker)
            answer = _Answer.read_from(reply, job, worker.name)
        except (BadMessage, Loss) as error:
            if isinstance(error, BadMessage):
                self._pool.lose(worker, Loss(f"it sends what is not a message: {error}"))
            loss = await worker.loss
            return self._lose(job, worker, str(loss), acted=not loss.node_is_gone)
        except Exception as error:  # a file that cannot be read or sent, a task that is not JSON
            job.end(error, "prepare")
            return False
        return self._take_answer(job, worker, answer)

    async def _message(self, job: Job) -> bytes:
        """Return the message that asks a node to play a rollout."""
        spec, paths, refs = job.spec, set[Path](), dict[str, FileRef]()
        with_paths((spec.task, spec.parameters), None, paths)
        if paths:
            refs = await asyncio.to_thread(self._files.refs, paths)
        fields = {"attempt": job.number, "files": list(refs.items())}
        return encode({**fields, "spec": spec.to_json().decode()})

    async def _ask_to_play(self, job: Job, worker: Worker) -> Message:
        """Send a node the files that it needs, and return its answer.

        Raises:
            BadMessage: the answer is malformed.
            Loss: there is no answer.
        """
        answer: Message = {"needs": []}
        while "needs" in answer and not job.handle.over:
            with reading():
                refs = [FileRef(*map(str, ref)) for ref in answer["needs"]]  # type: ignore[arg-type]
            for receipt in await asyncio.gather(*(self._send(worker, ref) for ref in refs)):
                if "error" in receipt:
                    return {**receipt, "stage": "prepare", "declined": True}
            answer = await self._ask(worker, "play", await self._message(job))
        if "needs" in answer:  # it was cancelled while files were sent
            return {"stage": "prepare", "error": error_of(RolloutCancelled("it is not wanted"))}
        return answer

    async def _send(self, worker: Worker, ref: FileRef) -> Message:
        """Send a file to a node, once for all rollouts that wait for it; return the answer."""

        async def send() -> Message:
            references = await asyncio.to_thread(self._references, ref.digest)
            return await self._ask(worker, "receive", list(ref), references)

        if ref.digest not in worker.sending:
            worker.sending[ref.digest] = task = asyncio.create_task(send())
            task.add_done_callback(lambda _: worker.sending.pop(ref.digest))
        # Shielded, so that cancelling one of the waiting rollouts does not cancel the others.
        return await asyncio.shield(worker.sending[ref.digest])

    def _references(self, digest: str) -> list[object]:
        """Put the content with a digest into the object store, unless it is there."""
        with self._storing:
            if digest not in self._stored:
                pieces = self._files.pieces(digest)
                self._stored[digest] = [self._pool.machines.put(piece) for piece in pieces]
                while len(self._stored) > _MAX_STORED:
                    del self._stored[next(iter(self._stored))]
            return self._stored[digest]

    async def _ask(self, worker: Worker, method: str, *arguments: object) -> Message:
        """Call a method of a process, and return the answer.

        Raises:
            BadMessage: the answer is not a message.
            Loss: the process is lost.
        """
        call = worker.begin_call(method, *arguments)
        del arguments  # they may be large, and the answer may take long
        futures: set[asyncio.Future[Any]] = {call, worker.loss}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if not worker.loss.done():
            try:
                return decode(call.result())
            except Loss as loss:  # `_listen` finds the reason, and takes its last news first
                await asyncio.wait({worker.loss}, timeout=_LOSS_TIMEOUT)
                self._pool.lose(worker, loss)
        call.cancel()
        raise worker.loss.result()

    # -- results

    def _take_answer(self, job: Job, worker: Worker, answer: _Answer) -> bool:
        """Handle a node's answer to a rollout; return whether it is to be run again."""
        handle, result = job.handle, answer.result
        if handle.over:  # it was cancelled, so its result is ignored
            self._pool.note_end(worker)
            return False
        if answer.declined:
            self._pool.note_fault(worker, str(result))
            return self._lose(job, worker, str(result), acted=True, error=result)
        # An error of a judge is not the node's fault: it would fail on every node.
        is_fault = isinstance(result, InfrastructureError) and not isinstance(result, JudgeError)
        self._pool.note_end(worker, str(result) if is_fault else "")
        handle.phases.update(answer.phases)
        if isinstance(result, (ConfigurationError, InfrastructureError)):
            # The cause may be on that node, such as a missing module.
            result.args = (f"node {worker.name}: {result}",)
        job.end(result, answer.stage, answer.pieces)
        return False

    def _lose(
        self, job: Job, worker: Worker, reason: str, *, acted: bool, error: Any = None
    ) -> bool:
        """Record an attempt without a result, and end the rollout if it is not run again.

        Args:
            job: the rollout.
            worker: the worker on which it ran.
            reason: why it has no result.
            acted: whether its agent may have caused this.
            error: the error that the node reported, if it could not run the rollout.

        Returns:
            Whether it is to be run again.
        """
        worker.counts.lost += 1
        runs_again = job.note_loss(worker.name, reason, acted=acted, unexplained=error is None)
        if runs_again or job.handle.over:
            return runs_again
        if job.end_reason:
            record = RecordBuilder(job.handle.spec).failure(AgentError(job.end_reason))
            job.end(replace(record, attempts=tuple(job.losses)))
        else:
            job.end(error or SandboxError("; ".join(job.losses)), "prepare")
        return False


def _record_of(job: Job, line: str, node: str) -> EpisodeRecord:
    """Return the record that a node sent; if it is invalid, that is the agent's fault."""
    builder = RecordBuilder(job.handle.spec)
    try:
        return builder.received(from_line(line), node, job.losses)
    except (ConfigurationError, ValueError, RecursionError) as error:
        reason = f"node {node} sent what is not a record of it: {error!s:.300}"
        return replace(builder.failure(AgentError(reason)), attempts=tuple(job.losses))


def _pass_phases(handle: Handle, stage: str) -> None:
    """Release those who wait for the phases before a stage."""
    futures: tuple[Future[Any], ...] = (handle.made_agent, handle.reset_environment)
    for future in futures[: {"agent": 0, "prepare": 1}.get(stage, 2)]:
        if not future.done():
            future.set_result(None)  # ``wait`` returns a substitute


def _failure_of(message: Message, job: Job, node: str) -> tuple[Exception, bool]:
    """Return the error that ended an attempt, and whether another node is to begin it."""
    error = error_from(message["error"], node)
    if isinstance(error, JudgeError) and "line" in message["error"]:
        error.record = _record_of(job, str(message["error"]["line"]), node)
    declined = message.get("declined") is True
    if isinstance(error, RolloutCancelled):  # not by its owner: the process is ending
        return SandboxError(f"it was ended there: {error}"), True
    if isinstance(error, EngineUnavailable) and not declined:  # only on this node
        return InfrastructureError(str(error)), False
    return error, declined and isinstance(error, InfrastructureError)
