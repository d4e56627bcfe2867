"""Support for pytest-timeout, for an item whose time is up while pytest waits for its rollout.

The plugin would print the stacks of all threads, of which there are dozens, and with its method
``thread`` it would end the process. While an item waits for its rollout, the rollout is cancelled
instead, and the run goes on. Code that hangs elsewhere, in a test or a fixture of the user, is left
to the plugin.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pytest_intercode.errors import RolloutCancelled
from pytest_intercode.plugin.reports import keep_episode
from pytest_intercode.rollouts.executor import Handle
from pytest_intercode.rollouts.records import RecordBuilder

__all__ = ["cancel_on_timeout", "set_timer"]

_CANCEL_TIMEOUT = 10.0  # seconds for a cancelled rollout to end
_TIMER = pytest.StashKey["_Timer"]()


def set_timer(item: pytest.Item, settings: Any) -> None:
    """Start the timer of an item; pytest-timeout stops it by ``item.cancel_timeout``.

    Args:
        item: the item.
        settings: pytest-timeout's.
    """
    timer = item.stash[_TIMER] = _Timer(item, settings)
    vars(item)["cancel_timeout"] = timer.stop


@contextlib.contextmanager
def cancel_on_timeout(item: pytest.Item, handle: Handle, *, acting: bool) -> Iterator[None]:
    """Cancel a rollout that this context waits for when the time of its item is up.

    Args:
        item: the item.
        handle: its rollout.
        acting: whether the agent acts, so that the episode times out; else its sandbox is starting.

    Raises:
        Failed: the rollout was cancelled for this reason.
    """
    timer = item.stash.get(_TIMER, None)
    if timer is None:
        yield
        return
    try:
        with timer.watch(handle.cancel):
            yield
    except RolloutCancelled as cancelled:
        if not timer.message:
            raise
        if acting:
            record = RecordBuilder(handle.spec).failure(cancelled)
            record = replace(record, outcome="timed-out", seconds=timer.seconds)
            keep_episode(item, record)
        raise pytest.fail.Exception(timer.message, pytrace=False) from None


class _Timer:
    """Waits for the end of an item's time on a thread of its own.

    Attributes:
        message: why the rollout was cancelled; empty while it was not.
        seconds: the item's time.
    """

    def __init__(self, item: pytest.Item, settings: Any) -> None:
        self._item, self._settings = item, settings
        self._plugin: Any = item.config.pluginmanager.get_plugin("timeout")
        self._cancel: Callable[[str], None] | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._signals = settings.method == "signal" and (
            threading.current_thread() is threading.main_thread()
        )
        self.message = ""
        self.seconds: float = settings.timeout
        if self._signals:
            signal.signal(signal.SIGALRM, self._fail)
        self._thread = threading.Thread(
            target=self._run, name=f"intercode-timeout-{item.name}", daemon=True
        )
        self._thread.start()

    @contextlib.contextmanager
    def watch(self, cancel: Callable[[str], None]) -> Iterator[None]:
        """Use ``cancel`` to end what pytest waits for in this context."""
        with self._lock:
            self._cancel = cancel
        try:
            yield
        finally:
            with self._lock:
                self._cancel = None

    def stop(self) -> None:
        """Stop the timer: the item is over, or a debugger was entered."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if self._signals:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _fail(self, *_: object) -> None:
        __tracebackhide__ = True
        self._plugin.timeout_sigalrm(self._item, self._settings)

    def _run(self) -> None:
        if self._over.wait(self.seconds):
            return
        if not self._settings.disable_debugger_detection and self._plugin.is_debugging():
            return
        with self._lock:
            cancel = self._cancel
            if cancel is not None:
                # Set before cancelling, because the thread that waits then reads the message.
                self.message = f"Timeout (>{self.seconds}s) from pytest-timeout."
                cancel(self.message)
        if cancel is not None and self._over.wait(_CANCEL_TIMEOUT):
            return
        if self._signals:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        else:
            self._plugin.timeout_timer(self._item, self._settings)
