"""Several submissions in one episode: after one that fails, an agent sees why, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from pytest_intercode import AgentEnvironment, Observation
from pytest_intercode.agents.loader import adapt
from pytest_intercode.agents.protocol import AgentLike
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task, TaskView, Verification
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.rollouts.rollout import Rollout, Services, default_environment
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support import puzzles, rollouts

quick_provider = puzzles.quick_provider

Play: TypeAlias = "Callable[..., EpisodeRecord]"

TESTS = 'echo wanted: hi; cat x; [ "$(cat x)" = hi ]'


def task(submissions: int = 2, command: str = TESTS, **fields: Any) -> Task:
    verification = Verification(command, parser="status", timeout=5.0)
    return Task(
        "t",
        "Write hi to x.",
        ("echo hi >x",),
        "swe",
        *("s", "s"),
        workdir="/w",
        verification=verification,
        fields=SweFields(submissions=submissions),
        **fields,
    )


@pytest.fixture
def play(quick_provider: SandboxProvider) -> Play:
    def play_task(agent: AgentLike, played: Task, **spec: Any) -> EpisodeRecord:
        services = Services(
            quick_provider,
            lambda _: adapt(agent),
            lambda spec: default_environment(spec, quick_provider),
        )
        return rollouts.play(Rollout(RolloutSpec(played, **spec), services))

    return play_task


class Steps:
    """Takes the given actions, and keeps what it sees."""

    def __init__(self, *actions: str) -> None:
        self._actions = iter(actions)
        self.observations: list[str] = []

    def act(self, observation: Observation) -> str:
        self.observations.append(observation)
        return next(self._actions)


class HandsBack:
    """Does the next of its commands each time that it is given a text, and hands back."""

    def __init__(self, *commands: str, message: str | None = "Done.") -> None:
        self._commands = iter(commands)
        self._message = message
        self.queries: list[str] = []

    def run(self, task: TaskView, env: AgentEnvironment) -> str | None:
        self.queries.append(task.query)
        env.step(next(self._commands))
        return self._message


def test_what_the_tests_print_answers_a_submission(play: Play) -> None:
    agent = Steps("echo no >x", "submit", "echo hi >x", "submit")
    record = play(agent, task())
    assert (record.outcome, record.reward, record.submissions) == ("solved", 1.0, 2)
    assert agent.observations[2] == (
        "The tests fail: the tests ended with status 1: no. You may submit 1 more time. They "
        "printed:\n\nwanted: hi\nno\n"
    )
    assert [turn.reward for turn in record.turns] == [0.0, 0.0, 0.0, 1.0]


def test_the_last_submission_gives_the_reward(play: Play) -> None:
    agent = Steps("submit", "echo hi >x; sleep 100 &", "submit", "echo no >x", "submit")
    record = play(agent, task(3))
    assert (record.outcome, record.submissions) == ("solved", 2)  # which ended the episode
    record = play(Steps("submit", "submit", "submit"), task(3))
    assert (record.outcome, record.submissions, len(record.turns)) == ("failed", 3, 3)
    assert "wanted: hi" in record.test_output


def test_one_submission_is_not_counted(play: Play) -> None:
    record = play(Steps("echo no >x", "submit"), task(1))
    assert (record.outcome, record.submissions, record.turns[-1].observation) == ("failed", 0, "")


def test_a_class_hands_back(play: Play) -> None:
    agent = HandsBack("echo no >x", "echo hi >x")
    record = play(agent, task())
    assert (record.outcome, record.submissions) == ("solved", 2)
    assert [turn.action for turn in record.turns] == ["echo no >x", "submit", "echo hi >x"]
    assert agent.queries[0] == "Write hi to x."
    assert agent.queries[1].endswith("printed:\n\nwanted: hi\nno\n")
    [exchange] = record.dialogue  # the observation of the next turn is its reply
    assert (exchange.message, exchange.reply, exchange.turn) == ("Done.", None, 1)
    record = play(HandsBack("echo hi >x"), task())
    assert (record.outcome, record.submissions) == ("solved", 1)


def test_an_agent_that_does_not_go_on_has_one_submission(play: Play) -> None:
    agent = HandsBack("echo no >x", message=None)
    record = play(agent, task())
    assert (record.outcome, record.submissions, len(agent.queries)) == ("failed", 1, 1)
    record = play(lambda _, env: (env.step("echo no >x"), env.submit()), task())
    assert (record.outcome, record.submissions) == ("failed", 1)
    assert record.turns[-1].observation.startswith("The tests fail")


@pytest.mark.slow
def test_functions_for_frameworks_go_on(play: Play) -> None:
    results = []

    def agent(_: TaskView, env: AgentEnvironment) -> None:
        execute, submit = env.tools(raises=False)
        results.extend([submit(), execute("echo hi >x"), submit()])

    assert play(agent, task()).submissions == 2
    assert results[0].startswith("The tests fail")
    assert results[2] == "the episode is over: stop now"


def test_turns_end_it_before_the_last_submission(play: Play) -> None:
    record = play(Steps("echo no >x", "submit", "echo hi >x"), task(max_turns=2))
    assert (record.outcome, record.submissions, len(record.turns)) == ("out-of-budget", 1, 2)


@pytest.mark.slow
def test_what_is_shown_has_an_end(play: Play) -> None:
    command = "echo first; seq 100000; echo last; exit 1"
    agent = Steps("submit", "submit")
    play(agent, task(command=command))
    assert len(agent.observations[1]) < 17_000
    assert "first" in agent.observations[1]
    assert agent.observations[1].endswith("last\n")


@pytest.mark.slow
def test_tests_that_do_not_end_answer_as_well(play: Play) -> None:
    command = "echo so far; cat x && exit; sleep 100"
    agent = Steps("submit", "echo hi >x", "submit")
    slow = task(command=command)
    assert play(agent, slow).submissions == 2
    assert "the tests did not end within 5 s" in agent.observations[1]
    assert "so far" in agent.observations[1]


def test_it_is_a_field_of_swe() -> None:
    assert SweFields().submissions == 1
