"""The messages between us and a program: lines of JSON over its pipes, sent, received and checked.

A program may write before it reads, or never read: neither side waits for the other while both
pipes are full. ``command:`` and ``acp:`` both speak lines of JSON.
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
_PIECE_BYTES = 64 * 1024  # that are read or written at once
_POLL_INTERVAL = 500  # milliseconds after which it is checked that the program still runs
_KEYS = ("action", "submit", "thought", "usage")
_USAGE = tuple(field.name for field in fields(Usage))
_MAX_EXCERPT = 120  # characters of a bad line


class Peer(Protocol):
    """What writes and reads lines: a program, or what carries the streams of one."""

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe that it reads."""

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe that it writes; not the same descriptor."""

    def wait(self, timeout: float | None) -> int | None:
        """Return its exit status once it has ended; None if that takes longer."""


def _nothing() -> None:
    return None


class JsonLines:
    """Sends and receives lines over the pipes of a program.

    Args:
        program: it has pipes, which nothing else uses.
        check: called before each wait, which takes half a second at most; what it raises ends
            :meth:`send` and :meth:`receive`.

    Attributes:
        received: lines that the program has written so far, empty ones too.
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
        self._searched = 0  # bytes of it without the end of a line
        self._outgoing = b""
        self._reads = self._writes = True  # the program still does

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line; nothing happens where the program reads no more."""
        # Characters beyond ASCII are escaped, so that no language can misread them.
        self._outgoing = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        while self._outgoing and self._reads:
            size = len(self._outgoing)
            self._move()
            if not self._waits and len(self._outgoing) == size:
                break

    def release(self) -> None:
        """Check no more, and wait for the program no more: what it does not read now is dropped."""
        self._check = _nothing
        self._waits = False

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
        except ConnectionResetError:  # of a socket, which is its end
            piece = b""
        self._writes = bool(piece)
        self._incoming += piece


def read_object(line: bytes, number: int, example: str) -> dict[str, Any]:
    """Return the object of JSON that a program's line is.

    Args:
        line: what it wrote.
        number: the number of the line, from 1.
        example: such an object, for messages.

    Raises:
        AgentError: it is not one.
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
    """Return where a line is, and its beginning, for messages."""
    excerpt = line[: 4 * _MAX_EXCERPT].decode("utf-8", "replace").strip()[:_MAX_EXCERPT]
    return f"line {number} of the program's standard output", repr(excerpt)


def parse(line: bytes, number: int) -> dict[str, Any]:
    """Return a program's message, checked, without what is null.

    Args:
        line: what it wrote.
        number: the number of the line, from 1.

    Raises:
        AgentError: it is not a message of the protocol.
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
