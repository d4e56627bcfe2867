"""A model that plays the user, behind a real gateway and a scripted server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.answers import Answers
from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.agents.ledger import Ledger, current_ledger
from pytest_intercode.agents.simulated_user import SimulatedUser
from pytest_intercode.core.conversation import STOP_WORD, Conversation, Reply
from pytest_intercode.core.usage import UNSPENT, Budget, RunLimits
from pytest_intercode.errors import (
    AgentError,
    BudgetExhausted,
    ConfigurationError,
    InfrastructureError,
)
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.rollouts.budgets import RunBudget
from tests.support.model_server import ModelServer, Request, Step, Tool

pytest.importorskip("aiohttp")
pytest.importorskip("openai")

KEY = "sk-real-0123456789abcdef"


def user_says(request: Request) -> str:
    """Return what the user of the script says next."""
    replies = ("Yes, but keep the tests.", "Fine. DONE.")
    spoken = sum(message["role"] == "assistant" for message in request.body["messages"])
    return replies[spoken]


@contextlib.contextmanager
def opened(
    script: Any, ledger: Ledger, *, stop: tuple[str, ...] = (STOP_WORD,), **settings: Any
) -> Iterator[tuple[Answers, ModelServer]]:
    token = current_ledger().set(ledger)
    with ModelServer(script) as server:
        upstreams = {"openai": f"{server.url}/v1"}
        options = {"upstreams": upstreams, "keys": {"openai": KEY}, **settings}
        gateway = Gateway(GatewaySettings(**options))
        who = "You are in a hurry."
        conversation = Conversation(stop=stop)
        user = SimulatedUser(who, "Tidy up.", "small", gateway, "project-s-t-1", conversation)
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
        last_words = answers.answer("I deleted it.")
        assert isinstance(last_words, Reply)
        assert last_words.is_last
        assert last_words == "Fine. DONE."
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
    assert ledger.user_usage.input_tokens == server.spent.input == 200
    assert ledger.usage == UNSPENT
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"


def test_it_is_recorded_and_replayed(tmp_path: Path) -> None:
    with opened(user_says, Ledger(), record=tmp_path) as (answers, server):
        answers.answer("May I?")
        assert len(server.requests) == 1
    with opened(user_says, Ledger(), replay=tmp_path) as (answers, server):
        assert answers.answer("May I?") == "Yes, but keep the tests."
        assert server.requests == []
        with pytest.raises(InfrastructureError, match="the recording lacks a request"):
            answers.answer("Something else.")


def test_an_episode_that_is_run_again_begins_with_a_new_conversation() -> None:
    with opened(user_says, Ledger()) as (answers, _):
        assert answers.answer("May I?") == "Yes, but keep the tests."
        answers.restart()
        assert answers.answer("May I?") == "Yes, but keep the tests."
        assert answers.questions == [("May I?", "Yes, but keep the tests.")]


def test_it_uses_up_the_runs_budget_and_not_the_agents() -> None:
    stopped: list[bool] = []
    spent = RunBudget(RunLimits(tokens=200))
    ledger = Ledger(Budget(tokens=10), spent.charge, lambda: stopped.append(True))
    with opened(user_says, ledger) as (answers, _):
        assert answers.answer("May I?") == "Yes, but keep the tests."
        assert not stopped
        answers.answer("I did.")
        assert stopped
        with pytest.raises(BudgetExhausted, match="the run's 200 tokens are used up"):
            answers.answer("Again?")


def test_a_session_of_its_own_for_an_episode_that_is_run_again() -> None:
    first, second = Ledger(), Ledger()
    with opened(user_says, first) as (answers, _):
        answers.answer("May I?")
        first.close()
        answers.restart()
        current_ledger().set(second)
        assert answers.answer("May I?") == "Yes, but keep the tests."
    assert first.user_usage.requests == second.user_usage.requests == 1


@pytest.mark.parametrize("status", [400, 404])
def test_a_model_that_fails_is_nobodys_fault(status: int) -> None:
    step = Step(status=status, text="no model small")
    with opened(lambda _: step, Ledger()) as (answers, _):
        with pytest.raises(InfrastructureError, match=r" fails: .*no model small") as raised:
            answers.answer("May I?")
        assert "\n" not in str(raised.value)


def test_a_model_that_calls_tools_without_an_end_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_intercode.agents.simulated_user._MAX_ROUNDS", 3)
    no_arguments: Any = []  # of a call that is not made

    def script(request: Request) -> str | Step:
        return Step(calls=[Tool("look", no_arguments)]) if len(request.results) < 4 else "Yes."

    with opened(script, Ledger()) as (answers, server):
        answers.give_tools([{"type": "function", "function": {"name": "look"}}], _never)
        with pytest.raises(InfrastructureError, match="fails: it calls tools in 3 answers, one a"):
            answers.answer("May I?")
        assert len(server.requests) == 3


def _never(name: str, arguments: Mapping[str, Any]) -> str:
    raise AssertionError(f"{name} was called")


def test_an_agent_whose_words_alone_are_refused_gains_nothing_by_it() -> None:
    """Else it could end each episode that goes badly without a grade."""

    def script(request: Request) -> str | Step:
        return Step(status=400, text="too long") if "a secret word" in request.text else "Yes."

    with opened(script, Ledger()) as (answers, _):
        assert answers.answer("May I?") == "Yes."
        with pytest.raises(AgentError, match="refuses what the agent said, and nothing else"):
            answers.answer("a secret word")


def test_words_that_the_model_cannot_end_with_are_the_agents_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impatient = partial(ChatArguments, timeout=0.5, retries=0)
    monkeypatch.setattr("pytest_intercode.agents.simulated_user.ChatArguments", impatient)

    def script(request: Request) -> Step:
        return Step("Yes.", fault="silent" if "without an end" in request.text else "")

    with (
        opened(script, Ledger()) as (answers, _),
        pytest.raises(AgentError, match=r"nothing else: .* was silent for 0\.5 s"),
    ):
        answers.answer("Write a text without an end.")


@pytest.mark.parametrize(
    ("reply", "is_last"),
    [
        ("Thank you. ###STOP###", True),
        ("###TRANSFER###.", True),
        ("###STOP### was not meant.", False),
        ("DONE", False),  # the usual word, which is not this user's
    ],
)
def test_the_words_that_end_it(reply: str, is_last: bool) -> None:
    stop = ("###STOP###", "###TRANSFER###")
    with opened(lambda _: reply, Ledger(), stop=stop) as (answers, server):
        answer = answers.answer("###STOP### DONE")  # whatever the agent says
        assert isinstance(answer, Reply)
        assert (answer, answer.is_last) == (reply, is_last)
        assert "###STOP### or ###TRANSFER###" in server.requests[-1].body["messages"][0]["content"]


def test_a_server_that_is_not_there_is_the_machines_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_intercode.gateway.session._RECOVERY_TIMEOUT", 0.1)
    nowhere = {"openai": "http://127.0.0.1:9/v1"}
    with (
        opened("never", Ledger(), upstreams=nowhere) as (answers, _),
        pytest.raises(InfrastructureError, match="that plays the user cannot be reached"),
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
    with pytest.raises(ConfigurationError, match="user='': it has to be a text"):
        SimulatedUser("", "Tidy up.", "small", gateway, "k")
    user = SimulatedUser("You are in a hurry.", "Tidy up.", "small", gateway, "k")
    with pytest.raises(ConfigurationError, match="answers= and user= are both given"):
        Answers(["Yes."], user)
