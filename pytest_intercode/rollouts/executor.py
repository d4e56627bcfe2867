"""The common interface of executors: they take specs, return handles, and notify one observer.

A fixture, a stream and a node use a :class:`Handle` and do not know who runs the rollout: the
calling thread (:mod:`~pytest_intercode.rollouts.inline`), a few threads of this process
(:mod:`~pytest_intercode.rollouts.threads`), or the nodes of a cluster.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.status import EpisodeStatus
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import RolloutCancelled
from pytest_intercode.rollouts.rollout import Rollout
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["BackgroundExecutor", "Executor", "Handle", "Observer", "Phase", "PhaseName", "timed"]

Result = TypeVar("Result")
PhaseName: TypeAlias = Literal["prepare", "run", "close"]


@dataclass
class Phase:
    """The start and the duration of a rollout's phase.

    Attributes:
        began: seconds since the epoch.
        seconds: wall time.
    """

    began: float
    seconds: float = 0.0


class Executor(Protocol):
    """Runs rollouts. A handle passes requests to its executor."""

    def submit(self, spec: RolloutSpec) -> Handle:
        """Accept a rollout."""

    def wait(self, handle: Handle, future: Future[Result]) -> Result:
        """Return the result of one of a handle's futures; called on the thread that asks for it."""

    def cancel(self, handle: Handle, reason: str) -> None:
        """End a rollout without grading it; does nothing if it is over."""


class BackgroundExecutor(Executor, Protocol):
    """Runs rollouts without being asked for their results."""

    @property
    def lock(self) -> contextlib.AbstractContextManager[Any]:
        """Held while it asks for more rollouts; guards the owner's state about them."""

    def wake(self) -> None:
        """Check whether a rollout can begin."""

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait, with :attr:`lock` held, until a condition holds or nothing more begins."""

    def stop(self) -> None:
        """Begin no more rollouts; running ones go on."""

    def join(self, timeout: float) -> bool:
        """Wait for running rollouts, after :meth:`stop`; return whether all have ended."""


class Observer:
    """Is notified of events of rollouts, on the thread that runs them.

    A rollout on a cluster has no environment here, so only its results and output are notified.
    """

    def surrounding(self, handle: Handle) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which the rollout's thread works."""
        return contextlib.nullcontext()

    def entering(self, handle: Handle, phase: PhaseName) -> None:
        """A phase begins."""

    def preparing(self, handle: Handle, environment: Environment) -> None:
        """An environment was made, and is about to be reset."""

    def prepared(self, handle: Handle, environment: Environment) -> None:
        """The environment was reset, so its sandboxes are running."""

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """The rollout has a record, which has not been returned to anybody yet."""

    def failed(self, handle: Handle, error: BaseException) -> None:
        """The rollout failed without a record."""

    def printed(self, handle: Handle, pieces: list[Any]) -> None:
        """A rollout produced this output on its node; see ``rollouts/output.py``."""

    def wait(self, handle: Handle, future: Future[Result]) -> Result:
        """Return a future's result to the thread that asked the handle for it."""
        return future.result()


