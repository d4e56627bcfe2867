"""The table of system calls: the kernel's own numbers, and the same answer in both of its forms."""

from __future__ import annotations

import errno
import itertools
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.sandboxes import seccomp

MACHINES = ("x86_64", "aarch64")
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
SAMPLES: dict[str, list[tuple[int, ...]]] = {
    "clone": [(flags,) for flags in (0, 17, 0x3D0F00, *(1 << bit for bit in range(32)))],
    "ioctl": [(3, each) for each in (0, 0x5401, *range(0x5410, 0x5430), 0x80045430, 0xFFFFFFFF)],
    "personality": [(each,) for each in (0, 8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)],
    "socket": list(itertools.product(range(50), (1, 2, 3, 5, 0x80801), (0, 1, 6, 9, 17, 58, 132))),
    "socketpair": [(family, 1, 0) for family in range(50)],
}


def kernel(program: bytes, audit: int, number: int, arguments: tuple[int, ...]) -> int:
    """Do what the kernel does with a filter; return the error, or 0 where it allows the call."""
    values = [each for word in arguments for each in (word & 0xFFFFFFFF, word >> 32)]
    data = [number, audit, 0, 0, *values, *[0] * (12 - len(values))]
    steps = list(struct.iter_unpack("=HBBI", program))
    at = held = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x20:
            held = data[value // 4]
        elif code == 0x05:
            at += value
        elif code == 0x54:
            held &= value
        elif code in (0x15, 0x25, 0x35):
            test = {0x15: held == value, 0x25: held > value, 0x35: held >= value}[code]
            at += yes if test else no
        else:
            assert code == 0x06
            assert value == ALLOW or value & 0xFFFF0000 == ERRNO
            return 0 if value == ALLOW else value & 0xFFFF


def docker(profile: dict[str, Any], name: str, arguments: tuple[int, ...]) -> int:
    """Do what an engine does with a profile."""
    given = [*arguments, *[0] * 6]
    for rule in profile["syscalls"]:
        terms = rule.get("args", ())
        assert all(term["op"] == "SCMP_CMP_MASKED_EQ" for term in terms)
        if name in rule["names"] and all(
            given[term["index"]] & term["value"] == term["valueTwo"] for term in terms
        ):
            return 0 if rule["action"] == "SCMP_ACT_ALLOW" else int(rule["errnoRet"])
    return errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_both_forms_give_the_same_answers(machine: str) -> None:
    program, profile = seccomp.program(machine), json.loads(seccomp.profile())
    known = seccomp.numbers(machine)
    for name, number in known.items():
        for arguments in SAMPLES.get(name, [()]):
            error = kernel(program, AUDIT[machine], number, arguments)
            assert error == docker(profile, name, arguments), (name, arguments)
            above = tuple(each | 1 << 32 for each in arguments)  # the kernel does not look there
            assert error == kernel(program, AUDIT[machine], number, above)
            assert error == docker(profile, name, above)
    others = set(range(seccomp.NEWEST)) - set(known.values())
    for number in others:
        assert kernel(program, AUDIT[machine], number, ()) == errno.EPERM
    for number in (seccomp.NEWEST + 1, 1000, 1 << 30, 1 << 30 | 41, 0xFFFFFFFF):
        assert kernel(program, AUDIT[machine], number, ()) == errno.ENOSYS
    for audit in (0x40000003, 0x40000028, 0, *(set(AUDIT.values()) - {AUDIT[machine]})):
        assert kernel(program, audit, 0, ()) == errno.ENOSYS


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("clone", (0x10000000,), errno.EPERM),
        ("clone", (0x3D0F00,), 0),  # a thread
        ("clone3", (), errno.ENOSYS),
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, 0x5413), 0),
        ("personality", (0x40000,), errno.EPERM),
        ("socket", (40, 1, 0), errno.EPERM),
        ("socket", (38, 5, 0), errno.EPERM),
        ("socket", (2, 5, 0), errno.EPERM),  # SCTP
        ("socket", (16, 3, 0), 0),
        ("socket", (16, 3, 12), errno.EPERM),  # netfilter
        ("socketpair", (30, 1, 0), errno.EPERM),  # TIPC
    ],
)
def test_answers(name: str, arguments: tuple[int, ...], error: int) -> None:
    assert docker(json.loads(seccomp.profile()), name, arguments) == error


@pytest.mark.parametrize(
    "name",
    [
        *("process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "mbind"),
        *("move_pages", "migrate_pages", "set_mempolicy"),
        *("sysfs", "keyctl", "add_key", "bpf"),
        *("io_uring_setup", "userfaultfd", "perf_event_open", "unshare", "setns", "mount"),
        *("umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "mount_setattr", "chroot"),
        *("open_by_handle_at", "name_to_handle_at", "modify_ldt", "iopl", "ioperm", "kexec_load"),
        *("init_module", "finit_module", "swapon", "reboot", "syslog", "quotactl", "acct"),
        *("memfd_secret", "fanotify_init", "fanotify_mark", "lookup_dcookie", "vhangup"),
        *("clock_settime", "settimeofday", "sethostname", "setdomainname", "uselib", "ustat"),
    ],
)
def test_of_no_use(name: str) -> None:
    assert name not in seccomp.ALLOWED
    assert name not in seccomp.CONDITIONS


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_the_kernels(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not here")
    found = re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text())
    headers = {name: int(number) for name, number in found}
    headers |= {"newfstatat": headers.get("fstatat", headers.get("newfstatat", -1))}
    known = seccomp.numbers(machine)
    common = known.keys() & headers.keys()
    assert {name: known[name] for name in common} == {name: headers[name] for name in common}
    assert all(known[name] > 334 for name in known.keys() - common)  # newer than the headers


def test_other_machines_have_no_program() -> None:
    assert seccomp.program("riscv64") == b""
