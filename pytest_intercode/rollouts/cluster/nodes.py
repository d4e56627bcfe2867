"""The nodes of a cluster: keeping our process on each, taking its news, and choosing the next node.

:class:`Machines` hides the engine that runs the nodes; Ray's implementation is in ``ray_nodes.py``.
All of this runs on the thread of one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.rollouts.cluster.messages import BadMessage, Message, decode, reading, whole
from pytest_intercode.rollouts.cluster.node import differences, versions
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.isolation import OUR_THREADS

__all__ = ["Loss", "Machines", "News", "NodeCounts", "NodePool", "Process", "Worker"]

Result = TypeVar("Result")
_MAX_FAULTS = 3  # faults in a row after which a node gets no more work
_START_TIMEOUT = 90.0  # seconds for the processes on nodes to start
_NEWS_TIMEOUT = 5.0  # seconds that a process waits for news before it answers
# A process that does not answer for so many intervals in a row is given up. The intervals are the
# driver's own waits: a driver that was suspended, as on a laptop, has not received any answers.
_SILENCE_INTERVAL = 5.0  # seconds
_MAX_SILENCE = 6
_UNREACHABLE_TIMEOUT = 10.0  # seconds in which Ray finds out whether an unreachable node is gone
_RETRY_INTERVAL = 0.1  # seconds
_MAX_LINE = 2000  # characters of a line from a node for the user


class Loss(Exception):
    """Our process on a node has ended, or does not answer.

    Args:
        reason: the reason in a few words.

    Attributes:
        node_is_gone: whether the whole node is gone, so that nothing in the process caused it.
        temporary: whether the process is only unreachable; it may not have ended.
    """

    def __init__(self, reason: str, *, node_is_gone: bool = False, temporary: bool = False) -> None:
        super().__init__(reason)
        self.node_is_gone = node_is_gone
        self.temporary = temporary


class Process(Protocol):
    """Our process on a node, as the driver sees it."""

    async def call(self, method: str, *arguments: object) -> object:
        """Call a method of the :class:`~pytest_intercode.rollouts.cluster.node.Node` in it.

        Raises:
            Loss: the call does not return.
        """

    def kill(self) -> None:
        """End it; may be called twice."""


class Machines(Protocol):
    """The nodes of a cluster, whichever engine runs them."""

    def find(self) -> Mapping[str, tuple[str, float]]:
        """Return the name, for people, and the weight of each live node, by its id."""

    def start(self, node: str) -> Process:
        """Start our process on a node."""

    def put(self, content: bytes) -> object:
        """Store bytes, and return a reference by which processes get them."""

    def count(self, budget: bytes) -> str:
        """Start the actor that counts the run's budget on this machine; return its name."""

    def close(self) -> None:
        """Leave the cluster."""


@dataclass
class NodeCounts:
    """Counts of a node over the whole run, over all of its processes.

    Attributes:
        done: rollouts that ended there.
        lost: attempts that were lost there.
        in_a_row: faults since the last rollout that ended without one.
        left_out: why it gets no more work; empty while it does.
    """

    done: int = 0
    lost: int = 0
    in_a_row: int = 0
    left_out: str = ""

    def note_fault(self, reason: str) -> None:
        """Count a fault; after several in a row the node gets no more work."""
        self.in_a_row += 1
        if self.in_a_row >= _MAX_FAULTS and not self.left_out:
            self.left_out = f"{_MAX_FAULTS} faults in a row, the last: {reason}"

    def note_end(self, fault: str = "") -> None:
        """Count a rollout that ended; ``fault`` is the reason if the node is at fault."""
        self.done += 1
        if fault:
            self.note_fault(fault)
        else:
            self.in_a_row = 0


