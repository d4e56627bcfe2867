"""The run's budget on nodes: the driver counts, and a node takes no turn that it was not given."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_intercode.core.usage import Usage
from pytest_intercode.rollouts.cluster import budget as budget_module
from pytest_intercode.rollouts.cluster.budget import RemoteBudget, amounts_of
from pytest_intercode.rollouts.cluster.messages import BadMessage, Message


def _budget(
    answer: Callable[[Message], Message | None], *, limited: bool = True, **more: Any
) -> tuple[RemoteBudget, list[Message], list[int]]:
    sent: list[Message] = []
    turns: list[int] = []

    def send(message: Message) -> None:
        sent.append(message)
        reply = answer(message) if "call" in message else None
        if reply is not None:
            budget.take_answer({"call": message["call"], "refused": "", "exhausted": "", **reply})

    budget = RemoteBudget(limited, more.get("seconds"), send, turns.append)
    return budget, sent, turns


def test_every_turn_is_asked_for_and_its_end_reported() -> None:
    budget, sent, turns = _budget(lambda message: {})
    assert budget.begin_turn() == ""
    budget.end_turn(True)
    assert budget.begin_turn() == ""
    budget.end_turn(False)  # its sandbox broke
    assert [message["what"] for message in sent] == ["begin_turn", "end_turn"] * 2
    assert [message["taken"] for message in sent[1::2]] == [True, False]
    assert turns == [1]


def test_what_is_refused_and_what_is_exhausted_is_known() -> None:
    budget, _, _ = _budget(lambda message: {"exhausted": "the run's 1 turns are used up"})
    assert budget.begin_turn() == "", "the last one"
    assert budget.charge() == "the run's 1 turns are used up", "so that no other one is asked for"
    budget, _, _ = _budget(lambda message: {"refused": "used up", "exhausted": "used up"})
    assert budget.begin_turn() == "used up"


def test_what_a_request_costs_is_charged() -> None:
    budget, sent, turns = _budget(lambda message: {"refused": "used up"})
    assert budget.charge(Usage(input_tokens=3, output_tokens=4, cost=0.5), turns=2) == "used up"
    assert amounts_of(sent[0]) == (2, 7, 0.5)
    assert turns == [2]


def test_nothing_is_asked_where_nothing_is_limited() -> None:
    budget, sent, turns = _budget(lambda message: pytest.fail("it asks"), limited=False)
    assert budget.begin_turn() == budget.charge(Usage(input_tokens=1)) == ""
    budget.end_turn(True)
    assert (sent, turns) == ([], [1])


def test_the_time_is_looked_at_here() -> None:
    budget, sent, _ = _budget(lambda message: {}, seconds=0.01)
    time.sleep(0.02)
    assert "seconds are used up" in budget.begin_turn()
    assert "seconds are used up" in budget.charge()
    assert not sent


def test_a_driver_that_does_not_answer_gives_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "_ANSWER_TIMEOUT", 0.02)
    budget, _, _ = _budget(lambda message: None)
    assert budget.begin_turn() == "the driver, which counts what the run uses up, does not answer"


def test_nobody_waits_for_the_driver_once_the_run_is_over() -> None:
    budget, sent, _ = _budget(lambda message: None)
    reasons: list[str] = []
    thread = threading.Thread(target=lambda: reasons.append(budget.begin_turn()))
    thread.start()
    while not sent:
        time.sleep(0.001)
    budget.close()
    thread.join(10)
    assert reasons == ["the run is over"] == [budget.begin_turn()]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"turns": -1, "tokens": 0, "cost": 0.0},
        {"turns": True, "tokens": 0, "cost": 0.0},
        {"turns": 1, "tokens": 10**400, "cost": 0.0},
        {"turns": 1, "tokens": 0, "cost": -0.1},
        {"turns": 1, "tokens": 0, "cost": float("inf")},
        {"turns": 1, "tokens": 0, "cost": "1"},
    ],
)
def test_what_are_not_amounts_is_refused(message: Message) -> None:
    with pytest.raises(BadMessage):
        amounts_of(message)
