"""The filter of system calls, for all backends: one table of what sandboxes may call.

Calls that are not in the table are refused: with EPERM, or with ENOSYS if the C library then falls
back to an older call, or if the call is newer than the table. bubblewrap takes the table as a
program for the kernel (:func:`program`), Docker as a profile (:func:`profile`).

The table is narrower than Docker's own profile. A new user namespace would give a sandbox's root
all capabilities over itself again, and with them a large part of the kernel to attack. So
namespaces and mounts are refused, and also keys, programs for the kernel, memory policies and
32-bit calls. Tracing is allowed, for debuggers: the kernel protects processes with more rights from
it. Only those socket families are allowed that a network namespace separates: sockets of virtual
machines (AF_VSOCK) reach the hypervisor from any namespace.
"""

from __future__ import annotations

import errno
import json
import platform
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

__all__ = ["ALLOWED", "CONDITIONS", "NEWEST", "Term", "numbers", "profile", "program"]


class Term(NamedTuple):
    """A condition on one argument: it equals ``value`` in the bits of ``mask``.

    The kernel takes these arguments as 32 bits, and higher bits are not compared.
    """

    argument: int
    value: int
    mask: int = 0xFFFFFFFF


Rule = tuple[Term, ...]
"""Terms that must all hold."""

# name:number on x86_64:number on aarch64
_TABLE = (
    # files: opening, reading and writing
    "read:0:63 write:1:64 open:2:- openat:257:56 openat2:437:437 creat:85:- close:3:57 "
    "close_range:436:436 lseek:8:62 pread64:17:67 pwrite64:18:68 readv:19:65 writev:20:66 "
    "preadv:295:69 pwritev:296:70 preadv2:327:286 pwritev2:328:287 dup:32:23 dup2:33:- "
    "dup3:292:24 fcntl:72:25 flock:73:32 fsync:74:82 fdatasync:75:83 sync:162:81 syncfs:306:267 "
    "sync_file_range:277:84 truncate:76:45 ftruncate:77:46 fallocate:285:47 fadvise64:221:223 "
    "readahead:187:213 copy_file_range:326:285 sendfile:40:71 splice:275:76 tee:276:77 "
    "vmsplice:278:75 pipe:22:- pipe2:293:59 cachestat:451:451 "
    # names, modes, owners and attributes
    "stat:4:- lstat:6:- fstat:5:80 newfstatat:262:79 statx:332:291 statfs:137:43 fstatfs:138:44 "
    "access:21:- faccessat:269:48 faccessat2:439:439 getcwd:79:17 chdir:80:49 fchdir:81:50 "
    "getdents:78:- getdents64:217:61 mkdir:83:- mkdirat:258:34 rmdir:84:- rename:82:- "
    "renameat:264:38 renameat2:316:276 link:86:- linkat:265:37 symlink:88:- symlinkat:266:36 "
    "unlink:87:- unlinkat:263:35 readlink:89:- readlinkat:267:78 mknod:133:- mknodat:259:33 "
    "chmod:90:- fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92:- fchown:93:55 "
    "lchown:94:- fchownat:260:54 umask:95:166 utime:132:- utimes:235:- utimensat:280:88 "
    "futimesat:261:- setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 setxattrat:463:463 "
    "getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10 getxattrat:464:464 listxattr:194:11 "
    "llistxattr:195:12 flistxattr:196:13 listxattrat:465:465 removexattr:197:14 "
    "lremovexattr:198:15 fremovexattr:199:16 removexattrat:466:466 "
    # waiting for files
    "poll:7:- ppoll:271:73 select:23:- pselect6:270:72 epoll_create:213:- epoll_create1:291:20 "
    "epoll_ctl:233:21 epoll_wait:232:- epoll_pwait:281:22 epoll_pwait2:441:441 eventfd:284:- "
    "eventfd2:290:19 inotify_init:253:- inotify_init1:294:26 inotify_add_watch:254:27 "
    "inotify_rm_watch:255:28 io_setup:206:0 io_destroy:207:1 io_submit:209:2 io_cancel:210:3 "
    "io_getevents:208:4 io_pgetevents:333:292 "
    # memory
    "brk:12:214 mmap:9:222 munmap:11:215 mremap:25:216 mprotect:10:226 madvise:28:233 "
    "msync:26:227 mincore:27:232 mlock:149:228 mlock2:325:284 munlock:150:229 mlockall:151:230 "
    "munlockall:152:231 memfd_create:319:279 mseal:462:462 membarrier:324:283 pkey_alloc:330:289 "
    "pkey_free:331:290 pkey_mprotect:329:288 map_shadow_stack:453:453 "
    # processes and threads
    "fork:57:- vfork:58:- execve:59:221 execveat:322:281 exit:60:93 exit_group:231:94 "
    "wait4:61:260 waitid:247:95 set_tid_address:218:96 set_robust_list:273:99 "
    "get_robust_list:274:100 futex:202:98 futex_wait:455:455 futex_wake:454:454 "
    "futex_waitv:449:449 futex_requeue:456:456 rseq:334:293 restart_syscall:219:128 "
    "arch_prctl:158:- prctl:157:167 getpid:39:172 getppid:110:173 gettid:186:178 getpgid:121:155 "
    "getpgrp:111:- setpgid:109:154 getsid:124:156 setsid:112:157 pidfd_open:434:434 "
    "pidfd_send_signal:424:424 getcpu:309:168 getrusage:98:165 getrlimit:97:163 setrlimit:160:164 "
    "getpriority:140:141 setpriority:141:140 ioprio_get:252:31 "
    "ioprio_set:251:30 uretprobe:335:- sched_yield:24:124 sched_getaffinity:204:123 "
    "sched_setaffinity:203:122 sched_getparam:143:121 sched_setparam:142:118 "
    "sched_getscheduler:145:120 sched_setscheduler:144:119 sched_getattr:315:275 "
    "sched_setattr:314:274 sched_get_priority_max:146:125 sched_get_priority_min:147:126 "
    "sched_rr_get_interval:148:127 ptrace:101:117 "
    # users, and giving up rights
    "getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177 getgroups:115:158 "
    "getresuid:118:148 getresgid:120:150 setuid:105:146 setgid:106:144 setgroups:116:159 "
    "setreuid:113:145 setregid:114:143 setresuid:117:147 setresgid:119:149 setfsuid:122:151 "
    "setfsgid:123:152 capget:125:90 capset:126:91 seccomp:317:277 landlock_create_ruleset:444:444 "
    "landlock_add_rule:445:445 landlock_restrict_self:446:446 "
    # signals
    "rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigpending:127:136 rt_sigsuspend:130:133 "
    "rt_sigtimedwait:128:137 rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 "
    "rt_sigreturn:15:139 sigaltstack:131:132 signalfd:282:- signalfd4:289:74 kill:62:129 "
    "tkill:200:130 tgkill:234:131 pause:34:- "
    # time
    "time:201:- gettimeofday:96:169 times:100:153 clock_gettime:228:113 clock_getres:229:114 "
    "clock_nanosleep:230:115 nanosleep:35:101 alarm:37:- getitimer:36:102 setitimer:38:103 "
    "timer_create:222:107 timer_settime:223:110 timer_gettime:224:108 timer_getoverrun:225:109 "
    "timer_delete:226:111 timerfd_create:283:85 timerfd_settime:286:86 timerfd_gettime:287:87 "
    # sockets
    "bind:49:200 listen:50:201 accept:43:202 accept4:288:242 connect:42:203 shutdown:48:210 "
    "getsockname:51:204 getpeername:52:205 getsockopt:55:209 setsockopt:54:208 sendto:44:206 "
    "sendmsg:46:211 sendmmsg:307:269 recvfrom:45:207 recvmsg:47:212 recvmmsg:299:243 "
    # between processes
    "shmget:29:194 shmat:30:196 shmctl:31:195 shmdt:67:197 semget:64:190 semctl:66:191 "
    "semop:65:193 semtimedop:220:192 msgget:68:186 msgctl:71:187 msgsnd:69:189 msgrcv:70:188 "
    "mq_open:240:180 mq_unlink:241:181 mq_timedsend:242:182 mq_timedreceive:243:183 "
    "mq_notify:244:184 mq_getsetattr:245:185 "
    # the machine
    "uname:63:160 sysinfo:99:179 getrandom:318:278 "
)
# Calls that are allowed if one of their rules holds (CONDITIONS), and one refused with ENOSYS.
_CONDITIONAL = (
    "clone:56:220 ioctl:16:29 personality:135:92 prlimit64:302:261 socket:41:198 socketpair:53:199"
)
_ABSENT = "clone3:435:435"

