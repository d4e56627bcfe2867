"""A bound on what several processes do at the same time: slots, which are locked files.

Workers of pytest-xdist share one engine, and start no more sandboxes at once than a single process
would. A slot is an ``flock`` on a file, so the kernel frees it when its holder dies. Those who wait
form a queue, each with a locked file too: without it, a process that gives a slot back would have
it again before another has looked.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import threading
import time
from pathlib import Path

from pytest_intercode.core.forks import close_in_children

__all__ = ["Slots"]

_LOOK = 0.01  # seconds between two looks


class Slots:
    """Slots that processes of one machine share by sharing a folder.

    Args:
        folder: the folder; it is made, and is the callers' to remove.
        count: how many slots there are; the same in all processes.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._slots = [folder / f"slot-{number}" for number in range(count)]
        self._queue = folder / "queue"
        self._queue.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._names = itertools.count()
        self._open: set[int] = set()
        close_in_children(self)

    def take(self, stop: threading.Event) -> int | None:
        """Wait for a slot and take it, for :meth:`give_back`; None if ``stop`` is set first.

        Raises:
            OSError: the folder is gone, or cannot be written to.
        """
        # The clock is the same for all processes; process and count make the name unique.
        name = f"{time.monotonic_ns():020d}-{os.getpid()}-{next(self._names)}"
        place = self._queue / name
        unlocked = self._queue / f".{name}"
        mine = _locked(unlocked)
        assert mine is not None
        self._open.add(mine)
        try:
            unlocked.rename(place)  # others never see it unlocked
            while not stop.is_set():
                if not self._is_preceded(name):
                    slot = self._free()
                    if slot is not None:
                        return slot
                stop.wait(_LOOK)
            return None
        finally:
            for path in (unlocked, place):
                with contextlib.suppress(OSError):
                    path.unlink()
            self._unlock(mine)

    def give_back(self, slot: int) -> None:
        """Give back a slot."""
        self._unlock(slot)

    def _free(self) -> int | None:
        for path in self._slots:
            slot = _locked(path)
            if slot is not None:
                self._open.add(slot)
                return slot
        return None

    def _is_preceded(self, name: str) -> bool:
        for each in sorted(os.listdir(self._queue)):  # noqa: PTH208 - names are all it takes
            if each.startswith("."):
                continue
            if each >= name:
                break
            if _is_held(self._queue / each):
                return True
        return False

    def _unlock(self, descriptor: int) -> None:
        self._open.discard(descriptor)
        with contextlib.suppress(OSError):
            # A child that was forked just now may have a copy, which would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    def close_copies(self) -> None:
        """Close a forked child's copies; the slots stay its parent's."""
        for descriptor in self._open:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._open = set()


def _locked(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a file; None if another one holds it."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _is_held(place: Path) -> bool:
    """Whether a place in the queue is held; one whose owner died is removed."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        with contextlib.suppress(OSError):
            place.unlink()
        return False
    finally:
        os.close(descriptor)
