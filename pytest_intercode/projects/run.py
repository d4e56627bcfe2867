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

_CHECK_TIMEOUT = 600.0  # seconds that a test's own command may take


class _JudgeRun(Protocol):
    """Asks a model to judge a run; the arguments are those of :meth:`ProjectRun.judge`."""

    def __call__(
        self, run: ProjectRun, rubric: str, *, model: str, votes: int, at_least: float
    ) -> RunVerdict:
        """Return the model's verdict."""


class ProjectRun:
    """One finished run of an agent on a prompt.

    Args:
        record: the record of the episode.
        environment: the environment with the agent's sandbox; None if the record of a recording was
            replayed.
        calls: the calls of programs that the test fakes or watches.
        judge: asks a model to judge the run; None if no model can be asked.
        servers: the names of the MCP servers that the agent was given.

    Attributes:
        record: the record; the test's result sets its outcome, once it is known.
        calls: the same, in the order in which the calls were made.
        questions: the agent's messages to the user, in order, each with the reply; None for a
            message without one.
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
        if values is None:  # after an agent that broke its sandbox
            return ProjectState(unread=self.record.reason or "the record does not have it")
        return ProjectState.from_json(values)

    @property
    def _state(self) -> ProjectState:
        """What the agent left; if that is not known, no question can be answered.

        Raises:
            UngradableState: it could not be read.
        """
        state = self._recorded_state
        if state.unread:
            raise UngradableState(
                one_line(f"what the agent left could not be read: {state.unread}")
            )
        return state

    # These are not cached, as the report of a failed test would show a cached property's frame.

    @property
    def created(self) -> ChangedPaths:
        """The files that the agent created; a call asks for one: ``run.created("a.txt")``.

        Raises:
            UngradableState: what the agent left could not be read. ``changed``, ``deleted``,
                ``unchanged``, ``diff`` and ``commits`` raise it too, so a test that uses one fails.
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
        """Whether the agent created, changed or deleted nothing at a path.

        Args:
            path: a file, a folder, or a pattern; see :class:`ChangedPaths`.

        Raises:
            UngradableState: what the agent left could not be read.
        """
        return ask_unchanged(self._state, path)

    @property
    def diff(self) -> str:
        """What the agent changed, as a patch in git's format, including untracked files."""
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
        """What the agent said: along with its actions, to the user, and at the end."""
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
        """How the episode ended; an ordinary end is ``failed`` until the test has passed."""
        return self.record.outcome

    @property
    def usage(self) -> Usage:
        """What the agent used up: requests, tokens (including cached ones) and money."""
        return self.record.usage

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What the agent did, turn by turn."""
        return self.record.turns

    @property
    def seconds(self) -> float:
        """The wall time of the agent's part."""
        return self.record.seconds

    # -- then

    def check(self, command: str, timeout: float = _CHECK_TIMEOUT) -> CommandResult:
        """Run a command in a fresh sandbox with the files that the agent left.

        The sandbox has no process of the agent, and the agent sees nothing of the command.

        Args:
            command: a command for bash, which runs in the project's folder.
            timeout: its time limit in seconds.

        Returns:
            The exit status (None if the time was up) and the output.

        Raises:
            TypeError: the command is not a text.
            UngradableState: what the agent left is too large to be copied there.
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
        """Return a model's verdict on the run by a rubric.

        The model is shown what the agent was asked for, did, saw, said and changed; see
        docs/judges.md.

        Args:
            rubric: what is graded, and how: what is worth 1, and what 0.
            model: the model, as the server of OpenAI's API names it; by default the ``judge_model``
                of the run or of the test's mark.
            votes: how often it is asked; an odd number, as the median counts.
            at_least: the score from which the verdict is true, above 0 and at most 1.

        Raises:
            JudgeError: the model cannot be reached, or gives no verdict; the test has an error.
        """
        if self._judge is None:
            raise ConfigurationError("run.judge(): this run cannot ask a model")
        return self._judge(self, rubric, model=model, votes=votes, at_least=at_least)

    @property
    def sandbox(self) -> SandboxInfo:
        """Where the agent's sandbox is; its processes have ended, and its files still exist."""
        return self._live("sandbox").sandbox_info

    def _live(self, name: str) -> ProjectEnvironment:
        if self._environment is None:
            raise ConfigurationError(
                f"run.{name} needs the agent's sandbox, but this run was replayed from its record "
                "alone: because of replay='observations', or as its agent calls models without "
                "--intercode-gateway"
            )
        return self._environment


class RunSoFar:
    """The run so far, which a function in ``answers=`` is given with the agent's message.

    Args:
        environment: the environment in which the agent acts.
        answers: what the user has said so far.
    """

    def __init__(self, environment: ProjectEnvironment, answers: Answers) -> None:
        self._environment, self._answers = environment, answers

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What the agent has done so far."""
        return tuple(self._environment.turns)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The earlier messages of the agent, with the user's replies."""
        return tuple(self._answers.questions)
