"""Tool calls on their way from the server's event loop to the agent's thread, and back.

The environment may be used on the agent's thread only, one call at a time. The server puts a call
into the queue and waits; the agent's thread takes it, runs it and answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Call", "Calls", "Event", "Reply"]


@dataclass(frozen=True)
class Reply:
    """What a tool call is answered with.

    Attributes:
        texts: the blocks of text; the last one says how things stand.
        error: the call could not be carried out.
        facts: the same for programs.
    """

    texts: tuple[str, ...]
    error: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a tool.

    Attributes:
        tool: which.
        text: its argument.
        loop: where the answer is waited for.
        future: the answer.
    """

    tool: Literal["execute", "submit"]
    text: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Reply]

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for the answer; an agent may have given up."""
        return not self.future.done()

    def answer(self, reply: Reply) -> None:
        """Answer it, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            self.loop.call_soon_threadsafe(self._set, reply)

    def _set(self, reply: Reply) -> None:
        if not self.future.done():
            self.future.set_result(reply)


class Event:
    """Something that the agent's thread is to know besides calls: its name says what."""

    def __init__(self, name: str) -> None:
        self.name = name


class Calls:
    """The queue of one episode."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Call | Event] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[Call] = set()  # those without an answer
        self._refusal: Reply | None = None

    async def ask(self, tool: Literal["execute", "submit"], text: str) -> Reply:
        """Have a call carried out on the agent's thread; called on the server's loop."""
        loop = asyncio.get_running_loop()
        call = Call(tool, text, loop, loop.create_future())
        with self._lock:
            if self._refusal is not None:
                return self._refusal
            self._open.add(call)
            self._queue.put(call)
        try:
            return await call.future
        finally:
            with self._lock:
                self._open.discard(call)

    def tell(self, event: Event) -> None:
        """Wake the agent's thread."""
        self._queue.put(event)

    def next(self, timeout: float | None) -> Call | Event | None:
        """Return what comes next, or None if nothing does in time."""
        try:
            return self._queue.get(timeout=None if timeout is None else max(timeout, 0.0))
        except queue.Empty:
            return None

    def close(self, refusal: Reply) -> None:
        """Answer all that wait, and all that are still to come, as nothing is carried out."""
        with self._lock:
            self._refusal = refusal
            for call in self._open:
                call.answer(refusal)
