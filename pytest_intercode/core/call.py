"""A call of a program that a test fakes or watches, in a run and in its record."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pytest_intercode.core.line import in_line

__all__ = ["ShimCall", "shorten_calls"]

_MAX_CALLS = 1_000  # calls that a record keeps
_MAX_CHARACTERS = 256 * 1024  # characters of all texts of these calls
_MAX_TEXT = 4_000  # characters of an argument, and of an input
_MAX_ARGUMENTS = 200
_MAX_READ = 4 * _MAX_TEXT  # characters of a text that are masked before it is shortened


@dataclass(frozen=True)
class ShimCall:
    """One call of a program that is faked or watched.

    Texts are decoded as UTF-8; other bytes are surrogates (``surrogateescape``).

    Attributes:
        program: the program's name.
        arguments: the words after the name.
        directory: the working directory of the call.
        input: the standard input, as far as a fake reads it; empty for watched programs and
            scripts, which read it themselves.
        status: the exit status, 128 plus the signal's number if a signal ended it. None while it
            runs, and if its end was not reported because it was killed together with its shim.
        seconds: wall time until its end; 0.0 if ``status`` is None.
        start_time: when it was called, in seconds since the epoch.
        refused: whether no answer was set up for this call.
        truncated: whether ``arguments`` or ``input`` were longer than what is kept here.
    """

    program: str = field(metadata=in_line(printed=True))
    arguments: tuple[str, ...] = field(metadata=in_line(printed=True))
    directory: str = field(metadata=in_line(printed=True))
    input: str = field(default="", metadata=in_line(optional=True, printed=True))
    status: int | None = None
    seconds: float = field(default=0.0, metadata=in_line(digits=3))
    start_time: float = field(default=0.0, metadata=in_line(digits=3))
    refused: bool = False
    truncated: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The program's name, and the words after it."""
        return (self.program, *self.arguments)

    def __str__(self) -> str:
        """Return the call as a line of shell."""
        return shlex.join(self.words)


def shorten_calls(calls: Sequence[ShimCall], change: Callable[[str], str]) -> tuple[ShimCall, ...]:
    """Return the calls that a record keeps: the first ones, with the beginnings of their texts.

    Args:
        calls: all calls.
        change: masks text that a record must not hold.
    """

    def shorten(text: str) -> str:
        return change(text[:_MAX_READ])[:_MAX_TEXT]

    kept_calls: list[ShimCall] = []
    size = 0
    for call in calls[:_MAX_CALLS]:
        arguments = tuple(map(shorten, call.arguments[:_MAX_ARGUMENTS]))
        short_call = replace(
            call,
            arguments=arguments,
            directory=shorten(call.directory),
            input=shorten(call.input),
            truncated=call.truncated or _is_long(call),
        )
        texts = (*arguments, short_call.directory, short_call.input)
        size += sum(map(len, texts)) + len(texts)
        if size > _MAX_CHARACTERS:
            break
        kept_calls.append(short_call)
    return tuple(kept_calls)


def _is_long(call: ShimCall) -> bool:
    lengths = map(len, (call.input, *call.arguments))
    return len(call.arguments) > _MAX_ARGUMENTS or max(lengths) > _MAX_TEXT
