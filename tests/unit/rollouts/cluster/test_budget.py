"""The run's budget on nodes: one actor counts, and a node takes no turn that it was not given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_intercode.core.usage import RunLimits, Usage
from pytest_intercode.rollouts.budgets import Amounts, RunBudget
from pytest_intercode.rollouts.cluster import budget as budget_module
from pytest_intercode.rollouts.cluster.budget import BudgetActor, RemoteBudget, budget_message
from pytest_intercode.rollouts.cluster.messages import BadMessage, encode

EXHAUSTED = "the run's 3 turns are used up"
Draw = Callable[..., RemoteBudget]


@pytest.fixture
def budget() -> RunBudget:
    return RunBudget(RunLimits(turns=3, cost=1.0))


@pytest.fixture
def actor(budget: RunBudget) -> Iterator[BudgetActor]:
    with budget.shared() as path:
        yield BudgetActor(budget_message(budget, path))


@pytest.fixture
def draw(actor: BudgetActor) -> Draw:
    def call(method: str, *arguments: Any) -> Callable[[], object]:
        answer = getattr(actor, method)(*arguments)
        return lambda: answer

    def make(node: str = "node", turns: list[int] | None = None) -> RemoteBudget:
        note = (lambda count: None) if turns is None else turns.append
        return RemoteBudget(None, call, node, note)

    return make


def test_every_turn_is_asked_for_and_its_end_reported(budget: RunBudget, draw: Draw) -> None:
    turns: list[int] = []
    first, second = draw("first", turns), draw("second")
    assert first.begin_turn() == second.begin_turn() == ""
    first.end_turn(True)
    assert turns == [1]
    assert budget.begin_turn() == "", "the driver's own"
    assert first.begin_turn() == EXHAUSTED, "the last ones are under way"
    second.end_turn(False)  # its sandbox broke
    assert first.begin_turn() == ""
    assert first.charge() == EXHAUSTED, "so that no other one is asked for"
    first.end_turn(True)
    assert budget.used == Amounts(turns=3)


def test_what_a_lost_node_has_begun_is_used_up(budget: RunBudget, draw: Draw) -> None:
    first, second = draw("first"), draw("second")
    assert first.begin_turn() == first.begin_turn() == ""
    first.end_turn(True)  # and then it is gone
    assert second.begin_turn() == ""
    assert second.begin_turn() == EXHAUSTED


def test_a_node_gains_no_turns_by_giving_back_what_it_never_had(
    budget: RunBudget, draw: Draw
) -> None:
    first = draw("first")
    assert first.begin_turn() == ""
    first.end_turn(True)
    with pytest.raises(ValueError, match="not begun"):
        first.end_turn(False)
    assert budget.used == Amounts(turns=1)


def test_what_a_request_costs_is_charged(budget: RunBudget, draw: Draw) -> None:
    turns: list[int] = []
    first = draw("first", turns)
    assert first.charge(Usage(input_tokens=3, output_tokens=4, cost=0.5), turns=2) == ""
    assert budget.used == (2, 7, 0.5)
    assert turns == [2]
    assert "budget of 1 in cost" in first.charge(Usage(input_tokens=1, cost=0.5))


def test_an_actor_that_is_started_again_goes_on(budget: RunBudget) -> None:
    with budget.shared() as path:
        data = budget_message(budget, path)
        BudgetActor(data).begin_turn("node")
        BudgetActor(data).begin_turn("node")
    assert budget.used == Amounts(turns=2)


def test_nothing_is_asked_where_nothing_is_limited() -> None:
    turns: list[int] = []
    remote = RemoteBudget(None, None, "node", turns.append)
    assert remote.begin_turn() == remote.charge(Usage(input_tokens=1)) == ""
    remote.end_turn(True)
    assert turns == [1]


def test_the_time_is_looked_at_here() -> None:
    remote = RemoteBudget(0.01, None, "node", lambda turns: None)
    time.sleep(0.02)
    assert "seconds are used up" in remote.begin_turn()
    assert "seconds are used up" in remote.charge()


def test_a_driver_that_does_not_answer_gives_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "_RESTART_TIMEOUT", 0.3)

    def call(method: str, *arguments: object) -> Callable[[], object]:
        raise TimeoutError

    remote = RemoteBudget(None, call, "node", lambda turns: None)
    reason = "the driver, which counts what the run uses up, does not answer"
    assert remote.begin_turn() == reason


@pytest.mark.parametrize(
    "amounts",
    [
        (-1, 0, 0.0),
        (True, 0, 0.0),
        (1, 10**400, 0.0),
        (1, 0, -0.1),
        (1, 0, float("inf")),
        (1, 0, float("nan")),
    ],
)
def test_what_are_not_amounts_is_refused(
    actor: BudgetActor, budget: RunBudget, amounts: tuple[Any, ...]
) -> None:
    with pytest.raises((BadMessage, ValueError)):
        actor.charge(*amounts)
    assert budget.used == Amounts()


def test_an_actor_that_is_started_again_is_waited_for() -> None:
    failures = [RuntimeError("the actor died"), RuntimeError("the actor is restarting")]

    def call(method: str, *arguments: object) -> Callable[[], object]:
        if failures:
            raise failures.pop()
        return lambda: encode({"refused": "", "exhausted": "later"})

    remote = RemoteBudget(None, call, "node", lambda turns: None)
    assert remote.begin_turn() == ""
    assert remote.charge() == "later"
