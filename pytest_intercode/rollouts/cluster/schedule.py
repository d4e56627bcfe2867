"""What runs where: nodes, their slots, attempts and losses. Pure: no threads, no clock, no Ray.

Each rollout has one present attempt at most. An attempt that is given up is forgotten, so a result
of it that comes late belongs to nothing and is dropped: a rollout has one result, whatever dies.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Assignment", "Loss", "NodeCounts", "NodeState", "Schedule"]

_LOSSES = 2  # how often a rollout that was lost is run again
_FAULTS = 3  # in a row, after which a node gets no more work


class Assignment(NamedTuple):
    """A rollout that is to begin on a node."""

    job: int
    attempt: int
    node: str


class Loss(NamedTuple):
    """An attempt that has no result.

    Attributes:
        job: the rollout.
        attempt: which attempt it was, from 1.
        node: the node's name, for people.
        again: whether the rollout is run again.
    """

    job: int
    attempt: int
    node: str
    again: bool


@dataclass
class NodeState:
    """A node, as long as its present process lives.

    Attributes:
        name: its name, for people; a process that takes the place of another one has it too.
        weight: its share of the run is in proportion to this.
        slots: how many rollouts may run on it.
        silent: it does not answer, and gets no work until it does.
        running: the attempts that run there, by rollout.
    """

    name: str
    weight: float
    slots: int = 0
    silent: bool = False
    running: dict[int, int] = field(default_factory=dict)
    version: int = 0


@dataclass
class NodeCounts:
    """What happened on a node over the whole run, whichever process it was.

    Attributes:
        done: rollouts that ended there.
        lost: attempts that were lost there.
        in_a_row: faults since the last rollout that ended well.
        left_out: why it gets no more work; empty while it does.
    """

    done: int = 0
    lost: int = 0
    in_a_row: int = 0
    left_out: str = ""


@dataclass
class _Job:
    attempt: int = 0
    node: str = ""
    avoid: set[str] = field(default_factory=set)  # names of nodes that it was lost on


class Schedule:
    """Decides which rollout begins where.

    Args:
        concurrency: how many rollouts run at a time, on all nodes together; None for as many as
            the nodes' weights add up to.
        patience: seconds that a run waits without any node that takes work.

    Attributes:
        counts: what happened, by the nodes' names.
    """

    def __init__(self, concurrency: int | None, *, patience: float = 300.0) -> None:
        self.counts: dict[str, NodeCounts] = {}
        self._concurrency = concurrency
        self._patience = patience
        self._nodes: dict[str, NodeState] = {}
        self._jobs: dict[int, _Job] = {}
        self._waiting: deque[int] = deque()
        self._again: deque[int] = deque()
        self._free: list[tuple[float, int, int, str]] = []  # a heap, with entries of the past
        self._ticket = itertools.count()
        self._free_slots = 0
        self._stale = False
        self._without_since: float | None = None

    # -- what there is

    @property
    def free(self) -> int:
        """How many more rollouts could begin than are waiting."""
        self._refresh()
        return self._free_slots - len(self._waiting) - len(self._again)

    @property
    def running(self) -> int:
        """How many rollouts run."""
        return sum(len(node.running) for node in self._nodes.values())

    @property
    def left(self) -> int:
        """How many rollouts have no result yet."""
        return len(self._jobs)

    def nodes(self) -> dict[str, NodeState]:
        """Return the nodes that are there, by their ids."""
        return dict(self._nodes)

    def slots_of(self, node: str) -> int:
        """Return how many rollouts may run on a node."""
        self._refresh()
        return self._nodes[node].slots if node in self._nodes else 0

    def takes_part(self, name: str) -> bool:
        """Whether a node of this name may have work."""
        return not self._counts(name).left_out

    @property
    def slots(self) -> int:
        """How many rollouts may run at a time."""
        self._refresh()
        return sum(state.slots for state in self._nodes.values())

    def resize(self, concurrency: int | None) -> None:
        """Have so many rollouts run at a time from now on; None as at first."""
        self._concurrency = concurrency
        self._share()

    # -- nodes

    def add_node(self, node: str, name: str, weight: float) -> None:
        """Take a node, or a new process on one.

        Args:
            node: its id, never used before.
            name: its name, for people.
            weight: its share of the run is in proportion to this.
        """
        self._counts(name)
        self._nodes[node] = NodeState(name, weight)
        self._share()

    def lose_node(self, node: str, reason: str) -> list[Loss]:
        """Take a node away, whose process has ended; what ran there is lost."""
        state = self._nodes.pop(node, None)
        if state is None:
            return []
        losses = self._lose_all(state)
        self._fault(state.name, reason)
        self._share()
        return losses

    def silence(self, node: str, reason: str) -> list[Loss]:
        """Give up what runs on a node that does not answer; it may answer again."""
        state = self._nodes.get(node)
        if state is None or state.silent:
            return []
        state.silent = True
        losses = self._lose_all(state)
        self._fault(state.name, reason)
        self._share()
        return losses

    def hear(self, node: str) -> None:
        """Give work again to a node that answers again."""
        state = self._nodes.get(node)
        if state is not None and state.silent:
            state.silent = False
            self._share()

    # -- rollouts

    def submit(self, job: int) -> None:
        """Take a rollout, to be begun after those that were submitted before."""
        self._jobs[job] = _Job()
        self._waiting.append(job)

    def withdraw(self, job: int) -> bool:
        """Take a rollout back; return whether it was waiting, and so has no result to come."""
        found = self._jobs.get(job)
        if found is None or found.node:
            return False
        del self._jobs[job]
        queue = self._again if found.attempt else self._waiting
        queue.remove(job)
        return True

    def assign(self) -> list[Assignment]:
        """Return what begins now: first what was lost, then in order, on the least busy nodes."""
        self._refresh()
        made: list[Assignment] = []
        for _ in range(len(self._again)):
            job = self._again.popleft()
            node = self._pick(self._jobs[job].avoid)
            if node is None:
                self._again.append(job)  # the order among them does not matter
            else:
                made.append(self._begin(job, node))
        while self._waiting:
            node = self._pick(())
            if node is None:
                break
            made.append(self._begin(self._waiting.popleft(), node))
        return made

    def current(self, job: int, attempt: int, node: str) -> bool:
        """Whether an attempt is the present one of its rollout."""
        found = self._jobs.get(job)
        return found is not None and (found.attempt, found.node) == (attempt, node)

    def finish(self, job: int, attempt: int, node: str) -> bool:
        """Take a result; return False for one of an attempt that was given up: it is dropped."""
        if not self.current(job, attempt, node):
            return False
        del self._jobs[job]
        counts = self._counts(self._nodes[node].name)
        counts.done += 1
        counts.in_a_row = 0
        self._release(job, node)
        return True

    def spoil(self, job: int, attempt: int, node: str, reason: str) -> Loss | None:
        """Take note that a node could not run an attempt to its end; None for one given up."""
        if not self.current(job, attempt, node):
            return None
        name = self._nodes[node].name
        self._release(job, node)
        self._fault(name, reason)
        return self._lose(job, name)

    def hopeless(self, now: float) -> str:
        """Say why nothing will come of what is left, or nothing.

        Args:
            now: seconds, of a clock that only goes forward.
        """
        self._refresh()
        if any(node.slots for node in self._nodes.values()):
            self._without_since = None
            return ""
        if self._without_since is None:
            self._without_since = now
        if now - self._without_since < self._patience:
            return ""
        named = "; ".join(
            f"{name}: {counts.left_out}"
            for name, counts in sorted(self.counts.items())
            if counts.left_out
        )
        why = f" ({named})" if named else ""
        return f"no node takes work for {self._patience:.0f} s now{why}"

    # -- inside

    def _counts(self, name: str) -> NodeCounts:
        return self.counts.setdefault(name, NodeCounts())

    def _fault(self, name: str, reason: str) -> None:
        counts = self._counts(name)
        counts.in_a_row += 1
        if counts.in_a_row >= _FAULTS and not counts.left_out:
            counts.left_out = f"{_FAULTS} faults in a row, the last: {reason}"
            self._share()

    def _lose_all(self, state: NodeState) -> list[Loss]:
        lost, state.running = state.running, {}
        return [self._lose(job, state.name) for job in lost]

    def _lose(self, job: int, name: str) -> Loss:
        found = self._jobs[job]
        found.node = ""
        found.avoid.add(name)
        self._counts(name).lost += 1
        again = found.attempt <= _LOSSES
        if again:
            self._again.append(job)
        else:
            del self._jobs[job]
        return Loss(job, found.attempt, name, again)

    def _begin(self, job: int, node: str) -> Assignment:
        found, state = self._jobs[job], self._nodes[node]
        found.attempt += 1
        found.node = node
        state.running[job] = found.attempt
        self._free_slots -= 1
        self._offer(node)
        return Assignment(job, found.attempt, node)

    def _release(self, job: int, node: str) -> None:
        state = self._nodes[node]
        del state.running[job]
        if len(state.running) < state.slots:
            self._free_slots += 1
        self._offer(node)

    def _pick(self, avoid: Iterable[str]) -> str | None:
        """Return the least busy node with a free slot.

        A rollout goes back to where it was lost only if no other node takes work at all.
        """
        avoided = set(avoid)
        if avoided and not any(
            state.slots and state.name not in avoided for state in self._nodes.values()
        ):
            avoided = set()
        passed: list[tuple[float, int, int, str]] = []
        found = None
        while self._free:
            entry = heapq.heappop(self._free)
            state = self._nodes.get(entry[3])
            if state is None or state.version != entry[2] or len(state.running) >= state.slots:
                continue
            if state.name in avoided:
                passed.append(entry)
                continue
            found = entry[3]
            break
        for entry in passed:
            heapq.heappush(self._free, entry)
        return found

    def _offer(self, node: str) -> None:
        """Put a node where its present load belongs; entries of its past are passed over."""
        state = self._nodes[node]
        state.version += 1
        if len(state.running) < state.slots:
            load = len(state.running) / state.slots
            heapq.heappush(self._free, (load, next(self._ticket), state.version, node))

    def _share(self) -> None:
        """Have the slots shared out anew before anybody asks for one."""
        self._stale = True

    def _refresh(self) -> None:
        """Share the slots out, by weight: in whole numbers that add up."""
        if not self._stale:
            return
        self._stale = False
        takers = {
            node: state
            for node, state in self._nodes.items()
            if not state.silent and not self._counts(state.name).left_out
        }
        for state in self._nodes.values():
            state.slots = 0
        total = sum(state.weight for state in takers.values())
        if total > 0:
            everything = self._concurrency or max(1, round(total))
            exact = {node: everything * state.weight / total for node, state in takers.items()}
            for node, state in takers.items():
                state.slots = int(exact[node])
            over = everything - sum(state.slots for state in takers.values())
            by_rest = sorted(takers, key=lambda node: exact[node] - int(exact[node]), reverse=True)
            for node in by_rest[:over]:
                takers[node].slots += 1
        self._free.clear()
        self._free_slots = 0
        for node, state in self._nodes.items():
            self._free_slots += max(0, state.slots - len(state.running))
            self._offer(node)
