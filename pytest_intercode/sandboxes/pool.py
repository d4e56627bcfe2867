"""A small pool of sandboxes that are started before they are asked for.

Starting a container takes 50 to 150 ms, most of it waiting for the engine. While one episode runs,
the pool starts what the next ones will need. A sandbox is handed out once and never comes back:
each episode gets a fresh one, and speed comes from starting early.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from pytest_intercode.sandboxes.protocol import Launcher, Sandbox, SandboxSpec

__all__ = ["Pool"]


class Pool:
    """Starts sandboxes ahead of demand.

    Args:
        launcher: the backend.
        size: how many sandboxes may wait at a time.
        starters: how many are started at the same time; on two processors more than three
            gain nothing.
    """

    def __init__(self, launcher: Launcher, size: int = 4, starters: int = 3) -> None:
        self._launcher = launcher
        self._size = size
        self._starters = ThreadPoolExecutor(starters, thread_name_prefix="intercode-pool")
        self._warm: dict[SandboxSpec, deque[Future[Sandbox]]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def expect(self, specs: Iterable[SandboxSpec]) -> None:
        """Say what will be asked for next, in order; what is not among it is given back."""
        wanted: list[SandboxSpec] = []
        for spec in specs:
            if len(wanted) == self._size:
                break
            wanted.append(spec)
        counts = Counter(wanted)
        surplus: list[Future[Sandbox]] = []
        with self._lock:
            if self._closed:
                return
            for spec, waiting in self._warm.items():
                while len(waiting) > counts[spec]:
                    surplus.append(waiting.pop())
            for spec in wanted:
                waiting = self._warm.setdefault(spec, deque())
                if len(waiting) < counts[spec]:
                    waiting.append(self._starters.submit(self._launcher.launch, spec))
        for future in surplus:
            _discard(future)

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        """Return a fresh sandbox, a waiting one if there is one.

        Raises:
            SandboxError: it could not be started.
        """
        with self._lock:
            waiting = self._warm.get(spec)
            future = waiting.popleft() if waiting else None
        if future is None:
            return self._launcher.launch(spec)
        return future.result()

    def close(self) -> None:
        """Give back every sandbox that was never asked for."""
        with self._lock:
            self._closed = True
            left = [future for waiting in self._warm.values() for future in waiting]
            self._warm.clear()
        for future in left:
            _discard(future)
        self._starters.shutdown(wait=True)


def _discard(future: Future[Sandbox]) -> None:
    def give_back(done: Future[Sandbox]) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().close()

    future.cancel()
    future.add_done_callback(give_back)
