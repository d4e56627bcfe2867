"""The data of one episode: its turns, its budget, its rewards and why it has ended.

It does not know about sandboxes or threads: the environment runs and grades, and notes it here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pytest_intercode.core.conversation import Exchange
from pytest_intercode.core.reward import Reward, is_recordable
from pytest_intercode.core.turn import Feedback, Observation, StepResult, Turn
from pytest_intercode.errors import (
    AgentError,
    BudgetExhausted,
    CommandFailed,
    ConfigurationError,
    SandboxBroken,
    TaskError,
    UngradableState,
)
from pytest_intercode.system.imports import call_others

__all__ = [
    "Episode",
    "call_execute",
    "call_method",
    "check_returned",
    "check_reward",
    "stop_finally",
]

_Returned = TypeVar("_Returned")

_MAX_REFUSED = 200  # lines in a record


class Episode:
    """What has happened in one episode so far.

    Args:
        max_turns: the number of actions that it may take.
        feedback: as for the environment.

    Attributes:
        max_turns: the number of actions that it may take.
        turns: its turns.
        dialogue: what the agent and its user said.
        over: why it has ended: ``submitted``, ``solved``, ``budget`` or another reason; empty
            while it goes on.
        latest: the reward of the current state; None if the state was not graded.
        best: with rewards as feedback, the best reward so far, which counts at the end.
        final: its reward, once it is graded at its end.
        action: the agent's current or last action; may be a command that takes no turn.
        grading: whether its state is being graded, on the thread that holds the environment's lock.
        fault: the first error of a method that was called to end something from another thread.
        pending: returns the actions that the agent has taken but whose turns are added later.
    """

    def __init__(self, max_turns: int = 0, feedback: Feedback = "observation") -> None:
        self.max_turns = max_turns
        self.turns: list[Turn] = []
        self.dialogue: list[Exchange] = []
        self.over = ""
        self.latest: Reward | None = None
        self.best: Reward | None = None
        self.final: Reward | None = None
        self.action = ""
        self.grading = False
        self.fault: TaskError | None = None
        self.pending: Callable[[], Sequence[str]] = tuple
        self._feedback = feedback
        self._has_state = True  # whether the last grading compared something
        self._best_state: dict[str, Any] = {}
        self._refused: dict[str, None] = {}  # an ordered set

    @property
    def remaining_turns(self) -> int:
        """The number of actions that it may still take."""
        return self.max_turns - len(self.turns)

    @property
    def goes_on(self) -> bool:
        """Whether it goes on after the current grading, which is for feedback."""
        return self._feedback == "reward" and not self.over

    def check_open(self, refusal: str = "no action is run") -> None:
        """Raise an error if the episode is over.

        Args:
            refusal: what is refused, for the message.

        Raises:
            BudgetExhausted: the episode is over.
        """
        if self.over:
            raise BudgetExhausted(f"the episode is over ({self.over}); {refusal}")

    def end(self, reason: str) -> None:
        """End the episode, unless it has ended for another reason already."""
        self.over = self.over or reason

    def call_off(self, name: str, *methods: Callable[[], None]) -> None:
        """Call methods that end something from another thread; keep an error as :attr:`fault`."""
        for method in methods:
            try:
                call_method(name, method)
            except TaskError as error:
                self.fault = self.fault or error

    def submit(self, action: str) -> None:
        """End the episode with a submission, which is a turn."""
        self.action = action
        self.turns.append(Turn(action, "", True))
        self.over = "submitted"

    def record_turn(self, turn: Turn) -> None:
        """Add a finished turn that the agent took in its sandbox, not through the environment."""
        self.turns.append(turn)
        self.action = turn.action
        if self.remaining_turns <= 0:
            self.end("budget")

    def amend_turn(self, index: int = -1, **fields: Any) -> None:
        """Set fields of a turn whose values became known later."""
        self.turns[index] = replace(self.turns[index], **fields)

    def grade(self, grade: Callable[[], Reward]) -> Reward:
        """Return what ``grade`` returns, or 0 for a state that the agent made ungradable."""
        self._has_state = self.grading = True
        try:
            return grade()
        except (SandboxBroken, CommandFailed, UngradableState, AgentError) as error:
            reward = _reward_for_agent_fault(error)
            self._has_state = False
            return reward
        finally:
            self.grading = False

    def score(self, reward: Reward, end_state: Callable[[], dict[str, Any]]) -> None:
        """Note the reward of the state after the last turn; 1.0 ends the episode.

        Args:
            reward: the reward.
            end_state: returns what was compared; called only if no earlier turn was as good.
        """
        self.latest = reward
        self.amend_turn(reward=reward.value, parts=reward.parts)
        if self.best is None or reward.value > self.best.value:
            self.best = reward
            self._best_state = {**self._state(end_state), "turn": len(self.turns)}
        if reward.value >= 1.0:
            self.final, self.over = reward, "solved"

    def finish(self, reward: Reward) -> Reward:
        """Note the reward at the end; return it, or an earlier turn's if that was better.

        Raises:
            TaskError: the action could not be ended; this is :attr:`fault`.
        """
        if self.fault is not None:
            raise self.fault
        if self.turns:
            self.amend_turn(reward=reward.value, parts=reward.parts)
        self.final = reward
        if self.best is not None and self.best.value > reward.value:
            self.final = self.best
        return self.final

    def recorded_state(self, end_state: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what was compared for the final reward, with ``turn`` if it is a turn's feedback.

        Args:
            end_state: returns what the last grading compared.
        """
        is_best = self.best is not None and self.final is self.best
        return self._best_state if is_best else self._state(end_state)

    def _state(self, end_state: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return end_state() if self._has_state else {}

    def step_result(self, observation: Observation) -> StepResult:
        """Return what ``step`` returns for the last turn."""
        turn = self.turns[-1]
        final = None if self._feedback == "reward" else self.final
        return (
            observation,
            turn.reward if final is None else final.value,
            self.over in ("solved", "submitted"),
            self.over == "budget",
            {"executed": turn.executed, "turns_left": observation.turns_left},
        )

    def note_refused(self, hosts: Sequence[str]) -> None:
        """Note refused network accesses, up to the limit of a record."""
        room = max(0, _MAX_REFUSED - len(self._refused))
        self._refused.update(dict.fromkeys(hosts[:room]))

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        """The network accesses that were refused to the agent, in order."""
        return tuple(self._refused)


def _reward_for_agent_fault(
    error: SandboxBroken | CommandFailed | UngradableState | AgentError,
) -> Reward:
    """Return the reward of a state that cannot be graded because of the agent.

    Raises:
        CommandFailed: the agent had not acted, so it is not the agent's fault.
    """
    if isinstance(error, (UngradableState, AgentError)):
        reason = f"what was left cannot be graded: {error}"
        return Reward(0.0, {}, reason, error.test_output)
    if isinstance(error, CommandFailed) and not error.acted:
        raise error
    return Reward(0.0, {}, f"the agent broke its sandbox: {error}", error.test_output)


def call_method(
    name: str, method: Callable[..., _Returned], *arguments: Any, **options: Any
) -> _Returned:
    """Call a method of an environment, or its class, and return the result.

    Raises:
        TaskError: it raised an error that is not ours: a mistake in the environment, not the agent.
    """

    def mistake(reason: str) -> TaskError:
        called = "__init__" if isinstance(method, type) else getattr(method, "__name__", "a method")
        return TaskError(f"the environment {name!r}: {called}() raised {reason}")

    return call_others(method, mistake, *arguments, **options)


def call_execute(name: str, execute: Callable[[str], Observation], action: str) -> Observation:
    """Execute an action and return what the environment shows of it.

    Raises:
        TaskError: as for :func:`call_method` and :func:`check_returned`.
    """
    return check_returned(name, "execute", call_method(name, execute, action), Observation)


def stop_finally(name: str, stop: Callable[[], None], *, graded: bool) -> None:
    """Stop an environment that is closed.

    Args:
        name: the name of the environment.
        stop: its ``stop`` method.
        graded: its episode has a grade, and keeps it. An episode without one has failed already,
            so an error here is dropped.

    Raises:
        ConfigurationError: the method raised an error that is not ours.
    """
    try:
        call_method(name, stop)
    except TaskError as error:
        if graded:
            raise ConfigurationError(str(error)) from error


def check_returned(name: str, method: str, value: object, expected: type[_Returned]) -> _Returned:
    """Check the class of what a method of an environment returned, and return it.

    Raises:
        TaskError: it has another class: a mistake in the environment, not in the agent.
    """
    if isinstance(value, expected):
        return value
    kind = "a list of SandboxSpec" if expected is list else f"pytest_intercode.{expected.__name__}"
    raise TaskError(f"the environment {name!r}: {method}() returned {value!r:.80}, expected {kind}")


def check_reward(name: str, reward: object) -> Reward:
    """Check what an environment's ``grade`` returned, and return it.

    Raises:
        TaskError: it is not a reward, or out of bounds: a mistake in the environment.
    """
    reward = check_returned(name, "grade", reward, Reward)
    value = reward.value
    if not isinstance(value, (int, float)) or not -1 <= value <= 1:  # also refuses NaN
        raise TaskError(
            f"the environment {name!r}: grade() returned the reward {value!r:.40}; allowed are "
            "numbers up to 1.0, which means solved, and from 0.0 (-1.0 at the least)"
        )
    if not is_recordable(reward):
        raise TaskError(
            f"the environment {name!r}: grade() returned {reward!r:.80}; parts are finite numbers, "
            "reason and test_output are text"
        )
    return reward
