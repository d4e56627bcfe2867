"""Limits for reading a sandbox's disk for grading, and the digest of a file's content.

An agent decides how many files it leaves, how large they are, and whether they change while they
are read. So every reading has limits, and ends when its sandbox ends. This module opens nothing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from pytest_intercode.errors import SandboxError, UngradableState
from pytest_intercode.system.beneath import relative_path

__all__ = ["SETUP_LIMITS", "WHOLE", "GradingLimits", "Reading", "digest_of", "path_parts"]

WHOLE = 1024**2
"""Bytes up to which a file's digest is the SHA-256 of its bytes (see :func:`digest_of`)."""

_BLOCK_SIZE = 256 * 1024
_ZEROS = bytes(_BLOCK_SIZE)


@dataclass(frozen=True)
class GradingLimits:
    """The limits of what is read of one sandbox, each time that it is graded.

    Attributes:
        entries: files and folders, beyond those that were there at the mark.
        names: characters of all their paths and link targets.
        content: bytes of content. Holes of sparse files are not read and do not count.
        seconds: wall time.
    """

    entries: int = 100_000
    names: int = 32 * 1024**2
    content: int = 4 * 1024**3
    seconds: float = 30.0


SETUP_LIMITS = GradingLimits(2_000_000, 1024**3, 64 * 1024**3, 120.0)
"""The limits for the parts that come from the task: its image and its setup."""


def _never() -> bool:
    return False


class Reading:
    """One reading of a sandbox's files, which enforces its limits.

    Args:
        limits: the limits.
        stopped: returns whether the sandbox was ended in the meantime.

    Every method raises UngradableState when a limit is exceeded, and SandboxError when the reading
    was stopped.
    """

    def __init__(
        self,
        limits: GradingLimits | None = None,
        stopped: Callable[[], bool] = _never,
    ) -> None:
        self.limits = limits or GradingLimits()
        self._stopped = stopped
        self._entries = self.limits.entries
        self._names = self.limits.names
        self._content = self.limits.content
        self._deadline = time.monotonic() + self.limits.seconds

    def spare(self, entries: int, names: int) -> None:
        """Do not count entries that existed before."""
        self._entries += entries
        self._names += names

    @property
    def remaining(self) -> tuple[int, int, int]:
        """The entries, characters of names and bytes of content that are left."""
        return max(0, self._entries), max(0, self._names), max(0, self._content)

    @property
    def remaining_seconds(self) -> float:
        """Seconds that are left; at least a little, so that a wait for them ends by itself."""
        return max(0.1, self._deadline - time.monotonic())

    def max_listing(self, entry: int) -> int:
        """Return the maximum bytes of a listing of what is left, at ``entry`` bytes for each."""
        return 4 * self._names + entry * self._entries

    def check(self) -> None:
        """Raise if the time is up, or the sandbox was ended."""
        if self._stopped():
            raise SandboxError("the sandbox was ended while its files were read")
        if time.monotonic() > self._deadline:
            raise self.too_slow()

    def too_slow(self) -> UngradableState:
        """Return the error of a reading whose time is up."""
        return UngradableState(f"reading the files takes more than {self.limits.seconds:g} s")

    def entry(self, names: int, count: int = 1) -> None:
        """Count an entry, or several, and the characters of their paths."""
        self.check()
        self._entries -= count
        self._names -= names
        if self._entries < 0:
            raise self.too_many()
        if self._names < 0:
            raise self.too_long()

    def link(self, target: int) -> None:
        """Count the characters of a link's target."""
        self._names -= target
        if self._names < 0:
            raise self.too_long()

    def too_many(self) -> UngradableState:
        """Return the error of a reading with too many entries."""
        return UngradableState(f"there are more than {self.limits.entries} files and folders")

    def too_long(self) -> UngradableState:
        """Return the error of a reading with too many characters of names."""
        return UngradableState(
            f"the names of the files and folders have more than {self.limits.names} characters"
        )

    def content(self, size: int) -> None:
        """Count bytes of content."""
        self.check()
        self._content -= size
        if self._content < 0:
            raise self.too_much()

    def too_much(self) -> UngradableState:
        """Return the error of a reading with too much content."""
        return UngradableState(f"the files hold more than {self.limits.content} bytes")


def path_parts(path: str) -> list[str]:
    """Return the names that a path is made of.

    Raises:
        UngradableState: one of them leads up, and so perhaps out of the sandbox.
    """
    try:
        relative = relative_path(path.strip("/"))
    except ValueError as error:
        raise UngradableState(f"no path of a sandbox's files: {error}") from None
    return relative.split("/") if relative else []


def digest_of(descriptor: int, size: int, reading: Reading) -> str:
    """Return a digest of a file's content, in hexadecimal; equal contents have equal digests.

    Up to :data:`WHOLE` bytes, it is the SHA-256 of the bytes. For a longer file, it is the SHA-256
    of its size and of its blocks of 256 KiB that are not all zeros, with their offsets: whether
    zeros are written or are a hole makes no difference, and holes need not be read.

    Args:
        descriptor: the file, open for reading, at its start.
        size: its size; what is appended in the meantime is not read. So the reading ends even if
            it is not a file any more, but a pipe.
        reading: counts what is read.
    """
    if size <= WHOLE:
        reading.content(size)
        return hashlib.sha256(os.read(descriptor, size)).hexdigest()
    digest = hashlib.sha256(b"%d:" % size)
    offset = _next_data(descriptor, 0)
    while 0 <= offset < size:
        offset -= offset % _BLOCK_SIZE
        length = min(_BLOCK_SIZE, size - offset)
        reading.content(length)
        block = os.pread(descriptor, length, offset)
        if block != (_ZEROS if len(block) == _BLOCK_SIZE else _ZEROS[: len(block)]):
            digest.update(b"%d:" % offset)
            digest.update(block)
        offset = _next_data(descriptor, offset + _BLOCK_SIZE)
    return digest.hexdigest()


def _next_data(descriptor: int, offset: int) -> int:
    """Return the next offset, from ``offset`` on, where a file has data; -1 if there is none."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return -1
        return offset  # this file system does not know its holes
