"""Episodes of an environment, as several threads may play them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import SandboxError, TaskError
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

_TASK = Task("a", "q", ("g",), "calm", "s", "s")
_TIMEOUT = 10.0  # seconds that a thread of the test waits for the other


class _Calm(Environment):
    """Needs no sandbox, and waits in ``stop`` where it is told to."""

    name = "calm"

    def __init__(self) -> None:
        super().__init__(SandboxProvider(), feedback="reward")
        self.stopping, self.may_stop = threading.Event(), threading.Event()
        self.may_stop.set()

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        return []

    def start(self, task: Task) -> None:
        pass

    def execute(self, action: str) -> Observation:
        return Observation(action)

    def grade(self, answer: str | None) -> Reward:
        return Reward(0.5, {"half": 0.5})

    def stop(self) -> None:
        self.stopping.set()
        assert self.may_stop.wait(_TIMEOUT)

    def interrupt(self) -> None:
        pass

    def begin_reset(self) -> tuple[threading.Thread, list[BaseException]]:
        """Reset in another thread, which is in ``stop`` when this returns."""
        errors: list[BaseException] = []

        def reset() -> None:
            try:
                self.reset(task=_TASK)
            except SandboxError as error:
                errors.append(error)

        self.stopping.clear()
        self.may_stop.clear()
        thread = threading.Thread(target=reset)
        thread.start()
        assert self.stopping.wait(_TIMEOUT)
        return thread, errors


def test_a_cancellation_while_the_former_episode_is_stopped_is_kept() -> None:
    environment = _Calm()
    thread, errors = environment.begin_reset()
    environment.cancel("the run is over")
    environment.may_stop.set()
    thread.join(_TIMEOUT)
    assert [str(error) for error in errors] == ["the environment was cancelled: the run is over"]
    assert environment.over == "the run is over"


def test_a_turn_belongs_to_the_episode_that_it_was_taken_in() -> None:
    environment = _Calm()
    environment.reset(task=_TASK)
    thread, errors = environment.begin_reset()
    turn = threading.Thread(target=environment.step, args=("echo",))
    turn.start()  # waits for the reset
    environment.may_stop.set()
    thread.join(_TIMEOUT)
    turn.join(_TIMEOUT)
    assert not errors
    (taken,) = environment.turns
    assert (taken.action, taken.reward, taken.parts) == ("echo", 0.5, {"half": 0.5})
    environment.may_stop.set()
    environment.close()


@pytest.mark.parametrize(("method", "name"), [("execute", "Observation"), ("grade", "Reward")])
def test_what_an_environment_returns_is_its_own_fault(
    monkeypatch: pytest.MonkeyPatch, method: str, name: str
) -> None:
    monkeypatch.setattr(_Calm, method, lambda *_: 1)
    environment = _Calm()
    environment.reset(task=_TASK)
    message = rf"'calm': {method}\(\) returned 1, expected pytest_intercode\.{name}"
    with pytest.raises(TaskError, match=message):
        environment.step("x")
    environment.close()


@pytest.mark.parametrize("value", [2.0, -1.5, float("nan"), "1.0"])
def test_a_reward_out_of_its_bounds_is_the_environments_fault(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.setattr(_Calm, "grade", lambda *_: Reward(value))
    environment = _Calm()
    environment.reset(task=_TASK)
    message = rf"'calm': grade\(\) returned the reward {value!r}; allowed are numbers up to 1.0"
    with pytest.raises(TaskError, match=message):
        environment.step("x")
    environment.close()


@pytest.mark.parametrize(
    "fields",
    [{"parts": {"a": "x"}}, {"parts": {"a": float("nan")}}, {"parts": None}, {"reason": None}],
)
def test_a_reward_that_no_record_can_hold_is_the_environments_fault(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.setattr(_Calm, "grade", lambda *_: Reward(0.5, **fields))
    environment = _Calm()
    environment.reset(task=_TASK)
    with pytest.raises(TaskError, match=r"'calm': grade\(\) returned Reward\(value=0.5, "):
        environment.step("x")
    environment.close()
