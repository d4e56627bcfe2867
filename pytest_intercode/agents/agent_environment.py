"""The environment as seen by an agent that drives its own episode: its turns and its ledger.

This module declares what an agent can do. An ability beyond a turn needs a second method, in the
environments that support it: ``exec`` here calls ``run_command`` of ``ShellEnvironment``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from pytest_intercode.agents.ledger import Ledger, ModelUsage
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.tokens import AnswerTokens
from pytest_intercode.core.turn import Command, CommandResult, SandboxInfo, StepResult, Turn
from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.errors import AgentError, BudgetExhausted, CommandFailed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pytest_intercode.environments.base import Environment
    from pytest_intercode.environments.shell import ShellEnvironment
    from pytest_intercode.gateway.recording import EpisodeRecording

__all__ = [
    "ActionKind",
    "AgentEnvironment",
    "clip_text",
    "copy_files",
    "describe_value",
    "exhaust",
    "forward_port",
    "keep_tokens",
    "recording_of",
    "sandbox_variables",
    "show_pending",
]

Result = TypeVar("Result")


ActionKind: TypeAlias = Literal["turn", "command", "copy", "question"]
"""A turn, or an action that takes no turn: the agent's own command, a copy of files, a question to
the user."""

_MAX_LOGGED = 4000  # characters of a command's output that are kept in the trajectory


class _Episode(Protocol):
    """The episode behind an :class:`AgentEnvironment`: one action at a time, within its budgets."""

    @property
    def environment(self) -> Environment:
        """The environment, after its reset."""

    @property
    def is_answered(self) -> bool:
        """Whether handing back to the user may lead to a reply."""

    def over(self) -> bool:
        """Whether every action would be refused."""

    def act(self, action: Callable[[], Result], kind: ActionKind = "turn") -> Result:
        """Run one action."""

    def record_turn(self, turn: Turn) -> None:
        """Add a turn that the agent took on its own, and count it."""

    def ask(self, message: str) -> str | None:
        """Hand back to the user, and record the message and the reply."""


class AgentEnvironment:
    """The object that ``run(task, env)`` gets as ``env``.

    The methods may be called from any thread of the agent; actions run one at a time.

    Attributes:
        task: what the agent may know about its task.
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
    def has_user(self) -> bool:
        """Whether a user may answer the messages of :meth:`ask`."""
        return self._episode.environment.has_user

    @property
    def functions(self) -> tuple[Mapping[str, Any], ...]:
        """The tools that the task's actions call, as OpenAI functions; empty for other tasks.

        To call one, take the action ``json.dumps({"name": ..., "arguments": {...}})``.
        """
        return tuple(self._episode.environment.functions)

    @property
    def is_answered(self) -> bool:
        """Whether handing back with :meth:`ask` may lead to a reply.

        The reply comes from the user, or from the tests if the task lets this agent submit again.
        """
        return self._episode.is_answered

    @property
    def prompt(self) -> str:
        """The task as a first message for a model with the tools of :meth:`tools`.

        It contains the query, and describes actions, what is graded and the number of turns.
        """
        from pytest_intercode.agents.texts import describe_task

        return describe_task(
            self.task,
            "Solve the task below in its sandbox, with the tools execute and submit.",
            self.has_user,
        )

    def tools(self, *, raises: bool = True) -> tuple[Callable[..., str], Callable[..., str]]:
        """Return two functions that an agent framework can turn into tools.

        ``execute(code)`` takes a turn and ``submit(answer="")`` ends the episode. Both have
        annotations and a docstring for this task, return the observation and a note on how the
        action ended, and may be called from any thread.

        Args:
            raises: raise :class:`BudgetExhausted` as soon as the episode is over, so that the
                framework ends without another request to its model. Use False for a framework that
                shows exceptions to its model: both then return a text that the episode is over, and
                the framework must be stopped when :attr:`over` is true.
        """
        from pytest_intercode.agents.tools import make_tools

        return make_tools(self.task, self.step, self.submit, raises)

    def async_tools(
        self, *, raises: bool = True
    ) -> tuple[Callable[..., Awaitable[str]], Callable[..., Awaitable[str]]]:
        """Return the functions of :meth:`tools` as coroutine functions.

        Frameworks run plain functions in their own threads, in any order. Coroutine functions need
        no threads: parallel calls of a model run in order, while other episodes continue.

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
        _check_text("env.step()", action, "an action is a str")
        return self._episode.act(lambda: self._episode.environment.step(action))

    def submit(self, answer: str = "") -> StepResult:
        """End the episode; an ``answer`` is graded instead of the last output.

        Raises:
            BudgetExhausted: the episode is over.
        """
        _check_text("env.submit()", answer, "an answer is a str")
        return self._episode.act(lambda: self._episode.environment.submit(answer))

    def pass_turn(self, action: str, observation: str) -> StepResult:
        """Take a turn that runs nothing, for a model's answer that contains no action.

        Args:
            action: the answer, for the trajectory.
            observation: the observation that the agent gets.

        Raises:
            BudgetExhausted: the episode is over.
        """
        for text in (action, observation):
            _check_text("env.pass_turn()", text, "it takes texts")
        return self._episode.act(lambda: self._episode.environment.pass_turn(action, observation))

    def record_turn(
        self,
        action: str,
        observation: str,
        *,
        thought: str = "",
        usage: Usage = UNSPENT,
        tool: str = "",
        status: int | None = None,
        model_calls: tuple[int, ...] = (),
    ) -> None:
        """Add a turn to the trajectory that was taken in the sandbox without :meth:`step`.

        It counts like any other turn, even after the episode's end; its tokens do not count again.

        Args:
            action: what was done.
            observation: the result of the action.
            thought: the agent's thought before the action.
            usage: what the agent used up for it, as it was reported to :meth:`spend`.
            tool: the name of the agent's own tool that did it; :class:`Turn` describes the action
                in that case.
            status: the exit status of a command; None if it is not known.
            model_calls: the numbers of the requests that led to it, if tokens are kept.
        """
        turn = Turn(
            action,
            observation,
            None,
            thought=thought,
            usage=usage,
            tool=tool,
            status=status,
            model_calls=model_calls,
        )
        self._episode.record_turn(turn)

    def ask(self, message: str) -> str | None:
        """Hand back to the user with a message: a question, or the agent's last words.

        This takes no turn, but an episode has no more replies than turns. The message and the reply
        are in the trajectory. An async agent calls it like :meth:`step`: other episodes continue in
        the meantime.

        Args:
            message: the agent's message.

        Returns:
            The user's reply, or None if nobody answers; the agent is then done.

        Raises:
            BudgetExhausted: the episode is over.
        """
        _check_text("env.ask()", message, "a message is a str")
        return self._episode.ask(message)

    @property
    def sandbox(self) -> SandboxInfo:
        """The sandbox's backend and name, for a tool that accesses the sandbox directly.

        Raises:
            AgentError: the environment has no shell.
        """
        return self._shell("env.sandbox").sandbox_info

    def exec(
        self,
        command: str,
        *,
        cwd: str = "",
        timeout: float | None = None,
        user: str = "",
        counts_as_turn: bool = False,
    ) -> CommandResult:
        """Run a command in the sandbox, for an agent with its own shell.

        The command runs in a separate bash and takes no turn: the shell of the actions, its
        directory and the graded output do not change. The next action's log has the command.

        Args:
            command: the command.
            cwd: the directory, relative to the task's directory; by default that directory itself.
            timeout: seconds after which it is killed; by default the timeout of an action.
            user: by default the user of the task's actions; only if that is root may it be another.
            counts_as_turn: whether it takes a turn and its output is graded, like an action.

        Raises:
            BudgetExhausted: the episode is over.
            AgentError: the environment has no shell, or the user may not be changed.
        """
        _check_text("env.exec()", command, "a command is a str")
        shell = self._shell("env.exec()")
        request = Command(command, cwd, timeout, user, counts_as_turn)
        kind: ActionKind = "turn" if counts_as_turn else "command"
        result = self._episode.act(lambda: shell.run_command(request), kind)
        if not counts_as_turn:
            status = "no status" if result.status is None else f"status {result.status}"
            self.log(f"$ {command}\n{_end_line(clip_text(result.output))}[{status}]\n")
        return result

    def upload(self, path: str | Path, at: str) -> None:
        """Copy a file or a folder of this machine into the sandbox, as the task's user.

        Args:
            path: the file or folder; at most 256 MiB.
            at: its path in the sandbox; a relative path starts in the task's directory.

        Raises:
            BudgetExhausted: the episode is over.
            AgentError: the environment has no shell, or a file cannot be read or written.
        """
        source = Path(path)
        copy_files(self, "env.upload()", lambda shell: shell.upload(source, at))
        self.log(f"[uploaded {source.name} to {at}]\n")

    def download(self, path: str, to: str | Path | None = None) -> bytes:
        """Copy a file or a folder out of the sandbox, as far as the task's user may read it.

        Args:
            path: its path in the sandbox; a relative path starts in the task's directory.
            to: where to write it on this machine; a folder's content goes into ``to``. Links that
                would lead out of ``to`` are omitted.

        Returns:
            The content of a file if ``to`` is not given, otherwise ``b""``.

        Raises:
            BudgetExhausted: the episode is over.
            AgentError: the environment has no shell; or the path does not exist, is larger than
                256 MiB, or is a folder and ``to`` is not given.
        """
        from pytest_intercode.environments.access import content_of, extract

        archive = copy_files(self, "env.download()", lambda shell: shell.download(path))
        self.log(f"[downloaded {path}]\n")
        if to is None:
            return content_of(archive, path)
        extract(archive, Path(to))
        return b""

    def spend(self, *, raises: bool = True, **usage: Unpack[ModelUsage]) -> None:
        """Record what a request to a model used up.

        Args:
            raises: use False in code in which no exception may be raised; :attr:`over` then tells
                whether a budget is used up.
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

    def _shell(self, caller: str) -> ShellEnvironment:
        """Return the environment if it runs commands."""
        from pytest_intercode.environments.shell import ShellEnvironment

        environment = self._episode.environment
        if not (isinstance(environment, ShellEnvironment) and environment.takes_commands):
            raise AgentError(f"{caller}: the environment {environment.name} has no shell")
        return environment


