"""The fixtures: a task, its environment, an agent, and the episode of the three.

The environment starts in setup and the agent runs in call, so that a fault of Docker is an ERROR,
a miss of the agent is a FAILED, and ``--durations`` tells them apart. Imported with the plugin, so
nothing but pytest is imported here at the top.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_intercode.agents.protocol import Agent, AgentLike
    from pytest_intercode.core.record import EpisodeRecord
    from pytest_intercode.core.task import Task
    from pytest_intercode.core.turn import Turn
    from pytest_intercode.environments.base import Environment
    from pytest_intercode.plugin.job import EpisodeAhead

__all__ = [
    "PendingEpisode",
    "intercode_agent",
    "intercode_environment",
    "intercode_episode",
    "intercode_task",
]


@contextlib.contextmanager
def _one_line(session: pytest.Session | None = None) -> Iterator[None]:
    """Report a mistake of the user's as one line, without our traceback.

    Given a session that runs nothing but tasks, also end it: each would say the same again.
    """
    from pytest_intercode.errors import ConfigurationError
    from pytest_intercode.plugin.session import task_of

    problem = ""
    try:
        yield
    except ConfigurationError as error:
        problem = str(error)
    if problem:  # outside of the handler, or pytest would show the error twice
        if session is not None and all(task_of(item) for item in session.items):
            session.shouldstop = problem
        pytest.fail(problem, pytrace=False)


@contextlib.contextmanager
def _refusal_expected() -> Iterator[None]:
    """Expect the test to fail where the engine refuses the task's own gold."""
    from pytest_intercode.errors import GoldRefused

    refused = ""
    try:
        yield
    except GoldRefused as error:
        refused = str(error)
    if refused:
        raise pytest.xfail.Exception(refused, pytrace=False)


class PendingEpisode:
    """An episode that runs when it is first asked about, if it has not run ahead.

    ``run()`` runs it and returns its record; ``reward``, ``outcome`` and ``turns`` do so too and
    return the record's. It runs once.
    """

    def __init__(
        self, request: pytest.FixtureRequest, environment: Environment, agent: Agent, name: str
    ) -> None:
        self._request = request
        self._environment = environment
        self._agent = agent
        self._name = name
        self._episode: EpisodeRecord | None = None

    def run(self) -> EpisodeRecord:
        """Run the episode, unless it has run, and return its record.

        An episode that the infrastructure spoils is run once more, on a fresh sandbox and with a
        fresh agent.

        Raises:
            InfrastructureError: it was spoiled twice.
        """
        if self._episode is None:
            from pytest_intercode.errors import MissingProgram
            from pytest_intercode.plugin.reports import keep_episode

            try:
                self._episode = self._run()
            except MissingProgram as missing:
                pytest.skip(str(missing))
            keep_episode(self._request.node, self._episode)
            config = self._request.config
            config.hook.pytest_intercode_log_episode(config=config, episode=self._episode)
            if self._episode.solved:  # else the failing test shows it
                _warn(self._episode.left_behind)
        return self._episode

    @property
    def reward(self) -> float:
        """The reward, in [0, 1]."""
        return self.run().reward

    @property
    def outcome(self) -> str:
        """How the episode ended."""
        return self.run().outcome

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The trajectory."""
        return self.run().turns

    def play(self) -> EpisodeRecord:
        """Play the task yourself, in the terminal and on a fresh sandbox: ``pytest --pdb``.

        Returns:
            The record of your episode. The result of the test stays what it is.
        """
        from pytest_intercode.plugin.session import session_of
        from pytest_intercode.plugin.terminal import play

        assert self._environment.task is not None
        return play(session_of(self._request.config), self._environment.task)

    def _run(self) -> EpisodeRecord:
        from pytest_intercode.agents.protocol import QuitRun
        from pytest_intercode.plugin.session import session_of
        from pytest_intercode.rollouts.isolation import kept_apart
        from pytest_intercode.rollouts.rollout import play

        session = session_of(self._request.config)
        job = _ahead(self._request)
        if job is not None:
            job.taken = True
            episode = job.wait(job.episode)
        else:
            beside = session.ahead.apart(self) if session.ahead is not None else None
            try:
                episode = play(
                    session, self._environment, self._agent, self._name, beside or kept_apart()
                )
            except QuitRun as enough:
                pytest.exit(str(enough))
        if session.ahead is None or not session.ahead.pending:
            session.spending.stop_if_spent(self._request.session)
        return episode


def _ahead(request: pytest.FixtureRequest) -> EpisodeAhead | None:
    """Return the item's episode, if it runs ahead."""
    from pytest_intercode.plugin.session import session_of

    ahead = session_of(request.config).ahead
    return None if ahead is None else ahead.of(request.node)


def _warn(left_behind: tuple[str, ...]) -> None:
    if left_behind:
        import warnings

        from pytest_intercode.errors import LeftBehindWarning

        said = LeftBehindWarning(f"the agent left behind {'; '.join(left_behind)}")
        warnings.warn(said, stacklevel=3)


@pytest.fixture
def intercode_task(request: pytest.FixtureRequest) -> Task:
    """The task of this item, gold included."""
    if not hasattr(request, "param"):
        pytest.fail("no task: the test needs @pytest.mark.intercode(env=...)", pytrace=False)
    task: Task = request.param
    return task


@pytest.fixture
def intercode_environment(
    request: pytest.FixtureRequest, intercode_task: Task
) -> Iterator[Environment]:
    """The task's environment, after ``reset``, on a fresh sandbox; closed at the end."""
    from pytest_intercode.plugin.session import keep_task, session_of
    from pytest_intercode.rollouts.rollout import reset

    with _one_line():
        session = session_of(request.config)
    job = _ahead(request)
    if job is not None:
        keep_task(request.node, intercode_task)
        with _refusal_expected(), _one_line():
            environment = job.wait(job.environment)
        yield environment
        if job.taken and not job.halted:
            job.wait(job.closed)
        return
    with _one_line():
        environment = session.environment(intercode_task)
    spent = session.spending.stop_if_spent(request.session)
    if spent and getattr(request.node, "execution_count", 1) > 1:
        pytest.fail(f"no second try: {spent}", pytrace=False)  # the first one has failed
    elif spent:
        pytest.skip(spent)
    keep_task(request.node, intercode_task)
    try:
        session.look_ahead(request.node, environment, started=False)
        with _refusal_expected(), _one_line():
            reset(environment, intercode_task)
        session.look_ahead(request.node, environment, started=True)
        yield environment
    finally:
        environment.close()


@pytest.fixture
def intercode_agent(request: pytest.FixtureRequest, intercode_task: Task) -> AgentLike:
    """A fresh agent for this task; override it to test an object of your own making."""
    from pytest_intercode.agents.protocol import NoRecording
    from pytest_intercode.plugin.session import session_of

    job = _ahead(request)
    try:
        with _one_line(request.session):
            if job is not None:
                return job.wait(job.agent)
            return session_of(request.config).agent(intercode_task)
    except NoRecording as missing:
        pytest.skip(str(missing))


@pytest.fixture
def intercode_episode(
    request: pytest.FixtureRequest, intercode_agent: AgentLike, intercode_environment: Environment
) -> PendingEpisode:
    """The episode of this item's agent, task and environment; it runs when first asked about."""
    from pytest_intercode.agents.loader import adapt
    from pytest_intercode.plugin.session import session_of

    with _one_line():
        agent = adapt(intercode_agent)
    name = session_of(request.config).settings.agent or agent.name
    return PendingEpisode(request, intercode_environment, agent, name)