_MACHINES = {"x86_64": 0, "aarch64": 1}


def _parse_table(text: str) -> dict[str, tuple[int | None, ...]]:
    rows = (word.split(":") for word in text.split())
    return {
        name: tuple(None if number == "-" else int(number) for number in columns)
        for name, *columns in rows
    }


ALLOWED = _parse_table("".join(_TABLE))
"""Calls that are allowed with any arguments, with their numbers."""

_OTHERS = _parse_table(f"{_CONDITIONAL} {_ABSENT}")

NEWEST = 466
"""The newest call in the table; the kernel gives new calls the same number on all machines."""

# -- conditions

_NAMESPACES = 0x7E020000  # the flags of clone that make namespaces; clone3 has them in memory
# Linux, 32 bits shown by uname, its old version numbers, both, and a query.
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
# TIOCSTI types on a terminal, TIOCLINUX on the console; TIOCSETD loads terminal drivers.
_TERMINAL_CONTROL = {0x5412, 0x541C, 0x5423}
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_TYPE = 0xF  # the other bits of a socket's type are flags
_STREAM, _DATAGRAM = 1, 2
_TCP, _UDP, _ICMP, _ICMP6 = 6, 17, 1, 58
# Addresses and routes, other sockets (ss), audit (useradd opens it), devices (udev).
_NETLINKS = (0, 4, 9, 15)


