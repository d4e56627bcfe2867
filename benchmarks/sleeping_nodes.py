"""Nodes of a cluster that only sleep: the driver and its schedule are real, what they drive is not.

Messages are those of real nodes, made and read by the same code. One thread stands for all nodes.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.turn import Turn
from pytest_intercode.results.format import to_line
from pytest_intercode.rollouts.cluster.messages import Message, decode, encode
from pytest_intercode.rollouts.cluster.transport import Event, Gone, Joined, Received

__all__ = ["SleepingNodes"]


@dataclass
class _Node:
    name: str
    weight: float


class SleepingNodes:
    """A transport to nodes that only sleep.

    Args:
        nodes: how many there are.
        weight: the weight of each.
        seconds: what an episode takes, of the clock; called for each.
        turns: how many turns an episode takes.
    """

    def __init__(
        self,
        nodes: int,
        *,
        weight: float = 1.0,
        seconds: Callable[[], float] = lambda: 0.0,
        turns: int = 3,
    ) -> None:
        self._nodes: dict[str, _Node] = {}
        self._wanted = nodes
        self._weight = weight
        self._seconds = seconds
        self._report: Callable[[Event], None] = lambda event: None
        self._due: list[tuple[float, int, str, bytes]] = []
        self._changed = threading.Condition()
        self._count = itertools.count()
        self._closed = False
        self._line = to_line(_record(turns))
        self.begun = 0

    # -- what the executor calls

    def start(self, report: Callable[[Event], None], settings: Callable[[], bytes]) -> list[Joined]:
        """Let all nodes join."""
        joined: list[Event] = []
        self._report = joined.append
        threading.Thread(target=self._work, daemon=True).start()
        for number in range(self._wanted):
            self._join(f"node-{number}")
        self._report = report
        return [event for event in joined if isinstance(event, Joined)]

    def send(self, node: str, data: bytes) -> None:
        """Answer as a node does."""
        for message in decode(data):
            if message["what"] == "play":
                self.begun += 1
                named = {"job": message["job"], "attempt": message["attempt"]}
                seconds = self._seconds()
                self._answer(node, 0.0, {"what": "prepared", **named})
                phases = {"prepare": [time.time(), 0.0], "run": [time.time(), seconds]}
                ended = {"what": "ended", "line": self._line, "phases": phases, "output": []}
                self._answer(node, seconds, {**ended, **named})
            elif message["what"] == "cancel":
                named = {"job": message["job"], "attempt": message["attempt"]}
                error = {"kind": "RolloutCancelled", "text": message["reason"]}
                self._answer(node, 0.0, {"what": "failed", "stage": "run", "error": error, **named})

    def send_file(self, node: str, digest: str, pieces: Callable[[], Iterator[bytes]]) -> None:
        """Take no files."""

    def replace(self, node: str) -> None:
        """Let a new process join on the same machine."""
        self._join(node.partition("#")[0])

    def close(self, timeout: float) -> None:
        """End it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- what goes wrong

    def kill(self, node: str, *, process: bool = True) -> None:
        """End a node's process, and what it was about to say."""
        with self._changed:
            if self._nodes.pop(node, None) is None:
                return
        self._report(Gone(node, "it was killed", process))

    def any(self, chance: random.Random) -> str:
        """Return the id of a node that is there."""
        with self._changed:
            return chance.choice(list(self._nodes))

    # -- inside

    def _join(self, name: str) -> None:
        node = f"{name}#{next(self._count)}"
        with self._changed:
            self._nodes[node] = _Node(name, self._weight)
        self._report(Joined(node, name, self._weight, "bubblewrap"))

    def _answer(self, node: str, seconds: float, message: Message) -> None:
        data = encode(message)
        with self._changed:
            at = time.monotonic() + seconds
            heapq.heappush(self._due, (at, next(self._count), node, data))
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                *_, node, data = heapq.heappop(self._due)
                state = self._nodes.get(node)
                if state is None:
                    continue
            self._report(Received(node, data))


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
