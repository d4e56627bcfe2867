"""The connection of this process to a Ray cluster: found, allowed, and left without traces."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.rollouts.cluster.local import NO_RAY, LocalCluster

__all__ = ["OPTION", "RayConnection"]

OPTION = "--intercode-cluster"
_CONNECT_TIMEOUT = 10.0  # seconds for a cluster to answer at all
_VARIABLES = {
    # It would upload the project, gold included, to the cluster.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would end this process when the head is gone; the run says so instead.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "1000000",
}


class RayConnection:
    """A connection to a Ray cluster.

    Args:
        address: ``auto``, ``HOST:PORT``, or ``local:N`` for a cluster that is started here.
        insecure: take a cluster that asks nobody for a token.

    Attributes:
        ray: the module.

    Raises:
        ConfigurationError: Ray is not installed, or the cluster does not answer or may not be used.
    """

    def __init__(self, address: str, *, insecure: bool) -> None:
        self._local: LocalCluster | None = None
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        os.environ.update(_VARIABLES)
        try:
            if address.startswith("local:"):
                self._start_local(address)
            self.ray = _imported()  # it reads its variables when it is imported
            self._connect(address, insecure)
        except BaseException:
            self.close()
            raise

    def _start_local(self, address: str) -> None:
        try:
            self._local = LocalCluster(int(address.partition(":")[2]))
        except EngineUnavailable as error:
            raise ConfigurationError(f"{OPTION}={address}: {error}") from None
        self._set(self._local.variables)

    def _connect(self, address: str, insecure: bool) -> None:
        source = f"{OPTION}={address}"
        if self._local is not None:
            target = self._local.address
        else:
            target = _resolve(address, source)
            if os.environ.get("RAY_AUTH_MODE") != "token" and not insecure:
                raise ConfigurationError(
                    f"{source}: a Ray cluster runs code of whoever reaches it: start it and this "
                    "with RAY_AUTH_MODE=token (docs/cluster.md), or give "
                    "--intercode-cluster-insecure if nobody else reaches it"
                )
            _probe(target, source)
        if self.ray.is_initialized():
            raise ConfigurationError(
                f"{source}: this process is connected to a Ray cluster already"
            )
        with _undisturbed(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _quiet()
            try:
                self.ray.init(
                    address=target,
                    log_to_driver=False,
                    configure_logging=False,
                    namespace="pytest-intercode",
                )
            except Exception as error:
                text = " ".join(str(error).split())
                raise ConfigurationError(f"{source}: {text:.400}") from None

    def _set(self, variables: Mapping[str, str]) -> None:
        for name, value in variables.items():
            self._environment.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def close(self) -> None:
        """Leave the cluster, and put the environment back."""
        ray = getattr(self, "ray", None)
        if ray is not None:
            with _undisturbed(), contextlib.suppress(Exception):
                ray.shutdown()
        if self._local is not None:
            self._local.close()
        for name, value in self._environment.items():
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


def _resolve(address: str, source: str) -> str:
    """Return the address that is meant by ``auto``; refuse what cannot be used.

    Raises:
        ConfigurationError: there is none, or it is a client's.
    """
    if address.startswith("ray://") or os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
        raise ConfigurationError(
            f"{source}: the driver has to run on a machine of the cluster, and Ray's client "
            "(ray://) is not; use ray job submit (docs/cluster.md)"
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
        f"{source}: no Ray cluster runs on this machine, and RAY_ADDRESS is not set; ray start "
        "makes one, or give its address, or local:N"
    )


def _probe(address: str, source: str) -> None:
    """Check that a service listens there, as Ray itself would wait for minutes.

    Raises:
        ConfigurationError: nothing does.
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
