"""The environment as an agent sees it that drives its episode itself: its turns and its ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_intercode.agents.ledger import Ledger, ModelUsage
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.turn import Command, CommandResult, SandboxInfo, StepResult, Turn
from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.errors import AgentError, BudgetExhausted

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AgentEnvironment", "FolderAccess", "exhaust", "folder_access", "sandbox_variables"]


class FolderAccess(Protocol):
    """What a copy of the task's directory is kept with; see ``environments/access.py``."""

    def changed_files(self, since: str) -> bytes:
        """Return what has changed in the task's directory since a time."""

    def apply_changes(self, archive: bytes, removed: Sequence[bytes], summary: str, /) -> None:
        """Remove and unpack files there, and log the summary."""


class _Episode(FolderAccess, Protocol):
    """The episode behind an :class:`AgentEnvironment`, which passes calls of these names on."""

    def over(self) -> bool: ...

    def step(self, action: str) -> StepResult: ...

    def submit(self, answer: str) -> StepResult: ...

    def pass_turn(self, action: str, observation: str) -> StepResult: ...

    def record_turn(self, turn: Turn) -> None: ...

    def exec(self, command: Command) -> CommandResult: ...

    def upload(self, path: Path, at: str) -> None: ...

    def download(self, path: str, to: Path | None) -> bytes: ...

    def sandbox(self) -> SandboxInfo: ...


