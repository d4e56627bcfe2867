"""What an agent uses up and says beside its actions."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import pytest_intercode
from pytest_intercode.agents.ledger import Ledger, Note, current_ledger
from pytest_intercode.core.usage import UNSPENT, Budget, RunLimits, Usage
from pytest_intercode.errors import AgentError, BudgetExhausted
from pytest_intercode.rollouts.budgets import RunBudget


def test_usage_adds() -> None:
    assert Usage(1, 10, 2) + Usage(2, 5, 1, 0.5) == Usage(3, 15, 3, 0.5)
    assert (Usage(1, 1, 1, 0.25) + Usage(1, 1, 1, 0.5)).cost == 0.75
    assert (UNSPENT + UNSPENT) == UNSPENT
    assert Usage(1, 9, 5, None, 4, 2, 3) + Usage(1, 9, 5, None, 1) == Usage(
        2, 18, 10, None, 5, 2, 3
    )
    assert not UNSPENT
    assert Usage(cost=0.0)


def test_notes_go_with_the_next_action() -> None:
    ledger = Ledger()
    ledger.think("first")
    ledger.think("second")
    ledger.log("a\n")
    ledger.log("b\n")
    ledger.spend(input_tokens=3, output_tokens=4)
    assert ledger.take() == Note("first\nsecond", "a\nb\n", Usage(1, 3, 4))
    assert ledger.take() == Note()
    assert ledger.usage == Usage(1, 3, 4)


def test_notes_are_bounded() -> None:
    ledger = Ledger()
    for _ in range(100):
        ledger.log("x" * 10_000)
    note = ledger.take()
    assert len(note.log) < 70_000
    assert note.log.endswith("[... more was not kept ...]\n")


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Budget(tokens=10), "12 of 10 tokens used"),
        (Budget(tokens=12), "12 of 12 tokens used"),
        (Budget(cost=0.5), "0.6 of 0.5 in cost used"),
    ],
)
def test_a_budget_ends_the_episode(budget: Budget, said: str) -> None:
    stopped: list[bool] = []
    ledger = Ledger(budget, stop=lambda: stopped.append(True))
    ledger.spend(input_tokens=4, output_tokens=2, cost=0.3)
    assert not stopped
    with pytest.raises(BudgetExhausted, match=f"^the episode is over: {said}$"):
        ledger.spend(input_tokens=4, output_tokens=2, cost=0.3)
    assert stopped == [True]
    assert ledger.exhausted == said
    assert ledger.usage == Usage(2, 8, 4, 0.6)


def test_the_run_pays_for_what_comes_too_late() -> None:
    charged: list[Usage] = []

    def charge(usage: Usage) -> str:
        charged.append(usage)
        return ""

    ledger = Ledger(charge=charge)
    ledger.close()
    with pytest.raises(BudgetExhausted, match="the episode is over"):
        ledger.spend(output_tokens=5)
    assert ledger.usage == UNSPENT
    assert charged == [Usage(1, 0, 5)]


def test_money_is_limited_and_its_price_not_known() -> None:
    with pytest.raises(AgentError, match="tokens without their cost, so --intercode-max-cost"):
        Ledger(Budget(cost=1.0)).spend(input_tokens=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_tokens": -1},
        {"output_tokens": 1.5},
        {"requests": True},
        {"input_tokens": None},
        {"cost": -0.1},
        {"cost": float("nan")},
        {"cost": float("inf")},
        {"cost": "1"},
        {"cost": True},
        {"cached_tokens": -1},
        {"reasoning_tokens": 0.5},
    ],
)
def test_wrong_numbers(wrong: dict[str, Any]) -> None:
    ledger = Ledger()
    [name] = wrong
    with pytest.raises(AgentError, match=rf"^spend\({name}=.*from 0 up is needed"):
        ledger.spend(**wrong)
    assert ledger.usage == UNSPENT


@pytest.mark.parametrize("name", ["spend", "spend_for_user"])
def test_unknown_arguments_name_those_that_there_are(name: str) -> None:
    usage: Any = {"tokens": 5}
    with pytest.raises(AgentError, match=r"^spend\(tokens=...\): there is no .* input_tokens, out"):
        getattr(Ledger(), name)(**usage)


def test_parts_of_tokens_are_kept_and_no_more_than_the_whole() -> None:
    ledger = Ledger()
    ledger.spend(
        input_tokens=9, output_tokens=5, cached_tokens=6, cache_write_tokens=3, reasoning_tokens=5
    )
    assert ledger.take().usage == ledger.usage == Usage(1, 9, 5, None, 6, 3, 5)
    assert ledger.usage.tokens == 14
    with pytest.raises(AgentError, match=r"10 tokens of caches are a part of input_tokens.* are 9"):
        ledger.spend(input_tokens=9, cached_tokens=6, cache_write_tokens=4)
    with pytest.raises(AgentError, match="6 tokens of reasoning are a part of output_tokens"):
        ledger.spend(output_tokens=5, reasoning_tokens=6)
    ledger.spend(input_tokens=9, output_tokens=5, cached_tokens=6)
    ledger.attribute(Usage(1, 9, 5, None, 6))  # what a turn has already
    assert ledger.take().usage == UNSPENT


def test_outside_of_an_episode_nothing_happens() -> None:
    pytest_intercode.spend(input_tokens=1)
    pytest_intercode.think("a thought")
    pytest_intercode.log("a line")
    assert current_ledger().get() is None
    ledger = Ledger()
    assert (ledger.usage, ledger.take()) == (UNSPENT, Note())


def test_threads_share_a_ledger() -> None:
    ledger = Ledger()

    def spend() -> None:
        for _ in range(1000):
            ledger.spend(input_tokens=1, output_tokens=1, cost=0.5)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.usage == Usage(4000, 4000, 4000, 2000.0)


def test_costs_are_added_up_but_for_rounding() -> None:
    ledger = Ledger(Budget(cost=1.0))  # ten times 0.1 are 0.9999999999999999
    budget = RunBudget(RunLimits(cost=1.0))
    for _ in range(9):
        ledger.spend(cost=0.1)
        assert budget.charge(Usage(1, 0, 0, 0.1)) == ""
    with pytest.raises(BudgetExhausted):
        ledger.spend(cost=0.1)
    assert budget.charge(Usage(1, 0, 0, 0.1))
