"""Composes the rollouts of a run: makes specs and services from the settings.

It knows pytest only through its arguments: how to call the user's hooks, and where to send a line
of progress.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.agents.users import Users
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Feedback
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.gold import GOLDS, GoldCache
from pytest_intercode.errors import AgentLoadError, NoAgent
from pytest_intercode.judging.judges import Judges
from pytest_intercode.plugin.hooks import Hooks
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.rollout import Services, default_environment, fresh_agent
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings

__all__ = ["Composition"]

_SPEC: ContextVar[RolloutSpec | None] = ContextVar("intercode_spec", default=None)
"""The rollout for which an environment is being made, as hooks are given only its task."""


@dataclass(eq=False, repr=False)
class Composition:
    """Specs and services of the rollouts of this process.

    Attributes:
        settings: what the user asked for.
        sandbox: where this process gets its sandboxes.
        hooks: the hooks that the user implements.
        report: takes a line of progress, from any thread.
        lend_terminal: lends the terminal to an agent that talks to the user.
        run_budget: what is left for the whole run.
        golds: the file that keeps digests of what golds left; None for no file.
    """

    settings: Settings
    sandbox: SandboxSettings
    hooks: Hooks
    report: Callable[[str], None]
    lend_terminal: Callable[[Environment], contextlib.AbstractContextManager[Callable[[str], None]]]
    run_budget: RunBudget
    golds: Path | None

    def __post_init__(self) -> None:
        self._shared_loop = SharedLoop()
        self._factories: dict[AgentChoice, AgentFactory] = {}
        self._provider: SandboxProvider | None = None
        self.judges = Judges(self.settings.gateway)

    # -- what rollouts are to do

    def spec(self, task: Task, node_id: str = "", agent: AgentChoice | None = None) -> RolloutSpec:
        """Return what the rollout of a task is to do.

        Args:
            task: the task.
            node_id: the node id of the item that it belongs to; empty for none.
            agent: one of the run's agents; None for the only one, or for the user's own agent if
                the run has none or several.
        """
        settings = self.settings
        if agent is None and len(settings.agents) == 1:
            (agent,) = settings.agents
        feedback = self.feedback(agent)  # loads the agents
        return RolloutSpec(
            task=task,
            agent=agent.name if agent is not None else "",
            agent_arguments=agent.arguments if agent is not None else settings.agent_arguments,
            agent_folder=settings.agent_folder,
            profile=settings.profile,
            feedback=feedback,
            max_turns=settings.max_turns,
            action_timeout=settings.action_timeout,
            timeout=settings.episode_timeout(task, at_terminal=self._at_terminal),
            budget=settings.budget,
            node_id=node_id,
        )

    def feedback(self, agent: AgentChoice | None) -> Feedback:
        """Return the feedback for an agent: what the user asked for, else what it is made for."""
        settings = self.settings
        if settings.feedback is None and agent is not None:
            return self.factory(agent).feedback or "observation"
        return settings.feedback or "observation"

    @property
    def _at_terminal(self) -> bool:
        """Whether the agent, if already loaded, talks to the user; it is then the only agent."""
        return any(factory.terminal for factory in self._factories.values())

    # -- what they work with

    @cached_property
    def services(self) -> Services:
        """What the rollouts of this process work with."""
        return Services(
            sandboxes=self.provider,
            make_agent=self.agent,
            make_environment=self.environment,
            users=self.users,
            run_budget=self.run_budget,
            stage=self._stage,
            shared_loop=self._shared_loop,
            judges=self.judges,
        )

    @cached_property
    def users(self) -> Users:
        """The users who answer the agents of this process."""
        return Users(self.settings.gateway, self.settings.user_model or "")

    def factory(self, agent: AgentChoice | None) -> AgentFactory:
        """Return the factory of an agent; the first call loads all agents.

        Args:
            agent: one of the run's agents; None for an item that has none.

        Raises:
            AgentLoadError: one of them cannot be loaded, or there is none.
        """
        agents = self.settings.agents
        for choice in agents:  # a mistake in the last one is reported before the first one plays
            if choice not in self._factories:
                self._factories[choice] = self._load(choice)
        if agent is not None:
            return self._factories[agent]
        if not agents:
            raise NoAgent(
                "no agent to test: give --intercode-agent=module:Attr (or oracle), set "
                "intercode_agent in the ini file, or override the fixture intercode_agent"
            )
        labels = ", ".join(choice.label for choice in agents)
        raise AgentLoadError(
            f"--intercode-agent names several agents ({labels}), and this item belongs to none of "
            "them: let the test take intercode_agent or intercode_episode as an argument"
        )

    def _load(self, agent: AgentChoice) -> AgentFactory:
        settings = self.settings
        try:
            return load_agent(
                agent.name,
                agent.arguments,
                settings.agent_folder,
                settings.gateway,
                progress=self.report,
                sandbox=replace(self.sandbox, backend=settings.backend),
            )
        except AgentLoadError as error:
            message = agent.explain(str(error), settings.agent_arguments)
            raise AgentLoadError(message) from error

    def _agent_of(self, spec: RolloutSpec) -> AgentChoice | None:
        """Return which of the run's agents plays a rollout; None if none of them does."""
        return next(
            (
                choice
                for choice in self.settings.agents
                if (choice.name, choice.arguments) == (spec.agent, spec.agent_arguments)
            ),
            None,
        )

    def agent(self, spec: RolloutSpec) -> Agent:
        """Return a fresh agent for a rollout; hooks are called on the rollout's thread."""

        def make() -> Agent:
            return self.hooks.make_agent(spec.task) or self._fresh_agent(spec)

        agent = make()
        agent.again = make
        return agent

    def _fresh_agent(self, spec: RolloutSpec) -> Agent:
        return fresh_agent(self.factory(self._agent_of(spec)), spec)

    def environment(self, spec: RolloutSpec) -> Environment:
        """Return an environment for a rollout, not reset yet; hooks may make it."""
        token = _SPEC.set(spec)
        try:
            return self.hooks.make_environment(spec.task)
        finally:
            _SPEC.reset(token)

    def default_environment(self, task: Task) -> Environment:
        """Return the environment that a task names; called if no hook of the user makes one.

        It belongs to the rollout that the hook is called for, if that has this task.
        """
        spec = _SPEC.get()
        if spec is None or spec.task is not task:
            spec = self.spec(task)
        return default_environment(spec, self.sandboxes(self._agent_of(spec)))

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
        """The sandbox provider of this process, without folders of an agent."""
        if self._provider is None:
            sandbox = replace(self.sandbox, backend=self.settings.backend)
            self._provider = SandboxProvider(sandbox, progress=self.report)
            self._provider.share(GOLDS, lambda: GoldCache(self.golds))
        return self._provider

    def sandboxes(self, agent: AgentChoice | None) -> SandboxProvider:
        """Return the sandbox provider of an agent, with the folders that the agent needs there.

        Args:
            agent: one of the run's agents; None for one of the user's own.
        """
        if agent is None or self.settings.audit:
            return self.provider
        factory = self.factory(agent)
        if not (factory.readonly or factory.scratch):
            return self.provider
        return self.provider.with_folders(factory.readonly, factory.scratch)

    def use_backend(self, backend: str) -> None:
        """Use the backend of a cluster's nodes, unless the user has chosen one."""
        if self.settings.backend == "auto":
            self.settings = self.settings.replace(backend=backend)
            if self._provider is not None:
                self._provider.close()
                self._provider = None
                self.__dict__.pop("services", None)

    def close(self) -> None:
        """End all sandboxes, and close what the agents hold open."""
        with contextlib.ExitStack() as stack:  # closes all of them, even if one raises
            if self._provider is not None:
                stack.callback(self._provider.close)
            for factory in self._factories.values():
                stack.callback(factory.close)
            stack.callback(self.judges.close)
            stack.callback(self.users.close)
            stack.callback(self._shared_loop.close)