class AgentEnvironment:
    """What ``run(task, env)`` gets as ``env``.

    The methods may be called from any thread of the agent; actions run one at a time.

    Attributes:
        task: what the agent may know of its task.
    """

    __slots__ = ("_episode", "_ledger", "task")

    task: TaskView

    def __init__(self, task: TaskView, episode: _Episode, ledger: Ledger) -> None:
        self.task = task
        self._episode = episode
        self._ledger = ledger

    @property
    def over(self) -> bool:
        """Whether the episode is over: every action would be refused."""
        return self._episode.over()

    @property
    def prompt(self) -> str:
        """The task as a first message for a model with the tools of :meth:`tools`.

        It has the query, and says what an action is, what is graded and how many turns there are.
        """
        from pytest_intercode.agents.texts import describe_task

        return describe_task(
            self.task, "Solve the task below in its sandbox, with the tools execute and submit."
        )

    def tools(self, *, raises: bool = True) -> tuple[Callable[..., str], Callable[..., str]]:
        """Return two functions for an agent framework to make tools from.

        ``execute(code)`` takes a turn, ``submit(answer="")`` ends the episode. They have
        annotations and a docstring for this task, return the observation and a note on how the
        action ended, and may be called from any thread.

        Args:
            raises: both raise :class:`BudgetExhausted` as soon as the episode is over, by whatever,
                so that the framework ends without asking its model again. False is for one that
                shows exceptions to its model: they return that the episode is over, and the
                framework is to be stopped where :attr:`over` is true.
        """
        from pytest_intercode.agents.tools import make_tools

        return make_tools(self.task, self.step, self.submit, raises)

    def async_tools(
        self, *, raises: bool = True
    ) -> tuple[Callable[..., Awaitable[str]], Callable[..., Awaitable[str]]]:
        """Return the functions of :meth:`tools` as coroutine functions.

        A framework runs plain functions in threads of its own, in no order. These need none: calls
        that a model makes at once run in their order, and other episodes go on meanwhile.

        Args:
            raises: as for :meth:`tools`.
        """
        from pytest_intercode.agents.tools import make_async_tools

        return make_async_tools(self.task, self.step, self.submit, raises)

    def step(self, action: str) -> StepResult:
        """Run one action.

        Returns:
            ``observation, reward, terminated, truncated, info``; the reward is 0.0 until the
            episode ends, unless the run gives rewards as feedback.

        Raises:
            BudgetExhausted: the episode is over.
        """
        return self._episode.step(action)

    def submit(self, answer: str = "") -> StepResult:
        """End the episode; an ``answer`` is graded instead of the last output.

        Raises:
            BudgetExhausted: the episode is over.
        """
        return self._episode.submit(answer)

    def pass_turn(self, action: str, observation: str) -> StepResult:
        """Take a turn that runs nothing, for an answer of a model that holds no action.

        Args:
            action: the answer, for the trajectory.
            observation: what the agent is shown in return.

        Raises:
            BudgetExhausted: the episode is over.
        """
        return self._episode.pass_turn(action, observation)

    def record_turn(
        self, action: str, observation: str, *, thought: str = "", usage: Usage = UNSPENT
    ) -> None:
        """Add a turn to the trajectory that was taken in the sandbox past :meth:`step`.

        It counts as any other, also when the episode is over by now; the tokens do not count again.

        Args:
            action: what was done.
            observation: what came of it.
            thought: what the agent thought before it.
            usage: what it used up for it, as :meth:`spend` got it.
        """
        turn = Turn(action, observation, None, thought=thought, usage=usage)
        self._episode.record_turn(turn)

    @property
    def sandbox(self) -> SandboxInfo:
        """Where the sandbox is: its backend and its name, for a tool that reaches it by itself.

        Raises:
            AgentError: the environment has no shell.
        """
        return self._episode.sandbox()

    def exec(
        self,
        command: str,
        *,
        cwd: str = "",
        timeout: float | None = None,
        user: str = "",
        counts_as_turn: bool = False,
    ) -> CommandResult:
        """Run a command in the sandbox, for an agent with a shell of its own.

        It runs in a bash of its own and takes no turn: the agent's shell, its directory and the
        output that is graded stay as they are. The trajectory has it with the next action.

        Args:
            command: the command.
            cwd: where; by default, and for a relative one, the task's directory.
            timeout: seconds after which it is killed; by default those of an action.
            user: by whom; by default the user of the task's actions, whom only root may change.
            counts_as_turn: take a turn for it, and grade its output, as if it were an action.

        Raises:
            BudgetExhausted: the episode is over.
            AgentError: the environment has no shell, or the user may not be changed.
        """
        return self._episode.exec(Command(command, cwd, timeout, user, counts_as_turn))

    def upload(self, path: str | Path, at: str) -> None:
        """Copy a file or a folder of this machine into the sandbox, as the task's user.

        Args:
            path: the file or folder; at most 256 MiB.
            at: its path there; a relative one starts in the task's directory.

        Raises:
            BudgetExhausted: the episode is over.
            AgentError: the environment has no shell, or it cannot be read or written.
        """
        self._episode.upload(Path(path), at)

    def download(self, path: str, to: str | Path | None = None) -> bytes:
        """Copy a file or a folder out of the sandbox, as far as the task's user may read it.

        Args:
            path: its path there; a relative one starts in the task's directory.
            to: where it is written on this machine; a folder's content goes into ``to``. Links that
                would lead out of it are left out.

        Returns:
            The bytes of a file, if ``to`` is not given; else nothing.

        Raises:
            BudgetExhausted: the episode is over.
            AgentError: the environment has no shell; it is not there, larger than 256 MiB, or a
                folder and ``to`` is not given.
        """
        return self._episode.download(path, None if to is None else Path(to))

    def spend(self, *, raises: bool = True, **usage: Unpack[ModelUsage]) -> None:
        """Record what a request to a model used up.

        Args:
            raises: False is for code that must not be left by an exception; :attr:`over` says that
                a budget is used up.
            usage: ``input_tokens``, ``output_tokens``, ``cost`` and more; see :class:`ModelUsage`.

        Raises:
            BudgetExhausted: a budget is used up.
            AgentError: a number is negative or malformed, or a part is more than its whole.
        """
        try:
            self._ledger.spend(**usage)
        except BudgetExhausted:
            if raises:
                raise

    def think(self, text: str) -> None:
        """Record a thought that goes with the next action."""
        self._ledger.think(text)

    def log(self, text: str) -> None:
        """Record output of the agent that is not an action."""
        self._ledger.log(text)


def folder_access(env: AgentEnvironment) -> FolderAccess:
    """Return the way to the task's directory."""
    return env._episode


def exhaust(env: AgentEnvironment, reason: str) -> None:
    """End an episode, as a budget that its adapter counts is used up; may wait for a lock."""
    env._ledger.exhaust(reason)


def sandbox_variables(env: AgentEnvironment) -> dict[str, str]:
    """Return where the sandbox is, as environment variables of a program; none without a shell."""
    try:
        backend, name = env.sandbox
    except AgentError:
        return {}
    return {"INTERCODE_SANDBOX": name, "INTERCODE_SANDBOX_BACKEND": backend}
