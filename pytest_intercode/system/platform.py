"""Functions for features that not every system has, with the same interface on all systems.

The test process runs on Linux and macOS, and commands that only read run on Windows, too. On Linux
most of these functions have the fastest implementation. Other modules call these functions; they
check ``sys.platform`` only if the whole module belongs to one system.

If there are two implementations, each is a function, and the public name is bound to one of them.
So the tests can run the portable implementation on Linux as well.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import socket
import stat
import struct
import sys
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from pytest_intercode.errors import ConfigurationError

__all__ = [
    *("HAS_SANDBOXES", "IS_LINUX", "adopts_orphans", "check_platform", "hard_limit", "hung_up"),
    *("interrupt_main_thread", "is_dead", "owner_name"),
    *("kill_by_pidfd", "lock", "lockable", "machine_identity", "memory_of", "open_folder"),
    *("open_pipe", "open_waker", "peer_network", "present_umask", "process_identity"),
    *("readable_bytes", "run_in_children", "try_lock", "unix_socket", "unlock", "user_id", "wake"),
    *("watch_for_end",),
]

IS_LINUX: Final = sys.platform == "linux"
"""Whether this is Linux, for messages and for features that other systems lack."""

HAS_SANDBOXES: Final = sys.platform != "win32"
"""Whether sandboxes can be started from here."""


class Poll(Protocol):
    """The interface of ``select.poll`` objects, which Windows does not have."""

    def register(self, fd: int, eventmask: int = ..., /) -> None:
        """Watch a descriptor for events."""


def check_platform() -> None:
    """Raise on a system from which no sandbox can be started.

    Raises:
        ConfigurationError: the system is Windows.
    """
    if not HAS_SANDBOXES:
        raise ConfigurationError(
            "sandboxes need Linux or macOS; on Windows use WSL 2 (docs/platforms.md)"
        )


# -- this process

_UMASK = re.compile(rb"^Umask:\s+([0-7]+)", re.MULTILINE)
_UMASK_LOCK = threading.Lock()


def umask_from_status() -> int | None:
    """Return the umask from Linux's ``/proc``; None if that is missing."""
    with contextlib.suppress(OSError):
        file = os.open("/proc/self/status", os.O_RDONLY)
        try:
            match = _UMASK.search(os.read(file, 4096))
        finally:
            os.close(file)
        return int(match[1], 8) if match else None
    return None


def umask_by_setting() -> int | None:
    """Return the umask, which only the call that sets it returns.

    The temporary umask is restrictive: if another thread creates a file at that time, too few users
    may read it, but never too many. The lock is needed because two threads at a time could each
    take the other's temporary umask for that of the process.
    """
    with _UMASK_LOCK:
        umask = os.umask(0o77)
        os.umask(umask)
    return umask


def user_id() -> int:
    """Return the id of this process's user; 0 on Windows, where all files have that owner."""
    if sys.platform == "win32":
        return 0
    return os.getuid()


def run_in_children(function: Callable[[], object]) -> None:
    """Have a function called in every child that is forked from this process."""
    if sys.platform != "win32":  # Windows has no forks
        os.register_at_fork(after_in_child=function)


def open_waker() -> tuple[int, int]:
    """Return a descriptor to wait for, and one for :func:`wake`; on Linux they are the same."""
    if sys.platform == "linux":
        waker = os.eventfd(0)
        return waker, waker
    return os.pipe()


def wake(waker: int) -> None:
    """End every present and later wait for the other end of a waker."""
    os.write(waker, struct.pack("@Q", 1))  # an eventfd needs a number of eight bytes


def hard_limit(kind: str) -> int | None:
    """Return a limit that this process cannot raise; None if there is none.

    Args:
        kind: the resource's name: ``nofile``, ``nproc``.
    """
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(getattr(resource, f"RLIMIT_{kind.upper()}"))[1]
    return None if limit == resource.RLIM_INFINITY else limit


# -- identities of processes and machines