def copy_files(
    env: AgentEnvironment, caller: str, copy: Callable[[ShellEnvironment], Result]
) -> Result:
    """Copy files into or out of the sandbox without taking a turn.

    Args:
        env: the episode.
        caller: the function that the agent called, for messages.
        copy: copies the files.

    Raises:
        BudgetExhausted: the episode is over.
        AgentError: the environment has no shell, or the files cannot be read or written.
    """
    shell = env._shell(caller)
    return env._episode.act(lambda: copy(shell), "copy")


def show_pending(env: AgentEnvironment, pending: Callable[[], Sequence[str]]) -> None:
    """Show actions to viewers of a run before ``env.record_turn`` adds their turns.

    Args:
        env: the episode.
        pending: returns the actions that are not added yet; called from any thread.
    """
    env._episode.environment.episode.pending = pending


def forward_port(env: AgentEnvironment, port: int, outside: Path) -> Callable[[], None] | None:
    """Forward a port of the sandbox to a socket here; see :meth:`Sandbox.forward_port`.

    Raises:
        BudgetExhausted: the episode is over.
        AgentError: the environment has no shell, or the listener cannot start in its sandbox.
    """
    try:
        return copy_files(env, "the agent", lambda shell: shell.forward_port(port, outside))
    except CommandFailed as error:
        raise AgentError(f"no port of the sandbox can be listened at: {error}") from None


