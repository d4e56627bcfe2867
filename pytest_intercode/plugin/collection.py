"""Suites as pytest modules: one packaged test function, parametrized with the suite's tasks.

A suite is a module whose Python object is :mod:`pytest_intercode.plugin.items`, so that fixtures,
marks, reruns, JUnit and every other plugin work on its items as on any others.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from types import ModuleType
from typing import Any

import pytest

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import escape_for_terminal, one_line
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.plugin.marks import make_agent_marks, make_mark, may_be_mark
from pytest_intercode.plugin.order import OUR_FIXTURES
from pytest_intercode.plugin.run import SUITE_TASKS, Run, agent_choices, run_of
from pytest_intercode.plugin.workarounds import show_root_fixtures
from pytest_intercode.results.cells import make_cell

__all__ = ["BundledSuites", "Suite", "parametrize"]


class Suite(pytest.Module):
    """A suite of tasks: a user's file, or a bundled suite, which has no file in the project."""

    env: str | None = None

    @classmethod
    def bundled(cls, session: pytest.Session, env: str) -> Suite:
        """Return the suite of an environment, with the node id ``intercode/ENV``."""
        path = session.config.rootpath / "intercode" / env
        suite: Suite = cls.from_parent(session, path=path, nodeid=f"intercode/{env}")
        suite.env = env
        return suite

    def _getobj(self) -> ModuleType:
        try:
            audit = run_of(self.config).settings.audit
        except ConfigurationError as error:
            raise self.CollectError(escape_for_terminal(str(error))) from None
        if audit:
            from pytest_intercode.plugin import audit_items

            return audit_items
        from pytest_intercode.plugin import items

        return items

    def funcnamefilter(self, name: str) -> bool:
        """Accept our function, whatever the user's ``python_functions`` is."""
        return name.startswith("test_")

    def tasks(self) -> list[Task]:
        """Return the suite's tasks.

        Raises:
            ConfigurationError: the file is not a suite.
        """
        selection = run_of(self.config).tasks
        tasks = selection.file(self.path) if self.env is None else selection.bundled()[self.env]
        self.stash[SUITE_TASKS] = tasks
        return tasks


