"""What a sandbox's first process starts with, and gives up: namespaces, capabilities, calls.

The text of this module is sent to the starter, so it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys

if sys.platform != "linux":
    raise ImportError("bubblewrap runs on Linux only")

__all__ = [
    "NO_NAMESPACE",
    *("NEW_CGROUP", "NEW_IPC", "NEW_MOUNTS", "NEW_NET", "NEW_PIDS", "NEW_USERS", "NEW_UTS"),
    *("clone", "close_all_but", "end_with_parent", "enter_namespace", "give_up", "raise_loopback"),
    "unshare",
]

NEW_MOUNTS, NEW_CGROUP, NEW_UTS, NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEW_USERS, NEW_PIDS, NEW_NET = 0x10000000, 0x20000000, 0x40000000
_NAMES = {NEW_MOUNTS: "of mounts", NEW_USERS: "of users", NEW_NET: "of networks"}
NO_NAMESPACE = "no namespace can be made"
"""The beginning of an error when the kernel refuses a namespace."""

_CLONE3, _CLOSE_RANGE = 435, 436  # the same numbers on all machines
_PIDFD = 0x1000
_PDEATHSIG, _SECCOMP, _BOUNDING_DROP, _NO_NEW_PRIVS = 1, 22, 24, 38
_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_MAX_CAPABILITIES = 64
_SET_FLAGS, _UP = 0x8914, 1
_OTHER_GROUP = 1
_CALLS = ctypes.CDLL(None, use_errno=True)
_ARGUMENTS = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_PRCTL = ctypes.CFUNCTYPE(ctypes.c_int, *_ARGUMENTS, use_errno=True)(("prctl", _CALLS))
# Keeps the interpreter's lock (GIL), so that a child finds the lock as it was.
_LOCKED = ctypes.PyDLL(None, use_errno=True)


def clone(namespaces: int) -> tuple[int, int]:
    """Fork into new namespaces; the Python process must have only one thread.

    Returns:
        The child's process number and a descriptor of it (pidfd); in the child, 0 and -1.
    """
    descriptor = ctypes.c_int(-1)
    flags, place = namespaces | _PIDFD, ctypes.addressof(descriptor)
    arguments = struct.pack("=8Q", flags, place, 0, 0, signal.SIGCHLD, 0, 0, 0)
    call, size = ctypes.c_long(_CLONE3), ctypes.c_long(len(arguments))
    pid = int(_LOCKED.syscall(call, arguments, size))
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{NO_NAMESPACE}: {os.strerror(number)}")
    return pid, descriptor.value if pid else -1


def unshare(namespaces: int) -> None:
    """Move this process into new namespaces."""
    if _CALLS.unshare(namespaces) != 0:
        number = ctypes.get_errno()
        kind = _NAMES.get(namespaces, "further")
        raise OSError(number, f"{NO_NAMESPACE}, {kind}: {os.strerror(number)}")


def enter_namespace(descriptor: int, kind: int) -> None:
    """Enter a namespace, given a descriptor of it."""
    if _CALLS.setns(descriptor, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"a namespace cannot be entered: {os.strerror(number)}")


def end_with_parent() -> None:
    """Have this process killed when the thread that started it ends."""
    _call_prctl(_PDEATHSIG, signal.SIGKILL)


def close_all_but(descriptors: list[int]) -> None:
    """Close all descriptors except the first three and some others."""
    first = 3
    for descriptor in sorted(descriptors):
        os.closerange(first, descriptor)
        first = descriptor + 1
    call, highest = ctypes.c_long(_CLOSE_RANGE), ctypes.c_long(0xFFFFFFFF)
    if _CALLS.syscall(call, ctypes.c_long(first), highest, ctypes.c_long(0)) != 0:
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def raise_loopback() -> None:
    """Bring up the device ``lo`` of a new network; the kernel gives it its addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("=16sH22x", b"lo", _UP))


def give_up(capabilities: list[int], guarded: bool, steps: bytes) -> None:
    """Give up all rights but a few for good; for a process with all rights in a user namespace.

    The program that it executes next does not gain any of them back. The sets of capabilities that
    a program inherits are empty.

    Args:
        capabilities: the numbers of those that it keeps.
        guarded: no other process, not even root's, can look into the program that it executes: the
            kernel guards a process that begins with two different groups. bash itself returns to
            one.
        steps: the filter of system calls; none if empty.
    """
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    for number in range(_MAX_CAPABILITIES):
        if number in capabilities:
            continue
        try:
            _call_prctl(_BOUNDING_DROP, number)
        except OSError:
            if number < 32:  # else the kernel does not have that many
                raise
            break
    mask = sum(1 << number for number in capabilities)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    sets = struct.pack("=6I", mask, mask, 0, 0, 0, 0)
    if _CALLS.capset(header, sets) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capabilities cannot be given up: {os.strerror(number)}")
    # Before the filter: the kernel requires this of a process without administrative rights.
    _call_prctl(_NO_NEW_PRIVS, 1)
    if guarded:
        os.setregid(-1, _OTHER_GROUP)
    if steps:
        filter_buffer = ctypes.create_string_buffer(steps, len(steps))
        program = struct.pack("HP", len(steps) // 8, ctypes.addressof(filter_buffer))
        program_buffer = ctypes.create_string_buffer(program, len(program))
        _call_prctl(_SECCOMP, _FILTER, ctypes.addressof(program_buffer))


def _call_prctl(option: int, value: int, address: int = 0) -> None:
    if _PRCTL(option, value, address, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
