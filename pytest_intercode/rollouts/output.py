"""Output and logs of rollouts, stored by rollout: until an item's turn, or to send from a node.

A :class:`CapturedOutput` owns the threads of its rollout (``isolation.owning``), so their output is
distinguished from that of others. It is sent as pieces: lists of JSON values.
"""

from __future__ import annotations

import copy
import io
import logging
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from pytest_intercode.core.text import escape_for_terminal
from pytest_intercode.rollouts.isolation import owner

__all__ = [
    "TRUNCATION",
    "CapturedOutput",
    "CapturingHandler",
    "capture_process",
    "captured_pieces",
    "current_output",
    "log_record",
    "print_pieces",
]

MAX_CHARACTERS = 16 * 1024 * 1024
"""Characters that are kept for an episode; pytest keeps all, but only of one item at a time."""

TRUNCATION = "\n[... more was not kept ...]\n"
"""The text that replaces output that was not kept."""

_ENTRY_SIZE = 64  # characters that an entry counts in addition to its text, which may be empty
_MAX_JOINED = 4096  # characters of a text to which the next one is joined
_MAX_NUMBER = 2**31  # limit of a log record's level, line and time in seconds
_FORMATTER = logging.Formatter()
Entry: TypeAlias = "tuple[str, str, str | logging.LogRecord]"
"""A phase of pytest; ``stdout``, ``stderr`` or ``log``; and the text or the log record."""


class CapturedOutput:
    """The output and the log records of one rollout; also the owner of its threads.

    Args:
        max_characters: characters that are kept; a line reports if there were more.

    Attributes:
        phase: the current phase of the rollout's item.
        over: whether its item was reported. Later output of its threads does not belong to the
            item: several episodes may use the same thread.
    """

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self.phase = "setup"
        self.over = False
        self._max_characters = max_characters
        # Garbage collection may run while it is held, and print.
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._size = 0

    def write(self, stream: str, text: str) -> int:
        """Keep a text of ``stdout`` or ``stderr``; return its length, as streams do."""
        if text:
            self._add(len(text), stream, text)
        return len(text)

    def log(self, record: logging.LogRecord) -> None:
        """Keep a log record, formatted now because its arguments may change until it is shown."""
        rendered = copy.copy(record)
        try:
            rendered.msg, rendered.args = record.getMessage(), None
            if record.exc_info and not record.exc_text:
                rendered.exc_text = _FORMATTER.formatException(record.exc_info)
        except Exception as error:  # its arguments may be the agent's objects
            rendered.msg, rendered.args = f"{record.msg!r:.200}: {type(error).__name__}", None
        self._add(len(rendered.msg) + len(rendered.exc_text or ""), "log", rendered)

    def _add(self, size: int, stream: str, value: str | logging.LogRecord) -> None:
        with self._lock:
            if self._size > self._max_characters:
                return
            begun_text = self._begun_text(stream)
            self._size += size + (0 if begun_text else _ENTRY_SIZE)
            if self._size > self._max_characters:
                stream, value = ("stdout" if stream == "log" else stream), TRUNCATION
            elif begun_text and isinstance(value, str):
                del self._entries[-1]
                value = "".join((begun_text, value))
            self._entries.append((self.phase, stream, value))

    def _begun_text(self, stream: str) -> str:
        """Return the last text if the next one of a stream can be joined to it; else empty."""
        phase, last_stream, value = self._entries[-1] if self._entries else ("", "", "")
        if (phase, last_stream) != (self.phase, stream) or not isinstance(value, str):
            return ""
        return value if len(value) < _MAX_JOINED else ""

    def take(self, phase: str = "", *, last: bool = False) -> list[Entry]:
        """Return and remove the entries.

        Args:
            phase: the current phase of pytest; in ``setup`` only entries of that phase are
                returned.
            last: whether to keep nothing from now on.
        """
        with self._lock:
            self.over = last
            entries = [entry for entry in self._entries if phase != "setup" or entry[0] == "setup"]
            self._entries = self._entries[len(entries) :]
        return entries

    def take_pieces(self) -> list[list[Any]]:
        """Return and remove the entries, as JSON values."""
        return [_piece(*entry) for entry in self.take()]

    def add_pieces(self, pieces: Iterable[Sequence[Any]]) -> None:
        """Add the output of a rollout on a node."""
        for piece in pieces:
            self.phase, stream, text, *_ = piece
            record = log_record(piece)
            if record is not None:
                self.log(record)
            else:
                self.write(stream, text)


