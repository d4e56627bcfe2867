"""The python environment, paper profile: InterCode 1.0.2, whose tests run next to the agent's code.

InterCode's behaviour is kept, because published numbers depend on it: actions are wrapped in
``print(...)``; observations are the texts of dictionaries; what each test does, errors included, is
compared with what it does with gold; and gold stays in the namespace after the first submission,
where the next one may find it. Two things differ: the namespace is new in every episode, which no
recorded reward depends on, and an action that takes too long is stopped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation, Profile, StepResult
from pytest_intercode.environments.fields import CodeTest
from pytest_intercode.environments.inside_program import ForgedAnswers, Program
from pytest_intercode.environments.paper import PaperEnvironment
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.python.grading import PACKAGE
from pytest_intercode.environments.python.strict import PythonEnvironment
from pytest_intercode.errors import SandboxBroken
from pytest_intercode.rewards.python import (
    python_paper_reward,
    python_paper_state,
    texts_of,
)
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["TRY_AGAIN", "PaperPythonEnvironment"]

TRY_AGAIN = "Test case did not pass. Please try again."
TIMED_OUT = "Error executing action: timed out"
_DEFINITION = re.compile(r"def (\w+)\(")


class PaperPythonEnvironment(PaperEnvironment, PythonEnvironment):
    """Python as in InterCode."""

    name = "python"
    profile: Profile = "paper"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._program: Program | None = None
        self._action = ""
        self._results: list[dict[str, dict[str, str]]] = []

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the single sandbox that does everything."""
        return [cls.spec(task, provider)]

    def start(self, task: Task) -> None:
        """Start the sandbox."""
        self._action = ""
        self._results = []
        super().start(task)
        self._program = Program(self.sandbox, PACKAGE, "paper")

    def _start_gold(self, task: Task) -> None:
        """Start nothing, because the agent's own interpreter runs the tests."""

    def submission(self, action: str) -> str | None:
        """Return what follows ``submit`` in an action that begins with it."""
        return action[len("submit") :].strip() if action.startswith("submit") else None

    def execute(self, action: str) -> Observation:
        """Run the action as InterCode's server does."""
        self._action = action
        answer = self._ask({"action": action}, self.action_timeout, _is_step)
        if answer is None:
            return Observation(TIMED_OUT, executed=False)
        text, executed = answer
        return Observation(text, executed=executed)

    def take_turn(self, action: str, execute: Callable[[str], Observation]) -> StepResult:
        """In Try Again, show only ``TRY_AGAIN`` if a test raised."""
        former_results = self._results
        observation, *rest = super().take_turn(action, execute)
        graded = bool(self._results) and self._results is not former_results
        results = self._results[0].values() if graded else ()
        if self.feedback == "reward" and any(result["error"] for result in results):
            self.episode.amend_turn(observation=TRY_AGAIN)
            observation = Observation(
                TRY_AGAIN,
                executed=observation.executed,
                reward=observation.reward,
                turns_left=observation.turns_left,
            )
        return (observation, *rest)  # type: ignore[return-value]

    def grade(self, answer: str | None) -> Reward:
        """Run the tests on the submitted function and on gold, in the agent's interpreter."""
        if words := (answer or "").split():
            name = words[0]
        else:
            # In Try Again, defining a function submits it.
            match = _DEFINITION.match(self._action)
            name = match[1] if match else ""
        self._results = []
        if not name:
            return python_paper_reward({}, {})
        fields = PythonFields.of(self.current_task)
        tests = [test.code for test in fields.tests if isinstance(test, CodeTest)]
        gold = list(self.current_task.gold)
        gold_name = next((match[1] for match in map(_DEFINITION.search, gold) if match), name)
        request = [name, gold_name, fields.test_setup, tests, gold]
        answer_ = self._ask(
            {"grade": request},
            self.action_timeout * (1 + len(tests)),
            lambda results: _are_results(results, len(tests)),
        )
        if answer_ is None:
            return Reward(0.0, {"tests": 0.0}, "the tests took too long")
        self._results = [dict(zip(tests, results, strict=True)) for results in answer_]
        return python_paper_reward(*map(texts_of, self._results))

    def _ask(self, request: dict[str, Any], timeout: float, fits: Callable[[Any], bool]) -> Any:
        """Ask our program in the agent's interpreter; None if the answer is not our program's."""
        assert self._program is not None
        try:
            answer = json.loads(self._program.ask(request, timeout)[1][0])
        # It took too long, or the agent's code ended the interpreter or answered in its place.
        except (KeyError, ValueError, RecursionError, ForgedAnswers, SandboxBroken):
            return None
        return answer if fits(answer) else None

    def end_state(self) -> dict[str, Any]:
        """Return what each test did, as builtins."""
        agent, gold = self._results or ({}, {})
        return python_paper_state(agent, gold)


def _is_step(answer: Any) -> bool:
    """Whether an answer has the form of an observation and whether the action ran."""
    return (
        isinstance(answer, list)
        and len(answer) == 2
        and isinstance(answer[0], str)
        and isinstance(answer[1], bool)
    )


def _are_results(answer: Any, count: int) -> bool:
    """Whether an answer has the form of each test's result for the agent's function and gold."""
    return (
        isinstance(answer, list)
        and len(answer) == 2
        and all(isinstance(side, list) and len(side) == count for side in answer)
        and all(_is_result(result) for side in answer for result in side)
    )


def _is_result(result: Any) -> bool:
    return (
        isinstance(result, dict)
        and result.keys() in ({"error"}, {"output", "error"})
        and all(isinstance(text, str) for text in result.values())
    )
