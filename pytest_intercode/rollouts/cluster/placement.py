"""Which node a rollout begins on: shares by weight, free slots, faults. Without threads or Ray."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["NodeCounts", "Placement"]

_MAX_FAULTS = 3  # in a row, then a node gets no more work


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
class _Node:
    name: str
    weight: float
    slots: int = 0
    running: int = 0
    version: int = 0


class Placement:
    """Shares the slots of a run out among its nodes.

    Args:
        concurrency: how many rollouts run at a time, on all nodes together; None for as many as
            the nodes' weights add up to.
        timeout: seconds that a run waits without any node that takes work.

    Attributes:
        counts: what happened, by the nodes' names.
    """

    def __init__(self, concurrency: int | None, *, timeout: float = 300.0) -> None:
        self.counts: dict[str, NodeCounts] = {}
        self._concurrency = concurrency
        self._timeout = timeout
        self._nodes: dict[str, _Node] = {}
        self._heap: list[tuple[float, int, int, str]] = []  # free nodes, and outdated entries
        self._ticket = itertools.count()
        self._free = 0
        self._stale = False
        self._idle_since: float | None = None

    @property
    def slots(self) -> int:
        """How many rollouts may run at a time."""
        self._share_slots()
        return sum(node.slots for node in self._nodes.values())

    @property
    def free(self) -> int:
        """How many more rollouts may begin."""
        self._share_slots()
        return self._free

    @property
    def nodes_at_work(self) -> int:
        """How many nodes take work."""
        self._share_slots()
        return sum(node.slots > 0 for node in self._nodes.values())

    def resize(self, concurrency: int | None) -> None:
        """Have so many rollouts run at a time from now on; None as at first."""
        self._concurrency = concurrency
        self._stale = True

    def add(self, node: str, name: str, weight: float) -> None:
        """Take a node, or a new process on one.

        Args:
            node: its id, never used before.
            name: its name, for people.
            weight: its share of the run is in proportion to this.
        """
        self._counts(name)
        self._nodes[node] = _Node(name, weight)
        self._stale = True

    def remove(self, node: str) -> None:
        """Take a node away."""
        if self._nodes.pop(node, None) is not None:
            self._stale = True

    def takes_part(self, name: str) -> bool:
        """Whether a node of this name may have work."""
        return not self._counts(name).left_out

    def leave_out(self, name: str, reason: str) -> None:
        """Give a node no more work."""
        counts = self._counts(name)
        if not counts.left_out:
            counts.left_out = reason
            self._stale = True

    def note_fault(self, name: str, reason: str) -> None:
        """Count a fault of a node; after some in a row it gets no more work."""
        counts = self._counts(name)
        counts.in_a_row += 1
        if counts.in_a_row >= _MAX_FAULTS:
            self.leave_out(name, f"{_MAX_FAULTS} faults in a row, the last: {reason}")

    def note_end(self, name: str, fault: str = "") -> None:
        """Count a rollout that ended on a node; ``fault`` says why, if the node is at fault."""
        counts = self._counts(name)
        counts.done += 1
        if fault:
            self.note_fault(name, fault)
        else:
            counts.in_a_row = 0

    def begin(self, avoid: Collection[str] = ()) -> str | None:
        """Take a slot of the least busy node that has a free one; None where there is none.

        Args:
            avoid: names of nodes that are taken only if no other node takes work at all.
        """
        self._share_slots()
        if avoid and not any(
            node.slots and node.name not in avoid for node in self._nodes.values()
        ):
            avoid = ()
        avoided: list[tuple[float, int, int, str]] = []
        node_id = None
        while self._heap and node_id is None:
            entry = heapq.heappop(self._heap)
            node = self._nodes.get(entry[3])
            if node is None or node.version != entry[2]:
                continue
            if node.name in avoid:
                avoided.append(entry)
            else:
                node_id = entry[3]
        for entry in avoided:
            heapq.heappush(self._heap, entry)
        if node_id is not None:
            self._nodes[node_id].running += 1
            self._free -= 1
            self._offer(node_id)
        return node_id

    def release(self, node: str) -> None:
        """Give a slot back."""
        state = self._nodes.get(node)
        if state is not None:
            state.running -= 1
            self._free += state.running < state.slots
            self._offer(node)

    def stall_reason(self, now: float) -> str:
        """Return why nothing will come of what remains, or nothing.

        Args:
            now: seconds, of a clock that only goes forward.
        """
        self._share_slots()
        if any(node.slots for node in self._nodes.values()):
            self._idle_since = None
            return ""
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since < self._timeout:
            return ""
        reasons = "; ".join(
            f"{name}: {counts.left_out}"
            for name, counts in sorted(self.counts.items())
            if counts.left_out
        )
        suffix = f" ({reasons})" if reasons else ""
        return f"no node takes work for {self._timeout:.0f} s now{suffix}"

    def _counts(self, name: str) -> NodeCounts:
        return self.counts.setdefault(name, NodeCounts())

    def _offer(self, node_id: str) -> None:
        """Put a node where its present load belongs; its earlier entries are passed over."""
        node = self._nodes[node_id]
        node.version += 1
        if node.running < node.slots:
            load = node.running / node.slots
            heapq.heappush(self._heap, (load, next(self._ticket), node.version, node_id))

    def _share_slots(self) -> None:
        """Share the slots out, by weight, in whole numbers that add up; after a change only."""
        if not self._stale:
            return
        self._stale = False
        takers = [node for node in self._nodes.values() if self.takes_part(node.name)]
        for node in self._nodes.values():
            node.slots = 0
        total = sum(node.weight for node in takers)
        if total > 0:
            slots = self._concurrency or max(1, round(total))
            shares = {id(node): slots * node.weight / total for node in takers}
            for node in takers:
                node.slots = int(shares[id(node)])
            remainder = slots - sum(node.slots for node in takers)
            takers.sort(key=lambda node: shares[id(node)] - node.slots, reverse=True)
            for node in takers[:remainder]:
                node.slots += 1
        self._heap.clear()
        self._free = 0
        for node_id, node in self._nodes.items():
            self._free += max(0, node.slots - node.running)
            self._offer(node_id)
