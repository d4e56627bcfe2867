"""Rollouts without pytest: a stream of episode records for a program that trains on them.

Like items of pytest, episodes are run by :class:`~pytest_intercode.rollouts.rollout.Rollout` in an
executor. The process belongs to the caller: changes that a policy makes to it are neither reported
nor set back. This module does not import a trainer.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from pytest_intercode.agents.loader import factory_of, load_agent
from pytest_intercode.agents.protocol import AgentFactory
from pytest_intercode.agents.users import Users
from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.tokens import describe_missing
from pytest_intercode.core.turn import Feedback, Profile
from pytest_intercode.core.usage import Budget
from pytest_intercode.environments.registry import (
    PROFILES,
    environment_class,
    why_env_not_on_nodes,
)
from pytest_intercode.errors import AgentLoadError, ConfigurationError, MissingTokensWarning
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.tokens import TOKEN_SERVERS, TokenServer
from pytest_intercode.judging.judges import Judges
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.executor import Observer
from pytest_intercode.rollouts.feed import Tries
from pytest_intercode.rollouts.isolation import OUR_THREADS
from pytest_intercode.rollouts.parameters import ParameterSource
from pytest_intercode.rollouts.playback import Playback
from pytest_intercode.rollouts.rollout import Services, fresh_agent
from pytest_intercode.rollouts.spec import DEFAULT_TIMEOUT, RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.arguments import ArgumentChecks
from pytest_intercode.suites.making import (
    runnable,
    runnable_of_endless,
    shared_provider,
    tasks_called,
)

if TYPE_CHECKING:
    from pytest_intercode.rollouts.cluster.connection import Cluster
    from pytest_intercode.rollouts.cluster.executor import ClusterExecutor

__all__ = ["RolloutStream", "run_rollouts"]

# Arguments of a program for the options of pytest that messages of loading an agent name.
_ARGUMENT_OF_OPTION = {
    "the arguments given by --intercode-agent-arg": "agent_arguments and parameters",
    "--intercode-agent-arg ": "agent_arguments: ",
    "--intercode-agent=": "agent=",
}


def run_rollouts(
    tasks: str | os.PathLike[str] | Iterable[Task],
    agent: str | Callable[..., object],
    *,
    n: int = 1,
    concurrency: int | None = None,
    ordered: bool = False,
    buffer: int | None = None,
    agent_arguments: Mapping[str, str] | None = None,
    parameters: Mapping[str, object] | None = None,
    parameters_version: int | None = None,
    data: str | os.PathLike[str] | None = None,
    profile: Profile = "strict",
    feedback: Feedback | None = None,
    max_turns: int | None = None,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    timeout: float | None = None,
    action_timeout: float | None = None,
    network: bool | Sequence[str] = False,
    allow_path: Sequence[str | os.PathLike[str]] = (),
    pass_env: Sequence[str] = (),
    tokens: TokenServer | None = None,
    provider: SandboxProvider | None = None,
    cluster: str | Cluster | None = None,
    raise_infrastructure_errors: bool = False,
) -> RolloutStream:
    """Run an agent on tasks, and return the records of episodes as these end.

    ::

        with pytest_intercode.run_rollouts("bash", policy, n=8, concurrency=32) as records:
            for record in records:
                print(record.task.id, record.reward, record.usage.tokens)

    Args:
        tasks: the name of a bundled suite, a dataset or a part of it, the path of a suite or of a
            folder of task folders; or an iterable of tasks, which may be infinite. Tasks are taken
            one by one, as late as possible, on a thread of the stream if ``concurrency`` is not 1.
        agent: an agent as ``--intercode-agent`` names it; a class, or a function without arguments,
            that makes an agent for each episode; or a callable that is the policy of all episodes,
            ``(observation)`` or ``(task, env)``.
        n: tries at each task, one after the other; ``record.task.repeat`` counts them from 1.
        concurrency: how many episodes run at a time; by default 1, and on a cluster as many as its
            nodes have CPUs. With 1 an episode runs when a record is asked for, and never in
            parallel to the caller's own work.
        ordered: whether records come in the order of the tasks instead of the order of their ends.
        buffer: how many finished records may wait to be taken before no further episode begins; by
            default as many as run at a time. With 0, episodes begin only while a record is asked
            for.
        agent_arguments: keyword arguments of an agent that is given by name.
        parameters: further keyword arguments of an agent that is a class, which
            :meth:`RolloutStream.set_parameters` can change: JSON values, and files as ``pathlib``
            paths, which are copied.
        parameters_version: the caller's version number of the parameters, from 1; it becomes
            ``record.parameters_version``.
        data: as for :func:`make`.
        profile: ``strict`` or ``paper``.
        feedback: ``reward`` grades after every action, and ends the episode at 1.0; by default the
            feedback that the agent is made for.
        max_turns: maximum actions in an episode; None for each task's own number.
        max_tokens: maximum tokens in an episode, as far as the agent reports them.
        max_cost: maximum cost of an episode, as far as the agent reports it.
        timeout: seconds that an episode has; None for each task's own number, else 600.
        action_timeout: seconds for an action; None for each task's own number.
        network: as for :func:`make`.
        allow_path: as for :func:`make`, if ``tasks`` is a name or a path.
        pass_env: likewise.
        tokens: ``vllm`` or ``sglang``: ask the server of ``OPENAI_BASE_URL`` for token ids and
            log-probabilities, which ``record.model_calls`` then has; only for an agent that is
            given by name and is a program.
        provider: the provider of sandboxes; by default that of the process, which stays warm for
            the next stream.
        cluster: the nodes that episodes run on: an address as for ``--intercode-cluster``, for
            the connection of this process, or a :class:`Cluster`. The agent must be given by name.
        raise_infrastructure_errors: whether to raise an error that is neither the agent's nor the
            task's fault, instead of returning its record.

    Returns:
        An iterator, also for ``async for``. Leaving its ``with`` (or ``async with``) cancels
        running episodes. ``record.item`` is the number of the episode in the stream, from 0.

    Raises:
        ConfigurationError: there is no such suite, dataset, profile or agent, a number is wrong, or
            the cluster cannot be used.
    """
    source = f"run_rollouts({os.fspath(tasks)!r})" if _is_name(tasks) else "run_rollouts()"
    checks = ArgumentChecks(source)
    count = checks.whole("n", n) or 1
    concurrency = checks.whole("concurrency", concurrency)
    buffer = checks.whole("buffer", buffer, 0)
    max_turns = checks.whole("max_turns", max_turns)
    budget = Budget(checks.whole("max_tokens", max_tokens), checks.amount("max_cost", max_cost))
    timeout = checks.amount("timeout", timeout)
    action_timeout = checks.amount("action_timeout", action_timeout)
    profile = checks.choice("profile", profile, PROFILES) or "strict"
    feedback = checks.choice("feedback", feedback, get_args(Feedback))
    agent_arguments = checks.texts("agent_arguments", agent_arguments)
    names = checks.names("parameters", parameters)
    parameters_version = checks.whole("parameters_version", parameters_version)
    checks.flag("ordered", ordered)
    checks.flag("raise_infrastructure_errors", raise_infrastructure_errors)
    permissions = checks.permissions(network, allow_path, pass_env)
    if cluster is not None:
        _check_for_cluster(agent, provider, cluster, checks)
    checks.provider(provider)
    _check_tokens(tokens, agent, cluster is not None, source)
    task_list = _listed(tasks, checks.path("data", data), source, permissions)
    with contextlib.ExitStack() as resources:
        parameter_source = ParameterSource(source, names)
        resources.callback(parameter_source.close)
        factory = _load(agent, agent_arguments, names, tokens, source)
        resources.callback(factory.close)

        def spec_of(task: Task) -> RolloutSpec:
            return RolloutSpec(
                task=task,
                agent=agent if isinstance(agent, str) else "",
                agent_arguments=agent_arguments,
                agent_folder=Path.cwd(),
                profile=profile,
                feedback=feedback or factory.feedback or "observation",
                max_turns=max_turns,
                action_timeout=action_timeout,
                timeout=timeout or task.timeout or DEFAULT_TIMEOUT,
                budget=budget,
            )

        services = _services(factory, provider, cluster is not None, source, resources)
        playback = Playback(services, parameter_source, ordered, raise_infrastructure_errors)
        if cluster is not None:
            session = _session(
                cluster, factory, agent_arguments, names, permissions.network, concurrency, source
            )(playback)
            resources.callback(session.close)
            parameter_source.user = playback.session = session
            concurrency = session.concurrency
        concurrency = concurrency or 1
        if parameters or parameters_version is not None:
            parameter_source.set(parameters or {}, parameters_version)
        check = _checker(profile, concurrency, on_nodes=cluster is not None, source=source)
        tries = Tries(spec_of, task_list, count, check, concurrency)
        in_background = concurrency > 1 or cluster is not None
        buffer = (concurrency if in_background else 0) if buffer is None else buffer
        playback.begin(tries, profile, concurrency, buffer)
        playback.resources.push(resources.pop_all())
    return RolloutStream(playback, tokens)


def _check_for_cluster(
    agent: object, provider: object, cluster: object, checks: ArgumentChecks
) -> None:
    """Check the arguments of a stream on a cluster.

    Raises:
        ConfigurationError: the agent is an object, there is a provider, or it is not a cluster.
    """
    # Imported here, because training on one machine does not need the modules of the cluster.
    from pytest_intercode.rollouts.cluster.connection import Cluster, check_agent

    source = checks.request
    if not isinstance(cluster, str):
        checks.instance("cluster", cluster, Cluster)
    check_agent(agent, source)
    if provider is not None:
        raise ConfigurationError(
            f"{source}: provider belongs to this process, but each node has its own; leave it "
            "out, and configure nodes with Cluster(sandbox=...)"
        )


def _services(
    factory: AgentFactory,
    provider: SandboxProvider | None,
    on_nodes: bool,
    source: str,
    resources: contextlib.ExitStack,
) -> Services:
    """Return the services of rollouts of this process; a stack closes what is created for them.

    Raises:
        ConfigurationError: the agent needs its own provider, but another one was given.
    """
    installed = factory.readonly or factory.scratch
    if installed and not on_nodes:
        if provider is not None:
            raise ConfigurationError(
                f"{source}: the agent {factory.name} runs in the sandbox and needs its own "
                "sandboxes; leave provider out"
            )
        settings = SandboxSettings(readonly=factory.readonly, scratch=factory.scratch)
        provider = SandboxProvider(settings)
        resources.callback(provider.close)
    loop = SharedLoop()
    users = Users()
    resources.callback(users.close)
    resources.callback(loop.close)
    judges = Judges()
    resources.callback(judges.close)
    return Services(
        sandboxes=provider or shared_provider(),
        make_agent=lambda spec: fresh_agent(factory, spec),
        users=users,
        isolate=lambda: contextlib.nullcontext([]),
        shared_loop=loop,
        judges=judges,
    )


def _session(
    cluster: str | Cluster,
    factory: AgentFactory,
    arguments: Mapping[str, str],
    parameters: frozenset[str],
    network: bool,
    concurrency: int | None,
    source: str,
) -> Callable[[Observer], ClusterExecutor]:
    """Return a function that opens the session of a stream, given its observer."""
    from pytest_intercode.rollouts.cluster.connection import NodeAgent, shared_cluster

    connected = shared_cluster(cluster) if isinstance(cluster, str) else cluster
    pairs = tuple(sorted(arguments.items()))
    agent = NodeAgent(factory.name, pairs, parameters, Path.cwd(), network)
    return lambda observer: connected.open(agent, concurrency, observer, source)


def _checker(
    profile: Profile, concurrency: int, *, on_nodes: bool, source: str
) -> Callable[[Task], None]:
    """Return a function that raises for a task that cannot be run with these settings."""

    def check(task: Task) -> None:
        environment = environment_class(task.env, profile)
        if on_nodes and (reason := why_env_not_on_nodes(task.env)):
            raise ConfigurationError(
                f"{source}: the environment {task.env} {reason}; leave cluster out"
            )
        if environment.in_order and (concurrency > 1 or on_nodes):
            remedy = "leave cluster out" if on_nodes else "concurrency=1"
            raise ConfigurationError(
                f"{source}: {task.env} episodes of the paper profile depend on those before "
                f"them, so they run one at a time, in one process: {remedy}"
            )

    return check


class RolloutStream:
    """A stream of the records of episodes as these end; see :func:`run_rollouts`.

    A stream that is not used in a ``with`` is closed when it is exhausted, when it raises, and when
    it is garbage-collected.
    """

    def __init__(self, playback: Playback, tokens: TokenServer | None = None) -> None:
        self._playback = playback
        self._expects_tokens = tokens is not None
        weakref.finalize(self, _abandon, playback).atexit = False

    def __iter__(self) -> RolloutStream:
        return self

    def __next__(self) -> EpisodeRecord:
        """Wait for a record.

        Raises:
            StopIteration: there are no more tasks, or the stream was closed.
            EngineUnavailable: there is no engine for sandboxes, so no episode can be run.
            InfrastructureError: an episode failed with it, with ``raise_infrastructure_errors``.
            ConfigurationError: the agent or a task cannot be used.
            SandboxError: the stream belongs to the process that this one was forked from.
        """
        try:
            record = self._playback.take()
        except BaseException:
            self.close()
            raise
        if record is None:
            self.close()
            raise StopIteration
        self._warn(record)
        return record

    def __aiter__(self) -> RolloutStream:
        return self

    async def __anext__(self) -> EpisodeRecord:
        """Wait for a record; cancelling this does not lose one. Raises like :meth:`__next__`."""
        try:
            record = await self._playback.take_async()
        except Exception:
            await self.aclose()
            raise
        if record is None:
            await self.aclose()
            raise StopAsyncIteration
        self._warn(record)
        return record

    def _warn(self, record: EpisodeRecord) -> None:
        """Warn about the first episode without the tokens that were asked for."""
        if not (self._expects_tokens and record.graded):
            return
        if missing := describe_missing(record.model_calls):
            self._expects_tokens = False
            message = f"run_rollouts(tokens=...): {record.task.id}: {missing}"
            warnings.warn(message, MissingTokensWarning, stacklevel=3)

    def set_parameters(self, parameters: Mapping[str, object], version: int | None = None) -> int:
        """Set the parameters of episodes that begin from now on; see :func:`run_rollouts`.

        Args:
            parameters: all parameters, with their new values.
            version: the caller's version number of them; by default one more than before.

        Returns:
            The version, which is in the records of these episodes.

        Raises:
            ConfigurationError: they have other names than before, a value is neither JSON nor a
                path, a file cannot be read, or the stream is closed.
        """
        return self._playback.parameters.set(parameters, version)

    def close(self) -> None:
        """Cancel running episodes, and wait until sandboxes are closed; may be called twice."""
        self._playback.close()

    async def aclose(self) -> None:
        """Do the same without blocking the event loop."""
        import asyncio

        await asyncio.to_thread(self._playback.close)

    def __enter__(self) -> RolloutStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> RolloutStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _abandon(playback: Playback) -> None:
    """Close a garbage-collected stream; this may be called on any thread, under any lock."""
    if not playback.records.closed:
        thread = threading.Thread(target=playback.close, name=f"{OUR_THREADS}closing", daemon=True)
        with contextlib.suppress(RuntimeError):  # the process is ending, and its sandboxes with it
            thread.start()


def _is_name(tasks: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(tasks, (str, os.PathLike))


def _listed(tasks: Any, data: str | None, source: str, permissions: Permissions) -> Iterable[Task]:
    """Return the tasks that can be run; as a list unless they are given as an iterator."""
    if _is_name(tasks):
        return runnable(tasks_called(os.fspath(tasks), data, source, permissions), permissions)
    if not isinstance(tasks, Iterable):
        raise ConfigurationError(
            f"{source}: tasks has to be a name, a path or an iterable of tasks, not "
            f"{type(tasks).__name__}"
        )
    if isinstance(tasks, Sequence):
        return runnable([_checked(task, source) for task in tasks], permissions)
    return runnable_of_endless((_checked(task, source) for task in tasks), permissions)


def _checked(task: object, source: str) -> Task:
    if not isinstance(task, Task):
        raise ConfigurationError(
            f"{source}: each task has to be a Task, not {type(task).__name__}: {task!r:.60}"
        )
    return task


def _check_tokens(tokens: object, agent: object, on_nodes: bool, source: str) -> None:
    """Check that tokens can be asked for.

    Raises:
        ConfigurationError: the server is unknown, the agent is an object, or nodes play it.
    """
    if tokens is None:
        return
    problem = ""
    if tokens not in TOKEN_SERVERS:
        problem = f"allowed are {' and '.join(TOKEN_SERVERS)}"
    elif not isinstance(agent, str):
        problem = (
            "it needs an agent that is given by name and is a program, such as command:CMDLINE or "
            "opencode"
        )
    elif on_nodes:
        problem = "nodes do not ask for tokens; leave cluster out"
    if problem:
        raise ConfigurationError(f"{source}: tokens={tokens!r:.40}: {problem}")


def _load(
    agent: str | Callable[..., object],
    arguments: Mapping[str, str],
    parameters: Collection[str],
    tokens: TokenServer | None,
    source: str,
) -> AgentFactory:
    """Load the agent; messages name the arguments of a program instead of pytest's options."""
    if not isinstance(agent, str):
        if arguments:
            raise ConfigurationError(
                f"{source}: agent_arguments needs an agent that is given by name"
            )
        return factory_of(agent, parameters)
    gateway = GatewaySettings.of_environment(programs=True, tokens=tokens) if tokens else None
    try:
        factory = load_agent(agent, arguments, Path.cwd(), gateway, parameters)
    except AgentLoadError as error:
        message = str(error)
        for option, argument in _ARGUMENT_OF_OPTION.items():
            message = message.replace(option, argument)
        raise AgentLoadError(f"{source}: {message}") from None
    if factory.terminal:
        factory.close()
        raise ConfigurationError(f"{source}: {agent} uses your terminal; run it with pytest")
    return factory
