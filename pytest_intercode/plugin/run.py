"""One run in one pytest process: its settings, its tasks, and the services that its rollouts use.

Made when an option, a suite file or a fixture first asks for it. What a run does besides is in
plugins of its own, which :mod:`pytest_intercode.plugin.startup` registers.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.loader import adapt, failing, load_agent
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import escape_for_terminal, one_line
from pytest_intercode.core.turn import Feedback
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.gold import GOLDS, GoldCache
from pytest_intercode.errors import (
    AgentError,
    NoAgent,
    TruncatedResultsWarning,
)
from pytest_intercode.plugin.hooks import call_hook
from pytest_intercode.plugin.progress import Progress
from pytest_intercode.plugin.selection import Selection
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.plugin.workarounds import escape_live_log
from pytest_intercode.plugin.xdist import SharedBudget, Workers
from pytest_intercode.results.comparison import Baseline
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.isolation import exit_prevented
from pytest_intercode.rollouts.rollout import Services, default_environment, expect_sandboxes
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["SUITE_TASKS", "Run", "is_own_test", "keep_task", "run_of", "task_of"]

SUITE_TASKS = pytest.StashKey[Sequence[Task]]()
"""The tasks of a suite, on its collector."""

_RUN = pytest.StashKey["Run"]()
_TASK = pytest.StashKey[Task]()


def run_of(config: pytest.Config) -> Run:
    """Return the run of this process, making it the first time.

    Raises:
        ConfigurationError: an option is wrong.
    """
    found = config.stash.get(_RUN, None)
    if found is None:
        found = config.stash[_RUN] = Run(config)
        config.pluginmanager.register(found, "intercode-run")
        if config.getoption("capture", "") == "no":
            from pytest_intercode.plugin.output import EscapedStreams

            config.pluginmanager.register(EscapedStreams(), "intercode-streams")
    return found


class Run:
    """One run in one process; also a pytest plugin, which ends what the run has started.

    Attributes:
        config: pytest's.
        settings: what the user asked for.
        tasks: the tasks.
        budget: the budget of the whole run.
        workers: what the processes of a run under xdist share.
        concurrent: several rollouts run at a time, so that only the main thread may print.
        lines: progress that waits for it; see :meth:`show_progress`.
        progress: how far the run is.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.settings = Settings.of(config)
        self.tasks = Selection(
            self.settings,
            lambda tasks: call_hook(config, "modify_tasks", tasks=tasks),
        )
        self.budget = SharedBudget(config, self.settings.run_limits)
        config.pluginmanager.register(self.budget, "intercode-budget")
        self.workers = Workers(config)
        config.pluginmanager.register(self.workers, "intercode-workers")
        self.concurrent = False
        self.lines: deque[str] = deque()
        self.progress = Progress(config)
        config.pluginmanager.register(self.progress, "intercode-progress")
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(exit_prevented())  # before the user's modules look it up
        self._shared_loop = SharedLoop()
        self._factory: AgentFactory | None = None
        self._provider: SandboxProvider | None = None

    # -- what rollouts are to do, and what they work with

    def spec(self, task: Task, node_id: str) -> RolloutSpec:
        """Return what the rollout of an item is to do."""
        settings = self.settings
        return RolloutSpec(
            task=task,
            agent=settings.agent or "",
            agent_arguments=settings.agent_arguments,
            agent_folder=settings.agent_folder,
            profile=settings.profile,
            feedback=self.feedback,
            max_turns=settings.max_turns,
            action_timeout=settings.action_timeout,
            timeout=self.timeout(task),
            budget=settings.budget,
            node_id=node_id,
        )

    @cached_property
    def services(self) -> Services:
        """What the rollouts of this process work with."""
        return Services(
            sandboxes=self.provider,
            make_agent=lambda spec: self.agent(spec.task),
            make_environment=lambda spec: self.environment(spec.task),
            run_budget=self.budget.budget,
            stage=self._stage,
            shared_loop=self._shared_loop,
        )

    @property
    def feedback(self) -> Feedback:
        """What agents are given: what the user asked for, else what the agent is made for."""
        settings = self.settings
        if settings.feedback is None and settings.agent is not None:
            return self.factory().feedback or "observation"
        return settings.feedback or "observation"

    def timeout(self, task: Task) -> float | None:
        """Return the seconds that an episode has, or None for no limit."""
        at_terminal = self._factory is not None and self._factory.terminal
        return self.settings.episode_timeout(task, at_terminal=at_terminal)

    def factory(self) -> AgentFactory:
        """Return the factory of ``--intercode-agent``.

        Raises:
            AgentLoadError: it cannot be loaded, or none is named.
        """
        if self._factory is None:
            settings = self.settings
            if settings.agent is None:
                raise NoAgent(
                    "no agent to test: give --intercode-agent=module:Attr (or oracle), set "
                    "intercode_agent in the ini file, or override the fixture intercode_agent"
                )
            self._factory = load_agent(
                settings.agent,
                settings.agent_arguments,
                settings.agent_folder,
                settings.gateway,
                progress=self._report,
            )
        return self._factory

    def agent(self, task: Task) -> Agent:
        """Return a fresh agent for a task; hooks are called on the rollout's thread."""

        def make() -> Agent:
            made = call_hook(self.config, "make_agent", task=task)
            if made is not None:
                return adapt(made)
            try:
                return self.factory().make(task)
            except AgentError as error:
                return failing(error)

        agent = make()
        agent.again = make
        return agent

    def environment(self, task: Task) -> Environment:
        """Return an environment for a task, not reset yet."""
        made: Environment = call_hook(self.config, "make_environment", task=task)
        return made

    @pytest.hookimpl(trylast=True)
    def pytest_intercode_make_environment(self, task: Task) -> Environment:
        """Make the environment that the task names, where no other plugin makes one."""
        return default_environment(self.spec(task, node_id=""), self.provider)

    def _stage(
        self, environment: Environment
    ) -> contextlib.AbstractContextManager[Callable[[str], None]]:
        """Lend the terminal to an agent that talks to the user."""
        if self._factory is None or not self._factory.terminal:
            return contextlib.nullcontext(lambda _: None)
        from pytest_intercode.plugin.terminal import lent_terminal

        self.progress.pause()
        return lent_terminal(self.config, environment.action_timeout)

    # -- sandboxes

    @property
    def provider(self) -> SandboxProvider:
        """The sandboxes of this process."""
        if self._provider is None:
            settings, data = self.settings, self.settings.data
            needed = self.factory() if settings.agent and not settings.audit else None
            self._provider = SandboxProvider(
                base_images=settings.base_images,
                progress=self._report,
                verbosity=self.config.get_verbosity(),
                sandbox=settings.backend,
                rootfs=settings.rootfs,
                runtime=settings.runtime,
                docker_hosts=settings.docker_hosts,
                registry=settings.registry,
                processes=self.workers.processes,
                slots=self.workers.slots,
                hidden=[self.config.rootpath, *([data.path] if data else [])],
                readonly=needed.readonly if needed else (),
                scratch=needed.scratch if needed else (),
            )
            golds = self._golds_file()
            self._provider.share(GOLDS, lambda: GoldCache(golds))
        return self._provider

    def _golds_file(self) -> Path | None:
        """Return where it is kept what golds left; in pytest's cache, if it can be written."""
        cache: pytest.Cache | None = getattr(self.config, "cache", None)
        try:
            return None if cache is None else cache.mkdir("intercode") / "golds"
        except OSError:
            return None

    def settle_backend(self, backend: str) -> None:
        """Take the backend that the nodes of a cluster have, where the user leaves it open."""
        if self.settings.backend == "auto":
            self.settings = self.settings.replace(backend=backend)
            if self._provider is not None:
                self._provider.close()
                self._provider = None
                self.__dict__.pop("services", None)

    def provides(self, environment: Environment) -> bool:
        """Whether an environment has its sandboxes from us, so that we know what others need."""
        return getattr(environment, "provider", None) is self.provider

    def expect(self, tasks: Iterable[Task]) -> None:
        """Have sandboxes started for the episodes of these tasks, as many as the pool holds."""
        expect_sandboxes(self.provider, tasks, self.settings.profile)

    # -- results

    @cached_property
    def baseline(self) -> Baseline | None:
        """The results that the run is compared with.

        Raises:
            ConfigurationError: the file is no such results.
        """
        if self.settings.baseline is None:
            return None
        return Baseline(
            self.settings.baseline,
            lambda line: self.config.issue_config_time_warning(TruncatedResultsWarning(line), 2),
        )

    # -- progress

    def _report(self, line: str) -> None:
        """Print a line of progress past pytest's capturing."""
        self.lines.append(line)
        if not self.concurrent or threading.current_thread() is threading.main_thread():
            self.show_progress()

    def show_progress(self) -> None:
        """Print the progress that waits."""
        manager = self.config.pluginmanager
        terminal: Any = manager.get_plugin("terminalreporter")
        capture = manager.get_plugin("capturemanager")
        if terminal is None:
            self.lines.clear()
        captured = capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
        with self.progress.hidden(), captured:
            while self.lines:
                terminal.ensure_newline()
                terminal.write_line(one_line(f"intercode: {self.lines.popleft()}"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Escape what is logged live, now that pytest has set that up."""
        escape_live_log(self.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Escape what a warning says, which may be an agent's words."""
        said = str(warning_message.message)
        shown = escape_for_terminal(said)
        if shown != said:
            warning_message.message = shown
        # Code that an agent compiles is in files by names of its own, as are its classes.
        warning_message.filename = one_line(warning_message.filename)
        if one_line(warning_message.category.__name__) != warning_message.category.__name__:
            warning_message.category = UserWarning

    def pytest_unconfigure(self) -> None:
        """End every sandbox and what the agent holds open, however the run ended."""
        self._stack.close()
        try:
            self._shared_loop.close()
            if self._factory is not None:
                self._factory.close()
        finally:
            if self._provider is not None:
                self._provider.close()


def keep_task(item: pytest.Item, task: Task) -> None:
    """Remember the task that an item is run with; a user's fixture may have made it."""
    item.stash[_TASK] = task


def is_own_test(item: pytest.Item) -> bool:
    """Whether an item is a test function of the user's own, and not a task of a suite."""
    module = item.getparent(pytest.Module)
    return module is None or SUITE_TASKS not in module.stash


def task_of(item: pytest.Item) -> Task | None:
    """Return the task of an item, or None for an item that is not ours."""
    if _TASK in item.stash:
        return item.stash[_TASK]
    callspec = getattr(item, "callspec", None)
    task = callspec.params.get("intercode_task") if callspec is not None else None
    return task if isinstance(task, Task) else None
