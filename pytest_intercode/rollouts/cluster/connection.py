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
from typing import Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.cluster.executor import ClusterExecutor
from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.placement import NodeCounts
from pytest_intercode.rollouts.cluster.settings import (
    NodeSettings,
    why_not_on_nodes,
    with_agent_files,
)
from pytest_intercode.rollouts.cluster.transport import Transport
from pytest_intercode.rollouts.executor import Handle, Observer
from pytest_intercode.rollouts.rollout import default_environment
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.forks import MakingProcess

__all__ = [
    "Cluster",
    "ClusterSession",
    "NodeAgent",
    "check_agent",
    "shared_cluster",
]

# What messages of the cluster say to users of pytest, and what it is called in Python.
_IN_PYTHON = (
    ("give --intercode-cluster-insecure", "give Cluster(insecure=True)"),
    ("say which with --intercode-sandbox", "say which with Cluster(sandbox=)"),
    ("--intercode-network:", "network=True:"),
    ("--intercode-allow-host", "network=[HOST]"),
    ("; --intercode-resume goes on from here", ""),
    ("--intercode-cluster=", "cluster="),
    ("--intercode-cluster:", "cluster:"),
)


@dataclass(frozen=True)
class NodeAgent:
    """What nodes make agents of.

    Attributes:
        name: the agent as the user named it.
        arguments: what it is made with, as pairs.
        parameters: names of what else it is made with.
        folder: where relative paths and modules are looked for.
        network: sandboxes reach all of the network.
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
        sandbox: the backend on nodes: ``docker``, ``bubblewrap``, or ``auto`` where all have one.
        rootfs: what bubblewrap uses there in place of images.
        base_images: replacements of base images, by name.
        runtime: what Docker starts sandboxes with there.
        variables: names of environment variables of this process that nodes are to have.
        wait: seconds that a stream waits while no node takes work.
        insecure: use a cluster that asks nobody for a token.
        progress: called with one line for each slow step on a node, and for each that gets no more
            work.

    Raises:
        ConfigurationError: there is no such variable.
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
        self.wait = wait
        self.insecure = insecure
        self.sandbox = SandboxSettings(
            sandbox, None if rootfs is None else Path(rootfs), dict(base_images or {}), runtime
        )
        self.variables = {name: os.environ[name] for name in variables}
        self.progress = progress or (lambda _: None)
        self._process = MakingProcess("this cluster's connection belongs", "another Cluster")
        self._lock = threading.RLock()
        self._connection: _Connection | None = None

    @property
    def counts(self) -> Mapping[str, NodeCounts]:
        """What happened on the nodes since they were connected, by their names."""
        connection = self._connection
        return dict(connection.executor.counts) if connection is not None else {}

    @property
    def in_use(self) -> bool:
        """Whether a stream is open on it."""
        connection = self._connection
        return connection is not None and bool(connection.sessions)

    def open(
        self, agent: NodeAgent, concurrency: int | None, observer: Observer, source: str
    ) -> ClusterSession:
        """Return a session, for one stream; the first one connects.

        Args:
            agent: what nodes make agents of.
            concurrency: how many rollouts run at a time; None for as many as nodes have CPUs.
            observer: what is notified of them.
            source: what the user called, for messages.

        Raises:
            ConfigurationError: nodes cannot make the agent, or the cluster cannot be used.
            SandboxError: the connection is of the process that this one was forked from.
        """
        self._process.check()
        with self._lock:
            connection = self._connection
            if connection is not None and (connection.agent != agent or connection.broken):
                if connection.sessions and not connection.broken:
                    raise ConfigurationError(
                        f"{source}: another stream has this cluster play {connection.agent.name}, "
                        "with other settings; close that one first"
                    )
                self.close()
                connection = None
            if connection is None:
                try:
                    connection = self._connection = _Connection(self, agent)
                except ConfigurationError as error:
                    raise ConfigurationError(f"{source}: {_in_python(error)}") from None
                atexit.register(self.close)  # before Ray's own end, as it was imported earlier
            return ClusterSession(connection, concurrency, observer)

    def make_transport(self) -> Transport:
        """Return what carries messages to the nodes."""
        # Imports Ray.
        from pytest_intercode.rollouts.cluster.ray_nodes import RayNodes

        return RayNodes(self.address, insecure=self.insecure)

    def close(self) -> None:
        """End what runs, and leave the cluster; may be called twice, and it may be used again."""
        if not self._process.is_this:
            return
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                atexit.unregister(self.close)
                connection.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# By process id: a forked child must not use its parent's.
_shared: dict[int, Cluster] = {}
_sharing = threading.Lock()


def shared_cluster(address: str) -> Cluster:
    """Return the cluster of this process at an address; it is left when the process ends.

    A process can be connected to one at a time: the one before is left, unless it is in use.
    """
    with _sharing:
        cluster = _shared.get(os.getpid())
        if cluster is None or cluster.address != address:
            if cluster is not None and not cluster.in_use:
                cluster.close()
            cluster = _shared[os.getpid()] = Cluster(address)
        return cluster


class _Connection(Observer):
    """The executor, and the sessions that it works for."""

    def __init__(self, cluster: Cluster, agent: NodeAgent) -> None:
        self.agent = agent
        self.broken = ""
        self.sessions: list[ClusterSession] = []
        self.files = FileIndex()
        self._progress = cluster.progress
        settings = NodeSettings(
            agent=agent.name,
            agent_arguments=dict(agent.arguments),
            agent_folder=agent.folder,
            sandbox=cluster.sandbox,
            variables=cluster.variables,
            network=agent.network,
        )
        settings = with_agent_files(settings, self.files, f"the agent {agent.name}")
        local_provider = SandboxProvider(cluster.sandbox)  # it starts nothing
        self.executor = ClusterExecutor(
            cluster.make_transport(),
            settings,
            self,
            lambda: None,
            concurrency=None,
            run_budget=RunBudget(RunLimits()),
            files=self.files,
            substitute=lambda spec: default_environment(spec, local_provider),
            timeout=cluster.wait,
        )

    def share(self) -> None:
        """Let as many rollouts run at a time as all sessions together want."""
        concurrencies = [session.wanted for session in self.sessions]
        numbers = [number for number in concurrencies if number is not None]
        limited = bool(numbers) and len(numbers) == len(concurrencies)
        self.executor.resize(sum(numbers) if limited else None)

    def close(self) -> None:
        """Leave the cluster; a stream that is open on it raises."""
        self.broken = self.broken or "the cluster was closed"
        self.executor.close()
        with self.executor.lock:
            for session in list(self.sessions):
                session.fail_all(EngineUnavailable(self.broken))

    def report(self, line: str) -> None:
        """Pass a line of a node on."""
        with contextlib.suppress(Exception):  # it is the user's own
            self._progress(line)


class ClusterSession(Observer):
    """A cluster as the executor of one stream; the observer of its rollouts.

    Args:
        connection: the cluster's.
        concurrency: how many rollouts run at a time; None for as many as nodes have CPUs.
        observer: what is notified of them.

    Attributes:
        lock: held while the observer is notified; take it before any lock that the observer takes.
        concurrency: how many rollouts run at a time.
    """

    def __init__(
        self, connection: _Connection, concurrency: int | None, observer: Observer
    ) -> None:
        self.observer = observer
        self.wanted = concurrency
        self.lock = connection.executor.lock
        self._connection = connection
        self._handles: set[Handle] = set()
        with self.lock:
            connection.sessions.append(self)
            connection.share()
            self.concurrency = concurrency or max(1, connection.executor.slots)

    def submit(self, spec: RolloutSpec) -> Handle:
        """Take a rollout; it begins when a node has a free slot.

        Raises:
            EngineUnavailable: no node takes work any more.
        """
        with self.lock:
            if self._connection.broken:
                raise EngineUnavailable(self._connection.broken)
            handle = self._connection.executor.submit(spec, self)
            self._handles.add(handle)
            return handle

    def printed(self, handle: Handle, pieces: list[Any]) -> None:
        """Pass it on, unless the stream has gone."""
        if handle in self._handles:
            self.observer.printed(handle, pieces)

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """Pass it on, likewise."""
        if handle in self._handles:
            self._handles.remove(handle)
            self.observer.ended(handle, record)

    def failed(self, handle: Handle, error: BaseException) -> None:
        """Pass it on, likewise; where no node takes work any more, none will."""
        if isinstance(error, EngineUnavailable):
            error = EngineUnavailable(_in_python(error))
            self._connection.broken = str(error)
        if handle in self._handles:
            self._handles.remove(handle)
            self.observer.failed(handle, error)

    def fail_all(self, error: EngineUnavailable) -> None:
        """Let the stream meet an error in place of each record."""
        for handle in list(self._handles):
            self.failed(handle, error)

    def put(self, path: Path, digest: str) -> None:
        """Have nodes get a file with a SHA-256 when a rollout needs it."""
        self._connection.files.put(path, digest)

    def forget(self, path: Path) -> None:
        """Let nodes remove it."""
        self._connection.executor.forget_file(path)

    def stop(self) -> None:
        """Do nothing: what was not begun is cancelled."""

    def join(self, timeout: float) -> bool:
        """Wait until nodes have ended what was cancelled.

        Args:
            timeout: seconds to wait.

        Returns:
            Whether they have.
        """
        with self.lock:
            handles = list(self._handles)
        all_over = self._connection.executor.wait_for_end(handles, timeout)
        with self.lock:
            self._handles.difference_update(handles)
        return all_over

    def close(self) -> None:
        """Leave the cluster to other streams."""
        with self.lock:
            if self in self._connection.sessions:
                self._connection.sessions.remove(self)
                if self._connection.sessions:
                    self._connection.share()


def check_agent(agent: object, source: str) -> str:
    """Return the name of an agent that nodes can make.

    Raises:
        ConfigurationError: they cannot.
    """
    if isinstance(agent, str):
        reason = why_not_on_nodes(agent)
        if reason:
            raise ConfigurationError(f"{source}: {reason}; leave cluster out")
        return agent
    raise ConfigurationError(
        f"{source}: the agent {agent!r:.60} is an object of this process, and each node makes its "
        "own: name a class or a function in a file of its own, agent='policy.py:Policy' or "
        "'module:Policy', and give what changes as parameters="
    )


def _in_python(error: Exception) -> str:
    return functools.reduce(lambda text, pair: text.replace(*pair), _IN_PYTHON, str(error))