def started_after_boot(pid: int) -> str:
    """Return when a process was started, in ticks of Linux's clock; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def started_at(pid: int) -> str:
    """Return when a process was started, in seconds since the epoch; empty if it is gone."""
    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return ""


def boot_and_namespace() -> str:
    """Return two words: an id of the machine's current boot, and the namespace of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = socket.gethostname()
    try:
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  a text, not a path
    except OSError:
        return f"{boot} "


def name_and_address() -> str:
    """Return two words: this machine's name, and the address of its network card.

    The boot does not matter, because :func:`started_at` returns an absolute time. The name alone is
    not enough, because several machines may share it. If there is no card, each process gets a
    different, random address.
    """
    import uuid

    return f"{socket.gethostname()} {uuid.getnode():x}"


# -- locks of open files

if sys.platform == "win32":
    import msvcrt

    # Other processes cannot read a locked byte, so lock one that none of our files contains: the
    # last one that msvcrt.locking can reach.
    _LOCKED_BYTE = 2**31 - 2
    _LOCK_INTERVAL = 0.05  # seconds between two tries

    def _set_lock(file: int, mode: int) -> None:
        position = os.lseek(file, 0, os.SEEK_CUR)
        os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file, mode, 1)
        finally:
            os.lseek(file, position, os.SEEK_SET)

    def try_lock(file: int) -> bool:
        """Lock an open file; return False if another opener has locked it."""
        try:
            _set_lock(file, msvcrt.LK_NBLCK)
        except PermissionError:
            return False
        return True

    def lock(file: int) -> None:
        """Wait until an open file can be locked, and lock it."""
        while not try_lock(file):
            time.sleep(_LOCK_INTERVAL)

    def unlock(file: int) -> None:
        """Unlock an open file; closing it has the same effect."""
        _set_lock(file, msvcrt.LK_UNLCK)

    def lockable(folder: Path, *, links: bool = True) -> int:
        """Return a descriptor whose lock stands for a whole folder."""
        return os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)

else:
    import fcntl
    import termios

    def try_lock(file: int) -> bool:
        """Lock an open file; return False if another opener has locked it.

        The system releases the lock when the file is closed, also when the process is killed. A
        forked child shares its parent's lock.

        Raises:
            OSError: its file system has no locks.
        """
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock(file: int) -> None:
        """Wait until an open file can be locked, and lock it.

        Raises:
            OSError: its file system has no locks.
        """
        fcntl.flock(file, fcntl.LOCK_EX)

    def unlock(file: int) -> None:
        """Unlock an open file, also for forked children that have it open."""
        fcntl.flock(file, fcntl.LOCK_UN)

    def lockable(folder: Path, *, links: bool = True) -> int:
        """Return a descriptor whose lock stands for a whole folder.

        Args:
            folder: the folder.
            links: whether it may be a symbolic link to a folder.

        Raises:
            OSError: there is no such folder, or it may not be read.
        """
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (0 if links else os.O_NOFOLLOW))


# -- descriptors of folders and pipes, which Windows does not have


def open_folder(path: str) -> int:
    """Return a descriptor of a folder, for ``os.fchdir`` and ``dir_fd``.

    Raises:
        OSError: there is no such folder, or (except on Linux) it may not be read.
    """
    if sys.platform == "linux":
        return os.open(path, os.O_PATH | os.O_DIRECTORY)
    if sys.platform != "win32":
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)


def open_pipe(process: int, number: int, mode: int) -> int | None:
    """Open an end of a pipe that another process has open, without waiting for the other end.

    Args:
        process: a descriptor of the process's folder in ``/proc``.
        number: the process's descriptor of the pipe.
        mode: ``os.O_RDONLY`` or ``os.O_WRONLY``.

    Returns:
        The descriptor; None if it is not a pipe, which is checked without opening it (it may be a
        device), and on systems that do not show the open files of processes.

    Raises:
        OSError: the pipe may not be opened, or is gone.
    """
    if sys.platform == "linux":
        place = os.open(f"fd/{number}", os.O_PATH, dir_fd=process)
        try:
            if stat.S_ISFIFO(os.fstat(place).st_mode):
                # Open the checked file; the process's descriptor may be another file by now.
                return os.open(f"/proc/self/fd/{place}", mode | os.O_NONBLOCK)
        finally:
            os.close(place)
    return None


