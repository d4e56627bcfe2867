"""What an executor returns for a rollout, whichever executor it is."""

from __future__ import annotations

from typing import Protocol

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.base import Environment
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["Executor", "Handle", "Observer"]


class Handle(Protocol):
    """A rollout in an executor's hands, asked phase by phase.

    Each method waits for its phase and returns what it came to, or raises what it raised; see
    :class:`~pytest_intercode.rollouts.rollout.Rollout`. A phase runs once, however often it is
    asked for.
    """

    @property
    def spec(self) -> RolloutSpec:
        """What the rollout is to do."""

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

    def prepared(self, handle: Handle, environment: Environment) -> None:
        """It was reset: its sandboxes are there."""

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """There is a record; it is not returned to anybody yet."""

    def failed(self, handle: Handle, error: BaseException) -> None:
        """There is no record."""


class Executor(Protocol):
    """Runs rollouts, by its own rule of when and where."""

    def submit(self, spec: RolloutSpec) -> Handle:
        """Take a rollout."""
