"""What an agent did with a prompt in a project: what ``intercode_project.run()`` returns."""

from __future__ import annotations

import re as regular_expressions
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Protocol

from pytest_intercode.agents.answers import Answers, Question
from pytest_intercode.core.call import ShimCall
from pytest_intercode.core.judge import PASSING_SCORE
from pytest_intercode.core.record import EpisodeRecord, Outcome
from pytest_intercode.core.text import one_line
from pytest_intercode.core.turn import CommandResult, SandboxInfo, Turn
from pytest_intercode.core.usage import Usage
from pytest_intercode.environments.project.environment import (
    Commit,
    ProjectEnvironment,
    ProjectState,
)
from pytest_intercode.errors import ConfigurationError, UngradableState
from pytest_intercode.projects.answer import Answer
from pytest_intercode.projects.commands import Commands
from pytest_intercode.projects.paths import ChangedPaths, ask_unchanged
from pytest_intercode.projects.tool_calls import ToolCalls, loaded_skill
from pytest_intercode.projects.verdict import RunVerdict

__all__ = ["ProjectRun", "RunSoFar"]

__tracebackhide__ = True  # a report shows the line of the test that asked

_CHECK_TIMEOUT = 600.0  # seconds that a command of a test's own has


class _JudgeRun(Protocol):
    """Has a model judge a run; the arguments are those of :meth:`ProjectRun.judge`."""

    def __call__(
        self, run: ProjectRun, rubric: str, *, model: str, votes: int, at_least: float
    ) -> RunVerdict:
        """Return what the model says."""


