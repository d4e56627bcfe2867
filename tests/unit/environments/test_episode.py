"""One episode's own data, and the environment that plays it: no sandbox is needed for either."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_intercode import Environment, Observation, Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Turn
from pytest_intercode.environments.action_space import ActionSpace
from pytest_intercode.environments.episode import Episode
from pytest_intercode.errors import (
    BudgetExhausted,
    CommandFailed,
    SandboxBroken,
    SandboxError,
    UngradableState,
)
from pytest_intercode.sandboxes.protocol import SandboxSpec


class Counter(Environment):
    """An action is a number; the last one is the reward, and none can be graded below 0."""

    name = "counter"

    @classmethod
    def sandboxes(cls, task: Task, provider: Any) -> list[SandboxSpec]:
        return []

    def start(self, task: Task) -> None:
        self.number = 0.0

    def execute(self, action: str) -> Observation:
        self.number = float(action)
        return Observation(action)

    def grade(self, answer: str | None) -> Reward:
        if self.number < 0:
            raise UngradableState("it is too small")
        return Reward(self.number, {"number": self.number})

    def end_state(self) -> dict[str, Any]:
        return {"number": self.number}

    def stop(self) -> None:
        pass

    def interrupt(self) -> None:
        pass


TASK = Task("count", "Count.", env="counter", suite="s", dataset="s", gold=("1",), max_turns=3)


def make_environment(**options: Any) -> Counter:
    environment = Counter(None, **options)  # type: ignore[arg-type]
    environment.reset(task=TASK)
    return environment


def test_an_author_has_six_methods_to_define() -> None:
    required = {"sandboxes", "start", "execute", "grade", "stop", "interrupt"}
    assert ActionSpace.__abstractmethods__ == required
    assert Environment.__abstractmethods__ == required


def test_the_state_of_the_best_turn_is_recorded() -> None:
    environment = make_environment(feedback="reward")
    for action in ("0.5", "0.75", "0.25"):
        environment.step(action)
    assert environment.over == "budget"
    assert environment.final is not None
    assert environment.final.value == 0.75
    assert environment.recorded_state() == {"number": 0.75, "turn": 2}


def test_what_cannot_be_graded_is_worth_nothing_and_leaves_no_state() -> None:
    environment = make_environment()
    environment.step("-1")
    _, reward, terminated, _, _ = environment.step("submit")
    assert (reward, terminated) == (0.0, True)
    assert environment.final is not None
    assert environment.final.reason == "what was left cannot be graded: it is too small"
    assert environment.recorded_state() == {}
    environment.reset(task=TASK)
    environment.step("1")
    environment.step("submit")
    assert environment.recorded_state() == {"number": 1.0}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SandboxBroken("it is gone"), "the agent broke its sandbox: it is gone"),
        (UngradableState("too much"), "what was left cannot be graded: too much"),
    ],
)
def test_a_fault_of_the_agents_is_a_reward_of_0(error: Exception, reason: str) -> None:
    def grade() -> Reward:
        raise error

    assert Episode(3).grade(grade) == Reward(0.0, {}, reason)


def test_a_command_that_failed_before_anybody_acted_is_nobodys_fault() -> None:
    def grade() -> Reward:
        raise CommandFailed("no answer")

    with pytest.raises(CommandFailed, match="no answer"):
        Episode(3).grade(grade)


def test_a_recorded_turn_counts_against_the_budget() -> None:
    episode = Episode(1)
    episode.record_turn(Turn("ls", "", True))
    assert episode.over == "budget"
    with pytest.raises(BudgetExhausted, match=r"the episode is over \(budget\)"):
        episode.check_open()


def test_an_episode_goes_on_only_for_feedback() -> None:
    assert Episode(1, "reward").goes_on
    assert not Episode(1).goes_on
    over = Episode(1, "reward")
    over.end("submitted")
    assert not over.goes_on


def test_a_turn_that_runs_nothing_keeps_the_grading_of_the_state() -> None:
    environment = make_environment(feedback="reward")
    environment.step("0.5")
    environment.number = -1.0  # to grade again would fail
    observation, reward, *_ = environment.pass_turn("prose", "no action")
    assert (str(observation), reward) == ("no action", 0.5)
    assert environment.turns[-1].passed
    environment.end("budget")
    with pytest.raises(BudgetExhausted):
        environment.pass_turn("prose", "no action")


def test_a_cancelled_environment_begins_nothing() -> None:
    environment = make_environment()
    environment.cancel("Ctrl-C")
    with pytest.raises(SandboxError, match="the environment was cancelled: Ctrl-C"):
        environment.reset(task=TASK)