def _inet(family: int, echo: int) -> Iterator[Rule]:
    for kind, protocols in ((_STREAM, (0, _TCP)), (_DATAGRAM, (0, _UDP, echo))):
        for protocol in protocols:
            yield Term(0, family), Term(1, kind, _TYPE), Term(2, protocol)


def _all_but(
    argument: int, values: Iterable[int], prefix: int = 0, bit: int = 31
) -> Iterator[Rule]:
    """Return rules that hold if an argument has none of some values."""
    # Terms are equalities, so all other values are described by their prefixes, from the highest
    # bit down: if none of the values has a prefix, one rule covers every value that has it.
    matching = {value for value in values if value >> (bit + 1) == prefix >> (bit + 1)}
    if not matching:
        yield (Term(argument, prefix, 0xFFFFFFFF >> (bit + 1) << (bit + 1)),)
    elif bit >= 0:
        yield from _all_but(argument, matching, prefix, bit - 1)
        yield from _all_but(argument, matching, prefix | 1 << bit, bit - 1)


CONDITIONS: dict[str, tuple[Rule, ...]] = {
    "clone": ((Term(0, 0, _NAMESPACES),),),
    "ioctl": tuple(_all_but(1, _TERMINAL_CONTROL)),
    "personality": tuple((Term(0, value),) for value in _PERSONALITIES),
    # Only a process's own limits: changing those of the keeper would end it.
    "prlimit64": ((Term(0, 0),),),
    "socket": (
        (Term(0, _UNIX),),
        *_inet(_INET, _ICMP),
        *_inet(_INET6, _ICMP6),
        *((Term(0, _NETLINK), Term(2, protocol)) for protocol in _NETLINKS),
    ),
    "socketpair": ((Term(0, _UNIX),),),
}
"""Calls that are allowed if one of their rules holds."""


