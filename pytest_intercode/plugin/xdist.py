"""Runs under pytest-xdist: what the workers share, and what a worker has in its queue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.usage import RunLimits
from pytest_intercode.errors import SandboxError
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.system.private_folder import PrivateFolder

__all__ = [
    "Workers",
    "call_in_loop",
    "is_distributed",
    "is_worker",
    "make_ordered_scheduler",
    "make_scheduler",
    "queued_items",
]


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is one of xdist's workers."""
    return hasattr(config, "workerinput")


def is_distributed(config: pytest.Config) -> bool:
    """Whether this process gives its items to xdist's workers."""
    return str(getattr(config.option, "dist", "no")) != "no"


def _find_shared(path: str | None) -> Path | None:
    """Return a file that the controller shares with this worker; None if it shares none.

    Raises:
        UsageError: the worker cannot access it.
    """
    if path is None:
        return None
    if not os.access(path, os.R_OK | os.W_OK):
        raise pytest.UsageError(
            "workers of pytest-xdist have to run on their controller's machine, as its user: "
            f"{path} is not writable"
        )
    return Path(path)


class Workers:
    """What the processes of a run share, controller and workers alike; also a pytest plugin.

    Args:
        config: pytest's; a worker's has the paths of the shared files.
        limits: what the run may use up, in all of its processes together.

    Attributes:
        processes: how many processes run episodes.
        slots: a file by which workers take turns to start sandboxes; None outside of workers.
        budget: what is left of the run's budget.
        name: the name of this worker; empty in the controller, and without xdist.
    """

    def __init__(self, config: pytest.Config, limits: RunLimits) -> None:
        worker_input: dict[str, Any] = getattr(config, "workerinput", {})
        self.processes = max(1, int(worker_input.get("workercount", 1)))
        self.slots = _find_shared(worker_input.get("intercode_slots"))
        began, path = worker_input.get("intercode_budget") or (None, None)
        self.budget = RunBudget(limits, began=began, path=_find_shared(path))
        self.name = str(worker_input.get("workerid", ""))
        self._number = int("".join(filter(str.isdigit, self.name)) or 0)
        self._private: PrivateFolder | None = None
        self._shared: Path | None = None  # a folder in _private

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker the shared files, and how xdist distributes the items."""
        node.workerinput["intercode_dist"] = node.config.getvalue("dist")
        node.workerinput["intercode_slots"] = self._share("slots")
        if self.budget.limits:
            path = self._share("budget")
            node.workerinput["intercode_budget"] = (self.budget.began, path)

    def _share(self, name: str) -> str:
        """Return the path of a file that the workers share; it is removed with this process.

        Raises:
            UsageError: there is no place for it.
        """
        try:
            path = self.folder() / name
        except SandboxError as error:
            raise pytest.UsageError(str(error)) from None
        path.touch()
        return str(path)

    def folder(self) -> Path:
        """Return the folder that the processes of the run share; the controller removes it.

        Raises:
            SandboxError: there is no place for it.
        """
        if self.slots is not None:
            return self.slots.parent
        if self._shared is None:
            self._private = PrivateFolder()
            self._shared = self._private.make()
        return self._shared

    def divide(self, concurrency: int) -> int:
        """Return how many episodes this process may run at a time, at least one.

        ``--intercode-concurrency`` applies to the whole run, so the workers divide it.
        """
        episodes, remainder = divmod(concurrency, self.processes)
        return max(1, episodes + (self._number % self.processes < remainder))

    def stop_if_exhausted(self, session: pytest.Session) -> str:
        """End the run after this item if its budget is used up; return the reason."""
        exhausted = self.budget.charge()
        if exhausted:
            session.shouldstop = f"{exhausted}: no further episode is started"
        return exhausted

    def pytest_unconfigure(self) -> None:
        """Remove the files."""
        if self._private is not None:
            self._private.close()


def call_in_loop(config: pytest.Config, function: Callable[[], object]) -> None:
    """Have xdist's controller call a function in its main thread, which waits for its workers.

    Does nothing if xdist's internals differ from those of 3.8.
    """
    session: Any = config.pluginmanager.get_plugin("dsession")
    queue: Any = getattr(session, "queue", None)
    if queue is not None:
        session.worker_intercode_call = function  # it calls "worker_" + the name of the event
        queue.put(("intercode_call", {}))


def queued_items(
    config: pytest.Config, items: list[pytest.Item], *, only_own: bool = False
) -> list[pytest.Item]:
    """Return the items that a worker has been given to run after the current one, in order.

    xdist tells its plugins only the next item; the others are in the queue of the object that runs
    the worker. If that object differs from the one in xdist 3.8, nothing is returned.

    Args:
        config: pytest's.
        items: all items of the run.
        only_own: only items that are unlikely to be taken away again; ``--dist worksteal`` gives
            the second half of a queue to another worker.
    """
    for plugin in config.pluginmanager.get_plugins():
        queue: Any = getattr(plugin, "torun", None)
        following = getattr(plugin, "nextitem_index", None)
        if hasattr(queue, "lock") and isinstance(following, int):
            with queue.lock() as indices:
                numbers = [following, *indices]
            if only_own and vars(config)["workerinput"].get("intercode_dist") == "worksteal":
                numbers = numbers[: len(numbers) // 2 + 1]
            return [items[number] for number in numbers if isinstance(number, int)]
    return []


def make_scheduler(config: pytest.Config, log: Any, concurrency: int) -> Any:
    """Return xdist's own scheduler for ``--dist load``, changed to keep workers' queues filled.

    Unchanged, it lets the queue of a worker with slow tests shrink to two, one of them running.
    """
    from xdist.scheduler import LoadScheduling  # type: ignore[import-untyped]

    class ConcurrentScheduling(LoadScheduling):  # type: ignore[misc]  # it is not annotated
        def check_schedule(self, node: Any, duration: float = 0) -> None:
            workers = max(1, len(self.node2pending))
            missing = 2 * -(-concurrency // workers) + 2 - len(self.node2pending[node])
            # divide the rest evenly, so that no worker is idle at the end
            fair = -(-len(self.pending) // workers)
            if missing > 0 and self.pending and not node.shutting_down:
                self._send_tests(node, min(missing, fair))
            super().check_schedule(node, duration)

    return ConcurrentScheduling(config, log)


def make_ordered_scheduler(config: pytest.Config, log: Any, suites: Iterable[str]) -> Any:
    """Return xdist's scheduler of groups, changed to keep each of these suites in one worker.

    That worker runs the suite's items in order. Other items are distributed one by one.

    Args:
        config: pytest's.
        log: xdist's.
        suites: the node ids of the suites.
    """
    from xdist.scheduler import LoadScopeScheduling

    ordered = frozenset(suites)

    class OrderedScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it is not annotated
        def _split_scope(self, nodeid: str) -> str:
            suite = nodeid.partition("::")[0]
            return suite if suite in ordered else nodeid

    return OrderedScheduling(config, log)