@dataclass(eq=False)
class Worker:
    """Our process on a node, which takes rollouts as long as it lives.

    Attributes:
        name: the node's name, for people; the same for all processes there.
        weight: its share of the run is proportional to this.
        process: the process.
        counts: the counts of its node.
        backend: the backend of its sandboxes.
        loss: why it takes no more rollouts; done when it is lost.
        sending: files that are being sent to it, by digest.
        calls: calls that have not returned.
        running: how many rollouts run there.
        load: how many rollouts, per unit of weight, would run there with one more.
    """

    name: str
    weight: float
    process: Process
    counts: NodeCounts
    backend: str = ""
    loss: asyncio.Future[Loss] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    sending: dict[str, asyncio.Task[Message]] = field(default_factory=dict)
    calls: set[asyncio.Task[object]] = field(default_factory=set)
    running: int = 0
    load: float = 0.0

    def __post_init__(self) -> None:
        self.add_running(0)

    def add_running(self, count: int) -> None:
        """Add to the number of rollouts that run there."""
        self.running += count
        self.load = (self.running + 1) / self.weight

    def begin_call(self, method: str, *arguments: object) -> asyncio.Task[object]:
        """Call a method; asyncio will not complain if nobody retrieves its exception."""
        call = asyncio.get_running_loop().create_task(self.process.call(method, *arguments))
        self.calls.add(call)  # asyncio keeps only a weak reference
        call.add_done_callback(self._end_call)
        return call

    def _end_call(self, call: asyncio.Task[object]) -> None:
        self.calls.discard(call)
        if not call.cancelled():
            call.exception()


class News(NamedTuple):
    """News from a process about its rollouts.

    Attributes:
        lines: lines for the user.
        turns: how many turns attempts have taken, by their numbers.
    """

    lines: list[str]
    turns: dict[int, int]

    @classmethod
    def read_from(cls, message: Message) -> News:
        """Parse a message.

        Raises:
            BadMessage: the message is malformed.
        """
        with reading():
            lines = [str(line)[:_MAX_LINE] for line in message["lines"]]
            return cls(lines, {whole(number): whole(count) for number, count in message["turns"]})


