"""What the rollouts of a run are made of: settings go in, specs and services come out.

Knows pytest only by what it is given: how the user's hooks are called, and where a line of progress
goes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_intercode.agents.loader import adapt, load_agent
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Feedback
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.gold import GOLDS, GoldCache
from pytest_intercode.errors import NoAgent
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.rollout import Services, default_environment, fresh_agent
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings

__all__ = ["Composition"]

_SPEC: ContextVar[RolloutSpec | None] = ContextVar("intercode_spec", default=None)
"""The rollout that an environment is being made for: hooks are given its task alone."""


@dataclass(eq=False, repr=False)
class Composition:
    """Specs and services of the rollouts of this process.

    Attributes:
        settings: what the user asked for.
        sandbox: where sandboxes come from, as it holds for this process.
        call_hook: calls a hook of the user's by its name.
        report: takes a line of progress, from any thread.
        lend_terminal: lends the terminal to an agent that talks to the user.
        run_budget: what is left for the whole run.
        golds: where it is kept what golds left; None for nowhere.
    """

    settings: Settings
    sandbox: SandboxSettings
    call_hook: Callable[..., Any]
    report: Callable[[str], None]
    lend_terminal: Callable[[Environment], contextlib.AbstractContextManager[Callable[[str], None]]]
    run_budget: RunBudget
    golds: Path | None

    def __post_init__(self) -> None:
        self._shared_loop = SharedLoop()
        self._factory: AgentFactory | None = None
        self._provider: SandboxProvider | None = None

    # -- what rollouts are to do

    def spec(self, task: Task, node_id: str = "") -> RolloutSpec:
        """Return what the rollout of a task is to do."""
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
            timeout=settings.episode_timeout(task, at_terminal=self._at_terminal),
            budget=settings.budget,
            node_id=node_id,
        )

    @property
    def feedback(self) -> Feedback:
        """What agents are given: what the user asked for, else what the agent is made for."""
        settings = self.settings
        if settings.feedback is None and settings.agent is not None:
            return self.factory().feedback or "observation"
        return settings.feedback or "observation"

    @property
    def _at_terminal(self) -> bool:
        """Whether the agent, if it is known yet, talks to the user."""
        return self._factory is not None and self._factory.terminal

    # -- what they work with

    @cached_property
    def services(self) -> Services:
        """What the rollouts of this process work with."""
        return Services(
            sandboxes=self.provider,
            make_agent=self.agent,
            make_environment=self.environment,
            run_budget=self.run_budget,
            stage=self._stage,
            shared_loop=self._shared_loop,
        )

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
                progress=self.report,
                sandbox=replace(self.sandbox, backend=settings.backend),
            )
        return self._factory

    def agent(self, spec: RolloutSpec) -> Agent:
        """Return a fresh agent for a rollout; hooks are called on the rollout's thread."""

        def make() -> Agent:
            custom = self.call_hook("make_agent", task=spec.task)
            return adapt(custom) if custom is not None else fresh_agent(self.factory(), spec)

        agent = make()
        agent.again = make
        return agent

    def environment(self, spec: RolloutSpec) -> Environment:
        """Return an environment for a rollout, not reset yet; hooks may make it."""
        token = _SPEC.set(spec)
        try:
            environment: Environment = self.call_hook("make_environment", task=spec.task)
        finally:
            _SPEC.reset(token)
        return environment

    def default_environment(self, task: Task) -> Environment:
        """Return the environment that a task names; called where no hook of the user's makes one.

        It is of the rollout that the hook is called for, if that has this task.
        """
        spec = _SPEC.get()
        if spec is None or spec.task is not task:
            spec = self.spec(task)
        return default_environment(spec, self.provider)

    def _stage(
        self, environment: Environment
    ) -> contextlib.AbstractContextManager[Callable[[str], None]]:
        """Lend the terminal to an agent that talks to the user."""
        if not self._at_terminal:
            return contextlib.nullcontext(lambda _: None)
        return self.lend_terminal(environment)

    # -- sandboxes

    @property
    def provider(self) -> SandboxProvider:
        """The sandboxes of this process."""
        if self._provider is None:
            settings = self.settings
            factory = self.factory() if settings.agent and not settings.audit else None
            sandbox = replace(
                self.sandbox,
                backend=settings.backend,
                readonly=factory.readonly if factory else (),
                scratch=factory.scratch if factory else (),
            )
            self._provider = SandboxProvider(sandbox, progress=self.report)
            self._provider.share(GOLDS, lambda: GoldCache(self.golds))
        return self._provider

    def use_backend(self, backend: str) -> None:
        """Use the backend that the nodes of a cluster have, where the user leaves it open."""
        if self.settings.backend == "auto":
            self.settings = self.settings.replace(backend=backend)
            if self._provider is not None:
                self._provider.close()
                self._provider = None
                self.__dict__.pop("services", None)

    def close(self) -> None:
        """End every sandbox and what the agent holds open."""
        try:
            try:
                self._shared_loop.close()
            finally:
                if self._factory is not None:
                    self._factory.close()
        finally:
            if self._provider is not None:
                self._provider.close()