def recording_of(env: AgentEnvironment) -> EpisodeRecording | None:
    """Return the recording of this one episode; None if the run's settings apply."""
    return env._episode.environment.recording


def keep_tokens(
    env: AgentEnvironment, model: str, request: Mapping[str, Any], tokens: AnswerTokens
) -> int:
    """Keep the tokens of a request of the episode; see :meth:`Ledger.keep`."""
    return env._ledger.keep(model, request, tokens)


def exhaust(env: AgentEnvironment, reason: str) -> None:
    """End an episode because a budget that its adapter counts is used up; may wait for a lock."""
    env._ledger.exhaust(reason)


def sandbox_variables(env: AgentEnvironment) -> dict[str, str]:
    """Return environment variables that identify the sandbox; empty without a shell."""
    try:
        backend, name = env.sandbox
    except AgentError:
        return {}
    return {"INTERCODE_SANDBOX": name, "INTERCODE_SANDBOX_BACKEND": backend}


def describe_value(value: object) -> str:
    """Describe a value that an agent passed instead of a str, for a message."""
    return "None" if value is None else f"{value!r:.60} ({type(value).__name__})"


def _check_text(caller: str, value: object, rule: str) -> None:
    if not isinstance(value, str):
        raise AgentError(f"{caller} was called with {describe_value(value)}; {rule}")


def clip_text(text: str) -> str:
    """Shorten a text to the length that the trajectory keeps."""
    if len(text) <= _MAX_LOGGED:
        return text
    return f"{text[:_MAX_LOGGED]}\n[... {len(text) - _MAX_LOGGED} characters ...]"


def _end_line(output: str) -> str:
    return output if not output or output.endswith("\n") else output + "\n"
