"""The fixtures: a task, its environment, an agent, and the episode of the three.

The environment starts in setup and the agent runs in call, so that a fault of Docker is an ERROR,
a miss of the agent is a FAILED, and ``--durations`` separates them. Imported with the plugin, so
only pytest and small modules are imported at the top.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_intercode.plugin.errors import one_line_errors

if TYPE_CHECKING:
    from pytest_intercode.agents.protocol import Agent, AgentLike
    from pytest_intercode.core.record import EpisodeRecord, Outcome
    from pytest_intercode.core.task import Task
    from pytest_intercode.core.turn import Turn
    from pytest_intercode.environments.base import Environment
    from pytest_intercode.plugin.project_tests import Project

__all__ = [
    "PendingEpisode",
    "intercode_agent",
    "intercode_environment",
    "intercode_episode",
    "intercode_project",
    "intercode_task",
]


@contextlib.contextmanager
def _skip_without_image() -> Iterator[None]:
    """Skip the test if its image is missing and another item reports that as its error."""
    from pytest_intercode.errors import ImageMissing

    try:
        yield
    except ImageMissing as missing:
        raise pytest.skip.Exception(str(missing)) from missing


@contextlib.contextmanager
def _expect_refusal() -> Iterator[None]:
    """Report an expected failure if the engine refuses the task's own gold."""
    from pytest_intercode.errors import GoldRefused

    try:
        yield
    except GoldRefused as error:
        raise pytest.xfail.Exception(str(error), pytrace=False) from None


class PendingEpisode:
    """An episode that runs on first use, unless it has already run before its item's turn.

    ``run()`` runs it and returns its record; ``reward``, ``outcome`` and ``turns`` also run it and
    return the record's values. It runs only once. If the agent ended in an error, ``reward`` and
    ``turns`` fail the test: what an agent did not do proves nothing if it crashed. ``outcome`` and
    ``run()`` do not fail the test.
    """

    def __init__(
        self,
        request: pytest.FixtureRequest,
        task: Task,
        agent: Agent,
        environment: Environment,
    ) -> None:
        self._request = request
        self._task = task
        self._agent = agent
        self._environment = environment
        self._record: EpisodeRecord | None = None

    def run(self) -> EpisodeRecord:
        """Run the episode, unless it has run, and return its record.

        The record is returned however the episode ended, even in an error of the agent. An episode
        that fails because of the infrastructure is run once more, with a fresh sandbox and a fresh
        agent.

        Raises:
            InfrastructureError: it failed twice.
            TaskError: the task's gold did not run to its end.
        """
        if self._record is None:
            from pytest_intercode.agents.protocol import QuitRun
            from pytest_intercode.errors import MissingProgram
            from pytest_intercode.plugin.execution import handle_of
            from pytest_intercode.plugin.hooks import Hooks
            from pytest_intercode.plugin.reports import keep_episode
            from pytest_intercode.plugin.timeouts import cancel_on_timeout

            item = self._request.node
            try:
                handle = handle_of(item, self._task)
                timer = cancel_on_timeout(item, handle, acting=True)
                with _skip_without_image(), one_line_errors(), timer:
                    self._record = handle.record(self._agent, self._environment)
            except MissingProgram as missing:
                pytest.skip(str(missing))
            except QuitRun as reason:
                pytest.exit(str(reason))
            keep_episode(item, self._record)
            with one_line_errors():
                Hooks(self._request.config).log_episode(self._task, self._record)
            if self._record.solved:  # otherwise the failing test shows it
                _warn(self._record.left_behind)
        return self._record

    @property
    def reward(self) -> float:
        """The reward; 1.0 means solved. Only in ``paper`` SQL it goes below 0, down to -1.

        Fails the test if the agent ended in an error.
        """
        return self._run_without_error().reward

    @property
    def outcome(self) -> Outcome:
        """How the episode ended."""
        return self.run().outcome

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The trajectory. Fails the test if the agent ended in an error."""
        return self._run_without_error().turns

    def _run_without_error(self) -> EpisodeRecord:
        record = self.run()
        if record.outcome == "agent-error":
            self._fail(
                record,
                " (to continue nevertheless, use intercode_episode.run(), whose record has reward "
                "and turns)",
            )
        return record

    def _fail(self, record: EpisodeRecord, hint: str = "") -> NoReturn:
        """Fail the test, and report how its episode ended."""
        __tracebackhide__ = True  # so that --pdb stops in the test
        from pytest_intercode.plugin.masking import headline_of

        pytest.fail(f"{headline_of(record, self._request.config)}{hint}", pytrace=False)

    def play(self) -> EpisodeRecord:
        """Play the task yourself, in the terminal and on a fresh sandbox: ``pytest --pdb``.

        Returns:
            The record of your episode. The result of the test does not change.
        """
        from pytest_intercode.plugin.execution import play_yourself
        from pytest_intercode.plugin.run import run_of

        return play_yourself(run_of(self._request.config), self._task)


def _warn(left_behind: tuple[str, ...]) -> None:
    if left_behind:
        import warnings

        from pytest_intercode.errors import LeftBehindWarning

        warning = LeftBehindWarning(f"the agent left things behind: {'; '.join(left_behind)}")
        warnings.warn(warning, stacklevel=3)


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
    from pytest_intercode.plugin.execution import handle_of
    from pytest_intercode.plugin.timeouts import cancel_on_timeout

    with one_line_errors():
        handle = handle_of(request.node, intercode_task)
    try:
        timer = cancel_on_timeout(request.node, handle, acting=False)
        with _skip_without_image(), _expect_refusal(), one_line_errors(), timer:
            environment = handle.environment()
        yield environment
    finally:
        with one_line_errors():
            handle.close()


@pytest.fixture
def intercode_agent(request: pytest.FixtureRequest, intercode_task: Task) -> AgentLike:
    """A fresh agent for this task; override it to test an object of your own making."""
    from pytest_intercode.agents.protocol import NoRecording
    from pytest_intercode.errors import NoAgent
    from pytest_intercode.plugin.arguments import names_tasks
    from pytest_intercode.plugin.execution import handle_of
    from pytest_intercode.plugin.reports import WITHOUT_AGENT

    try:
        with one_line_errors(request.session):
            try:
                return handle_of(request.node, intercode_task).agent()
            except NoAgent as missing:
                if names_tasks(request.config):
                    raise
                request.node.stash[WITHOUT_AGENT] = True
                raise pytest.skip.Exception(str(missing)) from None
    except NoRecording as missing:
        pytest.skip(str(missing))


@pytest.fixture
def intercode_episode(
    request: pytest.FixtureRequest,
    intercode_task: Task,
    intercode_agent: AgentLike,
    intercode_environment: Environment,
) -> PendingEpisode:
    """The episode of this item's agent, task and environment; it runs on first use."""
    from pytest_intercode.agents.loader import adapt

    with one_line_errors():
        agent = adapt(intercode_agent)
    return PendingEpisode(request, intercode_task, agent, intercode_environment)


@pytest.fixture
def intercode_project(request: pytest.FixtureRequest) -> Iterator[Project]:
    """Runs the agent of this item on prompts, in copies of a project: ``run(prompt)``."""
    from pytest_intercode.plugin.project_tests import Project, skip_without_agent

    with one_line_errors(request.session):
        project = Project(request, skip_without_agent(request))
    try:
        yield project
    finally:
        project.close()
