"""What is run again: each rollout has one result, and an agent gains nothing, whatever ends."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.sleeping_nodes import SleepingNodes, SleepingProcess
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.jobs import Job, JobRunner
from pytest_intercode.rollouts.cluster.messages import encode
from pytest_intercode.rollouts.cluster.nodes import NodePool
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.executor import Handle, Observer
from pytest_intercode.rollouts.spec import RolloutSpec

SPEC = RolloutSpec(Task("t", "Do something.", ("true",), "bash", "s", "d", max_turns=10))


def _job() -> Job:
    return Job(Handle(SPEC, None, None), Observer(), threading.RLock())  # type: ignore[arg-type]


def test_what_is_lost_is_run_again_twice() -> None:
    job = _job()
    for node, run_again in (("a", True), ("b", True), ("c", False)):
        job.turns = 1
        assert job.note_loss(node, "gone", acted=False, unexplained=True) is run_again
    assert job.losses == [f"lost on node {node}: gone" for node in "abc"]
    assert job.avoid == {"a", "b", "c"}
    assert (job.end_reason, job.remaining_turns) == ("", 10)
    assert job.spec is SPEC


def test_an_agent_in_each_process_that_ended_has_no_excuse() -> None:
    job = _job()
    for turns, run_again in ((4, True), (5, True), (0, False)):
        job.turns = turns
        assert job.note_loss("a", "gone", acted=True, unexplained=True) is run_again
    assert (job.remaining_turns, job.spec.max_turns) == (1, 1)
    assert job.end_reason == "the process that it ran in ended under it 3 times"


def test_one_that_has_used_its_turns_up_is_not_run_again() -> None:
    job = _job()
    job.turns = 10
    assert not job.note_loss("a", "gone", acted=True, unexplained=True)
    assert "ended under it 1 time" in job.end_reason


def test_an_agent_that_had_not_begun_has_an_excuse() -> None:
    job = _job()
    for run_again in (True, True, False):
        assert job.note_loss("a", "gone", acted=True, unexplained=True) is run_again
    assert job.end_reason == ""


def test_what_a_node_could_not_begin_is_no_fault_of_the_agent() -> None:
    job = _job()
    for run_again in (True, True, False):
        job.turns = 0
        assert job.note_loss("a", "no room", acted=True, unexplained=False) is run_again
    assert job.end_reason == ""


_MAX_ATTEMPTS = 3
_TURNS = SPEC.task.max_turns

# What becomes of an attempt, and the turns that it takes before that.
_FATES = st.tuples(
    st.sampled_from(["solved", "error", "declined", "malformed", "process", "node"]),
    st.integers(0, 6),
)


class _Fated(SleepingNodes):
    """Nodes that do with one attempt after the other what a list says, and then solve the rest.

    Attributes:
        attempts: of each attempt the turns that it could take and took, what became of it, and its
            process, by the task's id.
    """

    def __init__(self, fates: list[tuple[str, int]]) -> None:
        super().__init__(3)
        self.attempts: dict[str, list[tuple[int, int, str, SleepingProcess]]] = {}
        self._fates = iter(fates)

    async def play(self, process: SleepingProcess, message: Mapping[str, Any]) -> object:
        fate, turns = next(self._fates, ("solved", 1))
        spec = json.loads(message["spec"])
        allowed = spec["max_turns"] or _TURNS
        turns = min(turns, allowed)
        attempts = self.attempts.setdefault(spec["task"]["id"], [])
        attempts.append((allowed, turns, fate, process))
        if fate != "declined":
            process.tell(message["attempt"], turns)
            while process.has_news:  # the driver hears of the turns before the end
                await asyncio.sleep(0)
        if fate in ("process", "node"):
            self.kill(process, node=fate == "node")
            await asyncio.sleep(60)
        answers: dict[str, Any] = {
            "solved": {"line": self.line},
            "error": {"stage": "run", "error": {"kind": "AgentError", "text": "x"}},
            "declined": {
                **{"stage": "prepare", "declined": True},
                "error": {"kind": "SandboxError", "text": "no room"},
            },
            "malformed": {"line": self.line, "phases": 3},
        }
        return encode(answers[fate])


class _Ends(Observer):
    """Counts how often each rollout was notified of its end."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        self.ends[handle.spec.task.id] += 1

    def failed(self, handle: Handle, error: BaseException) -> None:
        self.ends[handle.spec.task.id] += 1


async def _play_all(machines: _Fated, tasks: list[str]) -> tuple[list[Job], _Ends, NodePool]:
    """Play tasks at the same time, and return them when all are over."""
    errors: list[BaseException] = []
    pool, observer = NodePool(machines, NodeSettings, 300.0), _Ends()
    runner = JobRunner(pool, FileIndex(), lambda line: None)
    await pool.start(runner.take_news, errors.append)
    jobs = []
    for task in tasks:
        spec = replace(SPEC, task=replace(SPEC.task, id=task))
        handle = Handle(spec, None, None)  # type: ignore[arg-type]
        handle.closed.set_result(None)
        jobs.append(Job(handle, observer, threading.RLock()))

    async def join() -> None:  # a node that was lost is there again under another name
        for number in range(1000):
            if not pool.workers:
                machines.nodes[f"late-{number}"] = (f"late-{number}", 1.0)
            await pool.find()
            await asyncio.sleep(0.005)

    joining = asyncio.create_task(join())
    await asyncio.wait_for(asyncio.gather(*map(runner.run, jobs)), 20)
    joining.cancel()
    await pool.close(0.1)
    assert not errors
    return jobs, observer, pool


def test_turns_are_known_while_they_are_taken() -> None:
    """Those of a lost attempt that its agent may have ended are among them."""
    [job], _, _ = asyncio.run(_play_all(_Fated([("process", 3), ("solved", 2)]), ["t"]))
    assert job.handle.status().turns == 5
    [job], _, _ = asyncio.run(_play_all(_Fated([("node", 3), ("solved", 2)]), ["t"]))
    assert job.handle.status().turns == 2


@settings(max_examples=25, deadline=None)
@given(st.lists(_FATES, max_size=24), st.integers(1, 6))
def test_each_rollout_ends_once_whatever_is_lost_in_whatever_order(
    fates: list[tuple[str, int]], count: int
) -> None:
    """Its attempts are at most three, and its agent has no turn more than it would have had."""
    tasks = [f"t{number}" for number in range(count)]
    machines = _Fated(fates)
    jobs, observer, pool = asyncio.run(_play_all(machines, tasks))
    assert observer.ends == dict.fromkeys(tasks, 1)
    assert all(worker.running == 0 for worker in pool.workers.values())
    sharing = Counter(one[3] for tries in machines.attempts.values() for one in tries)
    for job in jobs:
        attempts = machines.attempts[job.handle.spec.task.id]
        assert job.handle.over
        assert 1 <= len(attempts) <= _MAX_ATTEMPTS
        for _, _, fate, process in attempts[:-1]:
            # Only what was lost is run again: also what ended next to one that lost the process.
            assert fate not in ("solved", "error") or process not in machines.processes
        for number, (allowed, *_) in enumerate(attempts):
            # Of one that shared its process, the driver may hear too late.
            used = sum(
                turns
                for _, turns, fate, process in attempts[:number]
                if fate in _AGENTS and sharing[process] == 1
            )
            assert allowed <= _TURNS - used


_AGENTS = ("process", "malformed")
"""What an agent in our process may have caused: turns before that stay used."""
