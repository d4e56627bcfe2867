"""Messages over Ray: one actor on each node, started, watched and ended.

Ray is imported when a cluster is asked for.

An actor's methods take and return bytes, which Ray carries without a pickle. Ray restarts and
retries nothing (``max_restarts=0``, ``max_task_retries=0``): the driver decides.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_intercode.errors import ConfigurationError, EngineUnavailable, InfrastructureError
from pytest_intercode.rollouts.cluster.local import NO_RAY, LocalCluster
from pytest_intercode.rollouts.cluster.player import differences, greeting
from pytest_intercode.rollouts.cluster.transport import (
    Event,
    Gone,
    Heard,
    Joined,
    Refused,
    Said,
    Silent,
)

__all__ = ["RayTransport"]

_OPTION = "--intercode-cluster"
_RESOURCE = "intercode"
_CONNECT = 10.0  # seconds for a cluster to answer at all
_START = 90.0  # seconds for the processes on nodes to start
_LISTEN = 5.0  # seconds that a node keeps a question open
_PATIENCE = 25.0  # seconds beyond that, after which a node counts as silent
_VERDICT = 10.0  # seconds in which Ray knows whether a node that it cannot reach is gone
_LOOK = 2.0  # seconds between two looks at the cluster
_FILE = 120.0  # seconds for a piece of a file
_VARIABLES = {
    # It would upload the project, gold included, to the cluster.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would end this process when the head is gone; the run says so instead.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "1000000",
}


@dataclass
class _Process:
    """Our process on a node of Ray's."""

    node: str
    place: str
    name: str
    weight: float
    actor: Any
    asked: float = 0.0
    silent: bool = False
    joined: bool = False
    gone: bool = False
    unreachable: float = 0.0  # since when
    problem: str = ""
    began: float = field(default_factory=time.monotonic)


