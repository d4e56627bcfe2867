"""One episode that runs ahead of its item's turn, on a thread of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from pytest_intercode.agents.loader import adapt
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import EpisodeHalted
from pytest_intercode.plugin.output import Output
from pytest_intercode.rollouts.episode import Halt
from pytest_intercode.rollouts.isolation import Commons
from pytest_intercode.rollouts.rollout import play, reset

if TYPE_CHECKING:
    import pytest

    from pytest_intercode.core.task import Task
    from pytest_intercode.plugin.session import IntercodeSession

__all__ = ["EpisodeAhead", "Phase"]

Result = TypeVar("Result")
When = Literal["setup", "call", "teardown"]


@dataclass
class Phase:
    """When a phase of an episode began and how long it took.

    Attributes:
        began: seconds since the epoch.
        seconds: wall time.
    """

    began: float
    seconds: float = 0.0


class Run(Protocol):
    """Who is told how an episode goes on, on its own thread, and waits for it in the main one."""

    def wait(self, job: EpisodeAhead, future: Future[Result]) -> Result:
        """Return what it comes to, or raise what it raises."""

    def starting(self, environment: Environment) -> None:
        """Hear that an environment is about to be reset."""

    def ending(self, item: pytest.Item, episode: EpisodeRecord) -> dict[str, Any]:
        """Take a record before anybody else has it, and return its row."""

    def failed(self, error: BaseException, *, at_once: bool) -> None:
        """Hear that there is no record; ``at_once`` if there was not even an agent."""


@dataclass(eq=False)
class EpisodeAhead:
    """An episode from the making of its agent to the end of its sandboxes.

    What it comes to, or what it raises, is in four futures, as the fixtures ask for it: the
    agent, the environment after its reset, the record, and the end of the sandboxes.

    Attributes:
        session: the run.
        task: the task.
        item: its item.
        commons: keeps the process as it is while episodes are played.
        run: who is told how it goes on.
        agent: the agent.
        environment: the environment, on which nothing more can be done: it is closed as soon as
            the episode is over.
        episode: the record.
        closed: set when the environment is closed.
        phases: times, by pytest's names for the phases of an item.
        waited: seconds that pytest waited for it in its item's turn, by the same names.
        output: what it printed.
        row: the record as it goes into the results file, once there is one.
        taken: its item has had its turn, and asked for the record.
    """

    session: IntercodeSession
    task: Task
    item: pytest.Item
    commons: Commons
    run: Run
    agent: Future[Agent] = field(default_factory=Future)
    environment: Future[Environment] = field(default_factory=Future)
    episode: Future[EpisodeRecord] = field(default_factory=Future)
    closed: Future[None] = field(default_factory=Future)
    phases: dict[str, Phase] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    output: Output = field(default_factory=Output)
    row: dict[str, Any] = field(default_factory=dict)
    taken: bool = False
    _halt: Halt = field(default_factory=Halt)

    def __call__(self) -> None:
        """Run it; raises nothing."""
        with self.output.receiving():
            environment: Environment | None = None
            try:
                with self._timed("setup"):
                    agent = self._make_agent()
                    self.agent.set_result(agent)
                    environment = self._make_environment()
                    self.run.starting(environment)
                    reset(environment, self.task)
                self.environment.set_result(environment)
                with self._timed("call"):
                    episode = self._play(environment, agent)
                    self.row = self.run.ending(self.item, episode)
                self.episode.set_result(episode)
            except BaseException as error:
                self.run.failed(error, at_once=not self.agent.done())
                for future in (self.agent, self.environment, self.episode):
                    if not future.done():
                        future.set_exception(error)
            self._close(environment)

    @property
    def halted(self) -> bool:
        """Whether it was ended, and has no record."""
        return not self.episode.done() or isinstance(self.episode.exception(), EpisodeHalted)

    @property
    def began(self) -> bool:
        """Whether it has begun."""
        return bool(self.phases)

    def wait(self, future: Future[Result]) -> Result:
        """Return one of the futures' result in its item's turn, or raise what that raises."""
        return self.run.wait(self, future)

    def halt(self, reason: str) -> None:
        """End it, ungraded; does nothing to one that is over."""
        self._halt.halt(reason)

    def _check(self) -> None:
        if self._halt.reason:
            raise EpisodeHalted(self._halt.reason)

    def _close(self, environment: Environment | None) -> None:
        try:
            with self._timed("teardown"):
                if environment is not None:
                    environment.close()
        except BaseException as error:
            self.closed.set_exception(error)
        else:
            self.closed.set_result(None)

    @contextlib.contextmanager
    def _timed(self, when: When) -> Iterator[None]:
        phase = self.phases[when] = Phase(time.time())
        self.output.phase = when
        began = time.monotonic()
        try:
            yield
        finally:
            phase.seconds = time.monotonic() - began

    def _make_agent(self) -> Agent:
        self._check()
        return adapt(self.session.agent(self.task))

    def _make_environment(self) -> Environment:
        self._check()
        return self.session.environment(self.task)

    def _play(self, environment: Environment, agent: Agent) -> EpisodeRecord:
        name = self.session.settings.agent or agent.name
        apart = self.commons.episode(self.output)
        return play(self.session, environment, agent, name, apart, self._halt)
