"""The rollouts that have no result yet, and where they are. Pure: no threads, no messages, no Ray.

Each has one present attempt at most. An attempt that is given up is forgotten, so a result of it
that comes late belongs to nothing and is dropped: a rollout has one result, whatever ends.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field

from pytest_intercode.core.record import lost_on
from pytest_intercode.rollouts.cluster.placement import Placement
from pytest_intercode.rollouts.executor import Handle, Observer

__all__ = ["Job", "JobTable", "Node"]

_MAX_LOSSES = 2  # how often a rollout that was lost is run again


@dataclass(eq=False)
class Job:
    """A rollout that has no result yet.

    Attributes:
        number: names it in messages.
        handle: what its owner has.
        observer: what is notified of it.
        attempt: the present attempt, from 1; 0 before the first.
        node: the id of the node that it runs on; empty while it waits.
        avoid: names of nodes that it was lost on.
        losses: why attempts have no result.
        turns: turns of the present attempt.
        used_turns: turns of lost attempts that its agent may have ended.
        acting: whether its agent may be acting.
        deaths: how many processes ended under it while its agent acted.
    """

    number: int
    handle: Handle
    observer: Observer
    attempt: int = 0
    node: str = ""
    avoid: set[str] = field(default_factory=set)
    losses: list[str] = field(default_factory=list)
    turns: int = 0
    used_turns: int = 0
    acting: bool = False
    deaths: int = 0

    @property
    def remaining_turns(self) -> int:
        """How many turns its agent may take yet."""
        spec = self.handle.spec
        return (spec.max_turns or spec.task.max_turns) - self.used_turns

    @property
    def end_reason(self) -> str:
        """Why its agent has no excuse for attempts that were lost; empty where it has one.

        It acted in each process that ended under it, or has used its turns up.
        """
        if self.deaths and (self.deaths == len(self.losses) or self.remaining_turns <= 0):
            times = "time" if self.deaths == 1 else "times"
            return f"the process that it ran in ended under it {self.deaths} {times}"
        return ""


@dataclass
class Node:
    """A process on a node, as long as it lives.

    Attributes:
        name: the node's name, for people.
        backend: the backend of its sandboxes.
        jobs: what runs there, by number.
        open_turns: how many turns were begun there, and have not ended.
    """

    name: str
    backend: str
    jobs: dict[int, Job] = field(default_factory=dict)
    open_turns: int = 0


class JobTable:
    """Rollouts and the nodes that they run on.

    Args:
        placement: which node is next.

    Attributes:
        placement: the same.
        jobs: the rollouts, by number.
        nodes: the nodes, by id.
    """

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.jobs: dict[int, Job] = {}
        self.nodes: dict[str, Node] = {}
        self._job_of: dict[Handle, Job] = {}
        self._waiting: deque[Job] = deque()
        self._lost: deque[Job] = deque()  # to be run again, before those that wait
        self._numbers = itertools.count(1)

    @property
    def has_room(self) -> bool:
        """Whether more could begin than are waiting."""
        return self.placement.free > len(self._waiting) + len(self._lost)

    def add_node(self, node_id: str, node: Node, weight: float) -> None:
        """Take a node, or a new process on one, whose id was never used before."""
        self.nodes[node_id] = node
        self.placement.add(node_id, node.name, weight)

    def remove_node(self, node_id: str, reason: str) -> Node | None:
        """Take a node away, whose process is gone; what ran on it is to be lost."""
        node = self.nodes.pop(node_id, None)
        if node is not None:
            self.placement.remove(node_id)
            self.placement.note_fault(node.name, reason)
        return node

    def add(self, handle: Handle, observer: Observer) -> None:
        """Take a rollout, to be begun after those that were added before."""
        job = Job(next(self._numbers), handle, observer)
        self.jobs[job.number] = self._job_of[handle] = job
        self._waiting.append(job)

    def job_of(self, handle: Handle) -> Job | None:
        """Return a rollout's entry; None for one that is over everywhere."""
        return self._job_of.get(handle)

    def find(self, number: int, attempt: int, node: str) -> Job | None:
        """Return the rollout whose present attempt this is; None for one that was given up."""
        job = self.jobs.get(number)
        return job if job is not None and (job.attempt, job.node) == (attempt, node) else None

    def forget(self, job: Job) -> None:
        """Take a rollout from wherever it is: it has a result, or needs none; may come twice."""
        if self.jobs.pop(job.number, None) is None:
            return  # its owner has cancelled it, when it was notified of another one
        del self._job_of[job.handle]
        if job.node:
            del self.nodes[job.node].jobs[job.number]
            self.placement.release(job.node)
        else:
            (self._lost if job.attempt else self._waiting).remove(job)

    def lose(self, job: Job, node: Node, reason: str, *, acted: bool, unexplained: bool) -> bool:
        """Take note of an attempt without a result; return whether the rollout is run again.

        Args:
            job: the rollout, which is to be forgotten if it is not run again.
            node: where it ran.
            reason: why it has no result.
            acted: its agent may have had a part in it, so the turns that it took stay used.
            unexplained: nothing else is known to have caused it.
        """
        del node.jobs[job.number]
        self.placement.counts[node.name].lost += 1
        job.losses.append(lost_on(node.name, reason))
        job.avoid.add(node.name)
        job.node = ""
        if acted:
            job.used_turns += job.turns
            job.deaths += job.acting and unexplained
        exhausted = acted and job.acting and job.remaining_turns <= 0
        job.acting, job.turns = False, 0
        self._lost.append(job)
        return not exhausted and job.attempt <= _MAX_LOSSES

    def begin(self) -> list[tuple[Job, str]]:
        """Begin what there are slots for: first what was lost, then in order; return it."""
        assignments: list[tuple[Job, str]] = []
        for jobs in (self._lost, self._waiting):
            for _ in range(len(jobs)):
                node = self.placement.begin(jobs[0].avoid)
                if node is None and jobs is self._waiting:
                    break
                if node is None:
                    jobs.rotate(-1)  # the next one may avoid other nodes
                    continue
                job = jobs.popleft()
                job.attempt += 1
                job.node = node
                self.nodes[node].jobs[job.number] = job
                assignments.append((job, node))
        return assignments
