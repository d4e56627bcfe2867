"""The turn loop: one agent on one task in one environment, within its budgets, to a record.

The agent runs on a thread of its own, so that one that never answers can be left behind; the
calling thread waits, and so hears Ctrl-C. Nothing here imports pytest or knows a backend.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.environments.base import Environment, Observation, StepResult, Turn
from pytest_intercode.errors import AgentError, BudgetExhausted, InfrastructureError
from pytest_intercode.rewards.protocol import Reward
from pytest_intercode.suites.task import Task, TaskView

__all__ = ["AgentEnvironment", "Episode", "Outcome", "run_episode"]

Outcome: TypeAlias = Literal[
    "solved", "failed", "out-of-budget", "timed-out", "agent-error", "infrastructure-error"
]

_GRACE = 10.0  # seconds for an action to be stopped
_REFUSALS = 5
_TRACEBACK_LINES = 12


@dataclass
class Episode:
    """The record of one episode.

    Attributes:
        task: the task.
        outcome: how it ended.
        reward: the graded reward, in [0, 1]; 0.0 where nothing could be graded.
        turns: the trajectory.
        max_turns: the budget.
        seconds: wall time of the agent's part.
        profile: the profile it was graded under.
        agent: the agent as it was named.
        parts: the reward's parts.
        reason: what was wrong, in a few words; empty when solved.
        detail: a traceback of the agent, or the end of a build's log; empty otherwise.
        attempts: reasons of earlier attempts that the infrastructure spoiled.
        state: both end states, for grading again.
    """

    task: Task
    outcome: Outcome
    reward: float
    turns: list[Turn]
    max_turns: int
    seconds: float
    profile: str
    agent: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    detail: str = ""
    attempts: list[str] = field(default_factory=list)
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def solved(self) -> bool:
        """Whether the reward reached 1.0 and the agent ended well."""
        return self.outcome == "solved"

    @property
    def headline(self) -> str:
        """One line that says how it ended, for a failing test."""
        if self.outcome == "solved":
            return f"reward {self.reward:.2f} after {len(self.turns)}/{self.max_turns} turns"
        why = f": {self.reason}" if self.reason else ""
        turns = f"after {len(self.turns)}/{self.max_turns} turns"
        if self.outcome == "agent-error":
            return f"agent error {turns}{why}"
        if self.outcome == "infrastructure-error":
            return f"infrastructure error{why}"
        how = {
            "out-of-budget": ", budget exhausted",
            "timed-out": f", timed out after {self.seconds:.0f} s",
        }.get(self.outcome, "")
        return f"reward {self.reward:.2f} < 1.00 {turns}{how}{why}"


class AgentEnvironment:
    """What a loop-style agent gets: the episode's ``step`` and ``submit``, and nothing else."""

    __slots__ = ("_step", "_submit", "task")

    task: TaskView

    def __init__(
        self, task: TaskView, step: Callable[[str], StepResult], submit: Callable[[str], StepResult]
    ) -> None:
        self.task = task
        self._step = step
        self._submit = submit

    def step(self, action: str) -> StepResult:
        """Run one action.

        Returns:
            ``observation, reward, terminated, truncated, info``; the reward is 0.0 until the
            episode ends, unless the run gives rewards as feedback.

        Raises:
            BudgetExhausted: the episode is over.
        """
        return self._step(action)

    def submit(self, answer: str = "") -> StepResult:
        """End the episode; an ``answer`` is graded in place of the last output."""
        return self._submit(answer)


class _CalledOff(BaseException):
    """Leaves an agent whose time is up, past its own ``except Exception``."""


