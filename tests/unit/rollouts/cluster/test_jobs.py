"""What is run again: each rollout has one result, and an agent gains nothing, whatever ends."""

from __future__ import annotations

import threading

from pytest_intercode.core.task import Task
from pytest_intercode.rollouts.cluster.jobs import Job
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
