"""Which episode a thread works for, where several run in one process.

The episode's own threads know it by a context variable. Threads that an agent starts inherit no
context, so while :func:`followed` is in force ``threading.Thread.start`` notes who started them.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar

__all__ = ["followed", "owner", "owning", "threads_of"]

_OWNER: ContextVar[object | None] = ContextVar("intercode_owner", default=None)
_STARTED: weakref.WeakKeyDictionary[threading.Thread, object] = weakref.WeakKeyDictionary()
_LOCK = threading.RLock()  # a collection of garbage may come while it is held, and print


def owner() -> object | None:
    """Return the owner of what runs now; None for what belongs to no episode."""
    found = _OWNER.get()
    if found is None and _STARTED:  # empty in most processes, and this is asked for every print
        with _LOCK:
            found = _STARTED.get(threading.current_thread())
    return found


def threads_of(someone: object) -> list[threading.Thread]:
    """Return the threads that were started for an owner and still run."""
    with _LOCK:
        return [each for each, whose in _STARTED.items() if whose is someone and each.is_alive()]


@contextlib.contextmanager
def owning(someone: object) -> Iterator[None]:
    """Let what runs in this context, and what it starts, belong to somebody."""
    token = _OWNER.set(someone)
    try:
        yield
    finally:
        _OWNER.reset(token)


@contextlib.contextmanager
def followed() -> Iterator[None]:
    """Follow threads to those that they start."""
    start = threading.Thread.start

    def start_owned(self: threading.Thread) -> None:
        someone = owner()
        if someone is not None:
            with _LOCK:
                _STARTED[self] = someone
        start(self)

    threading.Thread.start = start_owned  # type: ignore[method-assign]
    try:
        yield
    finally:
        if threading.Thread.start is start_owned:  # else somebody wraps ours, and it stays
            threading.Thread.start = start  # type: ignore[method-assign]