class RayTransport:
    """Carries messages over a Ray cluster.

    Args:
        address: ``auto``, ``HOST:PORT``, or ``local:N`` for one on this machine.
        insecure: take a cluster that asks nobody for a token.

    Raises:
        ConfigurationError: Ray is not installed, the cluster does not answer or may not be used,
            or a node has other versions than the driver.
    """

    def __init__(self, address: str, *, insecure: bool = False) -> None:
        self._local: LocalCluster | None = None
        self._report: Callable[[Event], None] = lambda event: None
        self._lock = threading.RLock()
        self._processes: dict[str, _Process] = {}
        self._at: dict[str, str] = {}  # our process, by Ray's id of a node
        self._count = 0
        self._started = False
        self._closed = threading.Event()
        self._answers: queue.SimpleQueue[tuple[_Process, Any] | None] = queue.SimpleQueue()
        self._expected = greeting()
        self._before = {name: os.environ.get(name) for name in _VARIABLES}
        os.environ.update(_VARIABLES)
        try:
            if address.startswith("local:"):
                self._start_local(address)
            self._ray = _imported()  # it reads its variables when it is imported
            self._connect(address, insecure)
        except BaseException:
            self._leave()
            raise

    # -- the cluster

    def _start_local(self, address: str) -> None:
        try:
            self._local = LocalCluster(int(address.partition(":")[2]))
        except EngineUnavailable as error:
            raise ConfigurationError(f"{_OPTION}={address}: {error}") from None
        self._set(self._local.variables)

    def _connect(self, address: str, insecure: bool) -> None:
        asked = f"{_OPTION}={address}"
        if self._local is not None:
            where = self._local.address
        else:
            where = _found(address, asked)
            if os.environ.get("RAY_AUTH_MODE") != "token" and not insecure:
                raise ConfigurationError(
                    f"{asked}: a Ray cluster runs code of whoever reaches it: start it and this "
                    "with RAY_AUTH_MODE=token (docs/cluster.md), or give "
                    "--intercode-cluster-insecure if nobody else reaches it"
                )
            _probe(where, asked)
        if self._ray.is_initialized():
            raise ConfigurationError(f"{asked}: this process is connected to a Ray cluster already")
        with _undisturbed(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _quiet()
            try:
                self._ray.init(
                    address=where,
                    log_to_driver=False,
                    configure_logging=False,
                    namespace="pytest-intercode",
                )
            except Exception as error:
                said = " ".join(str(error).split())
                raise ConfigurationError(f"{asked}: {said:.400}") from None

    def _set(self, variables: Mapping[str, str]) -> None:
        for name, value in variables.items():
            self._before.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def start(self, report: Callable[[Event], None]) -> None:
        """Start a process on every node, and wait for them; begin to report events.

        Raises:
            ConfigurationError: one does not start, or has other versions.
        """
        self._report = report
        threading.Thread(target=self._pump, name="intercode-ray", daemon=True).start()
        self._look()
        until = time.monotonic() + _START
        while time.monotonic() < until:
            with self._lock:
                waited = [one for one in self._processes.values() if not (one.joined or one.gone)]
            if not waited and self._processes:
                break
            time.sleep(0.05)
        with self._lock:
            found = list(self._processes.values())
        wrong = [f"node {one.name}: {one.problem}" for one in found if one.problem]
        wrong += [
            f"node {one.name}: no process of ours started in {_START:.0f} s; other jobs may have "
            "its CPUs"
            for one in found
            if not (one.joined or one.gone)
        ]
        if wrong or not found:
            raise ConfigurationError(
                f"{_OPTION}: " + ("; ".join(wrong) or "no node of the cluster has CPUs")
            )
        self._started = True
        threading.Thread(target=self._watch, name="intercode-nodes", daemon=True).start()

    def _look(self) -> None:
        """Start processes on nodes that have none."""
        for node in self._ray.nodes():
            resources = node.get("Resources") or {}
            weight = float(resources.get(_RESOURCE) or resources.get("CPU") or 0)
            place = str(node["NodeID"])
            with self._lock:
                if node["Alive"] and weight > 0 and place not in self._at:
                    self._start(place, node, weight, _RESOURCE in resources)

    def _start(self, place: str, node: Mapping[str, Any], weight: float, own: bool) -> None:
        from pytest_intercode.rollouts.cluster.node import Node

        strategies = self._ray.util.scheduling_strategies
        self._count += 1
        name = f"{node.get('NodeManagerHostname') or node['NodeManagerAddress']}-{place[:6]}"
        options = {"resources": {_RESOURCE: weight}, "num_cpus": 0} if own else {"num_cpus": weight}
        groups = {"tell": 1, "listen": 1}
        made = self._ray.remote(concurrency_groups=groups)(Node).options(
            **options,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(place, soft=False),
        )
        process = _Process(f"{name}#{self._count}", place, name, weight, made.remote())
        self._processes[process.node] = process
        self._at[place] = process.node
        self._follow(process, self._method(process, "greet", "listen").remote())

    def _method(self, process: _Process, name: str, group: str) -> Any:
        return getattr(process.actor, name).options(concurrency_group=group)

    # -- what nodes say

    def _follow(self, process: _Process, reference: Any) -> None:
        process.asked = time.monotonic()
        reference.future().add_done_callback(lambda future: self._answers.put((process, future)))

    def _pump(self) -> None:
        """Take answers, and ask again."""
        while True:
            found = self._answers.get()
            if found is None or self._closed.is_set():
                return
            process, future = found
            error = future.exception()
            if error is not None:
                if not self._ask_again(process, error):
                    self._end(process, _reason(error), process_alone=not _of_node(error))
                continue
            data = future.result()
            if process.unreachable:  # what it said meanwhile is lost
                self._end(process, "it could not be reached for a while", process_alone=True)
                continue
            if process.silent:
                process.silent = False
                self._report(Heard(process.node))
            if not isinstance(data, bytes):
                self._end(process, "it says what is no bytes", process_alone=True)
                continue
            if process.joined:
                if data:
                    self._report(Said(process.node, data))
            else:
                differs = differences(data, self._expected)
                if differs:
                    self._end(process, differs, process_alone=True)
                    continue
                process.joined = True
                self._report(Joined(process.node, process.name, process.weight))
            if not process.gone:
                self._follow(process, self._method(process, "listen", "listen").remote(_LISTEN))

    def _ask_again(self, process: _Process, error: BaseException) -> bool:
        """Ask a process again that Ray cannot reach, and knows of later that its node is gone."""
        if not isinstance(error, self._ray.exceptions.ActorUnavailableError):
            return False
        process.unreachable = process.unreachable or time.monotonic()
        if time.monotonic() > process.unreachable + _VERDICT or self._closed.wait(0.1):
            return False
        self._follow(process, self._method(process, "listen", "listen").remote(0.0))
        return True

    def _end(self, process: _Process, reason: str, *, process_alone: bool) -> None:
        with self._lock:
            if process.gone:
                return
            process.gone = True
        if not process.joined:
            process.problem = reason
            if self._started:
                self._report(Refused(process.name, reason))
            return
        self._report(Gone(process.node, reason, process_alone))

    def _watch(self) -> None:
        """Look for nodes that are new, and for those that say nothing."""
        before = time.monotonic()
        while not self._closed.wait(_LOOK):
            now = time.monotonic()
            paused, before = now - before > 3 * _LOOK, now
            with contextlib.suppress(Exception):  # the head may be gone; what runs goes on
                self._look()
            with self._lock:
                processes = [one for one in self._processes.values() if not one.gone]
            for one in processes:
                if paused:
                    one.asked = now
                age = now - one.asked
                if one.joined and not one.silent and age > _LISTEN + _PATIENCE:
                    one.silent = True
                    self._report(Silent(one.node, f"it has not answered for {age:.0f} s"))

    # -- what the driver says

    def send(self, node: str, data: bytes) -> None:
        """Send messages to a node."""
        process = self._processes.get(node)
        if process is not None and not process.gone:
            with contextlib.suppress(Exception):  # its end is reported by itself
                self._method(process, "tell", "tell").remote(data)

    def send_file(self, node: str, digest: str, pieces: Iterator[bytes]) -> None:
        """Send the content with a digest, and wait for each piece to arrive."""
        process = self._processes.get(node)
        if process is None or process.gone:
            return
        with contextlib.suppress(Exception):
            for piece in pieces:
                sent = self._method(process, "receive", "tell").remote(digest, piece)
                self._ray.get(sent, timeout=_FILE)

    def replace(self, node: str) -> None:
        """Have a new process started where one has ended."""
        with self._lock:
            process = self._processes.pop(node, None)
            if process is None:
                return
            process.gone = True
            if self._at.get(process.place) == node:
                del self._at[process.place]
        self._kill(process)

    def _kill(self, process: _Process) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(process.actor, no_restart=True)

    def close(self) -> None:
        """End our processes, and leave the cluster; may be called twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._answers.put(None)
        with self._lock:
            processes = list(self._processes.values())
        for process in processes:
            self._kill(process)
        self._leave()

    def _leave(self) -> None:
        ray = getattr(self, "_ray", None)
        if ray is not None:
            with _undisturbed(), contextlib.suppress(Exception):
                ray.shutdown()
        if self._local is not None:
            self._local.close()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _imported() -> Any:
    """Import Ray, and put back what it replaces in this process.

    Raises:
        ConfigurationError: it is not installed.
    """
    with _undisturbed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import ray
            import ray.util.scheduling_strategies
        except ImportError as error:
            raise ConfigurationError(f"{NO_RAY} ({error})") from None
    return ray


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put back the handlers of signals and of errors that Ray replaces, and pytest's prompt."""
    hook, prompt = sys.excepthook, os.environ.get("PYTHONBREAKPOINT")
    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if main else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        sys.excepthook = hook
        os.environ.pop("PYTHONBREAKPOINT", None)
        if prompt is not None:
            os.environ["PYTHONBREAKPOINT"] = prompt
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)


