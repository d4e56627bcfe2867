"""What rollouts print and log on a node, kept by rollout for the items of the driver."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_intercode.core.text import escape_for_terminal
from pytest_intercode.rollouts.isolation import owner

__all__ = ["KeptOutput", "give_out", "keep_output", "log_record", "pieces_of"]

_MOST = 4 * 1024 * 1024  # characters of a rollout
_CUT = "\n[... more was not kept ...]\n"
_LARGEST = 2**31  # of a level, a line, and a second that a clock may show
_FORMATTER = logging.Formatter()


class KeptOutput:
    """What one rollout prints and logs; the owner of its threads.

    Attributes:
        phase: the phase of its item that it is in.
    """

    def __init__(self) -> None:
        self.phase = "setup"
        self._lock = threading.RLock()  # a collection of garbage may come while it is held
        self._pieces: list[list[Any]] = []
        self._size = 0

    def write(self, stream: str, text: str) -> None:
        """Keep a text of ``stdout`` or ``stderr``."""
        self._add(len(text), [self.phase, stream, text])

    def log(self, record: logging.LogRecord) -> None:
        """Keep a log record, as it is to be shown."""
        try:
            said = record.getMessage()
            if record.exc_info:
                said += f"\n{_FORMATTER.formatException(record.exc_info)}"
        except Exception as error:  # its arguments are the agent's
            said = f"{record.msg!r:.200}: {type(error).__name__}"
        place = [record.pathname, record.lineno]
        about = [record.levelno, record.name, record.created, *place]
        self._add(len(said), [self.phase, "log", said, *about])

    def _add(self, size: int, piece: list[Any]) -> None:
        with self._lock:
            if self._size <= _MOST:
                self._size += size
                if self._size > _MOST:
                    piece[2] = _CUT
                self._pieces.append(piece)

    def take(self) -> list[list[Any]]:
        """Return what was kept so far: phase, stream and text, and of logs what they are."""
        with self._lock:
            pieces, self._pieces = self._pieces, []
        return pieces


class _Stream(io.TextIOBase):
    """A standard stream that knows for whom it writes."""

    encoding = "utf-8"

    def __init__(self, name: str, behind: Any) -> None:
        self._name = name
        self._behind = behind

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        store = owner()
        if isinstance(store, KeptOutput):
            store.write(self._name, text)
            return len(text)
        return int(self._behind.write(text))

    def flush(self) -> None:
        self._behind.flush()

    def fileno(self) -> int:
        return int(self._behind.fileno())


class _Keeper(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        store = owner()
        if isinstance(store, KeptOutput):
            store.log(record)


def keep_output() -> None:
    """Keep what rollouts of this process print from now on; for a process that is ours alone."""
    sys.stdout = _Stream("stdout", sys.stdout)
    sys.stderr = _Stream("stderr", sys.stderr)
    logging.getLogger().addHandler(_Keeper())


def pieces_of(said: object) -> list[list[Any]]:
    """Return what of a node's message is what a rollout printed and logged, as we keep it.

    The rest is left out: agents make log records of whatever they like.
    """
    return [piece for piece in said if _is_piece(piece)] if isinstance(said, list) else []


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
        and 0 <= created < _LARGEST
        and all(isinstance(number, int) and abs(number) < _LARGEST for number in (level, line))
    )


def log_record(piece: Sequence[Any]) -> logging.LogRecord | None:
    """Return the log record that a piece stands for, without escape sequences; None for output."""
    _, stream, text, *about = piece
    if stream != "log":
        return None
    level, name, created, path, line = about
    message, logger, place = map(escape_for_terminal, (text, name, path))
    record = logging.LogRecord(logger, level, place, line, message, None, None)
    record.created = created
    return record


def give_out(pieces: Iterable[Sequence[Any]]) -> None:
    """Print and log what a rollout printed and logged on its node, without escape sequences."""
    for piece in pieces:
        record = log_record(piece)
        if record is not None:
            logging.getLogger(record.name).handle(record)
        else:
            out = sys.stdout if piece[1] == "stdout" else sys.stderr
            out.write(escape_for_terminal(piece[2]))
