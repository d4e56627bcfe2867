"""The output of one action: kept within a limit, and worded as ``bash -c`` would."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

__all__ = ["Output", "as_bash_c"]

_COMPLAINT = re.compile(
    rb"^(bash|main): (eval: )?line (\d{1,9}): (?:(warning: here-document at line )(\d{1,9}))?",
    re.MULTILINE,
)


class Output:
    """Collects bytes: keeps their beginning and end within a limit, and a digest of them all.

    Args:
        limit: bytes to keep, three quarters of them from the beginning.

    Attributes:
        size: bytes that were added.
    """

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._head_room = limit * 3 // 4
        self._tail_room = limit - self._head_room
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._hash = hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Add bytes that were printed."""
        self.size += len(data)
        self._hash.update(data)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._tail_room + 65536:
                del self._tail[: len(self._tail) - self._tail_room]

    @property
    def truncated(self) -> bool:
        """Whether more was added than is kept."""
        return self.size > self._limit

    def getvalue(self) -> bytes:
        """Return the beginning and the end."""
        if not self.truncated:
            return bytes(self._head + self._tail)
        return bytes(self._head + self._tail[len(self._tail) - self._tail_room :])

    def digest(self) -> str:
        """Return the SHA-256 of all bytes, in hexadecimal."""
        return self._hash.hexdigest()


def as_bash_c(text: bytes, actions: Sequence[tuple[int, int]]) -> bytes:
    """Give the shell's error messages the name and the line numbers that ``bash -c`` gives them.

    The shell counts all lines that it ever read, so its numbers are like those of no other shell. A
    job or a function of an earlier action gets that action's numbers.

    Args:
        text: the printed bytes.
        actions: the first line of each action of this shell, and how many more lines it has.
    """

    def number(line: bytes) -> int:
        for first, line_count in reversed(actions):
            if 0 <= int(line) - first <= line_count + 1:
                return int(line) - first + 1
        return int(line)

    def renumber(match: re.Match[bytes]) -> bytes:
        name, evaluated, line, here_document, beginning = match.groups()
        if number(line) == int(line):
            return match[0]
        # In functions, bash names the place of their definition.
        name = b"environment" if name == b"main" else name
        changed = b"%b: %bline %d: " % (name, b"-c: " if evaluated else b"", number(line))
        return changed + (b"%b%d" % (here_document, number(beginning)) if here_document else b"")

    return _COMPLAINT.sub(renumber, text)
