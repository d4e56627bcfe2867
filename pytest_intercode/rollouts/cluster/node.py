"""The process of ours on a node: a player, and what makes a whole process its own.

Ray makes one of :class:`Node` as an actor, in a process for it alone. Its methods take and return
bytes and numbers, and raise nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time

from pytest_intercode.rollouts.cluster.output import keep_output
from pytest_intercode.rollouts.cluster.player import Player, greeting
from pytest_intercode.rollouts.isolation import followed

__all__ = ["Node"]

_ALONE = 60.0  # seconds without a word of the driver, after which a node ends by itself
_LOOK = 2.0
_FAREWELL = 8.0  # seconds for sandboxes to close; they end with this process in any case


class Node:
    """A player that has its process to itself."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(followed())
        keep_output()
        self._player = Player()
        threading.Thread(target=self._watch, name="intercode-watch", daemon=True).start()

    def greet(self) -> bytes:
        """Return what has to be the same everywhere, as JSON."""
        return json.dumps(greeting()).encode()

    def tell(self, data: bytes) -> None:
        """Take messages of the driver."""
        try:
            self._player.tell(data)
        except Exception:  # it would travel as a pickle
            os._exit(70)  # the driver notes that this process has ended

    def receive(self, digest: str, piece: bytes) -> None:
        """Take a piece of a file."""
        try:
            self._player.receive(digest, piece)
        except Exception:
            os._exit(70)

    def listen(self, patience: float) -> bytes:
        """Return messages for the driver, as soon as there are some."""
        return self._player.listen(patience)

    def _watch(self) -> None:
        """End this process when the driver is gone, or its network, or the node that started it."""
        parent = os.getppid()
        before = time.monotonic()
        paused = 0.0
        while True:
            time.sleep(_LOOK)
            now = time.monotonic()
            if now - before > 2 * _LOOK + 1:  # it was stopped meanwhile, and heard nobody
                paused = now
            before = now
            if self._player.closed:  # Ray ends this process, unless its head is gone
                time.sleep(_LOOK)
                os._exit(0)
            if os.getppid() != parent:  # its node is gone; the sandboxes go with this process
                os._exit(72)
            if min(self._player.silence(), now - paused) > _ALONE:
                threading.Thread(target=self._player.close, daemon=True).start()
                until = time.monotonic() + _FAREWELL
                while not self._player.closed and time.monotonic() < until:
                    time.sleep(0.1)
                os._exit(71)
