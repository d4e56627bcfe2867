"""What an agent is, and the single interface through which the turn loop calls every agent.

Users write one of these, sync or async::

    class MyAgent:                          class MyAgent:
        def reset(self, task): ...              def run(self, task, env):
        def act(self, observation):                 observation, *_ = env.step("ls")
            return "ls"                             env.submit()
        def close(self): ...

    def my_agent(observation):              def my_agent(task, env):
        return "ls"                             env.step("ls")

``reset`` and ``close`` are optional. So is ``abort``, which is called from another thread when time
is up and ends whatever the agent is waiting for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.core.turn import Observation
from pytest_intercode.errors import AgentError

__all__ = [
    "Agent",
    "AgentFactory",
    "AgentLike",
    "LoopAgent",
    "NeverActed",
    "NoRecording",
    "QuitRun",
    "StepAgent",
]


class StepAgent(Protocol):
    """An agent that is asked for one action at a time.

    It may also have ``reset(task)``, ``close()`` and ``abort()``.
    """

    def act(self, observation: Observation, /) -> str | Awaitable[str]:
        """Return the next action; ``submit`` ends the episode.

        Args:
            observation: the result of the last action; on the first call, the query.
        """


class LoopAgent(Protocol):
    """An agent that drives its episode itself.

    It may also have ``close()`` and ``abort()``.
    """

    def run(self, task: TaskView, env: AgentEnvironment, /) -> object:
        """Play the episode; when it returns, or its coroutine ends, the episode is submitted.

        If the task has a user who answers, a returned string is the agent's message to the user.
        ``run`` is then called again with the reply as ``task.query``.

        Args:
            task: what the agent may know about its task.
            env: runs the agent's actions.
        """


def _nothing(*_: object) -> None:
    return None


@dataclass
class Agent:
    """One instance of an agent for one episode.

    The callables may be coroutine functions.

    Attributes:
        style: ``step`` if it is asked for one action at a time, ``loop`` if it drives the episode.
        act: takes an observation and returns an action (step style).
        run: takes the task and the environment and plays the episode (loop style).
        reset: called with the task before the first action (step style).
        close: called when the episode is over.
        name: the name to show if the user did not give it one.
        again: makes a new agent for the same task, for an episode that has to be run again.
        abort: ends whatever the agent is waiting for when its time is up; returns quickly, and may
            be called from another thread, at any moment and more than once.
        judges_gold: the agent exists to find out what gold does, so a failing gold is not an error.
        continues: it can continue with a user's reply: a string that ``run`` returns is its
            message, and ``run`` is called again, or it calls :meth:`AgentEnvironment.ask` itself.
        is_scripted: its actions are known beforehand (gold, a record), so it has no user.
        transports: the transports by which it can reach the MCP servers of its task, which it is
            told about; empty if it is not told about them.
    """

    style: Literal["step", "loop"]
    act: Callable[[Observation], object] = _nothing
    run: Callable[[TaskView, AgentEnvironment], object] = _nothing
    reset: Callable[[TaskView], object] = _nothing
    close: Callable[[], object] = _nothing
    name: str = ""
    again: Callable[[], Agent] | None = None
    abort: Callable[[], object] = _nothing
    judges_gold: bool = False
    continues: bool = False
    is_scripted: bool = False
    transports: frozenset[str] = frozenset()


class NoRecording(Exception):
    """The replayed recording has no episode that can be played for a task; the task is skipped."""


class NeverActed(AgentError):
    """A program never took part in its episode, so the user has to check how it is called.

    Adapters raise this even when the time is up: it is not an ordinary failure to solve a task.
    """


class QuitRun(Exception):
    """The user, who is the agent, ends the whole run; the episode does not count."""


AgentLike: TypeAlias = (
    Agent
    | StepAgent
    | LoopAgent
    | Callable[[Observation], "str | Awaitable[str]"]
    | Callable[[TaskView, AgentEnvironment], object]
)
"""What a hook or a fixture may return as an agent."""


@dataclass(frozen=True)
class AgentFactory:
    """Makes a fresh agent for each episode.

    Attributes:
        name: the agent as the user named it.
        make: makes an agent for a task. Only the oracle, which plays gold, reads more than
            ``task.view()``.
        feedback: ``reward`` for an agent that is designed to get rewards as feedback; it gets them
            unless ``--intercode-feedback`` overrides that.
        terminal: the agent uses the user's terminal.
        priced: False for an agent that reports tokens but no cost, so that money cannot be
            limited; None if that is not known.
        close: called once, when the run is over.
        readonly: folders of this machine that the agent's sandboxes, and so gold's, can read:
            pairs of a path here and a path inside the sandbox.
        scratch: folders in memory that these sandboxes have, and that are not graded.
        needs_shell: the agent plays only tasks whose actions are shell commands.
        programs: names of the programs in the sandbox that run the agent.
        make_with: makes an agent from keyword arguments, for a class that gets additional
            arguments for each episode; None for all others.
        uses_gateway: its agents reach models only through the gateway, so they can be recorded
            and replayed.
        version: the version of the program that it runs, as packages or as a digest; empty if it
            is not known.
        continues: whether its agents can continue with a user's reply; None for agents that have
            no user, and if that is not known.
        place: where a program runs and what acts in the sandbox, for the header of the run; empty
            if there is nothing to show.
    """

    name: str
    make: Callable[[Task], Agent]
    feedback: Literal["", "reward"] = ""
    terminal: bool = False
    priced: bool | None = None
    close: Callable[[], None] = lambda: None
    readonly: tuple[tuple[str, str], ...] = ()
    scratch: tuple[str, ...] = ()
    needs_shell: bool = False
    programs: frozenset[str] = frozenset()
    make_with: Callable[[Mapping[str, object]], Agent] | None = None
    uses_gateway: bool = False
    version: str = ""
    continues: bool | None = None
    place: str = ""
