"""One episode that runs ahead of its item's turn, on a thread of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pytest_intercode.agents.loader import adapt
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.ahead.output import Output
from pytest_intercode.environments.base import Environment
from pytest_intercode.episode import Episode, Halt
from pytest_intercode.errors import EpisodeHalted
from pytest_intercode.isolation import Commons
from pytest_intercode.rollout import play, reset

if TYPE_CHECKING:
    from pytest_intercode.session import IntercodeSession
    from pytest_intercode.suites.task import Task

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


@dataclass
class EpisodeAhead:
    """An episode from the making of its agent to the end of its sandboxes.

    What it comes to, or what it raises, is in three futures, as the fixtures ask for it: the
    agent, the environment after its reset, and the record.

    Attributes:
        session: the run.
        task: the task.
        commons: keeps the process as it is while episodes are played.
        about_to_start: called with the environment before its reset.
        about_to_end: called with the record before anybody else has it; returns its row.
        agent: the agent.
        environment: the environment, on which nothing more can be done: it is closed as soon as
            the episode is over.
        episode: the record.
        phases: times, by pytest's names for the phases of an item.
        waited: seconds that pytest waited for it in its item's turn, by the same names.
        output: what it printed.
        row: the record as it goes into the results file, once there is one.
        taken: its item has had its turn, and asked for the record.
    """

    session: IntercodeSession
    task: Task
    commons: Commons
    about_to_start: Callable[[Environment], None]
    about_to_end: Callable[[Episode], dict[str, Any]]
    agent: Future[Agent] = field(default_factory=Future)
    environment: Future[Environment] = field(default_factory=Future)
    episode: Future[Episode] = field(default_factory=Future)
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
                    agent = self._settle(self.agent, self._make_agent)
                    environment = self._make_environment()
                    self.about_to_start(environment)
                    self._settle(self.environment, lambda: self._started(environment))
                with self._timed("call"):
                    self._settle(self.episode, lambda: self._play(environment, agent))
            except BaseException as error:
                for future in (self.agent, self.environment, self.episode):
                    if not future.done():
                        future.set_exception(error)
            finally:
                with self._timed("teardown"), contextlib.suppress(Exception):
                    if environment is not None:
                        environment.close()

    @property
    def began(self) -> bool:
        """Whether it has begun."""
        return bool(self.phases)

    def halt(self, reason: str) -> None:
        """End it, ungraded; does nothing to one that is over."""
        self._halt.halt(reason)

    def _settle(self, future: Future[Result], make: Callable[[], Result]) -> Result:
        """Put what is made, or what that raises, into a future."""
        if self._halt.reason:
            raise EpisodeHalted(self._halt.reason)
        made = make()
        future.set_result(made)
        return made

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
        return adapt(self.session.agent(self.task))

    def _make_environment(self) -> Environment:
        if self._halt.reason:
            raise EpisodeHalted(self._halt.reason)
        return self.session.environment(self.task)

    def _started(self, environment: Any) -> Environment:
        reset(environment, self.task)
        started: Environment = environment
        return started

    def _play(self, environment: Any, agent: Agent) -> Episode:
        name = self.session.settings.agent or agent.name
        apart = self.commons.episode(self.output)
        episode = play(self.session, environment, agent, name, apart, self._halt)
        self.row = self.about_to_end(episode)
        return episode
