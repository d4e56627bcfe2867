"""One run in one pytest process: its parts, and pytest's hooks.

A run is made when an option, a suite file or a fixture first needs it.
:mod:`pytest_intercode.plugin.composition` composes its rollouts. Everything else that a run does is
in further plugins, which :mod:`pytest_intercode.plugin.startup` registers.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import escape_for_terminal, one_line
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import IntercodeError, TruncatedResultsWarning
from pytest_intercode.plugin.composition import Composition
from pytest_intercode.plugin.control import Control
from pytest_intercode.plugin.hooks import Hooks
from pytest_intercode.plugin.masking import key_masks_of
from pytest_intercode.plugin.progress import Progress
from pytest_intercode.plugin.selection import Selection
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.plugin.workarounds import escape_live_log
from pytest_intercode.plugin.xdist import Workers, is_worker
from pytest_intercode.results.baseline import Baseline
from pytest_intercode.rollouts.isolation import exit_prevented
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = [
    "SUITE_TASKS",
    "Run",
    "agent_choices",
    "agent_of",
    "forget_spec",
    "is_own_test",
    "run_of",
    "spec_of",
    "task_of",
]

SUITE_TASKS = pytest.StashKey[Sequence[Task]]()
"""The tasks of a suite, on its collector."""

_RUN = pytest.StashKey["Run"]()
_END_PROBLEM = "intercode_end_problem"  # a key of what an xdist worker sends at its end
_SPEC = pytest.StashKey[RolloutSpec]()


def run_of(config: pytest.Config) -> Run:
    """Return the run of this process, making it the first time.

    Raises:
        ConfigurationError: an option is wrong.
    """
    run = config.stash.get(_RUN, None)
    if run is None:
        run = config.stash[_RUN] = Run(config)
        config.pluginmanager.register(run, "intercode-run")
        if config.getoption("capture", "") == "no":
            from pytest_intercode.plugin.output import EscapedStreams

            config.pluginmanager.register(EscapedStreams(), "intercode-streams")
    return run


class Run:
    """One run in one process; also a pytest plugin, which ends what the run has started.

    Attributes:
        config: pytest's.
        composition: composes the rollouts.
        tasks: selects the tasks.
        workers: what the processes of the run share, including its budget.
        progress: how far the run is.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        settings = Settings.of(config)
        hooks = Hooks(config)
        self.tasks = Selection(settings, hooks.modify_tasks)
        self.workers = Workers(config, settings.run_limits)
        config.pluginmanager.register(self.workers, "intercode-workers")
        self.progress = Progress(config, settings.progress_interval)
        config.pluginmanager.register(self.progress, "intercode-progress")
        control = Control(config, settings, self.workers, self.progress)
        config.pluginmanager.register(control, "intercode-control")
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(exit_prevented())  # before the user's modules look it up
        self.composition = Composition(
            settings,
            sandbox=replace(
                settings.sandbox,
                processes=self.workers.processes,
                slots=self.workers.slots,
                verbosity=config.get_verbosity(),
                hidden=(config.rootpath, *((settings.data.path,) if settings.data else ())),
            ),
            hooks=hooks,
            report=self.progress.report,
            lend_terminal=self._lend_terminal,
            run_budget=self.workers.budget,
            golds=_golds_file(config),
        )
        self._stack.callback(self.composition.close)
        self._end_problems: list[str] = []  # of workers

    @property
    def settings(self) -> Settings:
        """What the user asked for."""
        return self.composition.settings

    @cached_property
    def baseline(self) -> Baseline | None:
        """The results that the run is compared with.

        Raises:
            ConfigurationError: the file does not hold such results.
        """
        if self.settings.baseline is None:
            return None
        return Baseline(
            self.settings.baseline,
            lambda line: self.config.issue_config_time_warning(TruncatedResultsWarning(line), 2),
        )

    def _lend_terminal(
        self, environment: Environment
    ) -> contextlib.AbstractContextManager[Callable[[str], None]]:
        from pytest_intercode.plugin.terminal import lent_terminal

        self.progress.pause()
        return lent_terminal(self.config, environment.action_timeout)

    # -- pytest's hooks, and ours

    @pytest.hookimpl(trylast=True)
    def pytest_intercode_make_environment(self, task: Task) -> Environment:
        """Make the environment that the task names, where no other plugin makes one."""
        return self.composition.default_environment(task)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Escape what is logged live, now that pytest has set that up."""
        escape_live_log(self.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Escape the text of a warning, which may come from an agent and contain keys."""
        text = str(warning_message.message)
        escaped = escape_for_terminal(key_masks_of(self.config).text(text))
        if escaped != text:
            warning_message.message = escaped
        # An agent chooses the file names and class names of the code that it compiles.
        warning_message.filename = one_line(warning_message.filename)
        if one_line(warning_message.category.__name__) != warning_message.category.__name__:
            warning_message.category = UserWarning

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """End what an xdist worker has started while its controller still listens to it."""
        if is_worker(self.config) and (problem := self._end()):
            vars(self.config)["workeroutput"][_END_PROBLEM] = f"{problem} ({self.workers.name})"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the error with which an xdist worker ended, if any."""
        problem = getattr(node, "workeroutput", {}).get(_END_PROBLEM)
        self._end_problems += [problem] if problem else []

    def pytest_unconfigure(self) -> None:
        """End all sandboxes, and close what the agents hold open, however the run ended."""
        problem = self._end()
        if problems := [*self._end_problems, *([problem] if problem else [])]:
            raise pytest.UsageError(*problems)

    def _end(self) -> str:
        """End them, on the first call; return the error that a third-party backend raised."""
        try:
            self._stack.close()
        except IntercodeError as error:
            return escape_for_terminal(str(error))
        return ""


def _golds_file(config: pytest.Config) -> Path | None:
    """Return the file for what golds left, in pytest's cache; None if that cannot be written."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    try:
        return None if cache is None else cache.mkdir("intercode") / "golds"
    except OSError:
        return None


