"""The inline executor: each phase runs in the thread that asks for it, at that moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeAlias

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.base import Environment
from pytest_intercode.rollouts.executors.handle import Observer
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["InlineExecutor", "InlineHandle"]


Surrounding: TypeAlias = "Callable[[], contextlib.AbstractContextManager[None]]"


class InlineHandle:
    """A rollout that runs as it is asked; it takes other agents and environments than its own."""

    def __init__(self, rollout: Rollout, observer: Observer | None, waiting: Surrounding) -> None:
        self.spec = rollout.spec
        self._waiting = waiting
        self._rollout = rollout
        self._observer = observer
        self._agent: Agent | None = None
        self._environment: Environment | None = None
        self._record: EpisodeRecord | None = None

    def agent(self) -> Agent:
        """Make the agent."""
        if self._agent is None:
            self._agent = self._rollout.make_agent()
        return self._agent

    def environment(self) -> Environment:
        """Make the environment and reset it."""
        if self._environment is None:
            made = self._rollout.make_environment()
            if self._observer is not None:
                self._observer.preparing(self, made)
            with self._waiting():
                self._rollout.prepare(made)
            if self._observer is not None:
                self._observer.prepared(self, made)
            self._environment = made
        return self._environment

    def record(self, agent: Agent, environment: Environment) -> EpisodeRecord:
        """Let the agent act in the environment."""
        if self._record is None:
            try:
                with self._waiting():
                    self._record = self._rollout.run(agent, environment)
            except BaseException as error:
                if self._observer is not None:
                    self._observer.failed(self, error)
                raise
            if self._observer is not None:
                self._observer.ended(self, self._record)
        return self._record

    def close(self) -> None:
        """End the sandboxes."""
        self._rollout.close()

    def cancel(self, reason: str) -> None:
        """End it from another thread."""
        self._rollout.cancel(reason)


class InlineExecutor:
    """Runs each phase of a rollout in the thread that asks for it.

    Args:
        services: what rollouts work with.
        observer: what is notified of them.
        waiting: returns what surrounds the phases that take long.
    """

    def __init__(
        self,
        services: Services,
        observer: Observer | None = None,
        waiting: Surrounding = contextlib.nullcontext,
    ) -> None:
        self._services = services
        self._observer = observer
        self._waiting = waiting

    def submit(self, spec: RolloutSpec) -> InlineHandle:
        """Take a rollout; nothing runs yet."""
        return InlineHandle(Rollout(spec, self._services), self._observer, self._waiting)
