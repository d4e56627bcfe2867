"""Runs in a sandbox, with the standard library alone: what the kernel answers to which system call.

It is given the newest number to try, and the numbers of five calls by their names, as JSON; it
prints one object of JSON. Its own text is sent, so nothing here is imported from the project.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import signal
import sys

# They would end the process, wait for ever, return twice or disturb the machine.
ENDLESS = (
    *("exit", "exit_group", "fork", "vfork", "rt_sigreturn", "pause", "sync", "uretprobe"),
    "restart_syscall",
)
CONDITIONAL = ("clone", "ioctl", "personality", "socket", "socketpair")
_LIBC = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: int) -> int:
    """Return the number of the error that a call ends with, or 0."""
    ctypes.set_errno(0)
    result = _LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, arguments))
    if result >= 0:
        return 0
    return ctypes.get_errno()


def in_child(number: int, *arguments: int) -> int:
    """Return the same from a child, as it may end by it; then minus the signal."""
    child = os.fork()
    if child == 0:
        os._exit(call(number, *arguments))
    return _status(child)


def _status(child: int) -> int:
    status = os.waitpid(child, 0)[1]
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def in_32_bits(number: int) -> int:
    """Return the same for a call of i386, by its own instruction."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # push rbx; mov eax, NUMBER; xor ebx, ebx; int 0x80; pop rbx; ret
    code.write(b"\x53\xb8" + number.to_bytes(4, "little") + b"\x31\xdb\xcd\x80\x5b\xc3")
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    child = os.fork()
    if child == 0:
        result = ctypes.CFUNCTYPE(ctypes.c_int)(start)()
        os._exit(min(255, -result) if result < 0 else 0)
    return _status(child)


def main(newest: int, numbers: dict[str, int]) -> dict[str, object]:
    """Return all answers."""
    skipped = {numbers[name] for name in (*ENDLESS, *CONDITIONAL) if name in numbers}
    bad = 2**64 - 1
    answers: dict[str, object] = {
        "calls": {
            number: call(number, bad, bad, bad, bad, bad, bad)
            for number in range(newest + 40)
            if number not in skipped
        },
        "clone3": call(435, 0, 0),
    }
    sockets = {}
    for family in (*range(50), 2**32 + 40):
        for kind in (1, 2, 3, 5):
            for protocol in (0, 1, 6, 16, 17, 58, 132, 262):
                sockets[f"{family} {kind} {protocol}"] = call(
                    numbers["socket"], family, kind, protocol
                )
        os.closerange(3, 256)
    answers["sockets"] = sockets
    pair = mmap.mmap(-1, 4096)
    place = ctypes.addressof(ctypes.c_char.from_buffer(pair))
    answers["pairs"] = [call(numbers["socketpair"], family, 1, 0, place) for family in range(50)]
    flags = (0, *(1 << bit for bit in (17, *range(25, 31))))
    answers["clones"] = {
        flag: in_child(numbers["clone"], flag | signal.SIGCHLD, 0, 0, 0, 0) for flag in flags
    }
    personalities = (0xFFFFFFFF, 0, 8, 0x20000, 0x40000, 0x100000, 0x400000)
    answers["personalities"] = {
        value: in_child(numbers["personality"], value) for value in personalities
    }
    inner = os.openpty()[1]
    for name, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("TIOCSETD", 0x5423)):
        answers[name] = [
            call(numbers["ioctl"], inner, request_number, place)
            for request_number in (request, request | 1 << 32)
        ]
    answers["TCGETS"] = call(numbers["ioctl"], inner, 0x5401, place)
    if platform.machine() == "x86_64":
        answers["x32"] = in_child(1 << 30 | 39)
        answers["i386"] = {number: in_32_bits(number) for number in (20, 102, 359)}
    return answers


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), json.loads(sys.argv[2]))))
