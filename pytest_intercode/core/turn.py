"""One turn of an episode: the observation that an agent gets, and the turn as it is recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from pytest_intercode.core.line import in_line
from pytest_intercode.core.usage import UNSPENT, Usage

__all__ = [
    "Command",
    "CommandResult",
    "Feedback",
    "Observation",
    "Profile",
    "SandboxInfo",
    "StepResult",
    "Turn",
]

Profile: TypeAlias = Literal["strict", "paper"]
Feedback: TypeAlias = Literal["observation", "reward"]
StepResult: TypeAlias = "tuple[Observation, float, bool, bool, dict[str, Any]]"
"""Observation, reward, terminated, truncated and a dictionary of facts, as in Gymnasium."""


class Observation(str):
    """The text that an agent sees after an action, with a few facts about it.

    Attributes:
        executed: whether the action ran and exited with status 0.
        status: its exit status, or None.
        reward: the reward of the state after it, if the run gives rewards as feedback.
        turns_left: how many actions the agent still has.
    """

    executed: bool
    status: int | None
    reward: float | None
    turns_left: int

    def __new__(
        cls,
        text: str,
        *,
        executed: bool = True,
        status: int | None = None,
        reward: float | None = None,
        turns_left: int = 0,
    ) -> Observation:
        """Make an observation."""
        observation = super().__new__(cls, text)
        observation.executed, observation.status = executed, status
        observation.reward, observation.turns_left = reward, turns_left
        return observation


class Command(NamedTuple):
    """A command of an agent's own shell, as ``AgentEnvironment.exec`` takes it.

    Attributes:
        text: the command.
        cwd: the directory in which it runs; empty for the task's.
        timeout: seconds after which it is killed; None for the timeout of an action.
        user: the user that runs it; empty for the user of the task's actions.
        counts_as_turn: whether it takes a turn, and its output is graded.
    """

    text: str
    cwd: str
    timeout: float | None
    user: str
    counts_as_turn: bool


class CommandResult(NamedTuple):
    """The result of a command of an agent's own shell, or of a test's check.

    It is true if the command succeeded, as in ``assert run.check("make test")``.

    Attributes:
        status: its exit status; None if it has none because it timed out or was stopped.
        output: stdout and stderr as one text, in true order, cut to the output limit.
    """

    status: int | None
    output: str

    def __bool__(self) -> bool:
        return self.status == 0


class SandboxInfo(NamedTuple):
    """The location of an agent's sandbox, for programs that access it directly.

    Attributes:
        backend: ``docker`` or ``bubblewrap``.
        name: the container's id, as the engine's commands take it; with bubblewrap, a name for
            messages.
    """

    backend: str
    name: str


@dataclass(frozen=True)
class Turn:
    """One turn of an episode as the trajectory records it.

    A line of a results file has one list per field, with an element for each turn.

    Attributes:
        action: the text that the agent sent.
        observation: the text that the agent got.
        executed: whether the action ran and exited with status 0; None in recordings without this.
        reward: the reward after it, 0.0 if the state was not graded.
        seconds: wall time in the sandbox.
        parts: the reward's parts, if the state was graded.
        passed: whether nothing was run because the agent sent no action; the observation says so.
        thought: the agent's thought before it.
        log: the output of the agent in addition to the action.
        usage: the agent's usage for this turn.
        agent_seconds: wall time that the agent took before it.
        answer: the submitted answer, if the action's text does not contain it exactly.
        tool: the agent's own tool that it called, by the name that the model uses; empty for an
            action through the environment. The action is then a shell's command, or for another
            tool ``NAME(ARGUMENTS)`` with the arguments in JSON.
        status: the exit status of the command; None if that is not known.
        model_calls: the numbers of the requests to a model that led to it, among the record's
            ``model_calls``; empty if no tokens were kept.
    """

    action: str = field(metadata=in_line("turn_history.actions", printed=True))
    observation: str = field(metadata=in_line("turn_history.observations", printed=True))
    executed: bool | None = field(metadata=in_line("turn_history.valid_action"))
    reward: float = field(default=0.0, metadata=in_line("turn_history.rewards"))
    seconds: float = field(default=0.0, metadata=in_line("turn_seconds", digits=4))
    parts: Mapping[str, float] = field(default_factory=dict, metadata=in_line("turn_parts"))
    passed: bool = field(default=False, metadata=in_line("turn_passed"))
    thought: str = field(
        default="", metadata=in_line("turn_history.thoughts", optional=True, printed=True)
    )
    log: str = field(default="", metadata=in_line("turn_logs", optional=True, printed=True))
    usage: Usage = field(default=UNSPENT, metadata=in_line("turn_usage", optional=True))
    agent_seconds: float = field(default=0.0, metadata=in_line("turn_agent_seconds", digits=4))
    answer: str | None = field(default=None, metadata=in_line("turn_answers", printed=True))
    tool: str = field(default="", metadata=in_line("turn_tools", optional=True, printed=True))
    status: int | None = field(default=None, metadata=in_line("turn_status"))
    model_calls: tuple[int, ...] = field(
        default=(), metadata=in_line("turn_model_calls", optional=True)
    )

    @property
    def arguments(self) -> Mapping[str, Any] | None:
        """The arguments of a call of the agent's own tool; None for a shell, and without a tool.

        They are parsed from the action, so that a record stores each text once. For a tool that
        takes a text instead of an object, the text is ``input``.
        """
        if not self.tool or not self.action.startswith(f"{self.tool}("):
            return None
        try:
            value = json.loads(self.action[len(self.tool) + 1 : -1])
        except (ValueError, RecursionError):  # a shell command, or a trajectory that was cut
            return None
        return value if isinstance(value, dict) else {"input": value}
