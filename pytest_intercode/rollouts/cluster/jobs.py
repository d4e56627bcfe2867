"""A rollout on a cluster: what was tried, what an answer makes of it, and whether it is run again.

A rollout that a node has run is over, however it ended: a broken sandbox was tried again there, by
:class:`~pytest_intercode.rollouts.rollout.Rollout`. What is begun again on another node is what no
node has run to its end: its machine or its process ended, or it could not be begun there. A rollout
waits for the answer of one attempt at a time, so what an attempt that was given up answers later
reaches nobody.
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

_MAX_LOSSES = 2  # how often a rollout that was lost is run again
_LOSS_TIMEOUT = 30.0  # seconds in which a process whose call has failed is known to be lost
_MAX_STORED = 16  # files that the object store keeps for the next node that asks


@dataclass(eq=False)
class Job:
    """A rollout that has no result yet.

    Attributes:
        handle: what its owner has.
        observer: what is notified of it.
        lock: held while it is.
        task: its coroutine.
        number: names its present attempt in messages; 0 while there is none.
        worker: where that runs.
        turns: turns of the present attempt; None while its agent cannot have acted.
        losses: why earlier attempts have no result.
        avoid: names of nodes that it was lost on.
        used_turns: turns of lost attempts that its agent may have ended.
        deaths: how many processes ended under it while its agent acted.
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
        """How many turns its agent may take yet."""
        spec = self.handle.spec
        return (spec.max_turns or spec.task.max_turns) - self.used_turns

    @property
    def spec(self) -> RolloutSpec:
        """What the next attempt is to do."""
        spec = self.handle.spec
        return replace(spec, max_turns=self.remaining_turns) if self.used_turns else spec

    @property
    def end_reason(self) -> str:
        """Why its agent has no excuse for attempts that were lost; empty where it has one.

        It acted in each process that ended under it, or has used its turns up.
        """
        if self.deaths and (self.deaths == len(self.losses) or self.remaining_turns <= 0):
            times = "time" if self.deaths == 1 else "times"
            return f"the process that it ran in ended under it {self.deaths} {times}"
        return ""

    def note_loss(self, node: str, reason: str, *, acted: bool, unexplained: bool) -> bool:
        """Take note of an attempt without a result; return whether the rollout is run again.

        Args:
            node: the name of the node where it ran.
            reason: why it has no result.
            acted: its agent may have had a part in it, so the turns that it took stay used.
            unexplained: nothing else is known to have caused it.
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
        """Give it its record or its failure; does nothing to one that is over.

        What its observer raises at its record becomes its failure, as with every executor.

        Args:
            result: the record, or the failure.
            stage: what failed: ``agent``, ``prepare`` or ``run``.
            pieces: what it printed.

        Raises:
            BaseException: its observer did not take something else; it has its result all the same.
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
    """What a node answers to an attempt.

    Attributes:
        result: the rollout's record, or what ended it.
        stage: what failed: ``agent``, ``prepare`` or ``run``.
        declined: it could not be begun there, so that another node is to begin it.
        phases: when its phases were.
        pieces: what it printed.
    """

    result: EpisodeRecord | Exception
    stage: str
    declined: bool
    phases: dict[PhaseName, Phase]
    pieces: list[Any]

    @classmethod
    def read_from(cls, message: Message, job: Job, node: str) -> _Answer:
        """Return what is in a message.

        Args:
            message: the message.
            job: the rollout that it is about.
            node: the node's name.

        Raises:
            BadMessage: it is not what it should be.
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
        report: takes a line for the user.
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
        """Take what a process has sent by itself."""
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
        """Keep a file no longer for the next node that asks."""
        with self._storing:
            self._stored.pop(digest, None)

    async def run(self, job: Job) -> None:
        """Have a rollout played, on one node after the other where that is lost."""
        runs_again = True
        while runs_again and not job.handle.over:
            worker = await self._pool.take(job.avoid)
            job.worker, job.turns, job.number = worker, None, next(self._numbers)
            job.handle.phases.setdefault("prepare", Phase(time.time()))
            # Before the node is asked: news of it may come at any time from then on.
            self._attempts[job.number] = job
            try:
                runs_again = await self._play(job, worker)
            finally:
                # It was counted by `take`.
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
        """Return what has a node play a rollout."""
        spec, paths, refs = job.spec, set[Path](), dict[str, FileRef]()
        with_paths((spec.task, spec.parameters), None, paths)
        if paths:
            refs = await asyncio.to_thread(self._files.refs, paths)
        fields = {"attempt": job.number, "files": list(refs.items())}
        return encode({**fields, "spec": spec.to_json().decode()})

    async def _ask_to_play(self, job: Job, worker: Worker) -> Message:
        """Return a node's answer, when it has all that it needs.

        Raises:
            BadMessage: it is not what it should be.
            Loss: there is none.
        """
        answer: Message = {"needs": []}
        while "needs" in answer and not job.handle.over:
            with reading():
                refs = [FileRef(*map(str, ref)) for ref in answer["needs"]]  # type: ignore[arg-type]
            for receipt in await asyncio.gather(*(self._send(worker, ref) for ref in refs)):
                if "error" in receipt:
                    return {**receipt, "stage": "prepare", "declined": True}
            answer = await self._ask(worker, "play", await self._message(job))
        if "needs" in answer:  # it was cancelled meanwhile
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
        # Where one of those that wait is cancelled, the others are not.
        return await asyncio.shield(worker.sending[ref.digest])

    def _references(self, digest: str) -> list[object]:
        """Put the content with a digest into the object store, if it is not there."""
        with self._storing:
            if digest not in self._stored:
                pieces = self._files.pieces(digest)
                self._stored[digest] = [self._pool.machines.put(piece) for piece in pieces]
                while len(self._stored) > _MAX_STORED:
                    del self._stored[next(iter(self._stored))]
            return self._stored[digest]

    async def _ask(self, worker: Worker, method: str, *arguments: object) -> Message:
        """Return the answer of a process.

        Raises:
            BadMessage: it is not a message.
            Loss: it is lost.
        """
        call = worker.begin_call(method, *arguments)
        del arguments  # it may be large, and the answer late
        futures: set[asyncio.Future[Any]] = {call, worker.loss}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if not worker.loss.done():
            try:
                return decode(call.result())
            except Loss as loss:  # whoever listens to it knows why, and what it said before
                await asyncio.wait({worker.loss}, timeout=_LOSS_TIMEOUT)
                self._pool.lose(worker, loss)
        call.cancel()
        raise worker.loss.result()

    # -- what becomes of it

    def _take_answer(self, job: Job, worker: Worker, answer: _Answer) -> bool:
        """Take what a node says of a rollout; return whether it is to be run again."""
        handle, result = job.handle, answer.result
        if handle.over:  # it was cancelled, and its result counts for nothing
            self._pool.note_end(worker)
            return False
        if answer.declined:
            self._pool.note_fault(worker, str(result))
            return self._lose(job, worker, str(result), acted=True, error=result)
        # Whichever node asks a judge, it gives no verdict.
        is_fault = isinstance(result, InfrastructureError) and not isinstance(result, JudgeError)
        self._pool.note_end(worker, str(result) if is_fault else "")
        handle.phases.update(answer.phases)
        if isinstance(result, (ConfigurationError, InfrastructureError)):
            # A module is missing there, say.
            result.args = (f"node {worker.name}: {result}",)
        job.end(result, answer.stage, answer.pieces)
        return False

    def _lose(
        self, job: Job, worker: Worker, reason: str, *, acted: bool, error: Any = None
    ) -> bool:
        """Take note of an attempt without a result, and end a rollout that is not run again.

        Args:
            job: the rollout.
            worker: where it ran.
            reason: why it has no result.
            acted: its agent may have had a part in it.
            error: what the node itself says, which could not run it.

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


def _failure_of(message: Message, job: Job, node: str) -> tuple[Exception, bool]:
    """Return what ended an attempt, and whether another node is to begin it."""
    error = error_from(message["error"], node)
    if isinstance(error, JudgeError) and "line" in message["error"]:
        error.record = _record_of(job, str(message["error"]["line"]), node)
    declined = message.get("declined") is True
    if isinstance(error, RolloutCancelled):  # not by its owner: the process is ending
        return SandboxError(f"it was ended there: {error}"), True
    if isinstance(error, EngineUnavailable) and not declined:  # one node's, not everybody's
        return InfrastructureError(str(error)), False
    return error, declined and isinstance(error, InfrastructureError)
