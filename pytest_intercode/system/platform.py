"""What not every system has, behind functions that work wherever this package does."""

from __future__ import annotations

import contextlib
import signal
import sys

__all__ = ["adopts_orphans", "kill_by_pidfd", "memory_of"]


def adopts_orphans() -> bool:
    """Whether a process can have the orphans of its descendants become its children.

    Linux has this ("child subreaper"). Elsewhere they become children of the first process.
    """
    return sys.platform == "linux"


def kill_by_pidfd(pidfd: int) -> None:
    """Kill the process that a descriptor of ``os.pidfd_open`` stands for, if it still lives."""
    if sys.platform == "linux":
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process occupies; 0 if it has ended.

    For where the system does not limit them, as macOS.
    """
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
