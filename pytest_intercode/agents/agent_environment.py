"""The environment as an agent sees it that drives its episode itself: its turns and its ledger.

What an agent can do is declared here. An ability that is more than a turn needs one more method, of
the environments that have it: here ``exec``, and ``run_command`` of ``ShellEnvironment``.
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
"""What an action is: a turn, or what takes none: a command of the agent's own, a copy of files, a
question to the user."""

_MAX_LOGGED = 4000  # characters of a command's output that the trajectory keeps


class _Episode(Protocol):
    """The episode behind an :class:`AgentEnvironment`: one action at a time, within its budgets."""

    @property
    def environment(self) -> Environment:
        """The environment, after its reset."""

    @property
    def is_answered(self) -> bool:
        """Whether handing back may lead to a reply."""

    def over(self) -> bool:
        """Whether every action would be refused."""

    def act(self, action: Callable[[], Result], kind: ActionKind = "turn") -> Result:
        """Run one action."""

    def record_turn(self, turn: Turn) -> None:
        """Add a turn that the agent took by itself, and count it."""

    def ask(self, message: str) -> str | None:
        """Hand back to the user, and record what was said."""


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
    def has_user(self) -> bool:
        """Whether somebody may answer what :meth:`ask` says."""
        return self._episode.environment.has_user

    @property
    def functions(self) -> tuple[Mapping[str, Any], ...]:
        """The tools that actions are calls of, as OpenAI's API describes functions; else none.

        A call of one is the action ``json.dumps({"name": ..., "arguments": {...}})``.
        """
        return tuple(self._episode.environment.functions)

    @property
    def is_answered(self) -> bool:
        """Whether handing back by :meth:`ask` may lead to a reply.

        It is the user's, or what the tests print where the task lets this agent submit again.
        """
        return self._episode.is_answered

    @property
    def prompt(self) -> str:
        """The task as a first message for a model with the tools of :meth:`tools`.

        It has the query, and says what an action is, what is graded and how many turns there are.
        """
        from pytest_intercode.agents.texts import describe_task

        return describe_task(
            self.task,
            "Solve the task below in its sandbox, with the tools execute and submit.",
            self.has_user,
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
        """Take a turn that runs nothing, for an answer of a model that holds no action.

        Args:
            action: the answer, for the trajectory.
            observation: what the agent is shown in return.

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
        """Add a turn to the trajectory that was taken in the sandbox past :meth:`step`.

        It counts as any other, also when the episode is over by now; the tokens do not count again.

        Args:
            action: what was done.
            observation: what came of it.
            thought: what the agent thought before it.
            usage: what it used up for it, as :meth:`spend` got it.
            tool: the agent's own tool that did it, by its name; :class:`Turn` says what the action
                is then.
            status: the exit status of a command; None where that is not known.
            model_calls: the numbers of the requests that led to it, where tokens are kept.
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
        """Hand back to the user with a message, as a question or as the last word.

        It takes no turn, but an episode has no more replies than turns. The trajectory has the
        message and the reply. An async agent calls it like :meth:`step`: other episodes go on
        meanwhile.

        Args:
            message: what the agent says.

        Returns:
            What the user says, or None where nobody answers; then the agent is done.

        Raises:
            BudgetExhausted: the episode is over.
        """
        _check_text("env.ask()", message, "a message is a str")
        return self._episode.ask(message)

    @property
    def sandbox(self) -> SandboxInfo:
        """Where the sandbox is: its backend and its name, for a tool that reaches it by itself.

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
            at: its path there; a relative one starts in the task's directory.

        Raises:
            BudgetExhausted: the episode is over.
            AgentError: the environment has no shell, or it cannot be read or written.
        """
        source = Path(path)
        copy_files(self, "env.upload()", lambda shell: shell.upload(source, at))
        self.log(f"[uploaded {source.name} to {at}]\n")

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

    def _shell(self, caller: str) -> ShellEnvironment:
        """Return the environment, if it takes commands."""
        from pytest_intercode.environments.shell import ShellEnvironment

        environment = self._episode.environment
        if not (isinstance(environment, ShellEnvironment) and environment.takes_commands):
            raise AgentError(f"{caller}: the environment {environment.name} has no shell")
        return environment


def copy_files(
    env: AgentEnvironment, caller: str, copy: Callable[[ShellEnvironment], Result]
) -> Result:
    """Copy files into or out of the sandbox, which takes no turn.

    Args:
        env: the episode.
        caller: what the agent called, for messages.
        copy: does it.

    Raises:
        BudgetExhausted: the episode is over.
        AgentError: the environment has no shell, or the files cannot be read or written.
    """
    shell = env._shell(caller)
    return env._episode.act(lambda: copy(shell), "copy")


def show_pending(env: AgentEnvironment, pending: Callable[[], Sequence[str]]) -> None:
    """Let those who watch a run see actions before ``env.record_turn`` adds their turns.

    Args:
        env: the episode.
        pending: returns the actions that were not added yet; called from any thread.
    """
    env._episode.environment.episode.pending = pending


def forward_port(env: AgentEnvironment, port: int, outside: Path) -> Callable[[], None] | None:
    """Have a port of the sandbox lead to a socket here; see :meth:`Sandbox.forward_port`.

    Raises:
        BudgetExhausted: the episode is over.
        AgentError: the environment has no shell, or what listens does not start in its sandbox.
    """
    try:
        return copy_files(env, "the agent", lambda shell: shell.forward_port(port, outside))
    except CommandFailed as error:
        raise AgentError(f"no port of the sandbox can be listened at: {error}") from None


def recording_of(env: AgentEnvironment) -> EpisodeRecording | None:
    """Return what records or replays this episode alone; None for what the run's settings say."""
    return env._episode.environment.recording


def keep_tokens(
    env: AgentEnvironment, model: str, request: Mapping[str, Any], tokens: AnswerTokens
) -> int:
    """Keep the tokens of a request of the episode; see :meth:`Ledger.keep`."""
    return env._ledger.keep(model, request, tokens)


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


def describe_value(value: object) -> str:
    """Return what an agent gave in place of a text, for a message."""
    return "None" if value is None else f"{value!r:.60} ({type(value).__name__})"


def _check_text(caller: str, value: object, rule: str) -> None:
    if not isinstance(value, str):
        raise AgentError(f"{caller} was called with {describe_value(value)}; {rule}")


def clip_text(text: str) -> str:
    """Return as much of a text as the trajectory keeps."""
    if len(text) <= _MAX_LOGGED:
        return text
    return f"{text[:_MAX_LOGGED]}\n[... {len(text) - _MAX_LOGGED} characters ...]"


def _end_line(output: str) -> str:
    return output if not output or output.endswith("\n") else output + "\n"
