"""Nodes of a cluster that only sleep: the driver is real, the nodes are not.

The code that reads real nodes' answers reads theirs. They run on the driver's own event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.turn import Turn
from pytest_intercode.results.format import to_line
from pytest_intercode.rollouts.cluster.budget import BudgetActor
from pytest_intercode.rollouts.cluster.messages import encode
from pytest_intercode.rollouts.cluster.node import versions
from pytest_intercode.rollouts.cluster.nodes import Loss

__all__ = ["SleepingNodes", "SleepingProcess"]


class SleepingProcess:
    """A process on a node; its methods are those of a real one.

    Attributes:
        node: the node's name.
        running: the futures of the attempts that run there, by number; a reason ends one.
    """

    def __init__(self, nodes: SleepingNodes, node: str) -> None:
        self.node = node
        self.running: dict[int, asyncio.Future[str]] = {}
        self._nodes = nodes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loss: Loss | None = None
        self._calls: set[asyncio.Task[object]] = set()
        self._changed: asyncio.Future[str] | None = None
        self._news: list[tuple[int, int]] = []

    async def call(self, method: str, *arguments: Any) -> object:
        """Call a method, until it returns or the process ends."""
        if self._loss is not None:
            raise self._loss
        self._loop = asyncio.get_running_loop()
        call = self._loop.create_task(getattr(self, method)(*arguments))
        del arguments
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            return await call
        except asyncio.CancelledError:
            if self._loss is not None:
                raise self._loss from None
            raise

    def kill(self) -> None:
        """End the process."""
        self.end(Loss("it was ended"))

    def end(self, loss: Loss) -> None:
        """End the process with a reason; may be called from any thread."""
        with self._nodes.lock:
            if self in self._nodes.processes:
                self._nodes.processes.remove(self)
                self._loss = loss
                if self._loop is not None:
                    with contextlib.suppress(RuntimeError):  # the loop has ended
                        self._loop.call_soon_threadsafe(self._drop_calls)

    def _drop_calls(self) -> None:
        for call in list(self._calls):
            call.cancel()

    # -- what the driver calls

    async def versions(self) -> bytes:
        """Return the driver's own versions."""
        return self._nodes.versions

    async def set_up(self, settings: bytes) -> bytes:
        """Return the same backend on every node."""
        return encode({"backend": "bubblewrap"})

    async def play(self, data: bytes) -> object:
        """Play an attempt."""
        message = json.loads(data)
        del data
        return await self._nodes.play(self, message)

    async def sleep(self, number: int, seconds: float) -> bytes:
        """Play an attempt; return the answer of a node."""
        began = time.time()
        loop = asyncio.get_running_loop()
        ended = self.running[number] = loop.create_future()
        timer = loop.call_later(seconds, _end, ended, "")
        self.tell(number, 0)
        try:
            cancelled = await ended
        finally:
            timer.cancel()
            del self.running[number]
        if cancelled:
            error = {"kind": "RolloutCancelled", "text": cancelled}
            return encode({"stage": "run", "error": error})
        phases = {"prepare": [began, 0.0], "run": [began, seconds]}
        return encode({"line": self._nodes.line, "phases": phases, "output": []})

    def tell(self, attempt: int, turns: int) -> None:
        """Tell the driver how many turns an attempt has taken."""
        self._news.append((attempt, turns))
        if self._changed is not None:
            _end(self._changed, "")

    @property
    def has_news(self) -> bool:
        """Whether the driver still has to take news, or to ask again."""
        return bool(self._news) or self._changed is None or self._changed.done()

    async def news(self, timeout: float) -> object:
        """Wait for news, and return how many turns attempts have taken."""
        if not self._news:
            loop = asyncio.get_running_loop()
            self._changed = loop.create_future()
            timer = loop.call_later(timeout, _end, self._changed, "")
            try:
                await self._changed
            finally:
                timer.cancel()
        news, self._news = self._news, []
        return encode({"turns": news, "lines": []})

    async def receive(self, ref: object, references: object) -> bytes:
        """Receive a file."""
        return encode({})

    async def forget(self, digest: str) -> None:
        """Record the digest of a file that is not needed any more."""
        self._nodes.forgotten.append(digest)

    async def cancel(self, number: int, reason: str) -> None:
        """End an attempt."""
        self._nodes.cancelled += 1
        if number in self.running:
            _end(self.running[number], reason)

    async def close(self) -> None:
        """Do nothing."""


