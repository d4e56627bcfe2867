"""A bound on what several processes do at the same time: slots, which are locked bytes of a file.

Workers of pytest-xdist share one engine, and start no more sandboxes at once than a single process
would. The locks belong to an open file (``F_OFD_SETLK``), so the kernel frees a slot when its
holder dies. Those who wait form a queue by tickets, which are locked bytes too: without it, a
process that gives a slot back would have it again before another has looked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from pathlib import Path

from pytest_intercode.core.forks import close_in_children

__all__ = ["Slots"]

_POLL_INTERVAL = 0.01  # seconds between two looks
_FLOCK = struct.Struct("@hhqqi4x")  # type, whence, start, length, process; on 64 bits
_COUNTER = 0  # the byte that is locked while the number of tickets is read and written
_SLOTS, _TICKETS = 1, 1 << 20  # the first bytes of each; there need not be any content


class Slots:
    """Slots that processes of one machine share by sharing a file.

    Args:
        file: the file; it is there, and holds the number of tickets drawn so far.
        count: how many slots there are; the same in all processes.
    """

    def __init__(self, file: Path, count: int) -> None:
        self._file = file
        self._count = count
        self._open: set[int] = set()
        close_in_children(self)

    def take(self, stop: threading.Event) -> int | None:
        """Wait for a slot and take it, for :meth:`give_back`; None if ``stop`` is set first.

        Raises:
            OSError: the file is gone, or cannot be written to.
        """
        descriptor = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        self._open.add(descriptor)
        slot = None
        try:
            while not _try_lock(descriptor, _COUNTER):
                if stop.wait(_POLL_INTERVAL):
                    return None
            # The ticket is held before the counter is let go: a later one surely sees it.
            ticket = int.from_bytes(os.pread(descriptor, 8, 0), "little")
            os.pwrite(descriptor, (ticket + 1).to_bytes(8, "little"), 0)
            _try_lock(descriptor, _TICKETS + ticket)
            _unlock(descriptor, _COUNTER)
            while not stop.is_set():
                # It is our turn when nobody waits who has drawn an earlier ticket.
                if not _is_held(descriptor, _TICKETS, ticket) and self._has_slot(descriptor):
                    _unlock(descriptor, _TICKETS + ticket)
                    slot = descriptor
                    return slot
                stop.wait(_POLL_INTERVAL)
            return None
        finally:
            if slot is None:
                self.give_back(descriptor)

    def give_back(self, slot: int) -> None:
        """Give back a slot."""
        self._open.discard(slot)
        with contextlib.suppress(OSError):
            # A child that was forked just now may have a copy, which would keep the lock.
            _unlock(slot, 0, 0)
        os.close(slot)

    def _has_slot(self, descriptor: int) -> bool:
        return any(_try_lock(descriptor, _SLOTS + number) for number in range(self._count))

    def close_copies(self) -> None:
        """Close a forked child's copies; the slots stay its parent's."""
        for descriptor in self._open:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._open = set()


def _try_lock(file: int, byte: int) -> bool:
    """Lock a byte of an open file; False if another one holds it."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, byte, 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(file: int, first: int, count: int = 1) -> None:
    """Unlock bytes of an open file; all that follow with a count of 0."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, 0, first, count, 0))


def _is_held(file: int, first: int, count: int) -> bool:
    """Whether another one holds one of some bytes."""
    if not count:
        return False
    request = _FLOCK.pack(fcntl.F_WRLCK, 0, first, count, 0)
    kind: int = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, request))[0]
    return kind != fcntl.F_UNLCK