def readable_bytes(pipe: int) -> int:
    """Return how many bytes can be read from a pipe now."""
    count = array("i", [0])
    if sys.platform != "win32":
        fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


# -- sockets


def unix_socket() -> socket.socket:
    """Return a socket whose address is a path.

    Raises:
        OSError: the system does not have them (Windows).
    """
    if sys.platform == "win32":
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return socket.socket(socket.AF_UNIX)


def peer_network(connection: socket.socket) -> int:
    """Return the network namespace of the process that has connected to a Unix socket.

    It is 0 if it is not known, and for this process, because it forwards the connections of many
    sandboxes.
    """
    if sys.platform == "linux":
        size = struct.calcsize("3i")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        pid, _, _ = struct.unpack("3i", credentials)
        if pid == os.getpid():
            return 0
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/ns/net").stat().st_ino
    return 0


def watch_for_end(poll: Poll, connection: int) -> None:
    """Make a poll report that the other end of a connection is closed, and no other events.

    Systems other than Linux report that only when the connection is read.
    """
    if sys.platform == "linux":
        poll.register(connection, select.POLLRDHUP)


if sys.platform != "win32":

    def hung_up_once_read(connection: socket.socket) -> bool:
        """Whether the other end of a connection is closed, as far as reading shows it.

        macOS's poll always reports it. Elsewhere it is only seen after all data has been read.
        """
        poll = select.poll()
        try:
            poll.register(connection, select.POLLIN)
            events = poll.poll(0)
            if not events:
                return False
            if events[0][1] & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                return True
            # Call the plain socket's method: a TLS socket does not support MSG_PEEK.
            flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
            return not socket.socket.recv(connection, 1, flags)
        except BlockingIOError:
            return False
        except (OSError, ValueError):  # it was reset, or another thread has just closed it
            return True


if sys.platform == "linux":

    def hung_up_anyway(connection: socket.socket) -> bool:
        """Whether the other end of a connection is closed, even if there is still unread data."""
        poll = select.poll()
        try:
            poll.register(connection, select.POLLRDHUP)
        except (OSError, ValueError):  # another thread has just closed it
            return True
        return bool(poll.poll(0))


# -- processes and their ends


def adopts_orphans() -> bool:
    """Whether a process can adopt the orphans among its descendants.

    Linux supports this ("child subreaper"). Elsewhere they become children of process 1.
    """
    return sys.platform == "linux"


def interrupt_main_thread() -> bool:
    """Interrupt the main thread like Ctrl-C; return False if that is not possible.

    It is not in a process that a script started in the background, and on Windows.
    """
    ignores = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None)
    if sys.platform == "win32" or ignores:
        return False
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    return True


def kill_by_pidfd(pidfd: int) -> None:
    """Kill the process of a descriptor from ``os.pidfd_open``, if it is still running."""
    if sys.platform == "linux":
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it has ended.

    It is used on systems that do not limit memory, such as macOS.
    """
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


# -- the implementations for this system

if sys.platform == "linux":
    present_umask = umask_from_status
    process_identity = started_after_boot
    machine_identity = boot_and_namespace
    hung_up = hung_up_anyway
else:
    present_umask = umask_by_setting
    process_identity = started_at
    machine_identity = name_and_address
    if sys.platform != "win32":
        hung_up = hung_up_once_read


def owner_name(pid: int) -> str:
    """Return a name for a process by which another run can find out whether it is running."""
    return f"{machine_identity()} {pid} {process_identity(pid)}"


def is_dead(owner: str) -> bool:
    """Whether a process with a name of :func:`owner_name` ran on this machine and has ended."""
    words = owner.rsplit(" ", 2)
    if len(words) != 3 or words[0] != machine_identity():
        return False
    return process_identity(int(words[1])) != words[2]
