"""The driver of a cluster: keeps what is to be done, has nodes do it, and counts their losses.

One thread takes what nodes send and decides what begins; whoever asks waits for futures. There is
no thread for each rollout, so that one driver may have tens of thousands running.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import ConfigurationError, RolloutCancelled
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.cluster.driver import Driver
from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.jobs import JobTable
from pytest_intercode.rollouts.cluster.messages import encode
from pytest_intercode.rollouts.cluster.placement import NodeCounts, Placement
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.cluster.transport import Transport
from pytest_intercode.rollouts.executor import Handle, Observer
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["ClusterExecutor"]

Result = TypeVar("Result")


class ClusterExecutor:
    """Runs rollouts on nodes.

    Args:
        transport: what carries messages to nodes.
        settings: what nodes are to know first.
        observer: what is notified of rollouts, on the executor's thread.
        refill: called, with :attr:`lock` held, when a slot is free and nothing is submitted; it
            may submit something.
        concurrency: how many rollouts run at a time, on all nodes together; None for as many as
            the nodes' weights add up to.
        run_budget: what is left for the whole run, nodes and this process together.
        files: the files that nodes may ask for.
        substitute: returns what a handle has as its environment.
        timeout: seconds that the run waits when no node takes work.

    Attributes:
        lock: guards what ``refill`` looks at.
        backend: the backend of the sandboxes of all nodes.

    Raises:
        ConfigurationError: a node cannot be used, or nodes differ in their sandboxes.
    """

    def __init__(
        self,
        transport: Transport,
        settings: NodeSettings,
        observer: Observer,
        refill: Callable[[], object],
        *,
        concurrency: int | None,
        run_budget: RunBudget,
        files: FileIndex,
        substitute: Callable[[RolloutSpec], Environment],
        timeout: float = 300.0,
    ) -> None:
        self._transport = transport
        self._observer = observer
        self._files = files
        self._substitute = substitute
        self._placement = Placement(concurrency, timeout=timeout)
        self._table = JobTable(self._placement)
        self._driver = Driver(transport, self._table, observer, refill, run_budget, files)
        self.lock = self._driver.lock
        try:
            self._driver.start(lambda: settings.to_json(run_budget.seconds_left))
            self.backend = self._find_backend()
        except BaseException:
            self.close()
            raise

    # -- what its owner calls

    @property
    def counts(self) -> Mapping[str, NodeCounts]:
        """What happened on the nodes, by their names."""
        return self._placement.counts

    @property
    def slots(self) -> int:
        """How many rollouts the nodes take at a time."""
        with self.lock:
            return self._placement.slots

    @property
    def nodes_at_work(self) -> int:
        """How many nodes take work."""
        with self.lock:
            return self._placement.nodes_at_work

    def _find_backend(self) -> str:
        with self.lock:
            names = {node.backend: node.name for node in self._table.nodes.values()}
        if len(names) > 1:
            backends = ", ".join(f"{name} has {backend}" for backend, name in names.items())
            raise ConfigurationError(
                f"--intercode-cluster: {backends}: say which with --intercode-sandbox"
            )
        return next(iter(names), "")

    def submit(self, spec: RolloutSpec, observer: Observer | None = None) -> Handle:
        """Take a rollout; it begins when a node has a free slot.

        Args:
            spec: what it is to do.
            observer: what is notified of it; by default the executor's own.
        """
        handle = Handle(spec, self, None)
        handle.closed.set_result(None)  # its node ends its sandboxes
        with self.lock:
            self._table.add(handle, observer or self._observer)
        self.wake()
        return handle

    def wait(self, handle: Handle, future: Future[Result]) -> Result:
        """Wait for a phase; what is returned for agent and environment acts nowhere."""
        result: Any = None if future is handle.closed else self._observer.wait(handle, future)
        if future is handle.made_agent:
            result = Agent("step", name=handle.spec.agent)
        elif future is handle.reset_environment:
            result = self._substitute(handle.spec)
        return result  # type: ignore[no-any-return]

    def cancel(self, handle: Handle, reason: str) -> None:
        """End a rollout, ungraded; does nothing to one that is over."""
        with self.lock:
            job = self._table.job_of(handle)
            if job is None or handle.over:
                return
            if job.node:
                message = {"what": "cancel", "job": job.number, "attempt": job.attempt}
                self._transport.send(job.node, encode({**message, "reason": reason}))
            else:
                self._table.forget(job)
            handle.fail(RolloutCancelled(reason))
            self._driver.changed.notify_all()

    def wait_for_end(self, handles: Collection[Handle], timeout: float) -> bool:
        """Wait until nothing of some rollouts, which were cancelled, runs on any node.

        Args:
            handles: the rollouts.
            timeout: seconds to wait, for all of them together.

        Returns:
            Whether that is so.
        """
        return self._wait(lambda: not any(map(self._table.job_of, handles)), timeout)

    def resize(self, concurrency: int | None) -> None:
        """Have so many rollouts run at a time, on all nodes together; as in the constructor."""
        with self.lock:
            self._placement.resize(concurrency)
        self.wake()

    def forget_file(self, path: Path) -> None:
        """Let nodes remove a file that no rollout will need any more."""
        with self.lock:
            digest = self._files.forget(path)
            for node in self._table.nodes if digest else ():
                self._transport.send(node, encode({"what": "forget", "digest": digest}))

    def wake(self) -> None:
        """Look for something to begin."""
        self._driver.wake()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait, with :attr:`lock` held, until a condition holds or all is over."""
        while not (self._driver.stopped or condition()):
            self._driver.changed.wait(0.1)

    def stop(self) -> None:
        """Begin nothing more; what runs goes on."""
        with self.lock:
            self._driver.stopped = True
            self._driver.changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait for what runs, after :meth:`stop`; return whether all of it has ended."""
        return self._wait(
            lambda: not any(node.jobs for node in self._table.nodes.values()), timeout
        )

    def close(self, timeout: float = 10.0) -> None:
        """End the nodes' sandboxes and processes; what runs is lost. May be called twice.

        Args:
            timeout: seconds that nodes have for it.
        """
        self._driver.close(timeout)

    def _wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        with self.lock:
            while not (reached := condition()) and time.monotonic() < deadline:
                self._driver.changed.wait(0.1)
        return reached
