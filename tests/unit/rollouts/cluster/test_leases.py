"""Leases of a run's budget: no turn too many, whatever nodes do, and few questions."""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

from pytest_intercode.core.usage import RunLimits, Usage
from pytest_intercode.rollouts.budgets import NOTHING, Amounts, RunBudget
from pytest_intercode.rollouts.cluster.leases import (
    Answer,
    LeasedBudget,
    Leases,
    Order,
    Recall,
    amounts_of,
    limited_kinds,
)

# -- the driver's side by itself


def leases(**limits: Any) -> tuple[RunBudget, Leases]:
    budget = RunBudget(RunLimits(**limits))
    return budget, Leases(budget)


def answers(orders: list[Order]) -> list[Answer]:
    assert all(isinstance(order, Answer) for order in orders)
    return [order for order in orders if isinstance(order, Answer)]


def test_leases_shrink_to_single_turns() -> None:
    _, driver = leases(turns=100)
    sizes: list[int] = []
    total = 0
    while True:
        (answer,) = answers(driver.ask("a", len(sizes), NOTHING))
        if answer.spent:
            break
        sizes.append(answer.lease.turns)
        total += answer.lease.turns
        driver.spend("a", Amounts(turns=total))
    assert answer.spent == "the run's 100 turns are used up"
    assert sum(sizes) == 100
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (16, 1)
    assert len(sizes) < 30


def test_what_nobody_uses_is_taken_back_before_anybody_is_refused() -> None:
    _, driver = leases(turns=3)
    for node in ("a", "b", "c"):
        assert answers(driver.ask(node, 1, NOTHING))[0].lease == Amounts(turns=1)
    orders = driver.ask("a", 2, NOTHING)
    assert orders == [Recall("b"), Recall("c")]
    assert driver.ask("a", 3, NOTHING) == [], "they were asked already"
    assert driver.give_back("b", NOTHING) == [], "it is under way there, and c may have one"
    assert driver.give_back("c", Amounts(turns=1)) == [
        Answer("a", 2, Amounts(turns=1), ""),
        Answer("a", 3, NOTHING, "the run's 3 turns are used up"),
    ]


def test_a_node_that_is_lost_has_used_up_what_is_known_of_it() -> None:
    budget, driver = leases(turns=40)
    (answer,) = answers(driver.ask("a", 1, NOTHING))
    assert answer.lease.turns == 10
    driver.spend("a", Amounts(turns=4))
    driver.lose("a", 2)
    assert budget.used == Amounts(turns=4 + 2)
    (answer,) = answers(driver.ask("b", 1, NOTHING))
    driver.spend("b", Amounts(turns=answer.lease.turns))
    driver.lose("b", 9)
    assert budget.used == Amounts(turns=6 + answer.lease.turns), "nothing of it was left"


def test_a_silent_node_may_be_using_up_what_it_has() -> None:
    budget, driver = leases(turns=4)
    driver.ask("a", 1, NOTHING)
    driver.silence("a", 1)
    assert budget.used.turns == 1
    for call in range(3):
        (answer,) = answers(driver.ask("b", call, NOTHING))
        assert not answer.spent
        driver.spend("b", Amounts(turns=call + 1))
    (answer,) = answers(driver.ask("b", 3, NOTHING))
    assert answer.spent == "the run's 4 turns are used up"
    driver.hear("a")
    assert budget.used.turns == 3
    assert driver.ask("b", 4, NOTHING) == [Recall("a")]
    driver.spend("a", Amounts(turns=1))
    (answer,) = answers(driver.give_back("a", NOTHING))
    assert answer.spent == "the run's 4 turns are used up"
    assert budget.used.turns == 4


def test_what_a_node_says_cannot_make_more_of_the_budget() -> None:
    budget, driver = leases(turns=4)
    driver.ask("a", 1, NOTHING)
    driver.give_back("a", Amounts(turns=1000))
    driver.ask("a", 2, Amounts(turns=1000))
    driver.spend("a", Amounts(turns=3))
    with pytest.raises(ValueError, match="less than before"):
        driver.spend("a", Amounts(turns=2))
    (answer,) = answers(driver.ask("b", 1, NOTHING))
    assert (answer.lease.turns, budget.used.turns) == (1, 3)
    for said in ("9", [1, 2], [-1, 0, 0], [1.5, 0, 0], [0, True, 0], [0, 0, float("nan")], None):
        with pytest.raises(ValueError, match="no "):
            amounts_of(said)