def numbers(machine: str) -> dict[str, int]:
    """Return the numbers of the calls in the table, for those that a machine has.

    Args:
        machine: the machine's name, as ``uname -m`` prints it.
    """
    column = _MACHINES[machine]
    call_numbers = {name: columns[column] for name, columns in (ALLOWED | _OTHERS).items()}
    return {name: number for name, number in call_numbers.items() if number is not None}


# -- Docker's form


@cache
def profile() -> str:
    """Return the profile as JSON, as Docker's option ``seccomp=`` takes it."""
    calls: list[dict[str, Any]] = [{"names": list(ALLOWED), "action": "SCMP_ACT_ALLOW"}]
    for name, rules in CONDITIONS.items():
        for rule in rules:
            terms = [
                # Docker names these the other way round: its value is the mask.
                {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}
                for index, value, mask in rule
            ]
            calls.append({"names": [name], "action": "SCMP_ACT_ALLOW", "args": terms})
    absent = list(_parse_table(_ABSENT))
    calls.append({"names": absent, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS})
    machines = [{"architecture": f"SCMP_ARCH_{name.upper()}"} for name in _MACHINES]
    whole = {"defaultAction": "SCMP_ACT_ERRNO", "archMap": machines, "syscalls": calls}
    return json.dumps(whole, separators=(",", ":"))


# -- the kernel's form: bpf_common.h, seccomp.h and audit.h

_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ABOVE, _AND, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x25, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)


def _runs(values: Iterable[int]) -> list[tuple[int, int]]:
    """Return sorted numbers as runs, each with its first and its last."""
    runs: list[tuple[int, int]] = []
    for value in sorted(values):
        if runs and runs[-1][1] == value - 1:
            runs[-1] = runs[-1][0], value
        else:
            runs.append((value, value))
    return runs


def _rule(rule: Rule) -> list[bytes]:
    """Return steps that allow the call if all terms hold, and else continue after themselves."""
    steps = [_step(_RETURN, _ALLOW)]
    for index, value, mask in reversed(rule):
        test = [_step(_LOAD, _ARGUMENTS + 8 * index)]  # the lower half, on little-endian machines
        if mask != 0xFFFFFFFF:
            test.append(_step(_AND, mask))
        steps = [*test, _step(_EQUAL, value, 0, len(steps)), *steps]
    return steps


def program(machine: str = "") -> bytes:
    """Return the filter for this machine; empty if the numbers of its calls are not known.

    Args:
        machine: the machine's name, as ``uname -m`` prints it.
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        return b""
    calls = numbers(machine)
    steps = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, _AUDIT[machine], 1, 0)]
    steps += [_refuse(errno.ENOSYS), _step(_LOAD, _NUMBER)]
    # The kernel determines once, for each call, whether it is allowed whatever its arguments, so
    # the number of steps up to here does not matter.
    for first, last in _runs(number for name, number in calls.items() if name in ALLOWED):
        steps += [_step(_AT_LEAST, first, 0, 2), _step(_ABOVE, last, 1, 0), _step(_RETURN, _ALLOW)]
    for name, rules in CONDITIONS.items():
        block = [step for rule in rules for step in _rule(rule)] + [_refuse(errno.EPERM)]
        # The distance of a conditional jump has to fit into a byte; a block may be longer.
        steps += [_step(_EQUAL, calls[name], 1, 0), _step(_JUMP, len(block)), *block]
    for name in _parse_table(_ABSENT):
        steps += [_step(_EQUAL, calls[name], 0, 1), _refuse(errno.ENOSYS)]
    # x86_64's alternative call numbers, which begin at 1 << 30, end here, too.
    steps += [_step(_ABOVE, NEWEST, 0, 1), _refuse(errno.ENOSYS), _refuse(errno.EPERM)]
    return b"".join(steps)
