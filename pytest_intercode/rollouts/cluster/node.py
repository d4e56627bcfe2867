"""The process of ours on a node: a worker, and what makes a whole process its own.

Ray makes one of :class:`Node` as an actor, in a process for it alone. Its methods take bytes,
numbers and references to bytes, return bytes, and raise nothing.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import threading
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pytest_intercode.rollouts.cluster.files import bundled_digest
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.cluster.worker import NodeWorker
from pytest_intercode.rollouts.isolation import followed
from pytest_intercode.rollouts.output import capture_process

__all__ = ["Node", "differences", "versions"]

_DRIVER_TIMEOUT = 60.0  # seconds without a call of the driver, after which a node ends by itself
_CHECK_INTERVAL = 2.0
_CLOSE_TIMEOUT = 8.0  # seconds for sandboxes to close; they end with this process in any case


def versions() -> dict[str, str]:
    """Return what has to be the same on all nodes, and on the driver."""
    return {
        "pytest-intercode": _version("pytest-intercode"),
        "its files": bundled_digest()[:12],
        "Python": platform.python_version(),
        "Ray": _version("ray"),
    }


def differences(data: bytes, expected: dict[str, str]) -> str:
    """Say in what a node differs from this machine, or nothing.

    Args:
        data: its :func:`versions`, as JSON.
        expected: those of this machine.
    """
    try:
        reported = json.loads(data)
    except (ValueError, RecursionError):
        reported = None
    if not isinstance(reported, dict):
        return "it does not report its versions"
    return ", ".join(
        f"{name} {reported.get(name, 'unknown')!s:.40}, here {value}"
        for name, value in expected.items()
        if reported.get(name) != value
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


class Node:
    """A worker that has its process to itself."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(followed())
        capture_process()
        self._worker: NodeWorker | None = None
        self._last_contact = time.monotonic()
        threading.Thread(target=self._watch, name="intercode-watch", daemon=True).start()

    def versions(self) -> bytes:
        """Return what has to be the same everywhere, as JSON."""
        return json.dumps(versions()).encode()

    def set_up(self, settings: bytes) -> bytes:
        """Take the settings of the run; return the backend of sandboxes, or a problem, as JSON."""
        self._last_contact = math.inf  # until it has answered, whatever it waits for
        try:
            self._worker = NodeWorker(NodeSettings.from_json(settings))
        except Exception as error:
            self._last_contact = time.monotonic()
            return json.dumps({"problem": " ".join(str(error).split())}).encode()
        return json.dumps({"backend": self._worker.backend}).encode()

    def handle(self, data: bytes) -> None:
        """Take messages of the driver."""
        assert self._worker is not None
        try:
            self._worker.handle(data)
        except Exception:  # it would travel as a pickle
            os._exit(70)  # the driver notes that this process has ended

    def receive(self, digest: str, references: Sequence[Any]) -> None:
        """Take a file out of Ray's object store."""
        assert self._worker is not None
        try:
            self._worker.receive(digest, map(_content, references))
        except Exception:
            os._exit(70)

    def poll(self, timeout: float) -> bytes:
        """Return messages for the driver, as soon as there are some."""
        assert self._worker is not None
        return self._worker.poll(timeout)

    def close(self) -> None:
        """End every rollout and every sandbox."""
        if self._worker is not None:
            self._worker.close()

    def _watch(self) -> None:
        """End this process when the driver is gone, or its network, or the node that started it."""
        parent = os.getppid()
        last_check = time.monotonic()
        resumed = 0.0
        while True:
            time.sleep(_CHECK_INTERVAL)
            present = time.monotonic()
            if present - last_check > 2 * _CHECK_INTERVAL + 1:  # it was stopped, and heard nobody
                resumed = present
            last_check = present
            worker = self._worker
            if worker is not None and worker.closed:  # Ray ends this process, unless it is gone
                time.sleep(_CHECK_INTERVAL)
                os._exit(0)
            if os.getppid() != parent:  # its node is gone; the sandboxes go with this process
                os._exit(72)
            idle = present - self._last_contact if worker is None else worker.idle_seconds()
            if min(idle, present - resumed) > _DRIVER_TIMEOUT:
                threading.Thread(target=self.close, daemon=True).start()
                deadline = time.monotonic() + _CLOSE_TIMEOUT
                while not (worker is None or worker.closed) and time.monotonic() < deadline:
                    time.sleep(0.1)
                os._exit(71)


def _content(reference: Any) -> bytes:
    """Return an object of Ray's store.

    Raises:
        OSError: it cannot be had any more.
    """
    import ray

    try:
        content: bytes = ray.get(reference)
    except Exception as error:
        raise OSError(str(error)) from None
    return content
