"""Nodes over Ray: one actor on each, started, placed, watched and ended; files in its object store.

Ray is imported when a cluster is asked for.

Actors return bytes, which Ray carries without a pickle. Ray runs no call again and starts no actor
again (``max_restarts=0``, ``max_task_retries=0``): a lost rollout is begun with the turns that
remain, on another node if there is one, and only the driver knows these.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.rollouts.cluster.node import Node, differences, versions
from pytest_intercode.rollouts.cluster.ray_connection import OPTION, RayConnection
from pytest_intercode.rollouts.cluster.transport import Event, Gone, Joined, Received, Refused

__all__ = ["RayNodes"]

_RESOURCE = "intercode"
_START_TIMEOUT = 90.0  # seconds for the processes on nodes to start
_POLL_TIMEOUT = 5.0  # seconds that a node keeps a question open
_SILENCE_TIMEOUT = 25.0  # seconds beyond that, after which a node is given up
_UNREACHABLE_TIMEOUT = 10.0  # seconds in which Ray knows whether a node it cannot reach is gone
_WATCH_INTERVAL = 2.0  # seconds between two looks at the cluster
_MAX_STORED = 64 * 1024 * 1024  # bytes of files in the object store, but for the last one


@dataclass
class _Process:
    """Our process on a node of Ray's.

    Attributes:
        id: names it, and no other process.
        host: Ray's id of its node.
        name: the node's name, for people.
        weight: its share of the run.
        actor: Ray's handle of it.
        asked_at: when it was asked last, of the monotonic clock.
        joined: it can play.
        gone: it is given up.
        unreachable: since when Ray cannot reach it; 0 while it can.
        problem: why it cannot play.
    """

    id: str
    host: str
    name: str
    weight: float
    actor: Any
    asked_at: float = field(default_factory=time.monotonic)
    joined: bool = False
    gone: bool = False
    unreachable: float = 0.0
    problem: str = ""


class RayNodes:
    """The nodes of a Ray cluster.

    Args:
        address: ``auto``, ``HOST:PORT``, or ``local:N`` for one on this machine.
        insecure: take a cluster that asks nobody for a token.

    Raises:
        ConfigurationError: Ray is not installed, the cluster does not answer or may not be used,
            or a node has other versions than the driver.
    """

    def __init__(self, address: str, *, insecure: bool = False) -> None:
        self._report: Callable[[Event], None] = lambda event: None
        self._lock = threading.RLock()
        self._processes: dict[str, _Process] = {}
        self._process_on: dict[str, str] = {}  # ids of our processes, by Ray's id of a node
        self._count = 0
        self._started = False
        self._joined: list[Joined] = []  # before it has started
        self._closed = threading.Event()
        self._answers: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stored: dict[str, tuple[list[Any], int]] = {}  # references and bytes, by digest
        self._expected = versions()
        self._connection = RayConnection(address, insecure=insecure)
        self._ray = self._connection.ray

    def start(self, report: Callable[[Event], None], settings: Callable[[], bytes]) -> list[Joined]:
        """Start a process on every node, wait for them, and return those that have joined.

        Raises:
            ConfigurationError: one does not start, has other versions, or cannot play.
        """
        self._report = report
        self._settings = settings
        threading.Thread(target=self._pump, name="intercode-ray", daemon=True).start()
        self._find_nodes()
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            with self._lock:
                processes = list(self._processes.values())
            if processes and all(process.joined or process.gone for process in processes):
                break
            time.sleep(0.05)
        problems = [f"node {process.name}: {p}" for process in processes if (p := process.problem)]
        problems += [
            f"node {process.name}: no process of ours started in {_START_TIMEOUT:.0f} s; other "
            "jobs may have its CPUs"
            for process in processes
            if not (process.joined or process.gone)
        ]
        if problems or not processes:
            raise ConfigurationError(
                f"{OPTION}: " + ("; ".join(problems) or "no node of the cluster has CPUs")
            )
        with self._lock:
            self._started = True
        threading.Thread(target=self._watch, name="intercode-nodes", daemon=True).start()
        return self._joined

    def _find_nodes(self) -> None:
        """Start processes on nodes that have none."""
        for node in self._ray.nodes():
            resources = node.get("Resources") or {}
            weight = float(resources.get(_RESOURCE) or resources.get("CPU") or 0)
            host = str(node["NodeID"])
            with self._lock:
                if node["Alive"] and weight > 0 and host not in self._process_on:
                    self._start(host, node, weight, _RESOURCE in resources)

    def _start(self, host: str, node: Mapping[str, Any], weight: float, declared: bool) -> None:
        strategies = self._ray.util.scheduling_strategies
        self._count += 1
        name = f"{node.get('NodeManagerHostname') or node['NodeManagerAddress']}-{host[:6]}"
        resources = {"resources": {_RESOURCE: weight}, "num_cpus": 0}
        groups = {"handle": 1, "poll": 1, "files": 2}
        actor = self._ray.remote(concurrency_groups=groups)(Node).options(
            **(resources if declared else {"num_cpus": weight}),
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(host, soft=False),
        )
        process = _Process(f"{name}#{self._count}", host, name, weight, actor.remote())
        self._processes[process.id] = process
        self._process_on[host] = process.id
        self._call(process, "versions", "poll", then=self._take_versions)

    # -- what nodes answer, on the thread of the pump

    def _call(
        self,
        process: _Process,
        method: str,
        group: str,
        *arguments: Any,
        then: Callable[[_Process, bytes], None],
    ) -> None:
        process.asked_at = time.monotonic()
        remote = getattr(process.actor, method).options(concurrency_group=group).remote

        def take(future: Any) -> None:
            self._answers.put(lambda: self._take(process, future, then))

        remote(*arguments).future().add_done_callback(take)

    def _pump(self) -> None:
        while (take := self._answers.get()) is not None and not self._closed.is_set():
            take()

    def _take(
        self, process: _Process, future: Any, then: Callable[[_Process, bytes], None]
    ) -> None:
        """Take an answer, unless its process was given up."""
        error = None if process.gone else future.exception()
        if process.gone or (error is not None and self._ask_again(process, error)):
            return
        if error is not None:
            self._give_up(process, _reason(error), process_alone=not _of_node(error))
        elif process.unreachable:  # what it sent meanwhile is lost
            self._give_up(process, "it could not be reached for a while", process_alone=True)
        elif not isinstance(data := future.result(), bytes):
            self._give_up(process, "it sends what is not bytes", process_alone=True)
        else:
            then(process, data)

    def _take_versions(self, process: _Process, data: bytes) -> None:
        differing = differences(data, self._expected)
        if differing:
            self._give_up(process, differing, process_alone=True)
        else:
            self._call(process, "set_up", "poll", self._settings(), then=self._take_backend)

    def _take_backend(self, process: _Process, data: bytes) -> None:
        try:
            answer = json.loads(data)
            problem = str(answer["problem"]) if "problem" in answer else ""
            backend = str(answer.get("backend", ""))
        except (ValueError, RecursionError, AttributeError, TypeError):
            problem, backend = "it sends what is not an answer", ""
        if problem:
            self._give_up(process, problem, process_alone=True)
            return
        process.joined = True
        event = Joined(process.id, process.name, process.weight, backend)
        with self._lock:
            if not self._started:
                self._joined.append(event)
        if self._started and event not in self._joined:
            self._report(event)
        self._call(process, "poll", "poll", _POLL_TIMEOUT, then=self._take_messages)

    def _take_messages(self, process: _Process, data: bytes) -> None:
        if data:
            self._report(Received(process.id, data))
        self._call(process, "poll", "poll", _POLL_TIMEOUT, then=self._take_messages)

    def _ask_again(self, process: _Process, error: BaseException) -> bool:
        """Ask a process again that Ray cannot reach, and knows of later that its node is gone."""
        if not isinstance(error, self._ray.exceptions.ActorUnavailableError):
            return False
        process.unreachable = process.unreachable or time.monotonic()
        late = time.monotonic() > process.unreachable + _UNREACHABLE_TIMEOUT
        if late or not process.joined or self._closed.wait(0.1):
            return False
        self._call(process, "poll", "poll", 0.0, then=self._take_messages)
        return True

    def _give_up(self, process: _Process, reason: str, *, process_alone: bool) -> None:
        with self._lock:
            if process.gone:
                return
            process.gone = True
        if process.joined:
            self._report(Gone(process.id, reason, process_alone))
            return
        process.problem = reason
        self._kill(process)
        if self._started:
            self._report(Refused(process.name, reason))

    def _watch(self) -> None:
        """Look for nodes that are new, and for those that do not answer."""
        last_look = time.monotonic()
        while not self._closed.wait(_WATCH_INTERVAL):
            present = time.monotonic()
            paused, last_look = present - last_look > 3 * _WATCH_INTERVAL, present
            with contextlib.suppress(Exception):  # the head may be gone; what runs goes on
                self._find_nodes()
            with self._lock:
                processes = list(self._processes.values())
            for process in processes:
                if paused:
                    process.asked_at = present
                age = present - process.asked_at
                if process.joined and age > _POLL_TIMEOUT + _SILENCE_TIMEOUT:
                    reason = f"it has not answered for {age:.0f} s"
                    self._give_up(process, reason, process_alone=True)

    # -- what the driver sends

    def send(self, node: str, data: bytes) -> None:
        """Send messages to a node."""
        process = self._processes.get(node)
        if process is not None and not process.gone:
            with contextlib.suppress(Exception):  # its end is reported by itself
                process.actor.handle.options(concurrency_group="handle").remote(data)

    def send_file(self, node: str, digest: str, pieces: Callable[[], Iterator[bytes]]) -> None:
        """Put content into the object store, if it is not there, for a node to take it from."""
        process = self._processes.get(node)
        if process is None or process.gone:
            return
        references: list[Any] = []
        with contextlib.suppress(OSError):  # else the node says that it is not what it should be
            references = self._references(digest, pieces)
        with contextlib.suppress(Exception):
            process.actor.receive.options(concurrency_group="files").remote(digest, references)

    def _references(self, digest: str, pieces: Callable[[], Iterator[bytes]]) -> list[Any]:
        with self._lock:
            stored = self._stored.pop(digest, None)
        if stored is None:
            sizes, references = [0], []
            for piece in pieces():
                references.append(self._ray.put(piece))
                sizes.append(len(piece))
            stored = references, sum(sizes)
        with self._lock:
            self._stored[digest] = stored  # as the one that was asked for last
            while len(self._stored) > 1 and sum(s for _, s in self._stored.values()) > _MAX_STORED:
                del self._stored[next(iter(self._stored))]
        return stored[0]

    def replace(self, node: str) -> None:
        """End a process that was given up; another one is started on its node, if that is there."""
        with self._lock:
            process = self._processes.pop(node, None)
            if process is None:
                return
            process.gone = True
            if self._process_on.get(process.host) == node:
                del self._process_on[process.host]
        self._kill(process)

    def _kill(self, process: _Process) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(process.actor, no_restart=True)

    def close(self, timeout: float) -> None:
        """End our processes, and leave the cluster; may be called twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._answers.put(None)
        with self._lock:
            processes = list(self._processes.values())
        with contextlib.suppress(Exception):  # nodes may be gone
            closing = [
                process.actor.close.options(concurrency_group="files").remote()
                for process in processes
                if process.joined and not process.gone
            ]
            if closing:
                self._ray.wait(closing, num_returns=len(closing), timeout=timeout)
        for process in processes:
            self._kill(process)
        self._stored.clear()
        self._connection.close()


def _of_node(error: BaseException) -> bool:
    """Whether an error of Ray's says that a whole node is gone, and not our process alone."""
    text = str(error)
    return "node has died" in text or "node was terminated" in text


def _reason(error: BaseException) -> str:
    """Return an error of Ray's in a few words."""
    if _of_node(error):
        return "the node is gone"
    text = " ".join(str(error).split())
    for mark in ("Worker exit type:", "The actor died because of an error raised in its creation"):
        if mark in text:
            return (
                f"its process has ended ({text[text.index(mark) :].partition(' Some ')[0][:200]})"
            )
    return f"its process has ended ({text:.200})"
