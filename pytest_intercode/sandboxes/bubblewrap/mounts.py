"""The calls of the kernel that the starter makes by itself; its text is sent there."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

__all__ = [
    *("BIND", "NODEV", "NOEXEC", "NOSUID", "PRIVATE", "RDONLY", "RECURSIVE"),
    *("detach_needless", "harden", "mount", "unmount", "unshare_mounts"),
]

RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
BIND, RECURSIVE = 4096, 16384
PRIVATE = RECURSIVE | 1 << 18

_REMOUNT = 32

_CLONE_NEWNS = 0x20000
_DETACH = 2
# What no sandbox is made of, wherever it is.
_NEEDLESS = (
    *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts"),
    *("efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "pstore", "rpc_pipefs", "securityfs"),
    "tracefs",
)
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Do what the call of this name does; raise OSError if it fails."""
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{kind or 'mount'} on {target}: {os.strerror(number)}")


def unmount(path: str) -> None:
    """Take away what is mounted there, with all that is mounted in it, if it is."""
    _LIBC.umount2(os.fsencode(path), _DETACH)


def harden(path: str, flags: int) -> None:
    """Add flags to a mount's own."""
    # What it has may not be taken away, and these have the same numbers in both calls.
    flags |= os.statvfs(path).f_flag & (RDONLY | NOSUID | NODEV | NOEXEC)
    mount("none", path, "", _REMOUNT | BIND | flags)


def unshare_mounts() -> None:
    """Have a mount namespace of our own from here on."""
    if _LIBC.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace can be made")


def detach_needless() -> None:
    """Take out of our namespace what no sandbox needs.

    For each mount that it makes, bubblewrap reads the list of all that there are. What is open
    already can still be used.
    """
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    for line in reversed(lines):
        words, _, rest = line.partition(b" - ")
        if rest.split()[0].decode() in _NEEDLESS:
            # A space in it is written \040; what cannot be found so stays.
            _LIBC.umount2(words.split()[4], _DETACH)
