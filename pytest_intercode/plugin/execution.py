"""Runs the rollouts of items: by default each in its item's turn, phase by phase.

Fixtures ask for an item's handle and never know which executor is behind it; with
``--intercode-concurrency`` :mod:`pytest_intercode.plugin.concurrency` takes this place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

import pytest

from pytest_intercode.agents.protocol import QuitRun
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import Budget, RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.plugin.order import ItemOrder
from pytest_intercode.plugin.resume import resumed_of
from pytest_intercode.plugin.run import Run, agent_of, run_of, spec_of, task_of
from pytest_intercode.plugin.terminal import check_terminal, lent_terminal
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.executor import Handle, Observer, PhaseName
from pytest_intercode.rollouts.inline import InlineExecutor
from pytest_intercode.rollouts.rollout import Rollout, Services, expect_sandboxes
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = [
    "Equip",
    "Execution",
    "InlineExecution",
    "handle_of",
    "new_handle",
    "play_yourself",
    "set_execution",
]

Equip: TypeAlias = Callable[[Environment], None]
"""Gives an environment what a test provides for it, such as fakes and answers."""

_EXECUTION = pytest.StashKey["Execution"]()
_HANDLE = pytest.StashKey[Handle]()
_LOOK_AHEAD = 2  # items, of two sandboxes each


class Execution(Protocol):
    """Gives items the handles of their rollouts."""

    def handle(self, item: pytest.Item, task: Task, equip: Equip | None = None) -> Handle:
        """Return the handle of an item whose turn it is.

        Args:
            item: the item.
            task: the task.
            equip: called with the environment before its reset; the rollout then runs inline.
        """

    def running(self) -> list[Handle]:
        """Return the rollouts that are running; may be called from any thread."""


def set_execution(config: pytest.Config, execution: Execution) -> None:
    """Set the execution that gives out the handles of this process, before the first item."""
    config.stash[_EXECUTION] = execution
    run_of(config).progress.handles = execution.running
    config.pluginmanager.register(execution, "intercode-execution")


def handle_of(item: pytest.Item, task: Task) -> Handle:
    """Return the handle of an item's rollout; all fixtures of one run of an item share it.

    Raises:
        ConfigurationError: an option is wrong.
    """
    if _HANDLE not in item.stash:
        item.stash[_HANDLE] = new_handle(item, task)
        item.addfinalizer(lambda: item.stash.__delitem__(_HANDLE))  # a rerun gets another
    return item.stash[_HANDLE]


def new_handle(item: pytest.Item, task: Task, equip: Equip | None = None) -> Handle:
    """Return the handle of a new rollout, in the turn of an item.

    Args:
        item: the item.
        task: the task.
        equip: called with the environment before its reset.

    Raises:
        ConfigurationError: an option is wrong.
    """
    if _EXECUTION not in item.config.stash:
        inline = InlineExecution(run_of(item.config), ItemOrder(item.config))
        set_execution(item.config, inline)
    return item.config.stash[_EXECUTION].handle(item, task, equip)


def play_yourself(run: Run, task: Task) -> EpisodeRecord:
    """Let the user play a task on a fresh sandbox, and show how it ended; no judge is asked.

    Raises:
        AgentLoadError: there is no terminal, or no line editor.
        QuitRun: the user quit.
    """
    from pytest_intercode.agents.human import make_factory

    check_terminal(run.config, "human")
    human = next((agent for agent in run.settings.agents if agent.name == "human"), None)
    arguments = human.arguments if human is not None else {}
    agent = make_factory("human", "", arguments, Path.cwd()).make(task)

    @contextlib.contextmanager
    def stage(environment: Environment) -> Iterator[Callable[[str], None]]:
        with lent_terminal(run.config, environment.action_timeout) as show:
            yield lambda line: show(f"{line} (your own; the test's result stays)")

    spec = replace(
        run.composition.spec(replace(task, judge=None)),
        agent="human",
        agent_arguments=arguments,
        timeout=None,
        budget=Budget(),
    )
    rollout = Rollout(
        spec, replace(run.composition.services, stage=stage, run_budget=RunBudget(RunLimits()))
    )
    try:
        environment = rollout.make_environment()
        rollout.prepare(environment)
        return rollout.run(agent, environment)
    except QuitRun:
        raise QuitRun("you quit; nothing was graded") from None
    finally:
        rollout.close()


class InlineExecution(Observer):
    """Runs rollouts in their items' turns, while the sandboxes of the next items start.

    Args:
        run: the run.
        order: knows which items are next.
        services: what rollouts work with; by default the run's.
        pending: returns whether other rollouts have begun that are still to be reported.
    """

    def __init__(
        self,
        run: Run,
        order: ItemOrder,
        services: Services | None = None,
        pending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._run = run
        self._order = order
        self._services = services or run.composition.services
        self._executor = InlineExecutor(self._services, self)
        self._pending = pending
        self._looked_ahead = False
        self._running: dict[Handle, None] = {}  # an ordered set

    def handle(self, item: pytest.Item, task: Task, equip: Equip | None = None) -> Handle:
        """Return a handle that runs each phase when it is asked for."""
        if self._order.current is not item:  # the first item: nothing needed the order before
            self._order.begin_turn(item)
        executor = self._executor
        if equip is not None:
            make = self._services.make_environment
            assert make is not None, "a run's services make environments"

            def make_equipped(spec: RolloutSpec) -> Environment:
                environment = make(spec)
                equip(environment)
                return environment

            executor = InlineExecutor(replace(self._services, make_environment=make_equipped), self)
        return executor.submit(spec_of(item, task))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Note whose turn it is."""
        self._order.begin_turn(item, nextitem)

    def running(self) -> list[Handle]:
        """Return the rollouts that are running; may be called from any thread."""
        return list(self._running)

    # -- what the executor notifies of

    def entering(self, handle: Handle, phase: PhaseName) -> None:
        """Note which rollouts are running."""
        if phase == "close":
            self._running.pop(handle, None)
        else:
            self._running[handle] = None

    def surrounding(self, handle: Handle) -> contextlib.AbstractContextManager[None]:
        """Show how far the run is while a phase takes long."""
        return self._run.progress.waiting()

    def preparing(self, handle: Handle, environment: Environment) -> None:
        """Begin no episode when the run's budget is used up."""
        item = self._order.current
        assert item is not None
        exhausted = self._run.workers.stop_if_exhausted(item.session)
        if exhausted and getattr(item, "execution_count", 1) > 1:
            pytest.fail(f"no second try: {exhausted}", pytrace=False)  # the first one has failed
        elif exhausted:
            pytest.skip(exhausted)
        if not self._looked_ahead:  # otherwise done while the previous rollout ran
            self._look_ahead(environment, started=False)

    def prepared(self, handle: Handle, environment: Environment) -> None:
        """Start the sandboxes of the next items, now that this item's are ready."""
        self._look_ahead(environment, started=True)

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """End the run if its budget is used up."""
        self._running.pop(handle, None)
        item = self._order.current
        assert item is not None
        if not self._pending():
            self._run.workers.stop_if_exhausted(item.session)

    def _look_ahead(self, environment: Environment, *, started: bool) -> None:
        """Start the sandboxes of the next items, and of the current one if not yet started."""
        composition = self._run.composition
        # If the environment has its own sandboxes, it is not known what other items will need.
        if not composition.provider.provides_for(environment) or self._pending():
            return
        self._looked_ahead = True
        following = [
            item
            for item in self._order.following(_LOOK_AHEAD)[started : started + _LOOK_AHEAD]
            if item.get_closest_marker("skip") is None
        ]
        resumed = resumed_of(self._run.config)
        if resumed is not None:
            following = [item for item in following if not resumed.has_result(item)]
        upcoming = [
            (task, composition.sandboxes(agent_of(item)))
            for item in following
            if (task := task_of(item)) is not None
        ]
        expect_sandboxes(composition.provider, upcoming, self._run.settings.profile)
