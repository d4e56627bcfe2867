"""Protection of a process's objects from its forked children.

A child gets copies of all objects and descriptors. It must not end resources of its parent, and a
descriptor that it keeps open would keep a sandbox alive after its parent was killed.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol

from pytest_intercode.errors import SandboxError
from pytest_intercode.system.platform import run_in_children

__all__ = ["MakingProcess", "close_in_children"]


class MakingProcess:
    """The process in which an object was created.

    Args:
        claim: the object that a forked child cannot use, with a verb: "this environment belongs".
        replacement: the object to create there: "another one".
    """

    def __init__(self, claim: str = "this belongs", replacement: str = "another one") -> None:
        self._claim, self._replacement = claim, replacement
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        """Whether it is this process, and not one from which this process was forked."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise in a forked child. Call it before taking a lock, which may be held forever there.

        Raises:
            SandboxError: this process is a forked child.
        """
        if not self.is_this:
            raise SandboxError(
                f"{self._claim} to the process that this one was forked from; create "
                f"{self._replacement} in the process that uses it"
            )


class _Holder(Protocol):
    def close_copies(self) -> None: ...


_holders: weakref.WeakSet[_Holder] = weakref.WeakSet()


def close_in_children(holder: _Holder) -> None:
    """Have ``holder.close_copies()`` called in every forked child, as long as the holder exists.

    It must close the child's copies of descriptors, without affecting the parent.
    """
    _holders.add(holder)


def _after_fork() -> None:
    for holder in list(_holders):
        with contextlib.suppress(OSError):
            holder.close_copies()


run_in_children(_after_fork)
