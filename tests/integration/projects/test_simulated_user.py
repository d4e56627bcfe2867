"""A model that plays the user, behind a real gateway and a scripted server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.ledger import Ledger, current_ledger
from pytest_intercode.core.usage import Budget
from pytest_intercode.errors import (
    BudgetExhausted,
    ConfigurationError,
    InfrastructureError,
    TaskError,
)
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.projects.answers import Answers
from pytest_intercode.projects.simulated_user import SimulatedUser
from tests.support.model_server import ModelServer, Request, Step

pytest.importorskip("aiohttp")
pytest.importorskip("openai")

KEY = "sk-real-0123456789abcdef"


def user_says(request: Request) -> str:
    """Return what the user of the script says next."""
    replies = ("Yes, but keep the tests.", "Fine. DONE.")
    spoken = sum(message["role"] == "assistant" for message in request.body["messages"])
    return replies[spoken]


@contextlib.contextmanager
def opened(script: Any, ledger: Ledger, **settings: Any) -> Iterator[tuple[Answers, ModelServer]]:
    token = current_ledger().set(ledger)
    with ModelServer(script) as server:
        upstreams = {"openai": f"{server.url}/v1"}
        options = {"upstreams": upstreams, "keys": {"openai": KEY}, **settings}
        gateway = Gateway(GatewaySettings(**options))
        user = SimulatedUser("You are in a hurry.", "Tidy up.", "small", gateway, "project-s-t-1")
        answers = Answers(user=user)
        try:
            yield answers, server
        finally:
            answers.close()
            gateway.close()
            current_ledger().reset(token)


def test_it_replies_until_it_is_done() -> None:
    ledger = Ledger()
    with opened(user_says, ledger) as (answers, server):
        assert answers.has_user
        assert answers.answer("May I delete old.py?") == "Yes, but keep the tests."
        assert answers.answer("I deleted it.") is None
    assert answers.questions == [
        ("May I delete old.py?", "Yes, but keep the tests."),
        ("I deleted it.", None),
    ]
    system, *talk = server.requests[-1].body["messages"]
    assert system["role"] == "system"
    assert "You are in a hurry." in system["content"]
    assert "Tidy up." in system["content"]
    assert [message["role"] for message in talk] == ["user", "assistant", "user"]
    assert server.requests[-1].model == "small"
    assert ledger.usage.input_tokens == server.spent.input == 200
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"


def test_it_is_recorded_and_replayed(tmp_path: Path) -> None:
    with opened(user_says, Ledger(), record=tmp_path) as (answers, server):
        answers.answer("May I?")
        assert len(server.requests) == 1
    with opened(user_says, Ledger(), replay=tmp_path) as (answers, server):
        assert answers.answer("May I?") == "Yes, but keep the tests."
        assert server.requests == []
        with pytest.raises(TaskError, match="user=: the model 'small' cannot play the user"):
            answers.answer("Something else.")


def test_an_episode_that_is_run_again_begins_with_a_new_conversation() -> None:
    with opened(user_says, Ledger()) as (answers, _):
        assert answers.answer("May I?") == "Yes, but keep the tests."
        answers.restart()
        assert answers.answer("May I?") == "Yes, but keep the tests."
        assert answers.questions == [("May I?", "Yes, but keep the tests.")]


def test_a_budget_that_it_uses_up_ends_the_episode() -> None:
    stopped: list[bool] = []
    ledger = Ledger(Budget(tokens=100), stop=lambda: stopped.append(True))
    with opened(user_says, ledger) as (answers, _):
        assert answers.answer("May I?") == "Yes, but keep the tests."
        assert stopped
        with pytest.raises(BudgetExhausted, match="100 tokens used"):
            answers.answer("Again?")


def test_a_server_that_refuses_is_one_line() -> None:
    with opened(lambda _: Step(status=400, text="no model small"), Ledger()) as (answers, _):
        with pytest.raises(TaskError, match=r"cannot play the user: .*no model small") as raised:
            answers.answer("May I?")
        assert "\n" not in str(raised.value)


def test_a_server_that_is_not_there_is_the_machines_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_intercode.gateway.session._RECOVERY_TIMEOUT", 0.1)
    nowhere = {"openai": "http://127.0.0.1:9/v1"}
    with (
        opened("never", Ledger(), upstreams=nowhere) as (answers, _),
        pytest.raises(InfrastructureError, match="no model could be reached"),
    ):
        answers.answer("May I?")


def test_time_is_up_while_it_thinks() -> None:
    with opened(lambda _: Step("Yes.", fault="silent"), Ledger()) as (answers, server):
        stopper = _stop_when_stalled(answers, server)
        with pytest.raises(BudgetExhausted):
            answers.answer("May I?")
        stopper.join()
        with pytest.raises(BudgetExhausted):
            answers.answer("May I now?")


def _stop_when_stalled(answers: Answers, server: ModelServer) -> threading.Thread:
    def stop() -> None:
        server.stalled.wait(20)
        answers.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    return thread


def test_what_is_missing_is_one_line() -> None:
    gateway = Gateway(GatewaySettings())
    with pytest.raises(ConfigurationError, match="user='': it is a text"):
        SimulatedUser("", "Tidy up.", "small", gateway, "k")
    user = SimulatedUser("You are in a hurry.", "Tidy up.", "small", gateway, "k")
    with pytest.raises(ConfigurationError, match="answers= and user= are both given"):
        Answers(["Yes."], user)
