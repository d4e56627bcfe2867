"""Passes tool calls from the server's event loop to the agent's thread, and replies back.

The environment is used only on the agent's thread, one call at a time.
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
"""Why there are no more calls: the program has exited, or the run aborts the episode."""


@dataclass(frozen=True)
class Reply:
    """The answer to a tool call.

    Attributes:
        texts: the blocks of text; the last one is the note on the state of the episode.
        error: whether the call could not be carried out.
        facts: the same information for programs.
    """

    texts: tuple[str, ...]
    error: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Call:
    """A tool call.

    Attributes:
        tool: the tool's name.
        text: its argument.
        future: the answer; cancelled when the client has given up.
    """

    tool: Literal["execute", "submit"]
    text: str
    future: Future[Reply] = field(default_factory=Future)

    @property
    def pending(self) -> bool:
        """Whether the client is still waiting for the answer."""
        return not self.future.done()

    def answer(self, reply: Reply) -> None:
        """Answer it, from any thread."""
        with contextlib.suppress(InvalidStateError):  # cancelled, or already answered
            self.future.set_result(reply)


class Calls:
    """The calls of one episode."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Call | End] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[Call] = set()  # calls without an answer
        self._refusal: Reply | None = None

    async def ask(self, tool: Literal["execute", "submit"], text: str) -> Reply:
        """Have the agent's thread carry out a call; called on the server's event loop."""
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
        """Return the next call or end, or None if there is none before the timeout."""
        try:
            return self._queue.get(timeout=None if timeout is None else max(timeout, 0.0))
        except queue.Empty:
            return None

    def end(self, reason: End) -> None:
        """Wake the agent's thread and tell it to wait for no more calls."""
        self._queue.put(reason)

    def close(self, refusal: Reply) -> None:
        """Answer all waiting and all later calls with this reply; carry out none of them."""
        with self._lock:
            self._refusal = refusal
            for call in self._open:
                call.answer(refusal)
