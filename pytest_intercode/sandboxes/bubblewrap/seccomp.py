"""The filter of system calls: what a sandbox has no use for, and what kernels were broken by.

A sandbox's root has few capabilities, but a new user namespace would give it all of them again,
over itself, and with them a large part of the kernel to try its luck on. So namespaces, mounts,
modules, keys, programs for the kernel and the like are refused, as Docker refuses them.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

__all__ = ["program"]

# bpf_common.h and seccomp.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_NAMESPACES = 0x7E020000  # the flags of clone that make namespaces
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_X32 = 0x40000000


class _Calls(NamedTuple):
    """The numbers of the calls in question on one architecture."""

    audit: int
    clone: int
    ioctl: int
    refused: tuple[int, ...]


# The same on all architectures: io_uring, the new calls for mounts, mount_setattr.
_NEW = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)
_CLONE3 = 435

# In the order: mount, umount2, pivot_root, unshare, setns, keyctl, add_key, request_key, bpf,
# perf_event_open, userfaultfd, kexec_load, kexec_file_load, init_module, finit_module,
# delete_module, open_by_handle_at, name_to_handle_at, swapon, swapoff, reboot, settimeofday,
# clock_settime, acct, quotactl, syslog; then what only one of them has.
_X86_64 = _Calls(
    0xC000003E,
    56,
    16,
    (
        *(165, 166, 155, 272, 308, 250, 248, 249, 321, 298, 323, 246, 320, 175, 313, 176),
        *(304, 303, 167, 168, 169, 164, 227, 163, 179, 103, 172, 173),
    ),
)
_I386 = _Calls(
    0x40000003,
    120,
    54,
    (
        *(21, 52, 217, 310, 346, 288, 286, 287, 357, 336, 374, 283, 128, 350, 129),
        *(342, 341, 87, 115, 88, 79, 264, 51, 131, 103, 22, 25, 404, 101, 110),
    ),
)
_ARM64 = _Calls(
    0xC00000B7,
    220,
    29,
    (
        *(40, 39, 41, 97, 268, 219, 217, 218, 280, 241, 282, 104, 294, 105, 273, 106),
        *(265, 264, 224, 225, 142, 170, 112, 89, 60, 116),
    ),
)
_MACHINES = {"x86_64": (_X86_64, _I386), "aarch64": (_ARM64,)}


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _answer(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)


def _block(calls: _Calls) -> list[bytes]:
    """Return the filter of one architecture."""
    steps = [_step(_LOAD, _NUMBER)]
    if calls is _X86_64:
        steps += [_step(_AT_LEAST, _X32, 0, 1), _answer(errno.ENOSYS)]
    for number in (*calls.refused, *_NEW):
        steps += [_step(_EQUAL, number, 0, 1), _answer(errno.EPERM)]
    # Its flags are in memory, where no filter sees them; the C library falls back to clone.
    steps += [_step(_EQUAL, _CLONE3, 0, 1), _answer(errno.ENOSYS)]
    steps += [
        _step(_EQUAL, calls.clone, 0, 3),
        _step(_LOAD, _ARGUMENTS),
        _step(_ANY_BIT, _NAMESPACES, 0, 1),
        _answer(errno.EPERM),
        _step(_LOAD, _NUMBER),
        _step(_EQUAL, calls.ioctl, 0, 1 + 2 * len(_TERMINAL_INPUT)),
        _step(_LOAD, _ARGUMENTS + 8),
    ]
    for request in _TERMINAL_INPUT:
        steps += [_step(_EQUAL, request, 0, 1), _answer(errno.EPERM)]
    return [*steps, _step(_RETURN, _ALLOW)]


def program(machine: str = "") -> bytes:
    """Return the filter for this machine, or nothing where its calls are not known to us.

    Args:
        machine: the machine's name, as ``uname -m`` has it.
    """
    steps: list[bytes] = []
    for calls in _MACHINES.get(machine or platform.machine(), ()):
        block = _block(calls)
        # The distance of a jump on a condition fits into a byte; that of a block need not.
        steps += [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, calls.audit, 1, 0)]
        steps += [_step(0x05, len(block)), *block]
    return b"".join([*steps, _answer(errno.ENOSYS)]) if steps else b""