class Handle:
    """A rollout that an executor runs, with access to each phase.

    Each method waits for its phase and returns its result, or raises the error of the phase; see
    :class:`~pytest_intercode.rollouts.rollout.Rollout`. A phase runs once, however often it is
    asked for.

    Args:
        spec: the specification of the rollout.
        executor: the executor that runs it.
        rollout: the rollout, if this process runs it.

    Attributes:
        spec: the same.
        rollout: the same.
        phases: times by phase, as far as known, by the clock of the machine that ran it.
        node_turns: how many turns it has taken on a node, as far as the node has reported.
        asked: whether its record was asked for.
        actors: the agent and the environment for which its record was asked.
        made_agent: the agent, set by the executor.
        reset_environment: the environment after its reset, set by the executor.
        recorded: the record, set by the executor.
        closed: done when its sandboxes have ended.
    """

    def __init__(self, spec: RolloutSpec, executor: Executor, rollout: Rollout | None) -> None:
        self.spec = spec
        self.rollout = rollout
        self.phases: dict[PhaseName, Phase] = {}
        self.node_turns = 0
        self.asked = False
        self.actors: tuple[Agent, Environment] | None = None
        self.made_agent: Future[Agent] = Future()
        self.reset_environment: Future[Environment] = Future()
        self.recorded: Future[EpisodeRecord] = Future()
        self.closed: Future[None] = Future()
        self._executor = executor

    def agent(self) -> Agent:
        """Return the rollout's own agent; on a cluster a substitute that does not act."""
        return self._executor.wait(self, self.made_agent)

    def environment(self) -> Environment:
        """Return the rollout's own environment, after its reset; on a cluster a substitute."""
        return self._executor.wait(self, self.reset_environment)

    def record(self, agent: Agent, environment: Environment) -> EpisodeRecord:
        """Return the record of an agent in an environment after its reset.

        Args:
            agent: the rollout's own agent, or another one if the calling thread runs the rollout.
            environment: likewise.
        """
        self.asked = True
        self.actors = agent, environment
        return self._executor.wait(self, self.recorded)

    def close(self) -> None:
        """Wait until the sandboxes are ended."""
        self._executor.wait(self, self.closed)

    def cancel(self, reason: str) -> None:
        """End it without grading; does nothing if it is over."""
        self._executor.cancel(self, reason)

    def stop(self, reason: str) -> bool:
        """End it at the user's request, with a record; False if it cannot, as it is on a node."""
        if self.rollout is not None:
            self.rollout.stop(reason)
        return self.rollout is not None

    # -- its state, without waiting

    @property
    def result(self) -> EpisodeRecord | None:
        """The record, if there is one already."""
        has_result = self.recorded.done() and self.recorded.exception() is None
        return self.recorded.result() if has_result else None

    @property
    def has_agent(self) -> bool:
        """Whether an agent was made."""
        return self.made_agent.done() and self.made_agent.exception() is None

    @property
    def running(self) -> bool:
        """Whether it has begun, and has neither record nor failure yet."""
        return bool(self.phases) and not self.recorded.done()

    @property
    def over(self) -> bool:
        """Whether it is over: its observer is not notified of it any more."""
        return self.recorded.done() and self.closed.done()

    def when_over(self, action: Callable[[], object]) -> None:
        """Call a function once it is :attr:`over`: immediately, or on the thread that ends it.

        Args:
            action: the function, which must be fast and must not need a lock.
        """
        self.recorded.add_done_callback(lambda _: self.closed.add_done_callback(lambda _: action()))

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled and so has no record, or does not have one yet."""
        return not self.recorded.done() or isinstance(self.recorded.exception(), RolloutCancelled)

    def status(self, *, whole: bool = True) -> EpisodeStatus:
        """Return its current status; may be called from any thread; see :meth:`Rollout.status`."""
        rollout = self.rollout
        if rollout is None:
            status = replace(self.spec.status(), turns=self.node_turns)
        else:
            status = rollout.status(whole=whole)
        phases = [*self.phases.values()]  # a copy, because its own thread may add one
        began = min((phase.began for phase in phases), default=time.time())
        return replace(status, seconds=max(0.0, time.time() - began))

    def fail(self, error: BaseException) -> None:
        """Make all futures that are not done raise an error; called by the executor."""
        for future in (self.made_agent, self.reset_environment, self.recorded):
            if not future.done():
                future.set_exception(error)


@contextlib.contextmanager
def timed(handle: Handle, observer: Observer, name: PhaseName) -> Iterator[None]:
    """Time a phase of a rollout, which the current thread runs in this context."""
    phase = handle.phases[name] = Phase(time.time())
    observer.entering(handle, name)
    began = time.monotonic()
    try:
        yield
    finally:
        phase.seconds = time.monotonic() - began