class ProjectRun:
    """One run of an agent on a prompt, which is over.

    Args:
        record: the record of the episode.
        environment: the environment with the agent's sandbox; None where a recording was played.
        calls: the calls of programs that the test gives or watches.
        judge: has a model judge it; None where none can be asked.
        servers: the names of the MCP servers that the agent was given.

    Attributes:
        record: the record; its outcome is set by the test's result, once that is known.
        calls: see above, in the order in which they were made.
        questions: what the agent said to the user, in order, each with the reply that it got; None
            where it got none.
    """

    def __init__(
        self,
        record: EpisodeRecord,
        environment: ProjectEnvironment | None,
        calls: Sequence[ShimCall] = (),
        judge: _JudgeRun | None = None,
        servers: Iterable[str] = (),
    ) -> None:
        self.record = record
        self._servers = tuple(servers)
        self._judge = judge
        self.calls = tuple(calls)
        self.questions: tuple[Question, ...] = tuple(
            (exchange.message, exchange.answer) for exchange in record.dialogue
        )
        self._environment = environment

    def __repr__(self) -> str:
        return f"<ProjectRun of {self.record.task.id}: {self.outcome}, {len(self.turns)} turns>"

    # -- commands and tools

    @cached_property
    def commands(self) -> Commands:
        """The commands that the agent ran, in order; see :class:`Commands`.

        Raises:
            ConfigurationError: the extra ``project`` is not installed.
        """
        return Commands.of(self.turns, self.calls)

    def ran(
        self,
        words: str = "",
        *,
        re: str | regular_expressions.Pattern[str] | None = None,
        ok: bool = False,
    ) -> Answer:
        """Return whether the agent ran a command; see :meth:`Commands.ran`."""
        return self.commands.ran(words, re=re, ok=ok)

    def order(self, *commands: str) -> Answer:
        """Return whether the agent ran commands in this order; see :meth:`Commands.order`."""
        return self.commands.order(*commands)

    @cached_property
    def tool_calls(self) -> ToolCalls:
        """The calls of the agent's own tools, in order; see :class:`ToolCalls`."""
        return ToolCalls(self.turns, self._servers)

    def called(self, tool: str, /, **arguments: Any) -> Answer:
        """Return whether the agent called a tool; see :meth:`ToolCalls.called`."""
        return self.tool_calls.called(tool, **arguments)

    def loaded_skill(self, name: str) -> Answer:
        """Return whether the agent loaded a skill; see :func:`loaded_skill`."""
        return loaded_skill(name, self.tool_calls, self.commands)

    # -- files

    @cached_property
    def _recorded_state(self) -> ProjectState:
        values = self.record.state.get("project")
        if values is None:  # an agent that breaks its sandbox leaves none
            return ProjectState(unread=self.record.reason or "the record does not have it")
        return ProjectState.from_json(values)

    @property
    def _state(self) -> ProjectState:
        """What the agent left; where that is not known, no question has an answer.

        Raises:
            UngradableState: it could not be read.
        """
        state = self._recorded_state
        if state.unread:
            raise UngradableState(
                one_line(f"what the agent left could not be read: {state.unread}")
            )
        return state

    # These are not cached: the frame of a cached property would be in the report of a failed test.

    @property
    def created(self) -> ChangedPaths:
        """The files that the agent created; a call asks for one: ``run.created("a.txt")``.

        Raises:
            UngradableState: what the agent left could not be read. So do ``changed``, ``deleted``,
                ``unchanged``, ``diff`` and ``commits``, and a test that asks for one fails.
        """
        return ChangedPaths.of("created", self._state)

    @property
    def changed(self) -> ChangedPaths:
        """The files whose content or mode the agent changed; a call asks for one."""
        return ChangedPaths.of("changed", self._state)

    @property
    def deleted(self) -> ChangedPaths:
        """The files that the agent deleted; a call asks for one."""
        return ChangedPaths.of("deleted", self._state)

    def unchanged(self, path: str) -> Answer:
        """Whether the agent created, changed and deleted nothing at a path.

        Args:
            path: a file, a folder, or a pattern; see :class:`ChangedPaths`.

        Raises:
            UngradableState: what the agent left could not be read.
        """
        return ask_unchanged(self._state, path)

    @property
    def diff(self) -> str:
        """What the agent changed, as a patch in git's format; untracked files are in it."""
        return self._state.patch

    @property
    def commits(self) -> tuple[Commit, ...]:
        """The commits that the agent made, oldest first."""
        return self._state.commits

    def read(self, path: str) -> str:
        """Return the text of a file as the agent left it.

        Args:
            path: its path, relative to the project or absolute.

        Raises:
            FileNotFoundError: there is no such file.
        """
        return self._live("read()").read(path).decode("utf-8", "replace")

    # -- words

    @property
    def messages(self) -> tuple[str, ...]:
        """What the agent said: next to what it did, to the user, and at the end."""
        thoughts = (turn.thought for turn in self.turns)
        questions = (message for message, _ in self.questions)
        messages = list(filter(None, (*thoughts, *questions)))
        if self.answer and self.answer not in messages[-1:]:
            messages.append(self.answer)
        return tuple(messages)

    @property
    def answer(self) -> str:
        """What the agent said at the end."""
        return str(self.record.state.get("message", ""))

    # -- cost

    @property
    def outcome(self) -> Outcome:
        """How the episode ended; an ordinary end is ``failed``, until the test has passed."""
        return self.record.outcome

    @property
    def usage(self) -> Usage:
        """What the agent used up: requests, tokens (cached ones, too) and money."""
        return self.record.usage

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What the agent did, turn by turn."""
        return self.record.turns

    @property
    def seconds(self) -> float:
        """Wall time of the agent's part."""
        return self.record.seconds

    # -- then

    def check(self, command: str, timeout: float = _CHECK_TIMEOUT) -> CommandResult:
        """Run a command in a fresh sandbox with what the agent left.

        No process of the agent's is there, and nothing that it does can be seen by the agent.

        Args:
            command: for bash, in the project's folder.
            timeout: seconds that it has.

        Returns:
            The exit status (None where the time was up) and the output.

        Raises:
            TypeError: the command is not a text.
            UngradableState: what was left is too much to be carried there.
        """
        if not isinstance(command, str):
            raise TypeError(f"run.check(): a command is a text for bash, found {command!r:.80}")
        return self._live("check()").check(command, timeout)

    def judge(
        self,
        rubric: str,
        *,
        model: str = "",
        votes: int = 3,
        at_least: float = PASSING_SCORE,
    ) -> RunVerdict:
        """Return what a model says of the run by a rubric.

        It is shown what the agent was asked for, did, saw, said and changed; see docs/judges.md.

        Args:
            rubric: what is graded, and how: what is worth 1, and what 0.
            model: the model, as the server of OpenAI's API names it; by default the ``judge_model``
                of the run or of the test's mark.
            votes: how often it is asked; an odd number, as the median counts.
            at_least: the score from which the verdict is true, above 0 and at most 1.

        Raises:
            JudgeError: the model cannot be reached, or gives no verdict: an error of the test.
        """
        if self._judge is None:
            raise ConfigurationError("run.judge: nobody is there who could ask a model")
        return self._judge(self, rubric, model=model, votes=votes, at_least=at_least)

    @property
    def sandbox(self) -> SandboxInfo:
        """Where the agent's sandbox is; its processes have ended, and its files are there."""
        return self._live("sandbox").sandbox_info

    def _live(self, name: str) -> ProjectEnvironment:
        if self._environment is None:
            raise ConfigurationError(
                f"run.{name} needs the agent's sandbox, and this run was played from its record "
                "alone: by replay='observations', or as its agent asks models without "
                "--intercode-gateway"
            )
        return self._environment


class RunSoFar:
    """What a function of ``answers=`` is given next to the agent's message.

    Args:
        environment: the environment, in which the agent is acting.
        answers: what the user said so far.
    """

    def __init__(self, environment: ProjectEnvironment, answers: Answers) -> None:
        self._environment, self._answers = environment, answers

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What the agent did up to now."""
        return tuple(self._environment.turns)

    @property
    def questions(self) -> tuple[Question, ...]:
        """What the agent and the user said before."""
        return tuple(self._answers.questions)
