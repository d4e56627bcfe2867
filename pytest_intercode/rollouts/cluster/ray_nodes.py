"""A Ray cluster: how it is found, checked, joined and left, with one actor on each of its nodes.

Ray is only imported when a cluster is used. It starts our processes, places them, transports bytes
(without a pickle) and notices their end. It must not retry calls or restart actors
(``max_restarts=0``, ``max_task_retries=0``): a lost rollout is restarted with the remaining turns,
on another node if there is one, and only the driver knows these.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import uuid
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_intercode.errors import ConfigurationError, EngineUnavailable, InfrastructureError
from pytest_intercode.rollouts.cluster.budget import BudgetActor
from pytest_intercode.rollouts.cluster.local import NO_RAY, LocalCluster
from pytest_intercode.rollouts.cluster.node import Node
from pytest_intercode.rollouts.cluster.nodes import Loss, Process

__all__ = ["RayNodes"]

_OPTION = "--intercode-cluster"
_RESOURCE = "intercode"
_CONNECT_TIMEOUT = 10.0  # seconds for a cluster to accept a connection
_MAX_CALLS = 10_000  # simultaneous calls of an actor; the driver limits its rollouts
_VARIABLES = {
    # Otherwise Ray would upload the project, including gold, to the cluster.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Otherwise Ray would end this process when the head is gone; the run reports that instead.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "1000000",
}


class RayNodes:
    """The nodes of a Ray cluster.

    Args:
        address: ``auto``, ``HOST:PORT``, or ``local:N`` for a cluster that is started here.
        insecure: whether to use a cluster that does not require a token.

    Raises:
        ConfigurationError: Ray is not installed, or the cluster does not answer or may not be used.
    """

    def __init__(self, address: str, *, insecure: bool = False) -> None:
        # Check this first, because `close` would end a connection that is not ours.
        if getattr(sys.modules.get("ray"), "is_initialized", bool)():
            raise ConfigurationError(
                f"{_OPTION}={address}: this process is already connected to a Ray cluster"
            )
        self._local: LocalCluster | None = None
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        self._resources: dict[str, dict[str, Any]] = {}  # an actor's options, by the node's id
        self._counter: Any = None
        self._ray: Any = None
        os.environ.update(_VARIABLES)
        try:
            if address.startswith("local:"):
                self._start_local(address)
            self._ray = _imported()  # Ray reads its variables when it is imported
            self._connect(address, insecure)
        except BaseException:
            self.close()
            raise

    def find(self) -> Mapping[str, tuple[str, float]]:
        """Return the name and the weight of each live node, by its id in Ray."""
        nodes = {}
        for node in self._ray.nodes():
            resources = node.get("Resources") or {}
            weight = float(resources.get(_RESOURCE) or resources.get("CPU") or 0)
            node_id = str(node["NodeID"])
            if node["Alive"] and weight > 0:
                host = node.get("NodeManagerHostname") or node["NodeManagerAddress"]
                nodes[node_id] = f"{host}-{node_id[:6]}", weight
                declared = {"resources": {_RESOURCE: weight}, "num_cpus": 0}
                self._resources[node_id] = (
                    declared if _RESOURCE in resources else {"num_cpus": weight}
                )
        return nodes

    def start(self, node: str) -> Process:
        """Start our process on a node."""
        actor = self._ray.remote(Node).options(
            **self._resources[node],
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=_MAX_CALLS,
            scheduling_strategy=self._on(node),
        )
        return _RayProcess(self._ray, actor.remote())

    def put(self, content: bytes) -> object:
        """Put bytes into the object store.

        Raises:
            InfrastructureError: the object store does not accept them.
        """
        try:
            return self._ray.put(content)
        except Exception as error:
            text = " ".join(str(error).split())
            raise InfrastructureError(f"Ray does not store a file for nodes: {text:.200}") from None

    def count(self, budget: bytes) -> str:
        """Start the actor for the run's budget on this machine; it ends with the driver."""
        name = f"budget-{uuid.uuid4().hex}"
        self._counter = (
            self._ray.remote(BudgetActor)
            .options(
                name=name,
                num_cpus=0,
                max_restarts=-1,
                scheduling_strategy=self._on(self._ray.get_runtime_context().get_node_id()),
            )
            .remote(budget)
        )
        return name

    def close(self) -> None:
        """Leave the cluster, and restore the environment variables."""
        self._counter = None
        if self._ray is not None:
            with _undisturbed(), contextlib.suppress(Exception):
                self._ray.shutdown()
        if self._local is not None:
            self._local.close()
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _on(self, node: str) -> object:
        strategies = self._ray.util.scheduling_strategies
        return strategies.NodeAffinitySchedulingStrategy(node, soft=False)

    def _start_local(self, address: str) -> None:
        try:
            self._local = LocalCluster(int(address.partition(":")[2]))
        except EngineUnavailable as error:
            raise ConfigurationError(f"{_OPTION}={address}: {error}") from None
        for name, value in self._local.variables.items():
            self._environment.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def _connect(self, address: str, insecure: bool) -> None:
        source = f"{_OPTION}={address}"
        if self._local is not None:
            target = self._local.address
            _read_variables()
        else:
            target = _resolve(address, source)
            if os.environ.get("RAY_AUTH_MODE") != "token" and not insecure:
                raise ConfigurationError(
                    f"{source}: a Ray cluster runs code of anyone who can reach it: start it and "
                    "this run with RAY_AUTH_MODE=token (docs/cluster.md), or give "
                    "--intercode-cluster-insecure if nobody else can reach it"
                )
            _probe(target, source)
        with _undisturbed(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _quiet()
            try:
                self._ray.init(
                    address=target,
                    log_to_driver=False,
                    configure_logging=False,
                    namespace="pytest-intercode",
                )
            except Exception as error:
                text = " ".join(str(error).split())
                raise ConfigurationError(f"{source}: {text:.400}") from None


class _RayProcess:
    """A Ray actor that runs a :class:`Node`."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor

    async def call(self, method: str, *arguments: object) -> object:
        """Call a method.

        Raises:
            Loss: the process has ended, or cannot be reached.
        """
        try:
            answer = getattr(self._actor, method).remote(*arguments)
            del arguments  # they may be large, and the answer may take long
            return await answer
        except Exception as error:
            unavailable = isinstance(error, self._ray.exceptions.ActorUnavailableError)
            raise _loss(error, temporary=unavailable) from None

    def kill(self) -> None:
        """End it."""
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor, no_restart=True)


def _loss(error: BaseException, *, temporary: bool) -> Loss:
    """Describe an error of Ray in a few words."""
    text = " ".join(str(error).split())
    if "node has died" in text or "node was terminated" in text:
        return Loss("the node is gone", node_is_gone=True)
    for mark in ("Worker exit type:", "The actor died because of an error raised in its creation"):
        if mark in text:
            text = text[text.index(mark) :].partition(" Some ")[0]
            break
    return Loss(f"its process has ended ({text:.200})", temporary=temporary)


def _imported() -> Any:
    """Import Ray, and restore everything that it replaces in this process.

    Raises:
        ConfigurationError: Ray is not installed.
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
    """Restore the signal handlers, the excepthook and the debugger's variable that Ray replaces."""
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
    """Keep Ray's messages off the terminal, which pytest uses."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    with contextlib.suppress(ImportError, AttributeError):  # forget an earlier cluster's token
        from ray._raylet import AuthenticationTokenLoader

        AuthenticationTokenLoader.instance().reset_cache()
    with contextlib.suppress(ImportError, AttributeError):
        from ray._private import worker

        worker.print_to_stdstream = lambda *_, **__: None


def _resolve(address: str, source: str) -> str:
    """Resolve ``auto`` to an address, and refuse addresses that cannot be used.

    Raises:
        ConfigurationError: there is no cluster, or the address is that of Ray's client.
    """
    if address.startswith("ray://") or os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
        raise ConfigurationError(
            f"{source}: the driver has to run on a machine of the cluster, not over Ray's client "
            "(ray://); use ray job submit (docs/cluster.md)"
        )
    if address != "auto":
        return address
    if variable := os.environ.get("RAY_ADDRESS"):
        return variable
    with contextlib.suppress(Exception):
        from ray._private.services import canonicalize_bootstrap_address

        bootstrap_address = canonicalize_bootstrap_address("auto")
        if bootstrap_address:
            return str(bootstrap_address)
    raise ConfigurationError(
        f"{source}: no Ray cluster runs on this machine, and RAY_ADDRESS is not set; start one "
        "with ray start, or give its address, or local:N"
    )


def _read_variables() -> None:
    """Make Ray read its variables again, as a trainer may have imported it before they were set."""
    with contextlib.suppress(Exception):  # private names, which another version may not have
        from ray._raylet import AuthenticationTokenLoader, Config

        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()


def _probe(address: str, source: str) -> None:
    """Check that a service listens at an address, because Ray itself would wait for minutes.

    Raises:
        ConfigurationError: no service listens there.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigurationError(f"{source}: auto, HOST:PORT or local:N is needed")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT):
            return
    except OSError as error:
        raise ConfigurationError(
            f"{source}: no Ray cluster answers at {address}: {error.strerror or error}"
        ) from None