class BundledSuites:
    """Adds the selected bundled suites to what pytest collects."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Append our suites to the session's own report."""
        if isinstance(collector, pytest.Session):
            show_root_fixtures(collector)
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            suites = [Suite.bundled(collector, env) for env in self._run.tasks.bundled()]
            report.result = [*report.result, *suites]
        return report

    @pytest.hookimpl(tryfirst=True, specname="pytest_make_collect_report")
    def pytest_make_bundled_report(
        self, collector: pytest.Collector
    ) -> pytest.CollectReport | None:
        """Make the report of a bundled suite as pytest's own runner does, before others answer.

        ``--lf`` skips files that do not exist, and a bundled suite has no file in the project.
        """
        if not (isinstance(collector, Suite) and collector.env):
            return None
        runner = collector.config.pluginmanager.get_plugin("runner")
        assert runner is not None
        report: pytest.CollectReport = runner.pytest_make_collect_report(collector)
        return report


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a function that takes a task one call for each task and each of several agents.

    Raises:
        CollectError: an option, the suite's file or the function's mark is wrong.
    """
    suite = metafunc.definition.getparent(Suite)
    mark = metafunc.definition.get_closest_marker("intercode")
    tasks: list[Task] | None = None
    try:
        agents = _agents_of(metafunc)
        if suite is not None:
            tasks = suite.tasks()
        elif mark is not None:
            location = f"{metafunc.definition.path}::{metafunc.definition.name}"
            selection = run_of(metafunc.config).tasks
            tasks = selection.select_marked(location, dict(mark.kwargs))
    except ConfigurationError as error:
        raise pytest.Collector.CollectError(escape_for_terminal(str(error))) from None
    if tasks is not None:
        is_bundled = suite is not None and suite.env is not None
        _parametrize_tasks(metafunc, tasks, agents, is_bundled)
    elif agents:  # a user's fixture gives the task; if not, our fixture reports that
        metafunc.parametrize(
            "intercode_agent",
            [
                pytest.param(agent, id=agent.label, marks=make_agent_marks(metafunc.config, agent))
                for agent in agents
            ],
            indirect=True,
        )


def _parametrize_tasks(
    metafunc: pytest.Metafunc,
    tasks: Sequence[Task],
    agents: Sequence[AgentChoice],
    is_bundled: bool,
) -> None:
    """Give a function one call for each task, with each of several agents."""
    selection = run_of(metafunc.config).tasks
    cache: dict[tuple[Any, ...], list[Any]] = {}
    if not agents:
        parameters = [
            pytest.param(
                task, id=selection.item_id(task), marks=_make_marks(metafunc, task, None, cache)
            )
            for task in tasks
        ]
        metafunc.parametrize("intercode_task", parameters, indirect=True)
        return
    parameters = [
        pytest.param(
            *(task, agent),
            id=selection.item_id(task, agent),
            marks=_make_marks(metafunc, task, agent, cache),
        )
        for task in tasks
        for agent in agents
        if not is_bundled or selection.is_played(task, agent)
    ]
    metafunc.parametrize(("intercode_task", "intercode_agent"), parameters, indirect=True)


def _agents_of(metafunc: pytest.Metafunc) -> tuple[AgentChoice, ...]:
    """Return the agents that a function is parametrized with: none, unless the run has several.

    A function whose agent is a user's own fixture gets only that agent, unless the fixture takes
    ours.

    Raises:
        ConfigurationError: an option is wrong.
    """
    name = "intercode_agent"
    if name not in metafunc.fixturenames:
        return ()
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if name in (names.replace(" ", "").split(",") if isinstance(names, str) else names):
            return ()
    # pytest has no public way to ask which fixtures a function will be given.
    info: Any = metafunc.definition._fixtureinfo
    for definition in reversed(info.name2fixturedefs.get(name, ())):
        if definition.func.__module__ == OUR_FIXTURES:
            agents = agent_choices(metafunc.config)
            return agents if len(agents) > 1 else ()
        if definition.params is not None or name not in definition.argnames:
            break
    return ()


def _make_marks(
    metafunc: pytest.Metafunc,
    task: Task,
    agent: AgentChoice | None,
    cache: dict[tuple[Any, ...], list[Any]],
) -> list[pytest.MarkDecorator]:
    """Return the marks of a task and one of several agents; like tasks share a list."""
    config = metafunc.config
    run = run_of(config)
    offline = task.needs_network and not (run.settings.network or task.limits.hosts)
    players = run.settings.agents if agent is None else (agent,)
    plays_gold = run.settings.audit or any(player.name == "oracle" for player in players)
    skip = task.skip or (task.gold_skip if plays_gold else None)
    skip = skip or (_OFFLINE if offline else None) or _explain_missing_kit(run, task)
    skip = skip or _explain_missing_services(run, task)
    baseline = run.baseline
    player = players[0] if len(players) == 1 else None  # otherwise a user's fixture makes it
    name, arguments = (player.name, player.arguments) if player is not None else ("", {})
    baseline_reason = baseline and baseline.may_fail(
        task,
        metafunc.definition.nodeid,
        make_cell(name, arguments, task.treatment),
        is_only_agent=agent is None,
    )
    # The audit has its own way to acknowledge what is wrong with a task's gold.
    may_fail = None if run.settings.audit else task.xfail or baseline_reason
    key = (task.env, task.suite, task.dataset, task.hardness, task.tags, agent, may_fail, skip)
    if key not in cache:
        names = dict.fromkeys((task.env, *filter(may_be_mark, task.tags)))
        marks = [
            pytest.mark.intercode(
                env=task.env,
                suite=task.suite,
                dataset=task.dataset,
                hardness=task.hardness,
                tags=task.tags,
            ),
            *(make_mark(config, name, "tag of intercode tasks") for name in names),
            *(make_agent_marks(config, agent) if agent is not None else ()),
        ]
        if skip:
            marks.append(pytest.mark.skip(reason=one_line(skip)))
        if may_fail:
            marks.append(pytest.mark.xfail(reason=one_line(may_fail), strict=False))
        cache[key] = marks
    return cache[key]


def _explain_missing_kit(run: Run, task: Task) -> str | None:
    """Return why the tests of a task cannot run: they install what the verifier kit lacks.

    The reason is the same for all tasks of a dataset, so that pytest reports it once. Nodes have
    their own kits.
    """
    if task.verification is None or run.settings.cluster:
        return None
    # Imported here, as few suites need it.
    from pytest_intercode.environments.swe.kit import add_command, holds, sets_of

    lacking = next((packages for packages in sets_of(task) if not holds(packages)), None)
    if lacking is None:
        return None
    return (
        "its tests install packages from the network, but the verifier kit does not have them; "
        f"add them with: {add_command(run.settings.datasets, lacking)}"
    )


def _explain_missing_services(run: Run, task: Task) -> str | None:
    """Return why a task's services cannot run here. Nodes have their own backends."""
    if not task.services or run.settings.cluster:
        return None
    problem = run.composition.provider.services_problem(task.services, task.limits)
    return f"it has {problem}" if problem else None


_OFFLINE = "it needs the network: give --intercode-network, or --intercode-allow-host"