def test_tokens_and_money_are_leased_as_turns_are() -> None:
    budget, driver = leases(tokens=1000, cost=2.0)
    (answer,) = answers(driver.ask("a", 1, NOTHING))
    assert answer.lease == Amounts(0, 250, 0.5)
    driver.spend("a", Amounts(3, 400, 0.1))  # a request may cost more than the lease
    (answer,) = answers(driver.ask("a", 2, Amounts(0, 0, 0.4)))
    assert answer.lease == Amounts(0, 150, 0.475)
    driver.spend("a", Amounts(3, 1000, 0.1))
    (answer,) = answers(driver.ask("a", 3, NOTHING))
    assert answer.spent == "the run's 1,000 tokens are used up"
    assert budget.used == Amounts(3, 1000, 0.1)
    assert limited_kinds(budget.limits) == ("tokens", "cost")


@pytest.mark.parametrize("seed", range(20))
def test_whatever_nodes_do_no_turn_is_run_that_there_is_not(seed: int) -> None:
    """Nodes are modelled as their leases and what is under way; messages come late."""
    chance = random.Random(seed)
    limit = chance.choice((1, 7, 60, 300))
    budget, driver = leases(turns=limit)
    lease: Counter[str] = Counter()
    under_way: Counter[str] = Counter()
    run: Counter[str] = Counter()
    said: dict[str, list[tuple[str, int]]] = {name: [] for name in "abcd"}
    silent: set[str] = set()
    waiting: set[str] = set()
    refused = number = 0

    def carry_out(orders: list[Order]) -> None:
        nonlocal refused
        for order in orders:
            if isinstance(order, Recall):
                said[order.node].append(("give_back", lease.pop(order.node, 0)))
            elif order.node in said:
                lease[order.node] += order.lease.turns
                waiting.discard(order.node)
                refused += bool(order.spent)

    for _ in range(20_000):
        node = chance.choice(list(said))
        what = chance.random()
        if what < 0.35 and lease[node]:
            lease[node] -= 1
            under_way[node] += 1
        elif what < 0.6 and under_way[node]:
            under_way[node] -= 1
            if chance.random() < 0.9:
                run[node] += 1
                said[node].append(("spend", run[node]))
            else:
                lease[node] += 1
        elif what < 0.75 and not lease[node] and node not in waiting:
            waiting.add(node)
            said[node].append(("ask", 0))
        elif what < 0.95 and said[node] and node not in silent:
            kind, turns = said[node].pop(0)
            if kind == "spend":
                driver.spend(node, Amounts(turns=turns))
            elif kind == "ask":
                carry_out(driver.ask(node, 0, NOTHING))
            else:
                carry_out(driver.give_back(node, Amounts(turns=turns)))
        elif what < 0.96:
            if node in silent:
                silent.discard(node)
                carry_out(driver.hear(node))
            else:
                silent.add(node)
                carry_out(driver.silence(node, under_way[node]))
        elif what < 0.962:  # what it was about to say is not known to anybody, nor any more run
            carry_out(driver.lose(node, under_way[node]))
            del said[node]
            run[node] = 0
            silent.discard(node)
            waiting.discard(node)
            number += 1
            said[f"{node}{number}"] = []
        assert sum(run[each] + under_way[each] + lease[each] for each in said) <= limit
        assert budget.used.turns <= limit
        if refused > 40:
            break
    assert refused > 0


# -- both sides


class Driver:
    """A driver's thread, and nodes that draw on its leases, with a way between them that is slow.

    Attributes:
        budget: the run's.
        nodes: what rollouts draw on, by node.
        messages: what nodes have said, counted.
    """

    def __init__(self, nodes: int, delay: float = 0.0, **limits: Any) -> None:
        self.budget = RunBudget(RunLimits(**limits))
        self.messages: Counter[str] = Counter()
        self._leases = Leases(self.budget)
        self._delay = delay
        self._inbox: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self.nodes = {f"node-{number}": self._node(f"node-{number}") for number in range(nodes)}
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _node(self, name: str) -> LeasedBudget:
        kinds = limited_kinds(self.budget.limits)
        return LeasedBudget(
            kinds, RunLimits(), lambda said: self._inbox.put((name, json.dumps(said).encode()))
        )

    def _work(self) -> None:
        while (found := self._inbox.get()) is not None:
            node, data = found
            message = json.loads(data)
            self.messages[message["what"]] += 1
            if message["what"] == "spend":
                self._leases.spend(node, amounts_of(message["total"]))
                continue
            time.sleep(self._delay)
            unused = amounts_of(message["unused"])
            if message["what"] == "ask":
                orders = self._leases.ask(node, message["call"], unused)
            else:
                orders = self._leases.give_back(node, unused)
            for order in orders:
                if isinstance(order, Answer):
                    said = {"call": order.call, "lease": list(order.lease), "spent": order.spent}
                    self.nodes[order.node].granted(said)
                else:
                    self.nodes[order.node].recall()

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()


