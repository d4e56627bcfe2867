"""What an agent is, and the one interface through which the turn loop calls all of them.

Users write one of these, sync or async::

    class MyAgent:                          class MyAgent:
        def reset(self, task): ...              def run(self, task, env):
        def act(self, observation):                 observation, *_ = env.step("ls")
            return "ls"                             env.submit()
        def close(self): ...

    def my_agent(observation):              def my_agent(task, env):
        return "ls"                             env.step("ls")

``reset`` and ``close`` are optional, and so is ``abort``: it is called from another thread when
time is up, and ends what the agent waits for.
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
            observation: what the last action led to; first, the query.
        """


class LoopAgent(Protocol):
    """An agent that drives its episode itself.

    It may also have ``close()`` and ``abort()``.
    """

    def run(self, task: TaskView, env: AgentEnvironment, /) -> object:
        """Play the episode; returning, or the end of what is awaited, submits.

        Where the task has a user who answers, a text that it returns is its message to the user.
        With the reply as ``task.query`` it is called again.

        Args:
            task: what the agent may know of its task.
            env: takes its actions.
        """


def _nothing(*_: object) -> None:
    return None


@dataclass
class Agent:
    """One instance of an agent for one episode.

    The callables may be coroutine functions.

    Attributes:
        style: ``step`` is asked for one action at a time, ``loop`` drives the episode itself.
        act: observation to action (step style).
        run: task and environment to nothing (loop style).
        reset: called with the task before the first action (step style).
        close: called when the episode is over.
        name: shown where the user gave it no name.
        again: makes a new one for the same task, for an episode that has to be run again.
        abort: ends what the agent waits for when its time is up; returns quickly, and may be
            called from another thread, at any moment, also twice.
        judges_gold: it is there to find out what gold does, so that a gold that fails ends nothing.
        continues: it goes on with what a user replies: a text that ``run`` returns is its message,
            and ``run`` is called again, or it calls :meth:`AgentEnvironment.ask` itself.
        is_scripted: what it does is known beforehand (gold, a record), so that it has no user.
        transports: how it can speak to the MCP servers of its task, which it gets to know; empty
            where it does not.
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
    """The recording that is replayed has no episode that could be; the task is skipped."""


class NeverActed(AgentError):
    """A program never took part in its episode, and the user has to look at how it is called.

    Raised by adapters, also when the time is up: it is not an ordinary miss.
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
"""What a hook or a fixture may give as an agent."""


@dataclass(frozen=True)
class AgentFactory:
    """Makes a fresh agent for each episode.

    Attributes:
        name: the agent as the user named it.
        make: task to agent. Only the oracle, which plays gold, reads more than ``task.view()``.
        feedback: ``reward`` for an agent that is made for rewards as feedback; it gets them unless
            ``--intercode-feedback`` says otherwise.
        terminal: it uses the user's terminal.
        priced: False for an agent that reports tokens and no cost, so that money cannot be
            limited; None where that is not known.
        close: called once, when the run is over.
        readonly: folders of this machine that its sandboxes read, and so gold's: pairs of a path
            here and a path inside.
        scratch: folders in memory that they have, and that are not graded.
        needs_shell: it plays only where actions are commands of a shell.
        programs: names of programs in the sandbox that it is run by.
        make_with: keyword arguments to agent, for a class that is given more of them for each
            episode; None for all others.
        uses_gateway: its agents reach models through the gateway alone, so that they can be
            recorded and replayed.
        version: of the program that it runs, as packages or as a digest; empty where that is not
            known.
        continues: whether its agents go on with what a user replies; None for those that have no
            user, and where that is not known.
        place: where a program runs, and what acts in the sandbox, for the header of the run; empty
            where there is nothing to say.
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
