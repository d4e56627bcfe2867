"""JSON lines to and from a program, however it mixes reading and writing.

A program may write ahead of what it reads, or never read: neither side waits for the other while
both pipes are full, and a line is looked for only as far as a line may be long.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping
from typing import Any

from pytest_intercode.agents.program import Program
from pytest_intercode.errors import AgentError

__all__ = ["LONGEST_LINE", "JsonLines"]

LONGEST_LINE = 4 * 1024**2
"""Bytes that a line of a program may have."""

_PIECE = 64 * 1024
_LOOK_UP = 500  # milliseconds after which it is asked whether the program is still there


class JsonLines:
    """Talks with a program over its pipes.

    Args:
        program: it has pipes, which nobody else uses.

    Attributes:
        received: lines that the program has written so far, empty ones too.
    """

    def __init__(self, program: Program) -> None:
        self.received = 0
        self._program = program
        self._in, self._out = program.stdin.fileno(), program.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._incoming = bytearray()
        self._searched = 0
        self._outgoing = b""
        self._deaf = False  # it reads no more
        self._ended = False  # it writes no more

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line; nothing happens where the program reads no more."""
        # Characters beyond ASCII are escaped: no language can get them wrong.
        self._outgoing = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        while self._outgoing and not self._deaf:
            self._move()

    def close(self) -> None:
        """Write no more; the program reads the end of its input."""
        self._deaf = True
        try:
            self._program.stdin.close()
        except OSError:
            pass

    def receive(self) -> bytes | None:
        """Return the next line that is not empty, without its end; None if no more will come.

        Raises:
            AgentError: the line is too long.
        """
        while True:
            line = self._line()
            if line is None and not self._ended:
                self._move()
            elif line is None or line.strip():
                return line

    def _line(self) -> bytes | None:
        end = self._incoming.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._incoming)
            if self._searched > LONGEST_LINE:
                raise AgentError(
                    f"the program wrote a line of more than {LONGEST_LINE // 1024**2} MiB: "
                    f"{bytes(self._incoming[:60])!r}..."
                )
            if not (self._ended and self._incoming):
                return None
            end = len(self._incoming)  # the last line needs no end
        line = bytes(self._incoming[:end])
        del self._incoming[: end + 1]
        self._searched = 0
        self.received += 1
        return line

    def _move(self) -> None:
        """Wait until something can be written or read, and do it."""
        poll = select.poll()
        if self._outgoing and not self._deaf:
            poll.register(self._in, select.POLLOUT)
        if not self._ended and len(self._incoming) <= LONGEST_LINE:
            poll.register(self._out, select.POLLIN)
        gone = self._program.wait(0) is not None
        ready = dict(poll.poll(0 if gone else _LOOK_UP))
        if self._in in ready:
            self._write()
        if self._out in ready:
            self._read()
        if gone and not ready:  # whoever else holds its pipes is not the program
            self._deaf = self._ended = True

    def _write(self) -> None:
        try:
            written = os.write(self._in, self._outgoing[:_PIECE])
        except BlockingIOError:
            return
        except OSError:
            self._deaf = True
            return
        self._outgoing = self._outgoing[written:]

    def _read(self) -> None:
        try:
            piece = os.read(self._out, _PIECE)
        except BlockingIOError:
            return
        self._ended = not piece
        self._incoming += piece