async def _in_thread(function: Callable[..., Result], *arguments: object) -> Result:
    """Run a function on a daemon thread, because without its head Ray may never return."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, name=f"{OUR_THREADS}ray", daemon=True).start()
    return await asyncio.wrap_future(future)


class NodePool:
    """The nodes that take part.

    Args:
        machines: the nodes.
        settings: returns the settings that are sent to a process first.
        timeout: seconds that a run waits while no node takes work.

    Attributes:
        machines: the same.
        counts: the counts of the nodes, by their names.
        workers: the processes that can play.
    """

    _take_news: Callable[[Worker, News], None]
    _fail: Callable[[BaseException], None]

    def __init__(
        self,
        machines: Machines,
        settings: Callable[[], NodeSettings],
        timeout: float,
    ) -> None:
        self.counts: dict[str, NodeCounts] = {}
        self.workers: dict[str, Worker] = {}  # by the node's id
        self.machines = machines
        self._settings = settings
        self._timeout = timeout
        self._expected = versions()
        self._numbers = itertools.count(1)
        self._tasks: dict[str, asyncio.Task[None]] = {}  # each keeps a process; by the node's id
        self._problems: dict[str, asyncio.Future[str]] | None = {}  # at the start, by names
        self._idle_since: float | None = None
        # The workers that take work, and their slots. Computed only after a change, because each
        # rollout asks for them, and there may be a thousand workers.
        self._takers: list[Worker] = []
        self._slots = 0
        self._has_takers = asyncio.Event()

    # -- which node is next

    @property
    def slots(self) -> int:
        """How many rollouts may run at a time, by the weights of the nodes that take work."""
        return self._slots

    async def take(self, avoid: Collection[str]) -> Worker:
        """Return the process with the lowest load for its weight; wait until there is one.

        From then on, its :attr:`Worker.running` includes the rollout.

        Args:
            avoid: names of nodes that the rollout was lost on. They are taken only if no other node
                takes work at all.
        """
        while not self._takers:
            await self._has_takers.wait()
        takers = self._takers
        if avoid:
            takers = [worker for worker in takers if worker.name not in avoid] or takers
        worker = min(takers, key=attrgetter("load"))
        worker.add_running(1)
        return worker

    def add(self, node: str, worker: Worker) -> None:
        """Have a process take rollouts.

        Args:
            node: the node's id.
            worker: the process.
        """
        self.workers[node] = worker
        self._find_takers()

    def remove(self, node: str) -> None:
        """Give the process of a node, if there is one, no more rollouts."""
        if self.workers.pop(node, None) is not None:
            self._find_takers()

    def lose(self, worker: Worker, loss: Loss) -> None:
        """Give up a process; the first reason counts."""
        if not worker.loss.done():
            worker.loss.set_result(loss)
            self._find_takers()

    def note_end(self, worker: Worker, fault: str = "") -> None:
        """Count a rollout that ended; ``fault`` is the reason if the node is at fault."""
        worker.counts.note_end(fault)
        if fault:
            self._find_takers()

    def note_fault(self, worker: Worker, reason: str) -> None:
        """Count a fault of a node; after several in a row it gets no more work."""
        worker.counts.note_fault(reason)
        self._find_takers()

    def _find_takers(self) -> None:
        self._takers = [
            worker
            for worker in self.workers.values()
            if not (worker.counts.left_out or worker.loss.done())
        ]
        self._slots = round(sum(worker.weight for worker in self._takers))
        if self._takers:
            self._has_takers.set()
        else:
            self._has_takers.clear()

    def stall_reason(self, now: float) -> str:
        """Return why the remaining rollouts cannot be run; empty if they may be.

        Args:
            now: seconds of a monotonic clock.
        """
        if self._takers:
            self._idle_since = None
            return ""
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since < self._timeout:
            return ""
        left_out = {name: c.left_out for name, c in sorted(self.counts.items()) if c.left_out}
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        suffix = f" ({reasons})" if reasons else ""
        return f"no node takes work for {self._timeout:.0f} s now{suffix}"

    # -- the processes

    async def start(
        self, take_news: Callable[[Worker, News], None], fail: Callable[[BaseException], None]
    ) -> None:
        """Start a process on every node, and wait for all of them.

        Args:
            take_news: called with the news of a process.
            fail: called with an error that is not a node's fault.

        Raises:
            ConfigurationError: a process does not start, has other versions, or cannot play.
        """
        self._take_news, self._fail = take_news, fail
        await self.find()
        problems, self._problems = self._problems or {}, None
        if problems:
            await asyncio.wait(problems.values(), timeout=_START_TIMEOUT)
        late = f"no process of ours started in {_START_TIMEOUT:.0f} s; other jobs may use its CPUs"
        lines = [
            f"node {name}: {problem.result() if problem.done() else late}"
            for name, problem in problems.items()
            if not problem.done() or problem.result()
        ]
        if lines or not problems:
            reason = "; ".join(lines) or "no node of the cluster has CPUs"
            raise ConfigurationError(f"--intercode-cluster: {reason}")

    async def find(self) -> None:
        """Start processes on nodes that do not have one."""
        nodes = await _in_thread(self.machines.find)
        for node, (name, weight) in nodes.items():
            counts = self.counts.setdefault(name, NodeCounts())
            if node not in self._tasks and not counts.left_out:
                problem: asyncio.Future[str] = asyncio.get_running_loop().create_future()
                if self._problems is not None:
                    self._problems[name] = problem
                self._tasks[node] = asyncio.create_task(self._keep(node, name, weight, problem))

    async def close(self, timeout: float) -> None:
        """End all processes; they have ``timeout`` seconds to end their sandboxes."""
        calls = [asyncio.ensure_future(w.process.call("close")) for w in self.workers.values()]
        if calls:
            await asyncio.wait(calls, timeout=timeout)
        tasks = [*calls, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(
        self, node: str, name: str, weight: float, problem: asyncio.Future[str]
    ) -> None:
        """Keep a process on a node, replacing it whenever it is lost, as long as it may play.

        Args:
            node: the node's id.
            name: its name.
            weight: its weight.
            problem: set to the reason why the first process cannot play, or to the empty string.
        """
        counts = self.counts[name]
        try:
            while not counts.left_out:
                try:
                    process = await self._start(node)
                    loss = await self._use(node, Worker(name, weight, process, counts), problem)
                except Loss as error:
                    loss = error
                if loss is None:
                    return
                if not problem.done():
                    problem.set_result(str(loss))
                counts.note_fault(str(loss))
                if loss.node_is_gone:
                    return
        except Exception as error:  # not the node's fault, but ours or the run's owner's
            if not problem.done():
                problem.set_result(repr(error))
            self._fail(error)
        finally:
            # From now on `find` may start a new one, if the node comes back.
            del self._tasks[node]

    async def _start(self, node: str) -> Process:
        """Start a process on a node.

        Raises:
            Loss: the process does not start.
        """
        try:
            return await _in_thread(self.machines.start, node)
        except Exception as error:  # whatever the engine raises
            raise Loss(f"its process cannot be started: {error!r:.200}") from None

    async def _use(self, node: str, worker: Worker, problem: asyncio.Future[str]) -> Loss | None:
        """Let a process take rollouts until it is lost; return None if it cannot play.

        Raises:
            Loss: it is lost before it takes any.
        """
        try:
            unfit = await self._set_up(worker)
            if not problem.done():
                problem.set_result(unfit)
            if unfit:
                worker.counts.left_out = unfit
                return None
            self.add(node, worker)
            return await self._listen(worker)
        finally:
            self.remove(node)
            # Also if it is only unreachable: nobody would receive its results any more.
            worker.process.kill()

    async def _set_up(self, worker: Worker) -> str:
        """Check a process, and send it the settings; return why it cannot play, or nothing.

        Raises:
            Loss: the process has ended.
        """
        try:
            differing = differences(decode(await worker.process.call("versions")), self._expected)
            if differing:
                return differing
            settings = replace(self._settings(), process=f"{worker.name}#{next(self._numbers)}")
            answer = decode(await worker.process.call("set_up", settings.to_json()))
        except BadMessage as error:
            return f"it sends what is not a message: {error}"
        worker.backend = str(answer.get("backend", ""))
        return str(answer.get("problem", ""))

    async def _listen(self, worker: Worker) -> Loss:
        """Take the news of a process until it is lost."""
        unreachable_since = 0.0
        while not worker.loss.done():
            timeout = 0.0 if unreachable_since else _NEWS_TIMEOUT
            news = worker.begin_call("news", timeout)
            futures: set[asyncio.Future[Any]] = {news, worker.loss}
            for _ in range(_MAX_SILENCE):
                answers, _ = await asyncio.wait(
                    futures, timeout=_SILENCE_INTERVAL, return_when=asyncio.FIRST_COMPLETED
                )
                if answers:
                    break
            if not news.done():
                news.cancel()
                seconds = _MAX_SILENCE * _SILENCE_INTERVAL
                self.lose(worker, Loss(f"it has not answered for {seconds:.0f} s"))
                break
            try:
                self._take_news(worker, News.read_from(decode(news.result())))
                if unreachable_since:  # answers that it sent in that time are lost
                    self.lose(worker, Loss("it could not be reached for a while"))
            except BadMessage as error:
                self.lose(worker, Loss(f"it sends what is not a message: {error}"))
            except Loss as loss:
                # Ray needs a moment to find out whether the node of an unreachable process is gone.
                unreachable_since = unreachable_since or time.monotonic()
                late = time.monotonic() > unreachable_since + _UNREACHABLE_TIMEOUT
                if late or not loss.temporary:
                    self.lose(worker, loss)
                else:
                    await asyncio.sleep(_RETRY_INTERVAL)
        return worker.loss.result()
