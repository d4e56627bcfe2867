"""Sends, receives and checks the messages of a program: lines of JSON over its pipes.

A program may write before it reads, or never read. So reading and writing alternate as the pipes
allow, and neither side blocks when both pipes are full. ``command:`` and ``acp:`` use this.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import IO, Any, Protocol

from pytest_intercode.core.text import replace_surrogates
from pytest_intercode.core.usage import Usage
from pytest_intercode.errors import AgentError, suggestion

__all__ = ["JsonLines", "Peer", "parse", "read_object"]

_MAX_LINE_BYTES = 4 * 1024**2
_PIECE_BYTES = 64 * 1024  # the most that is read or written in one call
_POLL_INTERVAL = 500  # milliseconds between checks that the program is still running
_KEYS = ("action", "submit", "thought", "usage")
_USAGE = tuple(field.name for field in fields(Usage))
_MAX_EXCERPT = 120  # characters of a bad line


class Peer(Protocol):
    """A peer that reads and writes lines: a program, or a connection that forwards its streams."""

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe that it reads from."""

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe that it writes to; not the same descriptor."""

    def wait(self, timeout: float | None) -> int | None:
        """Return its exit status once it has ended; None if that takes longer."""


def _nothing() -> None:
    return None


class JsonLines:
    """Sends and receives lines over the pipes of a program.

    Args:
        program: a program with pipes, which nothing else uses.
        check: called before each wait of at most half a second; an exception of it ends
            :meth:`send` and :meth:`receive`.

    Attributes:
        received: the number of lines that the program has written so far, including empty lines.
    """

    def __init__(self, program: Peer, check: Callable[[], None] = _nothing) -> None:
        self.received = 0
        self._program = program
        self._check = check
        self._waits = True
        self._input, self._output = program.stdin.fileno(), program.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._incoming = bytearray()
        self._searched = 0  # bytes of _incoming that are known to contain no line end
        self._outgoing = b""
        self._reads = self._writes = True  # whether the program still does

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line; do nothing if the program no longer reads."""
        # json.dumps escapes non-ASCII characters, so that no language can misread them.
        self._outgoing = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        while self._outgoing and self._reads:
            size = len(self._outgoing)
            self._move()
            if not self._waits and len(self._outgoing) == size:
                break

    def release(self) -> None:
        """Stop checking and stop waiting for the program; drop what it does not read right away."""
        self._check = _nothing
        self._waits = False

    def close(self) -> None:
        """Stop writing; the program reads the end of its input."""
        self._reads = False
        with contextlib.suppress(OSError):
            self._program.stdin.close()

    def receive(self) -> bytes | None:
        """Return the next non-empty line without its line end; None if no more will come.

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
            end = len(self._incoming)  # the last line may lack its line end
        line = bytes(self._incoming[:end])
        del self._incoming[: end + 1]
        self._searched = 0
        self.received += 1
        return line

    def _move(self) -> None:
        """Wait until a pipe can be written or read, and do so."""
        self._check()
        poll = select.poll()
        if self._outgoing and self._reads:
            poll.register(self._input, select.POLLOUT)
        if self._writes and len(self._incoming) <= _MAX_LINE_BYTES:
            poll.register(self._output, select.POLLIN)
        has_exited = self._program.wait(0) is not None
        is_over = has_exited or not self._waits
        ready = dict(poll.poll(0 if is_over else _POLL_INTERVAL))
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
            self._read()
        if has_exited and not ready:  # another process may still hold its pipes
            self._reads = self._writes = False

    def _read(self) -> None:
        try:
            piece = os.read(self._output, _PIECE_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:  # the stream is a socket, and this is its end
            piece = b""
        self._writes = bool(piece)
        self._incoming += piece


def read_object(line: bytes, number: int, example: str) -> dict[str, Any]:
    """Parse a program's line as a JSON object.

    Args:
        line: the line.
        number: the number of the line, from 1.
        example: an example of an expected object, for messages.

    Raises:
        AgentError: the line is not a JSON object.
    """
    location, excerpt = _describe_line(line, number)
    try:
        message = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        problem = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not JSON"
        raise AgentError(
            f"{location} is {problem}: {excerpt}; standard output is for the protocol, what "
            "else a program prints goes to standard error"
        ) from None
    if not isinstance(message, dict):
        raise AgentError(f"{location} is not an object, as {example} is: {excerpt}")
    return message


def _describe_line(line: bytes, number: int) -> tuple[str, str]:
    """Return the position of a line and its beginning, for messages."""
    excerpt = line[: 4 * _MAX_EXCERPT].decode("utf-8", "replace").strip()[:_MAX_EXCERPT]
    return f"line {number} of the program's standard output", repr(excerpt)


def parse(line: bytes, number: int) -> dict[str, Any]:
    """Parse and check a program's message; omit values that are null.

    Args:
        line: the line.
        number: the number of the line, from 1.

    Raises:
        AgentError: the line is not a message of the protocol.
    """
    location, excerpt = _describe_line(line, number)
    message = read_object(line, number, '{"action": "ls"}')
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
            key: int(value)  # some languages do not have integers
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
