"""What runs where, without threads, clocks or nodes: each rollout has one result, whatever dies."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_intercode.rollouts.cluster.schedule import Assignment, Loss, Schedule


def _begun(schedule: Schedule) -> Counter[str]:
    return Counter(assignment.node for assignment in schedule.assign())


def test_slots_are_shared_by_weight_and_add_up() -> None:
    schedule = Schedule(10)
    for node, weight in (("a", 1), ("b", 2), ("c", 4)):
        schedule.add_node(node, node, weight)
    for job in range(20):
        schedule.submit(job)
    assert schedule.free == 10 - 20
    assert _begun(schedule) == {"a": 1, "b": 3, "c": 6}


def test_without_a_number_each_node_has_its_weight() -> None:
    schedule = Schedule(None)
    schedule.add_node("a", "a", 2)
    schedule.add_node("b", "b", 6)
    assert [schedule.slots_of(node) for node in "ab"] == [2, 6]


def test_rollouts_spread() -> None:
    schedule = Schedule(8)
    for node in "abcd":
        schedule.add_node(node, node, 1)
    for job in range(4):
        schedule.submit(job)
    assert _begun(schedule) == dict.fromkeys("abcd", 1)


def test_what_is_lost_is_run_elsewhere_twice() -> None:
    schedule = Schedule(3)
    for node in "abc":
        schedule.add_node(node, node, 1)
    schedule.submit(1)
    seen: list[str] = []
    for again in (True, True, False):
        first = schedule.assign()[0]
        assert (first.job, first.attempt) == (1, len(seen) + 1)
        assert first.node not in seen
        seen.append(first.node)
        assert schedule.lose_node(first.node, "gone")[0] == Loss(
            1, first.attempt, first.node, again
        )
        schedule.add_node(f"{first.node}2", first.node, 1)
    assert schedule.left == 0


def test_what_is_lost_comes_before_what_has_not_begun() -> None:
    schedule = Schedule(1)
    schedule.add_node("a", "a", 1)
    schedule.submit(1)
    schedule.submit(2)
    schedule.assign()
    schedule.lose_node("a", "gone")
    schedule.add_node("b", "b", 1)
    assert schedule.assign() == [Assignment(1, 2, "b")]


def test_it_goes_back_where_no_other_node_takes_work() -> None:
    schedule = Schedule(1)
    schedule.add_node("a", "a", 1)
    schedule.submit(1)
    schedule.assign()
    schedule.lose_node("a", "gone")
    assert schedule.assign() == []
    schedule.add_node("a2", "a", 1)
    assert schedule.assign() == [Assignment(1, 2, "a2")]


def test_a_late_result_of_an_attempt_given_up_is_dropped() -> None:
    schedule = Schedule(2)
    schedule.add_node("a", "a", 1)
    schedule.add_node("b", "b", 1)
    schedule.submit(1)
    (first,) = schedule.assign()
    schedule.silence(first.node, "no answer")
    (second,) = schedule.assign()
    assert second.node != first.node
    schedule.hear(first.node)
    assert not schedule.finish(*first)
    assert schedule.finish(*second)
    assert not schedule.finish(*second), "once"
    assert not schedule.finish(*first)
    assert (schedule.left, schedule.running) == (0, 0)
    schedule.submit(2)
    schedule.submit(3)
    assert {each.node for each in schedule.assign()} == {"a", "b"}, "both have their slots again"


def test_a_silent_node_gets_no_work_until_it_answers() -> None:
    schedule = Schedule(4)
    schedule.add_node("a", "a", 1)
    schedule.add_node("b", "b", 1)
    schedule.silence("a", "no answer")
    for job in range(4):
        schedule.submit(job)
    assert _begun(schedule) == {"b": 4}
    schedule.hear("a")
    schedule.submit(9)
    assert _begun(schedule) == {"a": 1}


def test_a_node_with_three_faults_in_a_row_is_left_out_and_named() -> None:
    schedule = Schedule(1, patience=10)
    schedule.add_node("a", "a", 1)
    for fault in range(2):
        schedule.submit(fault)
        (each,) = schedule.assign()
        schedule.spoil(*each, "no sandbox")
        schedule.withdraw(each.job)
    schedule.submit(5)
    (good,) = schedule.assign()
    assert schedule.finish(*good), "which ends the row"
    for fault in range(3):
        assert schedule.takes_part("a")
        schedule.submit(10 + fault)
        (each,) = schedule.assign()
        schedule.spoil(*each, "no sandbox")
        schedule.withdraw(each.job)
    assert not schedule.takes_part("a")
    schedule.submit(20)
    assert schedule.assign() == []
    assert schedule.hopeless(0.0) == ""
    assert "a: 3 faults in a row, the last: no sandbox" in schedule.hopeless(10.0)


def test_a_run_waits_for_nodes_and_gives_up() -> None:
    schedule = Schedule(2, patience=60)
    assert schedule.hopeless(0.0) == ""
    assert schedule.hopeless(59.0) == ""
    schedule.add_node("a", "a", 1)
    assert schedule.hopeless(61.0) == ""
    schedule.lose_node("a", "gone")
    assert schedule.hopeless(100.0) == ""
    assert schedule.hopeless(159.0) == ""
    assert "60 s" in schedule.hopeless(160.0)


def test_withdrawn_rollouts_do_not_begin() -> None:
    schedule = Schedule(1)
    schedule.submit(1)
    schedule.submit(2)
    assert schedule.withdraw(1)
    schedule.add_node("a", "a", 1)
    assert [each.job for each in schedule.assign()] == [2]
    assert not schedule.withdraw(2), "it runs: its end is waited for"
    assert not schedule.withdraw(7)


@pytest.mark.parametrize("slots", [1, 7, 64])
def test_no_node_is_given_more_than_its_share(slots: int) -> None:
    schedule, most = Schedule(slots), random.Random(slots)
    for node in range(20):
        schedule.add_node(str(node), str(node), most.random() + 0.1)
    for job in range(200):
        schedule.submit(job)
    begun = _begun(schedule)
    assert sum(begun.values()) == slots
    assert all(begun[node] <= schedule.slots_of(node) for node in begun)


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 6), st.integers(1, 12))
def test_each_rollout_has_one_end_whatever_happens(
    chance: random.Random, nodes: int, slots: int
) -> None:
    """Nodes come, go, fall silent and send results of attempts that were given up."""
    schedule = Schedule(slots, patience=1e9)
    ends: Counter[int] = Counter()
    attempts: Counter[int] = Counter()
    known: list[Assignment] = []
    alive: list[str] = []
    made = 0
    for job in range(40):
        schedule.submit(job)

    def lost(losses: list[Loss]) -> None:
        for loss in losses:
            ends[loss.job] += not loss.again

    for _ in range(2000):
        if not schedule.left:
            break
        what = chance.random()
        if len(alive) < nodes and (not alive or what < 0.1):
            made += 1
            node = f"n{made}"
            alive.append(node)
            schedule.add_node(node, node, chance.choice([1, 2, 4]))  # a new name: never left out
        elif what < 0.13:
            lost(schedule.lose_node(alive.pop(chance.randrange(len(alive))), "gone"))
        elif what < 0.16:
            lost(schedule.silence(chance.choice(alive), "silent"))
        elif what < 0.25:
            schedule.hear(chance.choice(alive))
        elif what < 0.3 and known:
            loss = schedule.spoil(*chance.choice(known), "spoilt")
            lost([loss] if loss is not None else [])
        elif known:
            each = chance.choice(known)
            ends[each.job] += schedule.finish(*each)
        begun = schedule.assign()
        known += begun
        for each in begun:
            attempts[each.job] += 1
        for node, state in schedule.nodes().items():
            # a share may shrink below what runs, and then nothing more begins there
            assert len(state.running) <= slots, node
    assert max(attempts.values()) <= 3
    assert all(count == 1 for count in ends.values())
    assert len(ends) + schedule.left == 40
