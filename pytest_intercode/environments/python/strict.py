"""The python environment, strict profile: an interpreter that keeps its names, and hidden tests.

An action is Python code that runs as in a REPL. The interpreter that the agent used is not graded:
its actions are played again in a fresh sandbox, where hidden tests decide (``grading.py``).
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
# So that sets of strings have the same order in the session and when it is played again.
_VARIABLES = (("PYTHONHASHSEED", "0"),)


def read_submission(action: str) -> str | None:
    """Return what an action submits: a name, code, or ``""``; None if it is not a submission."""
    match = _SUBMISSION.fullmatch(action.strip())
    return None if match is None else match[1] or ""


class PythonEnvironment(ShellEnvironment):
    """Plain Python: an action is what a person would type into a REPL."""

    name = "python"
    profile: Profile = "strict"
    takes_commands = False  # an interpreter reads the input of the sandbox
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
        """Return the agent's sandbox, and the sandbox that grades."""
        spec = cls.spec(task, provider)
        return [spec, grading_spec(spec)]

    def close(self) -> None:
        """End the episode's sandboxes, including one that is grading; may be called twice."""
        replaying = self._replaying
        if replaying is not None:
            replaying.interrupt()
        super().close()

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and at the same time the sandbox that grades."""
        self._played = []
        self._verdicts = []
        super().start(task)

    def _judge(self) -> Judge:
        return self.provider.share("python-judge", lambda: Judge(self.provider))

    def _start_gold(self, task: Task) -> GoldRun | None:
        """Prepare the sandbox of the next grading; gold itself does not run."""
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
        """Run the action, and record how long it took, for the replay."""
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
                self._gold = self._start_gold(self.current_task)  # for the next grading
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
        """Return the result of each test, as builtins, from which the reward can be computed."""
        return {"tests": list(self._verdicts)}
