"""What runs where, without threads or messages: each rollout has one result, whatever ends."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_intercode.core.task import Task
from pytest_intercode.rollouts.cluster.jobs import Job, JobTable, Node
from pytest_intercode.rollouts.cluster.placement import Placement
from pytest_intercode.rollouts.executor import Handle, Observer
from pytest_intercode.rollouts.spec import RolloutSpec

SPEC = RolloutSpec(Task("t", "Do something.", ("true",), "bash", "s", "d", max_turns=10))


def _table(slots: int | None, timeout: float = 300.0, jobs: int = 0, **weights: float) -> JobTable:
    table = JobTable(Placement(slots, timeout=timeout))
    for name, weight in weights.items():
        table.add_node(name, Node(name, "bubblewrap"), weight)
    for _ in range(jobs):
        table.add(Handle(SPEC, None, None), Observer())  # type: ignore[arg-type]
    return table


def _begun(table: JobTable) -> Counter[str]:
    return Counter(node for _, node in table.begin())


def _lose(table: JobTable, node_id: str, *, acted: bool = True) -> list[tuple[Job, bool]]:
    node = table.remove_node(node_id, "gone")
    assert node is not None
    lost = []
    for job in list(node.jobs.values()):
        again = table.lose(job, node, "gone", acted=acted, unexplained=acted)
        if not again:
            table.forget(job)
        lost.append((job, again))
    return lost


def test_slots_are_shared_by_weight_and_add_up() -> None:
    table = _table(10, jobs=20, a=1, b=2, c=4)
    assert (table.placement.free, table.has_room) == (10, False)
    assert _begun(table) == {"a": 1, "b": 3, "c": 6}
    assert table.placement.free == 0


def test_without_a_number_each_node_has_its_weight() -> None:
    table = _table(None, jobs=20, a=2, b=6)
    assert table.placement.slots == 8
    assert _begun(table) == {"a": 2, "b": 6}


def test_rollouts_spread() -> None:
    assert _begun(_table(8, jobs=4, a=1, b=1, c=1, d=1)) == dict.fromkeys("abcd", 1)


def test_what_is_lost_is_run_elsewhere_twice() -> None:
    table = _table(3, jobs=1, a=1, b=1, c=1)
    nodes: list[str] = []
    for run_again in (True, True, False):
        [(job, node)] = table.begin()
        assert job.attempt == len(nodes) + 1
        assert node not in nodes
        nodes.append(node)
        assert _lose(table, node, acted=False) == [(job, run_again)]
        table.add_node(f"{node}2", Node(node, "bubblewrap"), 1)
    assert not table.jobs
    assert job.losses == [f"lost on node {node}: gone" for node in nodes]
    assert job.end_reason == ""


def test_an_agent_in_each_process_that_ended_has_no_excuse() -> None:
    table = _table(3, jobs=1, a=1, b=1, c=1)
    for turns, run_again in ((4, True), (5, True), (0, False)):
        [(job, node)] = table.begin()
        job.acting, job.turns = True, turns
        assert _lose(table, node) == [(job, run_again)]
    assert job.remaining_turns == 1
    assert job.end_reason == "the process that it ran in ended under it 3 times"


def test_one_that_has_used_its_turns_up_is_not_run_again() -> None:
    table = _table(2, jobs=1, a=1, b=1)
    [(job, node)] = table.begin()
    job.acting, job.turns = True, 10
    assert _lose(table, node) == [(job, False)]
    assert "ended under it 1 time" in job.end_reason


def test_what_is_lost_comes_before_what_has_not_begun() -> None:
    table = _table(1, jobs=2, a=1)
    [(first, _)] = table.begin()
    _lose(table, "a")
    table.add_node("b", Node("b", "bubblewrap"), 1)
    assert table.begin() == [(first, "b")]


def test_it_goes_back_where_no_other_node_takes_work() -> None:
    table = _table(1, jobs=1, a=1)
    [(job, _)] = table.begin()
    _lose(table, "a")
    assert table.begin() == []
    table.add_node("a2", Node("a", "bubblewrap"), 1)
    assert table.begin() == [(job, "a2")]


def test_a_late_result_of_an_attempt_given_up_belongs_to_nothing() -> None:
    table = _table(2, jobs=1, a=1, b=1)
    [(job, first)] = table.begin()
    _lose(table, first)
    [(_, second)] = table.begin()
    assert second != first
    assert table.find(job.number, 1, first) is None
    assert table.find(job.number, 1, second) is None
    assert table.find(job.number, 2, second) is job
    table.forget(job)
    assert table.find(job.number, 2, second) is None, "once"


def test_a_node_with_three_faults_in_a_row_is_left_out_and_named() -> None:
    placement = _table(1, timeout=10, jobs=1, a=1).placement
    for _ in range(2):
        placement.note_fault("a", "no sandbox")
    placement.note_end("a")  # which ends the row
    for _ in range(3):
        assert placement.takes_part("a")
        placement.note_fault("a", "no sandbox")
    assert not placement.takes_part("a")
    assert placement.begin() is None
    assert placement.stall_reason(0.0) == ""
    assert "a: 3 faults in a row, the last: no sandbox" in placement.stall_reason(10.0)


def test_a_run_waits_for_nodes_and_gives_up() -> None:
    table = _table(2, timeout=60)
    assert table.placement.stall_reason(0.0) == ""
    assert table.placement.stall_reason(59.0) == ""
    table.add_node("a", Node("a", "bubblewrap"), 1)
    assert table.placement.stall_reason(61.0) == ""
    table.remove_node("a", "gone")
    assert table.placement.stall_reason(100.0) == ""
    assert table.placement.stall_reason(159.0) == ""
    assert "60 s" in table.placement.stall_reason(160.0)


def test_what_is_taken_back_does_not_begin() -> None:
    table = _table(1, jobs=2)
    first, second = table.jobs.values()
    table.forget(first)
    table.add_node("a", Node("a", "bubblewrap"), 1)
    assert table.begin() == [(second, "a")]
    assert table.job_of(first.handle) is None


@pytest.mark.parametrize("slots", [1, 7, 64])
def test_all_slots_are_used_and_no_more(slots: int) -> None:
    weights = random.Random(slots)
    table = _table(slots, jobs=200, **{f"n{n}": weights.random() + 0.1 for n in range(20)})
    assert sum(_begun(table).values()) == slots


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 6), st.integers(1, 12))
def test_each_rollout_has_one_end_whatever_happens(
    chance: random.Random, nodes: int, slots: int
) -> None:
    """Nodes come and go, decline what they are sent, and send late results."""
    table = _table(slots, timeout=1e9, jobs=40)
    ends: Counter[int] = Counter()
    attempts: list[tuple[int, int, str]] = []
    count = 0

    def note(lost: list[tuple[Job, bool]]) -> None:
        for job, again in lost:
            ends[job.number] += not again

    for _ in range(2000):
        if not table.jobs:
            break
        draw, alive = chance.random(), list(table.nodes)
        if len(alive) < nodes and (not alive or draw < 0.1):
            count += 1  # a new name: never left out
            table.add_node(f"n{count}", Node(f"n{count}", "bubblewrap"), chance.choice([1, 2, 4]))
        elif draw < 0.16:
            note(_lose(table, chance.choice(alive)))
        elif attempts:
            job = table.find(*(attempt := chance.choice(attempts)))
            if job is not None and draw < 0.25:
                table.placement.release(attempt[2])
                again = table.lose(job, table.nodes[attempt[2]], "", acted=False, unexplained=False)
                if not again:
                    table.forget(job)
                note([(job, again)])
            elif job is not None:
                table.forget(job)
                ends[job.number] += 1
        attempts += [(job.number, job.attempt, node) for job, node in table.begin()]
        running = [len(node.jobs) for node in table.nodes.values()]
        assert max(running, default=0) <= slots
    assert max(attempt for _, attempt, _ in attempts) <= 3
    assert all(number == 1 for number in ends.values())
    assert len(ends) + len(table.jobs) == 40
