"""A bound on what several processes do at the same time: slots, which are file locks.

Workers of pytest-xdist share one engine, and together start no more sandboxes simultaneously than a
single process would. A lock belongs to an open file, so the kernel frees a slot when its holder
dies. Waiting processes form a queue by tickets, which are locked files too: without it, a process
that gives a slot back would take it again before another process has checked.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from pytest_intercode.system.forks import close_in_children
from pytest_intercode.system.platform import try_lock, unlock

__all__ = ["Slots"]

_POLL_INTERVAL = 0.01  # seconds between two checks


class Slots:
    """Slots that processes of one machine share by sharing a file.

    They make files next to it, whose names are its name with an ending: ``.slot-N`` for each slot,
    which stay, and ``.ticket-N`` for each that waits.

    Args:
        file: the file; it exists, and holds the number of tickets drawn so far.
        count: how many slots there are; the same in all processes.
    """

    def __init__(self, file: Path, count: int) -> None:
        self._folder, self._name = file.parent, file.name
        self._prefix = str(file)  # making a path with pathlib takes as long as all the rest
        self._count = count
        self._open: set[int] = set()
        close_in_children(self)

    def take(self, stop: threading.Event) -> int | None:
        """Wait for a slot and take it, for :meth:`give_back`; None if ``stop`` is set first.

        Raises:
            OSError: the file is gone, or cannot be written to.
        """
        counter = self._acquire(self._prefix, os.O_RDWR)
        try:
            while not try_lock(counter):
                if stop.wait(_POLL_INTERVAL):
                    return None
            # An empty file, as it is at first, is the number 0.
            number = int.from_bytes(os.pread(counter, 8, 0), "little")
            os.pwrite(counter, (number + 1).to_bytes(8, "little"), 0)
            if not stop.is_set() and not self._tickets():
                slot = self._lock_slot()
                if slot is not None:
                    return slot
            # Hold the ticket before releasing the counter: then every later ticket's holder sees
            # it.
            ticket = self._acquire(f"{self._prefix}.ticket-{number}", os.O_RDWR | os.O_CREAT)
            try_lock(ticket)
        finally:
            self._release(counter)
        try:
            return self._wait_turn(number, stop)
        finally:
            self._remove_ticket(number)
            self._release(ticket)

    def give_back(self, slot: int) -> None:
        """Give back a slot."""
        self._release(slot)

    def close_copies(self) -> None:
        """Close the copies in a forked child; the slots remain its parent's."""
        for descriptor in self._open:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._open = set()

    def _wait_turn(self, number: int, stop: threading.Event) -> int | None:
        """Return a slot as soon as no process with an earlier ticket waits."""
        while not stop.is_set():
            if self._is_first(number) and (slot := self._lock_slot()) is not None:
                return slot
            stop.wait(_POLL_INTERVAL)
        return None

    def _is_first(self, number: int) -> bool:
        """Whether no earlier ticket is held; remove the files of tickets whose holders died."""
        for earlier in sorted(ticket for ticket in self._tickets() if ticket < number):
            try:
                ticket = self._acquire(f"{self._prefix}.ticket-{earlier}", os.O_RDWR)
            except FileNotFoundError:  # it was released just now
                continue
            try:
                # It can be locked only if its holder has died, or is just releasing it.
                if not try_lock(ticket):
                    return False
                self._remove_ticket(earlier)
            finally:
                self._release(ticket)
        return True

    def _tickets(self) -> list[int]:
        """Return the numbers of the existing tickets."""
        prefix = f"{self._name}.ticket-"
        names = os.listdir(self._folder)  # noqa: PTH208  a hundred times in a second
        return [int(name[len(prefix) :]) for name in names if name.startswith(prefix)]

    def _remove_ticket(self, number: int) -> None:
        Path(f"{self._prefix}.ticket-{number}").unlink(missing_ok=True)

    def _lock_slot(self) -> int | None:
        for number in range(self._count):
            slot = self._acquire(f"{self._prefix}.slot-{number}", os.O_RDWR | os.O_CREAT)
            if try_lock(slot):
                return slot
            self._release(slot)
        return None

    def _acquire(self, path: str, flags: int) -> int:
        """Open a file that forked children must not inherit."""
        descriptor = os.open(path, flags, 0o600)
        self._open.add(descriptor)
        return descriptor

    def _release(self, descriptor: int) -> None:
        self._open.discard(descriptor)
        with contextlib.suppress(OSError):
            # A child that was forked just now may have a copy, which would keep the lock.
            unlock(descriptor)
        os.close(descriptor)
