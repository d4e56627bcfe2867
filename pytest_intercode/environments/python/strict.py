"""The python environment, strict profile: an interpreter that remembers, and hidden tests.

An action is Python, run as in a REPL. What is graded is not the interpreter that the agent used:
its actions are played again in a fresh sandbox, and hidden tests decide there
(``grading.py``).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation, Profile
from pytest_intercode.environments.gold import Gold, GoldRun
from pytest_intercode.environments.inside_program import ForgedAnswers
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.python.grading import (
    Judge,
    Played,
    Submission,
    answers_of,
    grading_spec,
    play_again,
)
from pytest_intercode.environments.python.hidden_tests import entry_of
from pytest_intercode.environments.shell import NAMES_LOST, ShellEnvironment, unsendable
from pytest_intercode.errors import SandboxBroken
from pytest_intercode.rewards.python import python_strict_reward
from pytest_intercode.sandboxes.protocol import PYTHON_WORKER, Execution, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["PythonEnvironment", "read_submission"]

# `submit = 3` and `submit.x` are Python; `submit`, `submit name` and `submit def f(): ...` are not.
_SUBMISSION = re.compile(r"submit(?:\s+(?![=.,:;)\]}+*/%&|^<>!@-])(.*))?", re.DOTALL)
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
# Sets of strings are in the same order in the session and when it is played again.
_VARIABLES = (("PYTHONHASHSEED", "0"),)


def read_submission(action: str) -> str | None:
    """Return what an action submits: a name, code, or nothing; None if it is not a submission."""
    match = _SUBMISSION.fullmatch(action.strip())
    return None if match is None else match[1] or ""


class PythonEnvironment(ShellEnvironment):
    """Python as it is: an action is what a person would type into a REPL."""

    name = "python"
    profile: Profile = "strict"
    takes_commands = False  # an interpreter reads what the sandbox is given
    _reader = "interpreter"
    _timeout_effect = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._played: list[Played] = []
        self._replaying: Sandbox | None = None
        self._verdicts: list[str] = []

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the sandbox of the session."""
        spec = super().spec(task, provider)
        return replace(spec, worker=PYTHON_WORKER, variables=(*spec.variables, *_VARIABLES))

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the agent's sandbox, and the one that grades."""
        spec = cls.spec(task, provider)
        return [spec, grading_spec(spec)]

    def close(self) -> None:
        """End the episode's sandboxes, the one that is grading too; may be called twice."""
        replaying = self._replaying
        if replaying is not None:
            replaying.interrupt()
        super().close()

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and the one that grades at the same time."""
        self._played = []
        self._verdicts = []
        super().start(task)

    def _judge(self) -> Judge:
        return self.provider.share("python-judge", lambda: Judge(self.provider))

    def _start_gold(self, task: Task) -> GoldRun | None:
        """Prepare the sandbox of the next grading; what gold would print is not asked for."""
        self._judge()

        def play(sandbox: Sandbox) -> Gold:
            self.prepare(sandbox, task)
            return Gold(sandbox)

        spec = grading_spec(self.spec(task, self.provider))
        return GoldRun(self.provider, spec, play, "start")

    def submission(self, action: str) -> str | None:
        """Return the name or the code that an action submits."""
        return read_submission(action)

    def execute(self, action: str) -> Observation:
        """Run the action, and note how long it may take when it is played again."""
        former_execution = self._last
        try:
            observation = super().execute(action)
        except SandboxBroken:
            self._played.append(Played(action, self.action_timeout))
            raise
        execution = self._last
        if execution is not None and execution is not former_execution:
            limits = {"timeout": self.action_timeout, "cancelled": execution.seconds}
            played = Played(action, execution.seconds, limits.get(execution.ended))
            self._played.append(played)
        return observation

    def _describe_state(self, execution: Execution) -> str:
        if execution.restarted:
            return NAMES_LOST
        return "KeyboardInterrupt was raised, and the names are kept"

    # -- grading

    def grade(self, answer: str | None) -> Reward:
        """Play the actions again in a fresh sandbox and run the hidden tests there."""
        answer = (answer or "").strip()
        if fault := unsendable(answer):
            return self._failed(f"source cannot hold {fault}")
        submission = self._submitted(answer)
        if not (submission.actions or submission.program):
            return self._failed("nothing was run")
        sandbox = self._replaying = self._gold_result().sandbox
        try:
            with self.phases.timed("carry"):
                in_time = play_again(sandbox, submission.actions)
            if not in_time:
                return self._failed("the actions took far longer when they were played again")
            answers = answers_of(sandbox, self.current_task, submission, self.action_timeout)
        except SandboxBroken:
            return self._failed("the actions leave no interpreter that starts")
        except ForgedAnswers:
            return self._failed("something else than the tests wrote answers")
        finally:
            self._replaying = None
            sandbox.close()
            if self.episode.goes_on:
                self._gold = self._start_gold(self.current_task)  # a fresh one for the next
        if answers is None:
            called = f"called {submission.name}" if submission.name else "defined"
            return self._failed(f"no function or class is {called}")
        self._verdicts = self._judge().verdicts(self.current_task, answers, self.action_timeout)
        return python_strict_reward(self._verdicts)

    def _submitted(self, answer: str) -> Submission:
        actions = tuple(self._played)
        program = actions[-1].action if actions else ""
        if not answer or _NAME.fullmatch(answer):
            return Submission(actions, answer, program)
        if entry_of(self.current_task):
            actions = (*actions, Played(answer, 0.0, self.action_timeout))
        return Submission(actions, "", answer)

    def _failed(self, reason: str) -> Reward:
        self._verdicts = ["failed"] * len(PythonFields.of(self.current_task).tests)
        return Reward(0.0, {"tests": 0.0}, reason)

    def end_state(self) -> dict[str, Any]:
        """Return how each test went, as builtins; the reward can be worked out from it."""
        return {"tests": list(self._verdicts)}
