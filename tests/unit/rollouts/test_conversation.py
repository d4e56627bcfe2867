"""Agents that hand back to the user, and go on with what the user says."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.ledger import current_ledger
from pytest_intercode.agents.loader import adapt
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.conversation import Exchange, Reply
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.usage import UNSPENT, Budget
from pytest_intercode.errors import ConfigurationError, TaskError
from pytest_intercode.results.format import from_line, to_line
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.rollouts.turn_loop import run_episode
from tests.support import rollouts
from tests.unit.rollouts.test_turn_loop import TASK, Counter, play


class Talker(Counter):
    """A counter whose user has some replies."""

    has_user = True

    def __init__(self, *replies: str | Exception) -> None:
        super().__init__()
        self.replies = list(replies)
        self.messages: list[str] = []

    def answer(self, message: str) -> str | None:
        self.messages.append(message)
        if not self.replies:
            return None
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


class Adder:
    """Adds what it is asked for, and says so; one object lives for the whole conversation."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def run(self, task: TaskView, env: AgentEnvironment) -> str:
        self.queries.append(task.query)
        if task.query.isdigit():
            env.step(task.query)
        return f"{len(self.queries)} so far. How much more?"


class AsyncAdder(Adder):
    async def run(self, task: TaskView, env: AgentEnvironment) -> str:  # type: ignore[override]
        return super().run(task, env)


@pytest.mark.parametrize("style", [Adder, AsyncAdder])
def test_what_run_returns_is_its_message_and_it_is_run_again(style: type[Adder]) -> None:
    agent, environment = style(), Talker("2", "3")
    record = play(agent, environment)
    assert record.outcome == "solved"
    assert agent.queries == ["Say five.", "2", "3"]
    assert environment.messages == [f"{n} so far. How much more?" for n in (1, 2, 3)]
    assert record.dialogue == (
        Exchange(0, "1 so far. How much more?", "2"),
        Exchange(1, "2 so far. How much more?", "3"),
        Exchange(2, "3 so far. How much more?"),
    )


def test_without_a_user_it_runs_once() -> None:
    agent = Adder()
    record = play(agent)
    assert agent.queries == ["Say five."]
    assert record.dialogue == ()


def test_a_turn_is_asked_for_in_the_middle() -> None:
    def agent(task: TaskView, env: AgentEnvironment) -> None:
        assert env.has_user
        assert env.ask("How much?") == "5"
        env.step("5")
        assert env.ask("Enough?") is None

    record = play(agent, Talker("5"))
    assert record.outcome == "solved"
    assert record.dialogue == (Exchange(0, "How much?", "5"), Exchange(1, "Enough?"))


def test_asking_without_a_user_is_allowed() -> None:
    def agent(task: TaskView, env: AgentEnvironment) -> None:
        assert not env.has_user
        assert env.ask("Hello?") is None
        env.step("5")

    assert play(agent).outcome == "solved"


def test_replies_are_as_many_as_turns() -> None:
    agent = Adder()
    record = play(agent, Talker(*["go on"] * 50))
    assert len(agent.queries) == 1 + TASK.max_turns
    assert record.outcome == "out-of-budget"
    assert record.reason.startswith("4 of 4 replies of the user used")


def test_turns_are_those_of_the_whole_conversation() -> None:
    agent = Adder()
    record = play(agent, Talker(*["1"] * 50))
    assert record.outcome == "out-of-budget"
    assert len(record.turns) == TASK.max_turns


def test_time_is_up_while_the_user_thinks() -> None:
    class Slow(Talker):
        ended = threading.Event()

        def answer(self, message: str) -> str | None:
            assert self.ended.wait(20)
            return None

        def stop_answer(self) -> None:
            self.ended.set()

    record = play(Adder(), Slow(), timeout=0.2)
    assert record.outcome == "timed-out"
    assert record.left_behind == ()


def test_a_user_that_fails_is_the_tasks_fault_whatever_the_agent_does() -> None:
    def agent(task: TaskView, env: AgentEnvironment) -> None:
        try:
            env.ask("May I?")
        except Exception:
            env.step("5")

    with pytest.raises(TaskError, match="no answer at all"):
        play(agent, Talker(TaskError("no answer at all")))


def test_the_last_reply_is_recorded_and_not_given_to_the_agent() -> None:
    def agent(task: TaskView, env: AgentEnvironment) -> None:
        assert env.ask("Is that all? DONE") == "No."  # the agent's own stop word ends nothing
        assert env.ask("And now?") is None
        env.step("5")

    record = play(agent, Talker("No.", Reply("Fine. DONE", is_last=True)))
    assert record.dialogue == (
        Exchange(0, "Is that all? DONE", "No."),
        Exchange(0, "And now?", "Fine. DONE", is_last=True),
    )
    assert [exchange.answer for exchange in record.dialogue] == ["No.", None]
    assert from_line(to_line(record)).dialogue == record.dialogue


def test_long_texts_are_cut_in_the_record_alone() -> None:
    def agent(task: TaskView, env: AgentEnvironment) -> None:
        reply = env.ask("x" * 100_000)
        assert reply is not None
        assert len(reply) == 100_000
        env.step("5")

    [exchange] = play(agent, Talker("y" * 100_000)).dialogue
    assert exchange.reply is not None
    assert max(len(exchange.message), len(exchange.reply)) < 70_000


def test_what_the_user_costs_is_not_the_agents_from_any_thread() -> None:
    class Paid(Talker):
        def answer(self, message: str) -> str | None:
            ledger = current_ledger().get()
            assert ledger is not None
            ledger.spend_for_user(input_tokens=300, output_tokens=1)
            return super().answer(message)

    def agent(task: TaskView, env: AgentEnvironment) -> None:
        thread = threading.Thread(target=env.ask, args=("Well?",))
        thread.start()
        thread.join()

    environment = Paid("Yes.")
    first, _ = environment.reset(task=TASK)
    record = run_episode(adapt(agent), environment, first, budget=Budget(tokens=100), timeout=20)
    assert record.usage == UNSPENT
    assert record.user_usage.tokens == 301  # more than the agent has
    assert environment.messages == ["Well?"]


def test_an_agent_that_cannot_go_on_is_refused_before_it_acts() -> None:
    environment = Talker("Yes.")
    acted: list[str] = []

    def step(observation: str) -> str:
        acted.append(observation)
        return "submit"

    for agent in (adapt(step), Agent("loop")):
        services = _services(agent, environment)
        rollout = Rollout(RolloutSpec(TASK, agent="mine.py:step"), services)
        with pytest.raises(ConfigurationError, match=r"^--intercode-agent=mine.py:step: .* reply"):
            rollouts.play(rollout)
    assert acted == []


def _services(agent: Agent, environment: Talker) -> Services:
    return Services(cast("Any", None), lambda _: agent, lambda _: environment)
