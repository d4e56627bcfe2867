"""Keeps what an episode prints and logs ahead of its turn, and gives it out when that comes.

The streams are pytest's to change, phase by phase, so it is their ``write`` that is replaced, on
whatever streams there are: what an episode's threads write goes to its own store, everything else
where it always went. Only writes past Python (a child's, on file descriptor 1) cannot be told
apart, and are captured with the item whose turn it is.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from pytest_intercode.rollouts.isolation import owner, owning

__all__ = ["Output", "Router"]

_MOST = 16 * 1024 * 1024  # characters of an episode; pytest would keep all, but not of all at once
_CUT = "\n[... more was not kept ...]\n"
_FORMATTER = logging.Formatter()
_Piece: TypeAlias = tuple[str, str, "str | logging.LogRecord"]  # phase, stream, what


class Output:
    """What one episode prints and logs while it runs ahead.

    Attributes:
        phase: the phase of its item that the episode is in.
        over: its item was reported. What its threads print now belongs to nobody: it may be a
            thread that several episodes use.
    """

    def __init__(self) -> None:
        # A collection of garbage may come while it is held, and print.
        self._lock = threading.RLock()
        self._kept: list[_Piece] = []
        self._size = 0
        self.phase = "setup"
        self.over = False

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
            if self._size <= _MOST:
                self._size += len(record.msg)
                self._kept.append((self.phase, "log", record))

    def give_out(self, phase: str, *, last: bool = False) -> None:
        """Print and log, in the calling thread, what was kept; in setup only what belongs there.

        Args:
            phase: the phase that pytest is in.
            last: keep nothing from now on.
        """
        with self._lock:
            self.over = last
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
        self._before: dict[int, Any] = {}
        self._handlers: list[logging.Handler] = []
        self._all = _Keeper()
        self._filter = _NotAhead()

    def route(self) -> None:
        """Route the streams and the handlers that there are now."""
        logging.getLogger().addHandler(self._all)  # once, however often this is called
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            self._streams = [each for each in self._streams if not each.closed]
            if stream is not None and not any(stream is known for known in self._streams):
                self._replace(name, stream)
        for handler in _pytests_handlers():
            if handler not in self._handlers:
                handler.addFilter(self._filter)
                self._handlers.append(handler)

    def _replace(self, name: Any, stream: Any) -> None:
        write = stream.write
        if "write" in getattr(stream, "__dict__", {}):
            self._before[id(stream)] = write

        def write_routed(text: str) -> int:
            store = _store()
            return int(write(text)) if store is None else store.write(name, text)

        try:
            stream.write = write_routed
        except AttributeError:  # a stream of somebody's own making, without room for it
            return
        self._streams.append(stream)

    def close(self) -> None:
        """Leave streams and handlers as they were."""
        for stream in self._streams:
            vars(stream).pop("write", None)
            if id(stream) in self._before:  # somebody else's, who routes it too
                stream.write = self._before[id(stream)]
        for handler in self._handlers:
            handler.removeFilter(self._filter)
        logging.getLogger().removeHandler(self._all)


class _NotAhead(logging.Filter):
    """Keeps records of episodes that run ahead from whoever listens to the present item."""

    def filter(self, record: logging.LogRecord) -> bool:
        return _store() is None


class _Keeper(logging.Handler):
    """Gives records of episodes that run ahead to their stores."""

    def emit(self, record: logging.LogRecord) -> None:
        store = _store()
        if store is not None:
            kept = copy.copy(record)  # as it is now: what it was given may change until its turn
            kept.msg, kept.args = record.getMessage(), None
            if record.exc_info and not record.exc_text:
                kept.exc_text = _FORMATTER.formatException(record.exc_info)
            store.log(kept)


def _store() -> Output | None:
    """Return where the output of the present thread is kept; None if it is not."""
    found = owner()
    return found if isinstance(found, Output) and not found.over else None


def _pytests_handlers() -> list[logging.Handler]:
    """Return the root logger's handlers that pytest has put there for the present item."""
    handlers = logging.getLogger().handlers
    return [each for each in handlers if type(each).__module__.startswith("_pytest.")]
