"""What one pytest process knows of a run: its settings, its tasks, its agent, its sandboxes.

Made when an option, a suite file or a fixture first asks for it.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_intercode.agents.loader import adapt, load_agent
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Feedback
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.registry import environment_class
from pytest_intercode.errors import (
    AgentError,
    ConfigurationError,
    InfrastructureError,
    TornResultsWarning,
)
from pytest_intercode.plugin.run_budget import Spending
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.plugin.startup import check, earlier_part, open_reports
from pytest_intercode.plugin.xdist import Workers, is_worker, make_scheduler
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.selection import Selection

if TYPE_CHECKING:
    from pytest_intercode.plugin.concurrency import Ahead
    from pytest_intercode.plugin.resume import Resumed
    from pytest_intercode.results.baseline import Baseline

__all__ = ["IntercodeSession", "keep_task", "session_of", "task_of"]

_KEY = pytest.StashKey["IntercodeSession"]()
_TASK = pytest.StashKey[Task]()
_NODE = re.compile(
    r"(?:\.\./)*intercode/(?P<env>[a-z][a-z0-9_]*)(?:::(?P<name>\w+)(?:\[(?P<id>.+)\])?)?$"
)
_AHEAD = 2  # items, of two sandboxes each


def session_of(config: pytest.Config) -> IntercodeSession:
    """Return the session of this process, making it the first time.

    Raises:
        ConfigurationError: an option is wrong.
    """
    found = config.stash.get(_KEY, None)
    if found is None:
        found = config.stash[_KEY] = IntercodeSession(config)
        config.pluginmanager.register(found, "intercode-session")
    return found


class IntercodeSession:
    """One run in one process; also a pytest plugin for what needs it.

    Attributes:
        config: pytest's.
        settings: what the user asked for.
        tasks: the tasks.
        spending: the run's budget.
        ahead: the episodes that run ahead; None where each runs in its item's turn.
        resumed: what is taken from an earlier part of the run, and not run again.
        lines: what threads other than the main one have to say, see :meth:`tell_lines`.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.settings = Settings.of(config)
        self.tasks = Selection(
            self.settings,
            lambda tasks: config.hook.pytest_intercode_modify_tasks(config=config, tasks=tasks),
        )
        self._factory: AgentFactory | None = None
        self._provider: SandboxProvider | None = None
        self.spending = Spending(config, self.settings.run_limits)
        config.pluginmanager.register(self.spending, "intercode-spending")
        self._workers = Workers(config)
        config.pluginmanager.register(self._workers, "intercode-workers")
        self._upcoming: dict[pytest.Item, int] | None = None
        self._next: pytest.Item | None = None
        self.ahead: Ahead | None = None
        self.resumed: Resumed | None = None
        self.lines: deque[str] = deque()

    # -- the command line

    def take_arguments(self) -> None:
        """Take ``intercode/...`` out of pytest's arguments; keep it from collecting the folder."""
        config = self.config
        given = config.args_source is pytest.Config.ArgsSource.ARGS
        rest: list[str] = []
        for argument in config.args:
            found = _NODE.match(argument) if given else None
            if found is None or (config.invocation_params.dir / argument.split("::")[0]).exists():
                rest.append(argument)
                continue
            self.tasks.paste(found["env"], found["id"])
        if self.tasks.any:
            config.args[:] = rest if given else []
            config.args_source = pytest.Config.ArgsSource.ARGS

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Read everything that the command line names, so that mistakes end the run at once."""
        try:
            self.tasks.bundled()
            if self.config.option.collectonly:
                return
            check(self)
            self.resumed = earlier_part(self)
            self._go_ahead()
            open_reports(self)
        except ConfigurationError as error:
            raise pytest.UsageError(str(error)) from None

    def pytest_report_header(self) -> list[str]:
        """Say what is run."""
        settings = self.settings
        words = [f"agent {settings.agent or '(none)'}", f"profile {settings.profile}"]
        if settings.audit:
            words = ["audit of the tasks, profile strict"]
        if not self.config.option.collectonly and self.feedback == "reward":
            words.append("rewards as feedback")
        if settings.network:
            words.append("with network")
        if settings.concurrency > 1:
            words.append(f"concurrency {settings.concurrency}")
        if settings.repeat > 1:
            words.append(f"{settings.repeat} tries at each task")
        if self.resumed is not None:
            words.append(f"resuming {self.resumed.count} episodes of {settings.results}")
        return [f"intercode: {', '.join(words)}, sandbox {self.provider.choice}"]

    def _go_ahead(self) -> None:
        """Let episodes run ahead, if that is asked for and this process runs any."""
        of_run = self.settings.concurrency
        distributed = getattr(self.config.option, "dist", "no") != "no"
        if of_run > 1 and (is_worker(self.config) or not distributed):
            own = self._workers.share(of_run)
            if own > 1:
                from pytest_intercode.plugin.concurrency import Ahead

                assert self.provider  # made now, by one thread
                self.ahead = Ahead(self, own)
                self.config.pluginmanager.register(self.ahead, "intercode-ahead")

    @cached_property
    def baseline(self) -> Baseline | None:
        """The results that the run is compared with.

        Raises:
            ConfigurationError: the file is no such results.
        """
        if self.settings.baseline is None:
            return None
        from pytest_intercode.results.baseline import Baseline

        return Baseline(
            self.settings.baseline,
            lambda line: self.config.issue_config_time_warning(TornResultsWarning(line), 2),
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Have workers that run ahead given as much as they can run."""
        if self.settings.concurrency > 1 and config.getvalue("dist") == "load":
            return make_scheduler(config, log, self.settings.concurrency)
        return None

    # -- agents and environments

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

    def stage(
        self, environment: Environment
    ) -> contextlib.AbstractContextManager[Callable[[str], None]]:
        """Lend the terminal to an agent that talks to the user; returns what tells them more."""
        if self._factory is None or not self._factory.terminal:
            return contextlib.nullcontext(lambda _: None)
        from pytest_intercode.plugin.terminal import lent_terminal

        return lent_terminal(self.config, environment.action_timeout)

    def factory(self) -> AgentFactory:
        """Return the factory of ``--intercode-agent``.

        Raises:
            AgentLoadError: it cannot be loaded, or none is named.
        """
        if self._factory is None:
            settings = self.settings
            if settings.agent is None:
                raise ConfigurationError(
                    "no agent to test: give --intercode-agent=module:Attr (or oracle), set "
                    "intercode_agent in the ini file, or override the fixture intercode_agent"
                )
            self._factory = load_agent(
                settings.agent, settings.agent_arguments, settings.agent_folder
            )
        return self._factory

    def agent(self, task: Task) -> Agent:
        """Return a fresh agent for a task; hooks are called on the episode's thread."""

        def make() -> Agent:
            made = self.config.hook.pytest_intercode_make_agent(config=self.config, task=task)
            if made is not None:
                return adapt(made)
            try:
                return self.factory().make(task)
            except AgentError as error:
                return _broken(error)

        agent = make()
        agent.again = make
        return agent

    def environment(self, task: Task) -> Environment:
        """Return an environment for a task, not reset yet."""
        made: Environment = self.config.hook.pytest_intercode_make_environment(
            config=self.config, task=task
        )
        return made

    @pytest.hookimpl(trylast=True)
    def pytest_intercode_make_environment(self, task: Task) -> Environment:
        """Make the environment that the task names, where nobody else makes one."""
        settings = self.settings
        return environment_class(task.env, settings.profile)(
            self.provider,
            feedback=self.feedback,
            max_turns=settings.max_turns,
            action_timeout=settings.action_timeout,
        )

    @property
    def provider(self) -> SandboxProvider:
        """The sandboxes of this process."""
        if self._provider is None:
            data = self.settings.data
            self._provider = SandboxProvider(
                base_images=self.settings.base_images,
                progress=self._tell,
                sandbox=self.settings.sandbox,
                rootfs=self.settings.rootfs,
                processes=self._workers.processes,
                slots=self._workers.slots,
                hidden=[self.config.rootpath, *([data.path] if data else [])],
            )
        return self._provider

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, nextitem: pytest.Item | None) -> None:
        """Remember what comes next; an xdist worker knows no more than that."""
        self._next = nextitem

    def look_ahead(self, item: pytest.Item, environment: Environment, *, started: bool) -> None:
        """Have the sandboxes of the next items started.

        Args:
            item: the item that is run now.
            environment: its environment.
            started: its own sandboxes are already there.
        """
        if not self.provides(environment) or (self.ahead is not None and self.ahead.pending):
            return
        following = self._after(item)[started : started + _AHEAD]
        if self.resumed is not None:
            following = [each for each in following if self.resumed.row_of(each) is None]
        self.expect([task for task in map(task_of, following) if task is not None])

    def provides(self, environment: Environment) -> bool:
        """Whether an environment has its sandboxes from us, so that we know what others need."""
        return getattr(environment, "provider", None) is self.provider

    def made_of(self, environment: Environment, task: Task) -> tuple[str, str]:
        """Return the backend and the image of a task's sandboxes; nothing where it needs none."""
        provider = getattr(environment, "provider", None) or self.provider
        specs = environment.sandboxes(task, provider)
        return (provider.choice.backend, specs[0].image) if specs else ("", "")

    def expect(self, tasks: Iterable[Task]) -> None:
        """Have sandboxes started for the episodes of these tasks, as many as the pool holds."""

        def specs() -> Iterator[SandboxSpec]:
            for task in tasks:
                cls = environment_class(task.env, self.settings.profile)
                yield from cls.sandboxes(task, self.provider)

        with contextlib.suppress(InfrastructureError):
            self.provider.expect(specs())

    def _after(self, item: pytest.Item) -> list[pytest.Item]:
        """Return the item and those that are run after it, as far as that is known."""
        if is_worker(self.config):
            return [item] if self._next is None else [item, self._next]
        if self._upcoming is None:
            self._upcoming = {item: at for at, item in enumerate(item.session.items)}
        at = self._upcoming.get(item, len(item.session.items))
        return item.session.items[at : at + 1 + _AHEAD]

    def pytest_unconfigure(self) -> None:
        """End every sandbox and what the agent holds open, however the run ended."""
        try:
            if self._factory is not None:
                self._factory.close()
        finally:
            if self._provider is not None:
                self._provider.close()

    def _tell(self, line: str) -> None:
        """Print a line of progress past pytest's capturing; that is the main thread's to change."""
        self.lines.append(line)
        if self.ahead is None or threading.current_thread() is threading.main_thread():
            self.tell_lines()

    def tell_lines(self) -> None:
        """Print what there is to say; only in the main thread."""
        manager = self.config.pluginmanager
        terminal: Any = manager.get_plugin("terminalreporter")
        capture = manager.get_plugin("capturemanager")
        if terminal is None:
            self.lines.clear()
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            while self.lines:
                terminal.ensure_newline()
                terminal.write_line(f"intercode: {self.lines.popleft()}")


def keep_task(item: pytest.Item, task: Task) -> None:
    """Remember the task that an item is run with; a user's fixture may have made it."""
    item.stash[_TASK] = task


def task_of(item: pytest.Item) -> Task | None:
    """Return the task of an item, or None for an item that is not ours."""
    if _TASK in item.stash:
        return item.stash[_TASK]
    callspec = getattr(item, "callspec", None)
    task = callspec.params.get("intercode_task") if callspec is not None else None
    return task if isinstance(task, Task) else None


def _broken(error: AgentError) -> Agent:
    def fail(*_: object) -> None:
        raise error

    return Agent("step", act=fail)