@pytest.mark.parametrize(("limit", "taken"), [(1, 1.0), (13, 1.0), (600, 1.0), (600, 0.8)])
def test_nodes_take_all_turns_and_none_too_many(limit: int, taken: float) -> None:
    driver = Driver(4, delay=0.0002, turns=limit)
    lock = threading.Lock()
    run = under_way = most = 0

    def play(budget: LeasedBudget, chance: random.Random) -> None:
        nonlocal run, under_way, most
        while not budget.begin_turn():
            with lock:
                under_way += 1
                most = max(most, run + under_way)
            time.sleep(chance.random() * 0.001)
            came = chance.random() < taken
            with lock:
                under_way -= 1
                run += came
            budget.end_turn(came)
            budget.charge()

    threads = [
        threading.Thread(target=play, args=(budget, random.Random(number)))
        for number, budget in enumerate([*driver.nodes.values()] * 3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    driver.close()
    assert run <= most <= limit
    assert run == driver.budget.used.turns
    assert run == limit if taken == 1 else run > limit - 12
    if limit > 100 and taken == 1:  # each turn that is given back near the end is a message
        assert driver.messages["ask"] + driver.messages["give_back"] < limit / 2, driver.messages


def test_tokens_are_exceeded_by_what_is_under_way_alone() -> None:
    driver = Driver(3, tokens=20_000)
    used: list[int] = []

    def play(budget: LeasedBudget, chance: random.Random) -> None:
        while not budget.begin_turn():
            tokens = chance.randrange(1, 200)
            used.append(tokens)
            spent = budget.charge(Usage(1, tokens, 0))
            budget.end_turn(True)
            if spent:
                break

    threads = [
        threading.Thread(target=play, args=(budget, random.Random(number)))
        for number, budget in enumerate([*driver.nodes.values()] * 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    driver.close()
    assert 20_000 <= sum(used) < 20_000 + 6 * 200
    assert driver.budget.used.tokens == sum(used)
    assert driver.messages["ask"] < len(used) / 2, (driver.messages, len(used))


def test_without_limits_nobody_is_asked_and_turns_are_noted() -> None:
    said: list[object] = []
    turns: list[int] = []
    budget = LeasedBudget((), RunLimits(), said.append, turns.append)
    assert budget.begin_turn() == budget.charge(Usage(1, 5, 5), 2) == ""
    budget.end_turn(True)
    budget.begin_turn()
    budget.end_turn(False)
    assert (said, turns) == ([], [2, 1])


def test_the_runs_time_is_looked_at_here() -> None:
    budget = LeasedBudget(("turns",), RunLimits(seconds=0.001), lambda said: pytest.fail("asked"))
    time.sleep(0.01)
    assert budget.begin_turn() == budget.charge() == "the run's 0.001 seconds are used up"


def test_nobody_waits_for_a_driver_that_ends_the_run() -> None:
    asked = threading.Event()
    budget = LeasedBudget(("turns",), RunLimits(), lambda said: asked.set())

    def close() -> None:
        asked.wait(10)
        budget.close()

    closing = threading.Thread(target=close)
    closing.start()
    assert budget.begin_turn() == "the run is over"
    closing.join()
    assert budget.begin_turn() == "the run is over"


def test_a_turn_that_comes_to_nothing_after_a_recall_is_given_back() -> None:
    said: list[dict[str, Any]] = []
    budget = LeasedBudget(("turns",), RunLimits(), said.append)
    budget.granted({"call": 9, "lease": [3, 0, 0.0], "spent": ""})
    assert budget.begin_turn() == ""
    budget.recall()
    assert said == [{"what": "give_back", "unused": Amounts(turns=2)}]
    budget.end_turn(False)
    assert said[1] == {"what": "give_back", "unused": Amounts(turns=1)}


def test_a_lease_is_not_recalled_from_under_the_thread_that_asked_for_it() -> None:
    said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    budget = LeasedBudget(("turns",), RunLimits(), said.put)
    begun: queue.SimpleQueue[str] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: begun.put(budget.begin_turn()))
    thread.start()
    call = said.get(timeout=10)["call"]
    budget.granted({"call": call, "lease": [3, 0, 0.0], "spent": ""})
    budget.recall()  # at once, before the thread can have run again
    assert said.get(timeout=10) == {"what": "give_back", "unused": Amounts(turns=2)}
    assert begun.get(timeout=10) == ""
    thread.join()
    assert said.empty()