def _quiet() -> None:
    """Keep Ray's messages off the terminal, which is pytest's."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    with contextlib.suppress(ImportError, AttributeError):  # an earlier cluster's token
        from ray._raylet import AuthenticationTokenLoader

        AuthenticationTokenLoader.instance().reset_cache()
    with contextlib.suppress(ImportError, AttributeError):
        from ray._private import worker

        worker.print_to_stdstream = lambda *_, **__: None


def _found(address: str, asked: str) -> str:
    """Return the address that is meant by ``auto``; refuse what cannot be used.

    Raises:
        ConfigurationError: there is none, or it is a client's.
    """
    if address.startswith("ray://") or os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
        raise ConfigurationError(
            f"{asked}: the driver has to run on a machine of the cluster, and Ray's client "
            "(ray://) is not; use ray job submit (docs/cluster.md)"
        )
    if address != "auto":
        return address
    if given := os.environ.get("RAY_ADDRESS"):
        return given
    with contextlib.suppress(Exception):
        from ray._private.services import canonicalize_bootstrap_address

        found = canonicalize_bootstrap_address("auto")
        if found:
            return str(found)
    raise ConfigurationError(
        f"{asked}: no Ray cluster runs on this machine, and RAY_ADDRESS is not set; ray start "
        "makes one, or give its address, or local:N"
    )


def _probe(address: str, asked: str) -> None:
    """See that something listens there, as Ray itself would wait for minutes.

    Raises:
        ConfigurationError: nothing does.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigurationError(f"{asked}: auto, HOST:PORT or local:N is needed")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT):
            return
    except OSError as error:
        raise ConfigurationError(
            f"{asked}: no Ray cluster answers at {address}: {error.strerror or error}"
        ) from None


def _of_node(error: BaseException) -> bool:
    """Whether an error of Ray's says that a whole node is gone, and not our process alone."""
    said = str(error)
    return "node has died" in said or "node was terminated" in said


def _reason(error: BaseException) -> str:
    """Return an error of Ray's in a few words."""
    if _of_node(error):
        return "the node is gone"
    said = " ".join(str(error).split())
    for mark in ("Worker exit type:", "The actor died because of an error raised in its creation"):
        if mark in said:
            return (
                f"its process has ended ({said[said.index(mark) :].partition(' Some ')[0][:200]})"
            )
    if isinstance(error, InfrastructureError):
        return str(error)
    return f"its process has ended ({said:.200})"
