"""Keeps what an episode prints and logs ahead of its turn, and gives it out when that comes.

The streams are pytest's to change, phase by phase, so it is their ``write`` that is replaced, on
whatever streams there are: what an episode's threads write goes to its own store, everything else
where it always went. Only writes past Python (a child's, on file descriptor 1) cannot be told
apart, and are captured with the item whose turn it is.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from pytest_intercode.owners import owner, owning

__all__ = ["Output", "Router"]

_MOST = 16 * 1024 * 1024  # characters of an episode; pytest would keep all, but not of all at once
_CUT = "\n[... more was not kept ...]\n"


_Piece: TypeAlias = tuple[str, str, "str | logging.LogRecord"]  # phase, stream, what


class Output:
    """What one episode prints and logs while it runs ahead.

    Attributes:
        phase: the phase of its item that the episode is in.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[_Piece] = []
        self._size = 0

        self.phase = "setup"

    @contextlib.contextmanager
    def receiving(self) -> Iterator[None]:
        """Receive what is printed in here, and by threads that are started in here."""
        with owning(self):
            yield

    def write(self, stream: Literal["stdout", "stderr"], text: str) -> int:
        """Keep a text; return its length, as streams do."""
        with self._lock:
            if self._size <= _MOST:
                self._size += len(text)
                self._kept.append((self.phase, stream, text if self._size <= _MOST else _CUT))
        return len(text)

    def log(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        with self._lock:
            self._kept.append((self.phase, "log", record))

    def give_out(self, phase: str) -> None:
        """Print and log, in the calling thread, what was kept; in setup only what belongs there."""
        with self._lock:
            present = [piece for piece in self._kept if phase != "setup" or piece[0] == "setup"]
            self._kept = self._kept[len(present) :]
        for _, where, what in present:
            if isinstance(what, str):
                getattr(sys, where).write(what)
                continue
            for handler in _pytests_handlers():
                if what.levelno >= handler.level:
                    handler.handle(what)


class Router:
    """Sends what episodes print and log to their own stores."""

    def __init__(self) -> None:
        self._streams: list[Any] = []
        self._handlers: list[logging.Handler] = []
        self._all = _Keeper()
        self._filter = _NotAhead()

    def route(self) -> None:
        """Route the streams and the handlers that there are now."""
        logging.getLogger().addHandler(self._all)  # once, however often this is called
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None and not any(stream is known for known in self._streams):
                self._replace(name, stream)
        for handler in _pytests_handlers():
            if handler not in self._handlers:
                handler.addFilter(self._filter)
                self._handlers.append(handler)

    def _replace(self, name: Any, stream: Any) -> None:
        write = stream.write

        def write_routed(text: str) -> int:
            store = owner()
            if isinstance(store, Output):
                return store.write(name, text)
            return int(write(text))

        try:
            stream.write = write_routed
        except AttributeError:  # a stream of somebody's own making, without room for it
            return
        self._streams.append(stream)

    def close(self) -> None:
        """Leave streams and handlers as they were."""
        for stream in self._streams:
            with contextlib.suppress(AttributeError):
                del stream.write
        for handler in self._handlers:
            handler.removeFilter(self._filter)
        logging.getLogger().removeHandler(self._all)


class _NotAhead(logging.Filter):
    """Keeps records of episodes that run ahead from whoever listens to the present item."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not isinstance(owner(), Output)


class _Keeper(logging.Handler):
    """Gives records of episodes that run ahead to their stores."""

    def emit(self, record: logging.LogRecord) -> None:
        store = owner()
        if isinstance(store, Output):
            store.log(record)


def _pytests_handlers() -> list[logging.Handler]:
    """Return the root logger's handlers that pytest has put there for the present item."""
    handlers = logging.getLogger().handlers
    return [each for each in handlers if type(each).__module__.startswith("_pytest.")]