class _Run:
    """One agent at work; lives on the agent's thread, and is watched from another."""

    def __init__(self, agent: Agent, environment: Environment, first: Observation) -> None:
        self.agent = agent
        self.environment = environment
        self.first = first
        self.failure: BaseException | None = None
        self.done = threading.Event()
        self.deadline_passed = False
        self.in_environment = False
        self._refused = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> None:
        try:
            self._play()
        except _CalledOff:
            pass
        except BaseException as error:  # an agent's sys.exit must not end our thread unseen
            if not (isinstance(error, BudgetExhausted) and self.environment.over):
                self.failure = error
        finally:
            try:
                self._close_loop()
            finally:
                self.done.set()

    def _play(self) -> None:
        task = self.environment.task
        assert task is not None
        view = task.view(self.environment.max_turns)
        try:
            if self.agent.style == "loop":
                loop_environment = AgentEnvironment(view, self._step, self._submit)
                self._await(self.agent.run(view, loop_environment))
                return
            self._await(self.agent.reset(view))
            observation = self.first
            while not self.environment.over and not self.deadline_passed:
                action = self._await(self.agent.act(observation))
                if not isinstance(action, str):
                    raise AgentError(
                        f"act() returned {_named(action)} on turn "
                        f"{len(self.environment.turns) + 1}; an action is a str, and 'submit' ends "
                        "the episode"
                    )
                observation = self._step(action)[0]
        finally:
            self._await(self.agent.close())

    def _await(self, value: Any) -> Any:
        """Finish what an async agent returned, on one event loop for the whole episode."""
        if not inspect.isawaitable(value):
            return value
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(_finish(value))

    def _close_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:  # gathering nothing would ask for a loop that this thread has not
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _step(self, action: str) -> StepResult:
        self._check()
        if not isinstance(action, str):
            raise AgentError(f"env.step() was called with {_named(action)}; an action is a str")
        return self._counted(lambda: self.environment.step(action))

    def _submit(self, answer: str = "") -> StepResult:
        self._check()
        if not isinstance(answer, str):
            raise AgentError(f"env.submit() was called with {_named(answer)}; an answer is a str")
        return self._counted(lambda: self.environment.submit(answer))

    def _counted(self, act: Callable[[], StepResult]) -> StepResult:
        self.in_environment = True
        try:
            return act()
        except BudgetExhausted:
            self._refused += 1
            if self._refused > _REFUSALS:
                raise _CalledOff from None  # it swallows the exception and would go on for ever
            raise
        finally:
            self.in_environment = False

    def _check(self) -> None:
        if self.deadline_passed:
            raise _CalledOff


async def _finish(value: Awaitable[Any]) -> Any:
    return await value


def _named(value: object) -> str:
    return "None" if value is None else f"{value!r:.60} ({type(value).__name__})"


def run_episode(
    agent: Agent,
    environment: Environment,
    first: Observation,
    *,
    timeout: float | None = None,
) -> Episode:
    """Let an agent act in an environment that was just reset, and grade what it leaves.

    Args:
        agent: the agent.
        environment: an environment after :meth:`Environment.reset`.
        first: the observation that the reset returned.
        timeout: seconds that the agent has for the whole episode; None for no limit.

    Returns:
        The record, whatever the agent did.

    Raises:
        InfrastructureError: the sandbox broke; nothing can be said of the agent.
    """
    task = environment.task
    assert task is not None
    run = _Run(agent, environment, first)
    context = copy_context()
    thread = threading.Thread(
        target=lambda: context.run(run), name=f"intercode-agent-{task.id}", daemon=True
    )
    began = time.monotonic()
    thread.start()
    try:
        timed_out = not run.done.wait(timeout)
    except BaseException:
        run.deadline_passed = True
        environment.call_off("interrupted")
        raise
    if timed_out:
        run.deadline_passed = True
        environment.call_off("timed out")
        until = time.monotonic() + _GRACE
        while run.in_environment and time.monotonic() < until and not run.done.wait(0.02):
            pass  # the action that runs is being stopped
    seconds = time.monotonic() - began
    if isinstance(run.failure, InfrastructureError):
        raise run.failure
    graded = environment.end("stopped")
    outcome, reason, detail = _judge(graded, environment, run.failure, timed_out)
    return Episode(
        task=task,
        outcome=outcome,
        reward=graded.value,
        turns=list(environment.turns),
        max_turns=environment.max_turns,
        seconds=seconds,
        profile=environment.profile,
        parts=dict(graded.parts),
        reason=reason,
        detail=detail,
        state=environment.end_state(),
    )


def _judge(
    graded: Reward, environment: Environment, failure: BaseException | None, timed_out: bool
) -> tuple[Outcome, str, str]:
    """Name the outcome, and say why in a few words and at length."""
    if failure is not None:
        if isinstance(failure, AgentError):
            return "agent-error", str(failure), ""
        said = " ".join(str(failure).split())
        reason = f"{type(failure).__name__}: {said}" if said else type(failure).__name__
        return "agent-error", reason[:300], _short_traceback(failure)
    if graded.value >= 1.0:
        return "solved", "", ""
    if timed_out:
        return "timed-out", graded.reason, ""
    if environment.over == "budget":
        return "out-of-budget", graded.reason, ""
    return "failed", graded.reason, ""


def _short_traceback(failure: BaseException) -> str:
    """Return the agent's own frames; ours only say how it was called."""
    frames = traceback.extract_tb(failure.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(_OWN_FOLDER)] or frames
    lines = traceback.format_list(theirs)[-_TRACEBACK_LINES:]
    with contextlib.suppress(Exception):
        lines += traceback.format_exception_only(failure)
    return "".join(lines).rstrip()


_OWN_FOLDER = __file__.rpartition("/")[0] + "/"