def current_output() -> CapturedOutput | None:
    """Return the store for the output of the current thread; None if it has none."""
    output = owner()
    return output if isinstance(output, CapturedOutput) and not output.over else None


class CapturingHandler(logging.Handler):
    """Passes log records of rollouts to their stores."""

    def emit(self, record: logging.LogRecord) -> None:
        """Store a record for the current thread's rollout, if it has one."""
        output = current_output()
        if output is not None:
            output.log(record)


class _CapturingStream(io.TextIOBase):
    """A standard stream that stores the output of rollouts, and passes on everything else."""

    encoding = "utf-8"

    def __init__(self, name: str, stream: Any) -> None:
        self._name = name
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of a standard stream: ``buffer``, ``reconfigure``."""
        return getattr(self._stream, name)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        output = current_output()
        if output is not None:
            return output.write(self._name, text)
        self._stream.write(text)  # do not use the result: Ray's streams return None
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return int(self._stream.fileno())


def capture_process() -> None:
    """Capture the output of rollouts from now on, in a process that runs nothing else."""
    sys.stdout = _CapturingStream("stdout", sys.stdout)
    sys.stderr = _CapturingStream("stderr", sys.stderr)
    logging.getLogger().addHandler(CapturingHandler())


# -- pieces


def _piece(phase: str, stream: str, value: str | logging.LogRecord) -> list[Any]:
    if isinstance(value, str):
        return [phase, stream, value]
    text = f"{value.msg}\n{value.exc_text}" if value.exc_text else value.msg
    source = [value.pathname, value.lineno]
    return [phase, stream, text, value.levelno, value.name, value.created, *source]


def captured_pieces(value: object) -> list[list[Any]]:
    """Return the valid pieces of output in a node's message.

    Everything else is left out, because agents can put anything into log records.
    """
    return [piece for piece in value if _is_piece(piece)] if isinstance(value, list) else []


def _is_piece(piece: object) -> bool:
    if not isinstance(piece, list) or not all(isinstance(word, str) for word in piece[:3]):
        return False
    if len(piece) == 3:
        return piece[1] in ("stdout", "stderr")
    if len(piece) != 8 or piece[1] != "log":
        return False
    *_, level, name, created, path, line = piece
    return (
        isinstance(name, str)
        and isinstance(path, str)
        and isinstance(created, (int, float))
        and 0 <= created < _MAX_NUMBER
        and all(isinstance(number, int) and abs(number) < _MAX_NUMBER for number in (level, line))
    )


def log_record(piece: Sequence[Any]) -> logging.LogRecord | None:
    """Return the log record of a piece, without escape sequences; None for output."""
    _, stream, text, *fields = piece
    if stream != "log":
        return None
    level, name, created, path, line = fields
    message, logger, source = map(escape_for_terminal, (text, name, path))
    record = logging.LogRecord(logger, level, source, line, message, None, None)
    record.created = created
    return record


def print_pieces(pieces: Iterable[Sequence[Any]]) -> None:
    """Print and log the output of a rollout from its node, without escape sequences."""
    for piece in pieces:
        record = log_record(piece)
        if record is not None:
            logging.getLogger(record.name).handle(record)
        else:
            stream = sys.stdout if piece[1] == "stdout" else sys.stderr
            encoding = getattr(stream, "encoding", None) or "utf-8"
            text = escape_for_terminal(piece[2]).encode(encoding, "backslashreplace")
            stream.write(text.decode(encoding))
