"""A cluster for rollouts without pytest: connected once, used by one stream after the other."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_intercode.core.usage import RunLimits
from pytest_intercode.core.values import cluster as parse_address
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.cluster.executor import ClusterExecutor, Connection
from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.nodes import Machines, NodeCounts
from pytest_intercode.rollouts.cluster.settings import (
    NodeSettings,
    find_agent,
    why_not_on_nodes,
)
from pytest_intercode.rollouts.executor import Observer
from pytest_intercode.rollouts.rollout import default_environment
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.arguments import ArgumentChecks
from pytest_intercode.system.forks import MakingProcess

__all__ = [
    "Cluster",
    "NodeAgent",
    "check_agent",
    "shared_cluster",
]

# The names of options in the cluster's messages for pytest, and their equivalents in Python.
_IN_PYTHON = (
    ("give --intercode-cluster-insecure", "give Cluster(insecure=True)"),
    ("say which with --intercode-sandbox", "say which with Cluster(sandbox=)"),
    ("--intercode-network:", "network=True:"),
    ("--intercode-allow-host", "network=[HOST]"),
    ("--intercode-cluster=", "cluster="),
    ("--intercode-cluster:", "cluster:"),
)


@dataclass(frozen=True)
class NodeAgent:
    """The settings from which nodes create agents.

    Attributes:
        name: the agent as the user named it.
        arguments: its arguments, as pairs.
        parameters: the names of its further parameters.
        folder: the folder in which relative paths and modules are searched.
        network: whether sandboxes can reach the whole network.
    """

    name: str
    arguments: tuple[tuple[str, str], ...]
    parameters: frozenset[str]
    folder: Path
    network: bool = False


class Cluster:
    """A Ray cluster that plays rollouts; see :func:`run_rollouts`.

    The first stream connects to it. It stays connected, with warm sandboxes, as long as streams ask
    for the same agent; another agent needs new processes on the nodes.

    Args:
        address: ``auto`` for the cluster of ``RAY_ADDRESS`` or of this machine, ``HOST:PORT``, or
            ``local:N`` for one of N nodes that is started here.
        sandbox: the backend on nodes: ``docker``, ``bubblewrap``, or ``auto`` if all have the same.
        rootfs: the root file system that bubblewrap uses there in place of images.
        base_images: replacements of base images, by name.
        runtime: the runtime with which Docker starts sandboxes there.
        variables: names of environment variables of this process that are passed to nodes.
        wait: seconds that a stream waits while no node takes work.
        insecure: whether to use a cluster that does not require a token.
        progress: called with one line for each slow step on a node, and for each node that gets no
            more work.

    Raises:
        ConfigurationError: a variable does not exist, or ``wait`` is not a number of seconds.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        sandbox: str = "auto",
        rootfs: str | os.PathLike[str] | None = None,
        base_images: Mapping[str, str] | None = None,
        runtime: str | None = None,
        variables: Sequence[str] = (),
        wait: float = 300.0,
        insecure: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        for name in variables:
            if name not in os.environ:
                raise ConfigurationError(
                    f"Cluster({address!r}): variables: there is no variable {name} here"
                )
        self.address = address
        self._wait = ArgumentChecks(f"Cluster({address!r})").amount("wait", wait) or 300.0
        self._insecure = insecure
        self._sandbox = SandboxSettings(
            sandbox, None if rootfs is None else Path(rootfs), dict(base_images or {}), runtime
        )
        self._variables = {name: os.environ[name] for name in variables}
        self._progress = progress or (lambda _: None)
        self._process = MakingProcess("this cluster's connection belongs", "another Cluster")
        self._lock = threading.RLock()
        self._agent: NodeAgent | None = None
        self._connection: Connection | None = None

    @property
    def counts(self) -> Mapping[str, NodeCounts]:
        """The counts of each node since it was connected, by the nodes' names."""
        connection = self._connection
        return dict(connection.counts) if connection is not None else {}

    @property
    def in_use(self) -> bool:
        """Whether a stream is open on it."""
        connection = self._connection
        return connection is not None and bool(connection.executors)

    def open(
        self, agent: NodeAgent, concurrency: int | None, observer: Observer, source: str
    ) -> ClusterExecutor:
        """Return an executor for one stream; the first stream connects.

        Args:
            agent: the settings from which nodes create agents.
            concurrency: how many rollouts run at a time; None for as many as nodes have CPUs.
            observer: the observer of the rollouts.
            source: the function that the user called, for messages.

        Raises:
            ConfigurationError: nodes cannot make the agent, or the cluster cannot be used.
            SandboxError: the connection belongs to the process that this one was forked from.
        """
        self._process.check()
        with self._lock:
            connection = self._connection
            if connection is not None and (agent != self._agent or connection.given_up):
                if connection.executors and not connection.given_up:
                    assert self._agent is not None
                    raise ConfigurationError(
                        f"{source}: another stream uses this cluster for {self._agent.name}, with "
                        "other settings; close that one first"
                    )
                self.close()
                connection = None
            if connection is None:
                try:
                    connection = self._connection = self._connect(agent)
                except ConfigurationError as error:
                    raise ConfigurationError(f"{source}: {_in_python(error)}") from None
                self._agent = agent
                atexit.register(self.close)  # runs before Ray's own handler, registered at import
            provider = SandboxProvider(self._sandbox)  # this does not start anything
            return ClusterExecutor(
                connection, observer, lambda spec: default_environment(spec, provider), concurrency
            )

    def _connect(self, agent: NodeAgent) -> Connection:
        files = FileIndex()
        source = f"the agent {agent.name}"
        settings = NodeSettings(
            agents=(find_agent(agent.name, dict(agent.arguments), agent.folder, files, source),),
            agent_folder=agent.folder,
            sandbox=self._sandbox,
            variables=self._variables,
            network=agent.network,
        )
        budget = RunBudget(RunLimits())
        machines = self.machines()
        return Connection(machines, settings, files, budget, self._report, timeout=self._wait)

    def machines(self) -> Machines:
        """Connect this process to the nodes, and return them.

        Raises:
            ConfigurationError: there is no such cluster, or it cannot be used.
        """
        try:
            address = parse_address(str(self.address))
        except ValueError as error:
            raise ConfigurationError(f"cluster={self.address}: {error}") from None
        # Imported here, because this module imports Ray.
        from pytest_intercode.rollouts.cluster.ray_nodes import RayNodes

        return RayNodes(address, insecure=self._insecure)

    def _report(self, line: str) -> None:
        with contextlib.suppress(Exception):  # this is the user's code
            self._progress(line)

    def close(self) -> None:
        """End all rollouts and disconnect; may be called twice, and the cluster can be used again.

        A stream that is still open on it raises.
        """
        if not self._process.is_this:
            return
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            atexit.unregister(self.close)
            connection.give_up(EngineUnavailable("the cluster was closed"))
            connection.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# By process id: a forked child must not use its parent's connection.
_shared: dict[int, Cluster] = {}
_sharing = threading.Lock()


def shared_cluster(address: str) -> Cluster:
    """Return this process's cluster at an address; it is disconnected when the process ends.

    A process can be connected to one cluster at a time: the previous one is closed unless it is in
    use.
    """
    with _sharing:
        cluster = _shared.get(os.getpid())
        if cluster is None or cluster.address != address:
            if cluster is not None and not cluster.in_use:
                cluster.close()
            cluster = _shared[os.getpid()] = Cluster(address)
        return cluster


def check_agent(agent: object, source: str) -> str:
    """Check that nodes can make an agent, and return its name.

    Raises:
        ConfigurationError: they cannot.
    """
    if isinstance(agent, str):
        reason = why_not_on_nodes(agent)
        if reason:
            raise ConfigurationError(f"{source}: {reason}; leave cluster out")
        return agent
    raise ConfigurationError(
        f"{source}: the agent {agent!r:.60} is an object of this process, but each node makes its "
        "own: name a class or a function in its own file, agent='policy.py:Policy' or "
        "'module:Policy', and pass what changes as parameters="
    )


def _in_python(error: object) -> str:
    return functools.reduce(lambda text, pair: text.replace(*pair), _IN_PYTHON, str(error))
