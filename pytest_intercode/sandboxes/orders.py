"""One who waits for a sandbox, or will: an order, as a pool gives it out."""

from __future__ import annotations

import threading
from typing import Protocol

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec

__all__ = ["Order"]


class _Pool(Protocol):
    def hurry(self, order: Order) -> None: ...
    def cancel(self, order: Order) -> None: ...


class Order:
    """A sandbox that was asked for.

    Attributes:
        spec: which.
        urgent: somebody waits for it who has nothing else to do.
        number: orders of equal urgency are served in the order of their numbers.
        since: when it was asked for.
    """

    def __init__(
        self, pool: _Pool, spec: SandboxSpec, *, urgent: bool, number: int, since: float
    ) -> None:
        self.spec = spec
        self.urgent = urgent
        self.number = number
        self.since = since
        self._pool = pool
        self._done = threading.Event()
        self._filled: list[Sandbox] = []
        self._error: BaseException | None = None

    def wait(self) -> Sandbox:
        """Wait for the sandbox and take it; once.

        Raises:
            SandboxError: it could not be started, was cancelled, or the run is over.
            EngineUnavailable: there is nothing to start it with any more.
        """
        try:
            self._done.wait()
        except BaseException:  # Ctrl-C
            self.cancel()
            raise
        sandbox = self.take()
        if sandbox is None:
            raise self._error or SandboxError("this sandbox was taken before")
        return sandbox

    def hurry(self) -> None:
        """Make it urgent."""
        self._pool.hurry(self)

    def cancel(self) -> None:
        """Give up; whoever waits gets a ``SandboxError``. Does nothing once it was taken."""
        self._pool.cancel(self)

    # -- for the pool

    def fill(self, sandbox: Sandbox) -> None:
        """Hand the sandbox over."""
        self._filled.append(sandbox)
        self._done.set()

    def fail(self, error: BaseException) -> None:
        """Say why there is none."""
        self._error = self._error or error
        self._done.set()

    def take(self) -> Sandbox | None:
        """Return what was handed over and not taken yet; of several callers, one gets it."""
        try:
            return self._filled.pop()
        except IndexError:
            return None
