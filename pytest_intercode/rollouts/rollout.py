"""A rollout: one agent on one task in one environment, from its sandboxes to its record.

All code that plays an episode uses this module: items of pytest, inline or concurrent, a task that
a person plays, Gymnasium's environments, the audit. Only here an attempt that failed because of a
broken sandbox is repeated: once, on a fresh sandbox and with a fresh agent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pytest_intercode.agents.answers import Answers
from pytest_intercode.agents.ledger import Ledger
from pytest_intercode.agents.loader import failing
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.agents.users import Users, cannot_continue
from pytest_intercode.core.phases import Phases
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.servers import transport_of
from pytest_intercode.core.status import EpisodeStatus
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import one_line
from pytest_intercode.core.turn import Profile
from pytest_intercode.core.usage import UNSPENT, RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.episode import Episode, call_method
from pytest_intercode.environments.registry import environment_class
from pytest_intercode.errors import (
    AgentError,
    ConfigurationError,
    EpisodeStopped,
    InfrastructureError,
    RolloutCancelled,
    SandboxError,
    TaskError,
)
from pytest_intercode.judging.judges import Judges
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.isolation import isolated
from pytest_intercode.rollouts.records import RecordBuilder
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.rollouts.turn_loop import Cancellation, run_episode
from pytest_intercode.sandboxes.images import ImageNotReady, without_waiting
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = [
    "Rollout",
    "Services",
    "default_environment",
    "expect_sandboxes",
    "fresh_agent",
]

Result = TypeVar("Result")


def _no_agent(spec: RolloutSpec) -> Agent:
    raise TypeError("this rollout has no agent: it is driven from outside")


@contextlib.contextmanager
def _no_stage(_: Environment) -> Iterator[Callable[[str], None]]:
    yield lambda line: None


@dataclass(frozen=True)
class Services:
    """The services that rollouts of one process share.

    Attributes:
        sandboxes: the provider of sandboxes.
        make_agent: returns a fresh agent for a rollout.
        make_environment: returns an environment for a rollout, not reset yet; by default the one
            that the task names.
        users: the users that answer agents that hand back.
        run_budget: the budget of the whole run.
        isolate: restores the process after an agent has acted, and collects a line for each thing
            that the agent left.
        stage: lends the terminal to an agent that talks to the user while it acts; yields a
            function that writes a line there.
        shared_loop: the event loop of async agents; None for a separate one in each episode.
        judges: asks the judges of tasks; None if no task may have a judge.
    """

    sandboxes: SandboxProvider
    make_agent: Callable[[RolloutSpec], Agent] = _no_agent
    make_environment: Callable[[RolloutSpec], Environment] | None = None
    users: Users = field(default_factory=Users)
    run_budget: RunBudget = field(default_factory=lambda: RunBudget(RunLimits()))
    isolate: Callable[[], contextlib.AbstractContextManager[list[str]]] = isolated
    stage: Callable[[Environment], contextlib.AbstractContextManager[Callable[[str], None]]] = (
        _no_stage
    )
    shared_loop: SharedLoop | None = None
    judges: Judges | None = None


class Rollout:
    """One rollout; one thread calls its phases in order, and any thread may cancel it.

    Args:
        spec: the specification of the rollout.
        services: the services that it uses.
    """

    def __init__(self, spec: RolloutSpec, services: Services) -> None:
        self.spec = spec
        self._services = services
        self._records = RecordBuilder(spec)
        self._cancellation = Cancellation()
        self._environments: list[Environment] = []
        self._users: list[Answers] = []
        self._attempts: list[str] = []
        self._ledger: Ledger | None = None
        self._is_stopped = False

    @property
    def cancelled(self) -> str:
        """Why it was cancelled; empty if it was not."""
        return self._cancellation.reason

    def cancel(self, reason: str) -> None:
        """End it in any phase, without grading; does nothing if it is over."""
        self._cancellation.cancel(reason)

    def stop(self, reason: str) -> None:
        """End it like :meth:`cancel`, but at the user's request and with a record."""
        self._is_stopped = True
        self.cancel(reason)

    def make_agent(self) -> Agent:
        """Return a fresh agent.

        Raises:
            AgentLoadError: there is no agent of this name.
            RolloutCancelled: it was cancelled.
            EpisodeStopped: the user stopped it.
        """
        with self._stoppable():
            self._cancellation.check()
        return self._services.make_agent(self.spec)

    def make_environment(self) -> Environment:
        """Return an environment that was not reset yet; :meth:`close` closes it.

        Raises:
            ConfigurationError: there is no environment for the task.
            RolloutCancelled: it was cancelled.
            EpisodeStopped: the user stopped it.
        """
        with self._stoppable():
            self._cancellation.check()
        services = self._services
        if services.make_environment is not None:
            environment = services.make_environment(self.spec)
        else:
            environment = default_environment(self.spec, services.sandboxes)
        self._environments.append(environment)
        return environment

    def prepare(self, environment: Environment) -> None:
        """Reset an environment on a fresh sandbox, and once more if the first one breaks.

        Raises:
            InfrastructureError: there was no sandbox, or two broke.
            TaskError: the task could not be set up.
            ConfigurationError: the task does not fit the environment, or its judge cannot be asked.
            RolloutCancelled: it was cancelled.
            EpisodeStopped: the user stopped it.
        """
        self._check_judge()
        environment.turns_spent = 0
        environment.phases = Phases()
        with self._stoppable(environment):
            self._twice(lambda _: self._reset(environment))

    def run(self, agent: Agent, environment: Environment) -> EpisodeRecord:
        """Let the agent act in the prepared environment, and grade the end state.

        If the sandbox breaks, a fresh agent begins again on a fresh one, once, with the remaining
        turns, tokens and money; the record's usage is that of both attempts. The episode's time
        starts again: an action hangs until the fault is noticed, so the remaining time would depend
        on the fault, which could be recorded as the agent's timeout. The time of the run goes on.

        Raises:
            InfrastructureError: two sandboxes broke, so the result says nothing about the agent.
            TaskError: gold did not run to its end, so nothing can be graded.
            ConfigurationError: the agent lacks an ability that the task needs.
            QuitRun: the user, who is the agent, wants to end the run.
            RolloutCancelled: it was cancelled.
            JudgeError: the task's judge does not give a verdict.
            EpisodeStopped: the user stopped it.
        """
        spec, services = self.spec, self._services
        self._give_user(agent, environment)
        _check_abilities(agent, environment, spec.agent)

        def attempt(again: bool) -> EpisodeRecord:
            acting = agent
            if again:
                environment.turns_spent += len(environment.turns)
                self._reset(environment)
                acting = agent.again() if agent.again is not None else agent
            with services.stage(environment) as show, environment.phases.timed("agent"):
                record = run_episode(
                    acting,
                    environment,
                    environment.first,
                    timeout=spec.timeout,
                    budget=spec.budget,
                    run_budget=services.run_budget,
                    cancellation=self._cancellation,
                    shared_loop=services.shared_loop,
                    opened=self._keep_ledger,
                    earlier=self._ledger if again else None,
                )
                show(record.headline)
            return record

        with self._stoppable(environment):
            with services.isolate() as leftovers:
                record = self._twice(attempt, lambda: self._has_budget(environment))
            record = self._records.complete(
                record,
                agent,
                environment,
                services.sandboxes,
                attempts=self._attempts,
                leftovers=leftovers,
            )
            return self._judged(record, environment)

    def status(self, *, whole: bool = True) -> EpisodeStatus:
        """Return its current status, from any thread; the executor sets its time.

        Args:
            whole: whether to include actions without a turn yet; slow if there are many.
        """
        status = self.spec.status()
        # Use a copy, because the rollout's own thread may change the list.
        environment = next(reversed([*self._environments]), None)
        if environment is None:
            return replace(status, phase="start")
        episode = environment.episode
        actions = [episode.action, *(_pending(episode) if whole else ())]
        usage = self._ledger.usage if self._ledger is not None else UNSPENT
        return replace(
            status,
            phase=environment.phases.current or "",
            turns=environment.turns_spent + len(episode.turns) + len(actions) - 1,
            max_turns=environment.turns_spent + (episode.max_turns or status.max_turns),
            tokens=usage.tokens,
            cost=usage.cost,
            action=actions[-1],
        )

    def close(self) -> None:
        """Close the users and the environments that it made; may be called twice."""
        with contextlib.ExitStack() as stack:  # it closes all of them, even if one raises
            while self._environments:
                stack.callback(self._environments.pop(0).close)
            while self._users:
                stack.callback(self._users.pop(0).close)

    def _check_judge(self) -> None:
        """Check that the task's judge can be asked, if it has one.

        Raises:
            ConfigurationError: the judge cannot be asked.
        """
        task, judges = self.spec.task, self._services.judges
        if task.judge is not None and judges is None:
            raise ConfigurationError(
                f"{task.source or 'a task of your own'}: task {task.id!r}: it has a judge, which "
                "needs a whole episode: run it with pytest or run_rollouts()"
            )
        if judges is not None:
            judges.check(task)

    def _judged(self, record: EpisodeRecord, environment: Environment) -> EpisodeRecord:
        """Return a complete record with the share of the task's judge, if it has one.

        Raises:
            JudgeError: the judge does not give a verdict.
        """
        judges = self._services.judges
        if self.spec.task.judge is None or judges is None:
            return record
        with environment.phases.timed("tests"):
            record = judges.judge(self.spec.task, record, self._cancellation.reaching)
        return replace(record, phases=environment.phases.recorded())

    @contextlib.contextmanager
    def _stoppable(self, environment: Environment | None = None) -> Iterator[None]:
        """If the user ends the rollout in this context, raise EpisodeStopped with its record."""
        try:
            yield
        except RolloutCancelled as cancelled:
            if not self._is_stopped:
                raise
            usage = self._ledger.usage if self._ledger is not None else UNSPENT
            record = self._records.stopped(cancelled, environment, usage)
            raise EpisodeStopped(str(cancelled), record) from None

    def _has_budget(self, environment: Environment) -> bool:
        """Whether there is budget left for another attempt."""
        exhausted = self._ledger.exhausted if self._ledger is not None else ""
        return len(environment.turns) < environment.max_turns and not exhausted

    def _keep_ledger(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def _give_user(self, agent: Agent, environment: Environment) -> None:
        """Give an environment the task's user, unless it has its own or the agent cannot continue.

        Raises:
            ConfigurationError: the user cannot be created.
        """
        task = self.spec.task
        has_own = environment.user is not None or environment.has_user
        if task.conversation is not None and agent.continues and not has_own:
            environment.user = self._services.users.make(task)
            self._users.append(environment.user)

    def _reset(self, environment: Environment) -> None:
        if environment.user is not None:
            environment.user.restart()
        with (
            environment.phases.timed("start"),
            self._cancellation.reaching(environment.cancel),
        ):
            environment.reset(task=self.spec.task)

    def _twice(
        self, attempt: Callable[[bool], Result], may_retry: Callable[[], bool] = lambda: True
    ) -> Result:
        """Return the result of an attempt; make a second attempt if a sandbox broke in the first.

        Usage of the first attempt still counts: a fault never gives an agent more turns, tokens or
        money than its budget.
        """
        try:
            return attempt(False)
        except SandboxError as error:
            # Once for the whole rollout, in whichever phase the first sandbox broke.
            if self._attempts or not may_retry():
                raise
            self._attempts.append(str(error))
        return attempt(True)


def _pending(episode: Episode) -> Sequence[str]:
    """Return the actions of an episode that have no turn yet; user code may determine these."""
    with contextlib.suppress(Exception):
        return [str(action) for action in episode.pending()]
    return ()


def default_environment(spec: RolloutSpec, sandboxes: SandboxProvider) -> Environment:
    """Return the environment that a rollout's task names, not reset yet.

    Args:
        spec: the rollout.
        sandboxes: the provider of its sandboxes.

    Raises:
        ConfigurationError: no environment has this name.
    """
    cls = environment_class(spec.task.env, spec.profile)
    return call_method(
        cls.name,
        cls,
        sandboxes,
        feedback=spec.feedback,
        max_turns=spec.max_turns,
        action_timeout=spec.action_timeout,
    )


def fresh_agent(factory: AgentFactory, spec: RolloutSpec) -> Agent:
    """Return a fresh agent; if it cannot be made, one that fails in its episode.

    Args:
        factory: makes the agent.
        spec: the rollout; its parameters are further keyword arguments of the agent's class.
    """

    def make() -> Agent:
        try:
            if spec.parameters is not None and factory.make_with is not None:
                return factory.make_with(spec.parameters.keywords())
            return factory.make(spec.task)
        except AgentError as error:
            return failing(error)

    agent = make()
    agent.again = make
    return agent


def _check_abilities(agent: Agent, environment: Environment, name: str) -> None:
    """Check that an agent can use the user and the MCP servers of its task.

    Raises:
        ConfigurationError: it cannot, so they would be ignored.
    """
    option = f"--intercode-agent={name}" if name else "the agent of this test"
    task = environment.task
    has_user = environment.has_user or (task is not None and task.conversation is not None)
    if has_user and not (agent.continues or agent.is_scripted):
        raise ConfigurationError(cannot_continue(option))
    servers = task.view().mcp if task is not None and not agent.is_scripted else {}
    if servers and not agent.transports:
        raise ConfigurationError(
            f"{option}: this agent cannot use MCP servers; use a class, a callable or `command:`, "
            "which get them as task.mcp, or an installed agent whose recipe has `mcp:`"
        )
    for server_name, server in servers.items():
        transport = transport_of(server)
        if transport not in agent.transports:
            raise ConfigurationError(
                f"{option}: this agent cannot use the MCP server {server_name!r} "
                f"({one_line(server):.80}); it connects to servers by "
                f"{' and '.join(sorted(agent.transports))}, not by {transport}"
            )


def expect_sandboxes(
    sandboxes: SandboxProvider,
    upcoming: Iterable[tuple[Task, SandboxProvider]],
    profile: Profile,
) -> None:
    """Have sandboxes started for the episodes of these tasks, as many as the pool holds.

    Args:
        sandboxes: the provider.
        upcoming: the next tasks, in order, each with the provider (or a view of it) from which the
            agent has its sandboxes.
        profile: the profile that they are played under.
    """

    def specs() -> Iterator[SandboxSpec]:
        for task, view in upcoming:
            # Do not wait for the image of a task that has not begun.
            with contextlib.suppress(ImageNotReady, TaskError):
                cls = environment_class(task.env, profile)
                with without_waiting(task.id):
                    orders = call_method(cls.name, cls.sandboxes, task, view)
                if isinstance(orders, list):  # if not, its own episode reports that
                    yield from orders

    with contextlib.suppress(InfrastructureError):
        sandboxes.expect(specs())
