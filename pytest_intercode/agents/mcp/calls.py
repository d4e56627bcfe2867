"""Tool calls on their way from the server's event loop to the agent's thread, and back.

The environment is used on the agent's thread only, one call at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Call", "Calls", "End", "Reply"]

End: TypeAlias = Literal["exited", "aborted"]
"""The reason why no more calls come: the program has ended, or the run ends the episode."""


@dataclass(frozen=True)
class Reply:
    """The answer to a tool call.

    Attributes:
        texts: the blocks of text; the last one is the note on the state of the episode.
        error: the call could not be carried out.
        facts: the same for programs.
    """

    texts: tuple[str, ...]
    error: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a tool.

    Attributes:
        tool: which.
        text: its argument.
        future: the answer; cancelled when the client has given up.
    """

    tool: Literal["execute", "submit"]
    text: str
    future: Future[Reply] = field(default_factory=Future)

    @property
    def pending(self) -> bool:
        """Whether the client still waits for the answer."""
        return not self.future.done()

    def answer(self, reply: Reply) -> None:
        """Answer it, from any thread."""
        with contextlib.suppress(InvalidStateError):  # given up, or answered already
            self.future.set_result(reply)


class Calls:
    """The calls of one episode."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Call | End] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[Call] = set()  # those without an answer
        self._refusal: Reply | None = None

    async def ask(self, tool: Literal["execute", "submit"], text: str) -> Reply:
        """Have a call carried out on the agent's thread; called on the server's loop."""
        call = Call(tool, text)
        with self._lock:
            if self._refusal is not None:
                return self._refusal
            self._open.add(call)
            self._queue.put(call)
        try:
            return await asyncio.wrap_future(call.future)
        finally:
            with self._lock:
                self._open.discard(call)

    def next(self, timeout: float | None) -> Call | End | None:
        """Return what comes next, or None if nothing does in time."""
        try:
            return self._queue.get(timeout=None if timeout is None else max(timeout, 0.0))
        except queue.Empty:
            return None

    def end(self, reason: End) -> None:
        """Wake the agent's thread: no more calls are to be waited for."""
        self._queue.put(reason)

    def close(self, refusal: Reply) -> None:
        """Give this answer to all calls that wait and to all later ones; none is carried out."""
        with self._lock:
            self._refusal = refusal
            for call in self._open:
                call.answer(refusal)
