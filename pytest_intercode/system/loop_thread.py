"""An event loop on its own thread, for coroutines of threads that do not have a loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["LoopThread"]

Result = TypeVar("Result")


class LoopThread:
    """A loop that runs from now until :meth:`stop`, on a daemon thread.

    Args:
        name: the name of the thread.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._ending = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine on the loop; may be called from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def stop(self, timeout: float) -> None:
        """End the loop, even with running coroutines, and wait for the thread; may be called twice.

        Args:
            timeout: seconds.
        """
        self._ending = True
        with contextlib.suppress(RuntimeError):  # the loop is already closed
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)

    def _serve(self) -> None:
        try:
            while not self._ending:  # code on the loop may stop it, or call sys.exit
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self.loop.run_forever()
        finally:
            self.loop.close()