def spec_of(item: pytest.Item, task: Task) -> RolloutSpec:
    """Return what the rollout of an item is to do; it is made once for an item and its task.

    Raises:
        ConfigurationError: the agent cannot be loaded.
    """
    spec = item.stash.get(_SPEC, None)
    if spec is None or spec.task is not task:
        composition = run_of(item.config).composition
        spec = item.stash[_SPEC] = composition.spec(task, item.nodeid, agent_of(item))
    return spec


def agent_choices(config: pytest.Config) -> tuple[AgentChoice, ...]:
    """Return the agents of the run, in the order in which they were named.

    Raises:
        ConfigurationError: an option is wrong.
    """
    return run_of(config).settings.agents


def agent_of(item: pytest.Item) -> AgentChoice | None:
    """Return the agent of an item; None where a user's fixture or hook makes it.

    Raises:
        ConfigurationError: an option is wrong.
    """
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec is not None else {}
    agent = parameters.get("intercode_agent")
    if agent is None:  # the agent of a project test is a part of its cell
        agent = getattr(parameters.get("intercode_project"), "agent", None)
    if isinstance(agent, AgentChoice):
        return agent
    agents = agent_choices(item.config)
    return agents[0] if len(agents) == 1 else None


def is_own_test(item: pytest.Item) -> bool:
    """Whether an item is a user's own test function, and not a task of a suite."""
    module = item.getparent(pytest.Module)
    return module is None or SUITE_TASKS not in module.stash


def forget_spec(item: pytest.Item) -> None:
    """Forget the spec of an item's last rollout, as pytest keeps items until the end of a run.

    A project test makes its tasks itself, and they are no longer needed.
    """
    if _SPEC in item.stash:
        del item.stash[_SPEC]


def task_of(item: pytest.Item) -> Task | None:
    """Return the task of an item, or None for an item that is not ours.

    If its rollout has begun, it is the task of the rollout, which a user's fixture may have made.
    """
    if _SPEC in item.stash:
        return item.stash[_SPEC].task
    callspec = getattr(item, "callspec", None)
    task = callspec.params.get("intercode_task") if callspec is not None else None
    return task if isinstance(task, Task) else None
