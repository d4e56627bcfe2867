"""What an executor returns for a rollout, whichever executor it is."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import RolloutCancelled
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["BackgroundHandle", "Handle", "Observer", "Phase", "PhaseName"]

PhaseName: TypeAlias = Literal["prepare", "run", "close"]


@dataclass
class Phase:
    """When a phase of a rollout began, and how long it took.

    Attributes:
        began: seconds since the epoch.
        seconds: wall time.
    """

    began: float
    seconds: float = 0.0


class Handle(Protocol):
    """A rollout in an executor's hands, asked phase by phase.

    Each method waits for its phase and returns what it came to, or raises what it raised; see
    :class:`~pytest_intercode.rollouts.rollout.Rollout`. A phase runs once, however often it is
    asked for.

    Attributes:
        spec: what the rollout is to do.
    """

    spec: RolloutSpec

    def agent(self) -> Agent:
        """Return the rollout's own agent."""

    def environment(self) -> Environment:
        """Return the rollout's own environment, after its reset."""

    def record(self, agent: Agent, environment: Environment) -> EpisodeRecord:
        """Return the record of an agent in an environment after its reset.

        Args:
            agent: the rollout's own, or another one where the executor runs it inline.
            environment: likewise.
        """

    def close(self) -> None:
        """Wait until the sandboxes are ended."""

    def cancel(self, reason: str) -> None:
        """End it, ungraded; does nothing to one that is over."""


class Observer(Protocol):
    """Is notified of what rollouts do, on the thread that runs them."""

    def preparing(self, handle: Handle, environment: Environment) -> None:
        """An environment was made, and is about to be reset."""
        return

    def prepared(self, handle: Handle, environment: Environment) -> None:
        """It was reset: its sandboxes are there."""
        return

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """There is a record; it is not returned to anybody yet."""

    def failed(self, handle: Handle, error: BaseException) -> None:
        """There is no record."""


class BackgroundHandle(Handle):
    """A handle of a rollout that runs without being asked; what it comes to is waited for.

    Attributes:
        phases: times, by phase; those that are known.
        asked: whether its record was asked for.
    """

    def __init__(self, spec: RolloutSpec) -> None:
        self.spec = spec
        self.phases: dict[PhaseName, Phase] = {}
        self.asked = False
        # Of the agent and the environment one may hear only that they were made, elsewhere.
        self._agent: Future[Any] = Future()
        self._environment: Future[Any] = Future()
        self._record: Future[EpisodeRecord] = Future()

    @property
    def result(self) -> EpisodeRecord | None:
        """The record if there is one already; it does not wait."""
        over = self._record.done() and self._record.exception() is None
        return self._record.result() if over else None

    @property
    def has_agent(self) -> bool:
        """Whether an agent was made."""
        return self._agent.done() and self._agent.exception() is None

    @property
    def running(self) -> bool:
        """Whether it has begun, and has neither record nor failure yet."""
        return bool(self.phases) and not self._record.done()

    @property
    def over(self) -> bool:
        """Whether its observer hears no more of it."""
        return self._record.done()

    @property
    def cancelled(self) -> bool:
        """Whether it has no record because it was cancelled, or has none yet."""
        return not self._record.done() or isinstance(self._record.exception(), RolloutCancelled)