class SleepingNodes:
    """Nodes that only sleep.

    Args:
        nodes: how many there are.
        weight: the weight of each.
        seconds: returns the wall-clock duration of an episode; called for each.
        turns: how many turns an episode takes.
        keep: how many of the last messages are kept; None for all.

    Attributes:
        nodes: the names and weights of the nodes, by id; it may be changed.
        processes: the running processes, in the order in which they began.
        played: the driver's message for each attempt.
        versions: the encoded versions that all processes report.
        line: the record of an attempt, as a line of a results file.
        forgotten: digests of files that are not needed any more.
        cancelled: how many cancellations the driver has requested.
        lock: guards the processes.
        budget: counts the run's budget, if it has one.
    """

    def __init__(
        self,
        nodes: int,
        *,
        weight: float = 1.0,
        seconds: Callable[[], float] = lambda: 0.0,
        turns: int = 3,
        keep: int | None = None,
    ) -> None:
        self.nodes = {f"id-{n}": (f"node-{n}", weight) for n in range(nodes)}
        self.processes: list[SleepingProcess] = []
        self.played: deque[Mapping[str, Any]] = deque(maxlen=keep)
        self.versions = encode(versions())
        self.line = to_line(_record(turns))
        self.forgotten: list[str] = []
        self.cancelled = 0
        self.budget: BudgetActor | None = None
        self.lock = threading.Lock()
        self._seconds = seconds

    @property
    def begun(self) -> int:
        """How many attempts have begun."""
        return len(self.played)

    # -- what the executor calls

    def find(self) -> Mapping[str, tuple[str, float]]:
        """Return the nodes that exist."""
        return dict(self.nodes)

    def start(self, node: str) -> SleepingProcess:
        """Start a process."""
        self.processes.append(SleepingProcess(self, self.nodes[node][0]))
        return self.processes[-1]

    def put(self, content: bytes) -> object:
        """Return the bytes themselves."""
        return content

    def count(self, budget: bytes) -> str:
        """Count the run's budget here."""
        self.budget = BudgetActor(budget)
        return "budget"

    def close(self) -> None:
        """Do nothing."""

    # -- what the processes do, and what goes wrong

    async def play(self, process: SleepingProcess, message: Mapping[str, Any]) -> object:
        """Answer as a node does."""
        self.played.append(message)
        number = message["attempt"]
        del message
        return await process.sleep(number, self._seconds())

    def kill(self, process: SleepingProcess, *, node: bool = False) -> None:
        """End a process, or a whole node; another one begins in its place."""
        process.end(Loss("it was killed", node_is_gone=node))

    def any(self, chance: random.Random) -> SleepingProcess | None:
        """Return a random running process, if there is one."""
        alive = list(self.processes)
        return chance.choice(alive) if alive else None


def _end(future: asyncio.Future[str], result: str) -> None:
    if not future.done():
        future.set_result(result)


def _record(turns: int) -> EpisodeRecord:
    turn = Turn("ls -la /work", "a.txt\nb.txt\n" * 10, executed=True)
    return EpisodeRecord(
        task=TaskRecord("any", "Do something.", "bash"),
        outcome="solved",
        reward=1.0,
        turns=(turn,) * turns,
        max_turns=10,
        seconds=1.0,
        profile="strict",
        state={"output": ["a.txt\n"], "files": {"/work/a.txt": "0" * 64}},
        sandbox="bubblewrap",
    )
