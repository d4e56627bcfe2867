"""The messages between us and a program: lines of JSON over its pipes, sent, received and checked.

A program may write before it reads, or never read: neither side waits for the other while both
pipes are full.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pytest_intercode.agents.program.process import Program
from pytest_intercode.core.usage import Usage
from pytest_intercode.errors import AgentError, suggestion

__all__ = ["JsonLines", "parse", "replace_surrogates"]

_MAX_LINE_BYTES = 4 * 1024**2
_PIECE_BYTES = 64 * 1024  # that are read or written at once
_POLL_INTERVAL = 500  # milliseconds after which it is checked that the program still runs
_KEYS = ("action", "submit", "thought", "usage")
_USAGE = tuple(field.name for field in fields(Usage))
_MAX_EXCERPT = 120  # characters of a bad line


class JsonLines:
    """Sends and receives lines over the pipes of a program.

    Args:
        program: it has pipes, which nothing else uses.

    Attributes:
        received: lines that the program has written so far, empty ones too.
    """

    def __init__(self, program: Program) -> None:
        self.received = 0
        self._program = program
        self._input, self._output = program.stdin.fileno(), program.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._incoming = bytearray()
        self._searched = 0  # bytes of it without the end of a line
        self._outgoing = b""
        self._reads = self._writes = True  # the program still does

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line; nothing happens where the program reads no more."""
        # Characters beyond ASCII are escaped, so that no language can misread them.
        self._outgoing = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        while self._outgoing and self._reads:
            self._move()

    def close(self) -> None:
        """Write no more; the program reads the end of its input."""
        self._reads = False
        with contextlib.suppress(OSError):
            self._program.stdin.close()

    def receive(self) -> bytes | None:
        """Return the next line that is not empty, without its end; None if no more will come.

        Raises:
            AgentError: the line is too long.
        """
        while True:
            line = self._next_line()
            if line is None and self._writes:
                self._move()
            elif line is None or line.strip():
                return line

    def _next_line(self) -> bytes | None:
        end = self._incoming.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._incoming)
            if self._searched > _MAX_LINE_BYTES:
                raise AgentError(
                    f"the program wrote a line of more than {_MAX_LINE_BYTES // 1024**2} MiB: "
                    f"{bytes(self._incoming[:60])!r}..."
                )
            if self._writes or not self._incoming:
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
        if self._outgoing and self._reads:
            poll.register(self._input, select.POLLOUT)
        if self._writes and len(self._incoming) <= _MAX_LINE_BYTES:
            poll.register(self._output, select.POLLIN)
        has_exited = self._program.wait(0) is not None
        ready = dict(poll.poll(0 if has_exited else _POLL_INTERVAL))
        try:
            if self._input in ready:
                self._outgoing = self._outgoing[
                    os.write(self._input, self._outgoing[:_PIECE_BYTES]) :
                ]
        except BlockingIOError:
            pass
        except OSError:
            self._reads = False
        if self._output in ready:
            with contextlib.suppress(BlockingIOError):
                piece = os.read(self._output, _PIECE_BYTES)
                self._writes = bool(piece)
                self._incoming += piece
        if (
            has_exited and not ready
        ):  # another process that still holds its pipes is not the program
            self._reads = self._writes = False


def parse(line: bytes, number: int) -> dict[str, Any]:
    """Return a program's message, checked, without what is null.

    Args:
        line: what it wrote.
        number: the number of the line, from 1.

    Raises:
        AgentError: it is not a message of the protocol.
    """
    location = f"line {number} of the program's standard output"
    excerpt = repr(line[: 4 * _MAX_EXCERPT].decode("utf-8", "replace").strip()[:_MAX_EXCERPT])
    try:
        message = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        problem = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not JSON"
        raise AgentError(
            f"{location} is {problem}: {excerpt}; standard output is for the protocol, what "
            "else a program prints goes to standard error"
        ) from None
    if not isinstance(message, dict):
        raise AgentError(f'{location} is not an object, as {{"action": "ls"}} is: {excerpt}')
    _check_keys(location, message, _KEYS)
    message = {key: value for key, value in message.items() if value is not None}
    if ("action" in message) == ("submit" in message):
        description = 'both "action" and' if "action" in message else 'neither "action" nor'
        raise AgentError(f'{location} has {description} "submit"; it has one of them: {excerpt}')
    for key in ("action", "submit", "thought"):
        value = message.get(key, "")
        if not isinstance(value, str):
            raise AgentError(f'{location}: "{key}" is a string, not {json.dumps(value):.60}')
        if replace_surrogates(value) != value:
            raise AgentError(
                f'{location}: "{key}" has half of a surrogate pair, which is not a character: '
                f"{value!r:.60}"
            )
    if "usage" in message:
        usage = message["usage"]
        if not isinstance(usage, dict):
            raise AgentError(f'{location}: "usage" is an object, not {json.dumps(usage):.60}')
        _check_keys(f'{location}: "usage"', usage, _USAGE)
        message["usage"] = {
            key: int(value)  # some languages know no whole numbers
            if key != "cost" and isinstance(value, float) and value.is_integer()
            else value
            for key, value in usage.items()
            if value is not None
        }
    return message


def _check_keys(location: str, message: Mapping[str, object], allowed: tuple[str, ...]) -> None:
    for key in message:
        if key not in allowed:
            raise AgentError(
                f"{location} has the key {key!r:.40}; allowed are {', '.join(allowed)}."
                + suggestion(key, allowed)
            )


def replace_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which are not characters and which JSON readers refuse."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
