"""The calls of the kernel that the starter makes by itself; its text is sent there."""

from __future__ import annotations

import ctypes
import os

__all__ = ["NODEV", "NOSUID", "PRIVATE", "mount", "unshare_mounts"]

NOSUID, NODEV, PRIVATE = 2, 4, 16384 | 1 << 18

_CLONE_NEWNS = 0x20000
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Do what the call of this name does; raise OSError if it fails."""
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{kind or 'mount'} on {target}: {os.strerror(number)}")


def unshare_mounts() -> None:
    """Have a mount namespace of our own from here on."""
    if _LIBC.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace can be made")
