"""Suites as pytest modules: one packaged test function, parametrized with the suite's tasks.

A suite is a module whose Python object is :mod:`pytest_intercode.plugin.items`, so that fixtures,
marks, reruns, JUnit and every other plugin work on its items as on any others.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.core.text import escape_for_terminal, one_line
from pytest_intercode.environments.registry import is_environment
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.plugin.run import SUITE_TASKS, Run, run_of
from pytest_intercode.plugin.workarounds import show_root_fixtures

__all__ = ["BundledSuites", "Suite", "parametrize"]


class Suite(pytest.Module):
    """A suite of tasks: a file of the user's, or a bundled one without a file in the project."""

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
        """Take our function whatever the user's ``python_functions`` says."""
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
    """Adds the bundled suites that were asked for to what pytest collects."""

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
    """Give a function that takes a task one call for each task.

    Raises:
        CollectError: an option, the suite's file or the function's mark is wrong.
    """
    suite = metafunc.definition.getparent(Suite)
    mark = metafunc.definition.get_closest_marker("intercode")
    if suite is None and mark is None:
        return  # the task is the user's own to give; if it is not, our fixture says so
    try:
        selection = run_of(metafunc.config).tasks
        if suite is not None:
            tasks = suite.tasks()
        else:
            location = f"{metafunc.definition.path}::{metafunc.definition.name}"
            tasks = selection.select_marked(location, dict(mark.kwargs) if mark else {})
    except ConfigurationError as error:
        raise pytest.Collector.CollectError(escape_for_terminal(str(error))) from None
    cache: dict[tuple[Any, ...], list[Any]] = {}
    metafunc.parametrize(
        "intercode_task",
        [
            pytest.param(t, id=selection.item_id(t), marks=_make_marks(metafunc, t, cache))
            for t in tasks
        ],
        indirect=True,
    )


def _make_marks(
    metafunc: pytest.Metafunc, task: Task, cache: dict[tuple[Any, ...], list[Any]]
) -> list[pytest.MarkDecorator]:
    """Return the marks of a task; tasks that are alike share them."""
    config = metafunc.config
    run = run_of(config)
    offline = task.needs_network and not (run.settings.network or task.limits.hosts)
    plays_gold = run.settings.audit or run.settings.agent == "oracle"
    skip = task.skip or (task.gold_skip if plays_gold else None)
    skip = skip or (_OFFLINE if offline else None) or _explain_missing_kit(run, task)
    baseline = run.baseline
    baseline_reason = baseline and baseline.may_fail(task, metafunc.definition.nodeid)
    # What is wrong with a task's gold is acknowledged in its audit.
    may_fail = None if run.settings.audit else task.xfail or baseline_reason
    key = (task.env, task.suite, task.dataset, task.hardness, task.tags, may_fail, skip)
    if key not in cache:
        # The mark of an environment selects its tasks alone, whatever tags others have.
        tags = (
            tag
            for tag in task.tags
            if _MARK_NAME.fullmatch(tag) and tag not in _RESERVED_MARKS and not is_environment(tag)
        )
        names = dict.fromkeys((task.env, *tags))
        for name in names:
            _register(config, name)
        marks = [
            pytest.mark.intercode(
                env=task.env,
                suite=task.suite,
                dataset=task.dataset,
                hardness=task.hardness,
                tags=task.tags,
            ),
            *(getattr(pytest.mark, name) for name in names),
        ]
        if skip:
            marks.append(pytest.mark.skip(reason=one_line(skip)))
        if may_fail:
            marks.append(pytest.mark.xfail(reason=one_line(may_fail), strict=False))
        cache[key] = marks
    return cache[key]


def _explain_missing_kit(run: Run, task: Task) -> str | None:
    """Return why the tests of a task cannot run: they install what the verifier kit lacks.

    It is the same for all tasks of a dataset, so that it is reported once. Nodes have
    their own kits.
    """
    if task.verification is None or run.settings.cluster:
        return None
    # Few suites need it.
    from pytest_intercode.environments.swe.kit import add_command, holds, sets_of

    lacking = next((packages for packages in sets_of(task) if not holds(packages)), None)
    if lacking is None:
        return None
    return (
        "its tests install packages from the network, and the verifier kit does not hold them; "
        f"add them with: {add_command(run.settings.datasets, lacking)}"
    )


_OFFLINE = "it needs the network: give --intercode-network, or --intercode-allow-host"
# What pytest takes as the name of a mark; other tags are not marks.
_MARK_NAME = re.compile(r"[^\W_][\w-]*")
# Marks by which pytest and its usual plugins do something: a tag of this name is not a mark.
_RESERVED_MARKS = frozenset(
    (
        *("intercode", "skip", "skipif", "xfail", "usefixtures", "parametrize", "filterwarnings"),
        *("tryfirst", "trylast", "flaky", "timeout", "xdist_group", "anyio", "asyncio", "trio"),
        *("vcr", "repeat", "dependency", "order", "benchmark", "no_cover"),
    )
)
_REGISTERED = pytest.StashKey[set[str]]()


def _register(config: pytest.Config, name: str) -> None:
    """Register a tag, so that ``--strict-markers`` accepts it."""
    registered = config.stash.setdefault(_REGISTERED, set())
    if name not in registered:
        registered.add(name)
        config.addinivalue_line("markers", f"{name}: tag of intercode tasks")
