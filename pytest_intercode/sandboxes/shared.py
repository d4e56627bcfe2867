"""What the environments of one process share: values that are made once, and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.pool import RUN_IS_OVER
from pytest_intercode.system.forks import MakingProcess

__all__ = ["SharedValues"]

Result = TypeVar("Result")

_MAX_THREADS = 10_000  # more than ever run: work must not be kept from starting by work that waits


class SharedValues:
    """Values and threads; everything may be called from any thread."""

    def __init__(self) -> None:
        self._process = MakingProcess("these sandboxes belong", "the environment")
        self._shared: dict[str, Any] = {}
        self._shared_locks: dict[str, threading.RLock] = {}  # each is held while its value is made
        self._sharing = threading.Lock()
        self._sharing_closed = False
        self._background: ThreadPoolExecutor | None = None

    def background(self, work: Callable[[], Result]) -> Future[Result]:
        """Run work in a thread of its own, at once."""
        self._process.check()
        with self._sharing:
            if self._sharing_closed:
                raise SandboxError(RUN_IS_OVER)
            if self._background is None:
                name = "intercode-gold"
                self._background = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=name)
            return self._background.submit(work)

    def share(self, name: str, make: Callable[[], Result]) -> Result:
        """Return what environments of one process share; ``close`` closes it, if it can be closed.

        Args:
            name: the name that it is shared under.
            make: makes it, the first time; callers with the same name wait meanwhile.
        """
        self._process.check()
        with self._sharing:
            lock = self._shared_locks.setdefault(name, threading.RLock())
        with lock:
            if name not in self._shared:
                value = make()
                with self._sharing:
                    closed = self._sharing_closed
                    if not closed:
                        self._shared[name] = value
                if closed:
                    _close(value)
                    raise SandboxError(RUN_IS_OVER)
            result: Result = self._shared[name]
            return result

    def _close_shared(self) -> None:
        """End the threads, then what is shared; the last that was made is the first to go."""
        if self._background is not None:
            self._background.shutdown(wait=True, cancel_futures=True)
        for value in reversed(self._shared.values()):
            _close(value)


def _close(value: Any) -> None:
    if hasattr(value, "close"):
        value.close()
