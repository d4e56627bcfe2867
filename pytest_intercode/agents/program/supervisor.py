"""The process between pytest and a program that it runs: it ends the program with all it started.

Run as a script, by ``python -I -S supervisor.py FD PROGRAM WORD...``. Every episode waits for its
start, so it imports nothing of ours, no installed package (``-IS`` hides them, psutil too) and
little else. ``FD`` is one end of a pair of sockets. The supervisor writes ``started`` or ``failed
ERRNO`` to it, then ``exit STATUS COUNT`` when the program and all its descendants have ended;
``COUNT`` is the number of those that could not be killed. When the other end is shut, also by the
death of pytest, everything is killed.

Linux gives orphans to the nearest ancestor that asked for them, which is this process. So its
descendants are all that the program ever started, in any session or process group. Once it has no
child, nothing is left. Other systems have :mod:`portable_supervisor`, which uses the functions that
do not need this.
"""

from __future__ import annotations

import _thread
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections are slow to import
    from collections.abc import Callable

__all__ = [
    "KILL_TIMEOUT",
    "MARK",
    "end_marked",
    "end_tree",
    "main",
    "start_program",
    "wait_for_order",
]

MARK = "PYTEST_INTERCODE_PROGRAM"
"""The environment variable that has another value for every program."""

KILL_TIMEOUT = 5.0
"""Seconds in which killed processes should be gone."""

_SET_CHILD_SUBREAPER = 36  # from <linux/prctl.h>
_KILL, _CHILD, _STOP = 9, 17, 19
_IGNORED_BY_PYTHON = (13, 25)  # SIGPIPE and SIGXFSZ, which a program expects as they are by default
_MAX_ROUNDS = 100  # in which new processes are looked for


def main() -> None:
    """Start the program, wait until it ends or is to be ended, and leave nothing behind."""
    control, parent = int(sys.argv[1]), os.getppid()
    program = start_program(control, _adopt_orphans)
    if program is None:
        return
    lock = _thread.allocate_lock()
    _thread.start_new_thread(_watch, (control, parent, lock))
    while True:
        # Not yet reaped: a process id must not be reused while the other thread kills.
        if sys.platform == "linux":  # type checkers read this on other systems, too
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        with lock:
            pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == program:
            break
    survivors = _kill_children(lock)
    message = b"exit %d %d\n" % (os.waitstatus_to_exitcode(status), survivors)
    try:
        os.write(control, message)
    except OSError:
        pass  # pytest has ended
    os._exit(0)


def start_program(control: int, prepare: Callable[[], None]) -> int | None:
    """Start the program that the command line names, and report it.

    Args:
        control: our end of the pair of sockets.
        prepare: is called before that.

    Returns:
        The program's process id; None if it cannot be started, which is reported, too.
    """
    os.set_inheritable(control, False)
    try:
        prepare()
        program = os.posix_spawn(
            sys.argv[2],
            sys.argv[3:],
            os.environ,
            setpgroup=0,  # `kill 0` is for itself
            setsigmask=(),
            setsigdef=_IGNORED_BY_PYTHON,
        )
    except OSError as error:
        os.write(control, b"failed %d\n" % (error.errno or 0))
        return None
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the program's pipes are its own, so that their ends are seen
        os.dup2(nowhere, stream)
    os.write(control, b"started\n")
    return program


def wait_for_order(control: int, parent: int) -> None:
    """Wait until the other end is shut: everything is to be killed then.

    Args:
        control: our end of the pair of sockets.
        parent: pytest's process id; a fork of pytest, which is not our parent, may hold the other
            end open.
    """
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while not poll.poll(1000) and os.getppid() == parent:
        pass


def _adopt_orphans() -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    libc.signal(_CHILD, None)  # where it is ignored, children cannot be waited for


def _watch(control: int, parent: int, lock: _thread.LockType) -> None:
    """Kill everything when it is ordered; the main thread sees the program's end."""
    wait_for_order(control, parent)
    while True:
        with lock:
            end_tree(os.getpid())
        time.sleep(0.02)


def _kill_children(lock: _thread.LockType) -> int:
    """Kill and reap all children until none is left, or time is up; return how many are."""
    deadline = time.monotonic() + KILL_TIMEOUT
    while True:
        with lock:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return 0
            survivors = end_tree(os.getpid())
        if time.monotonic() > deadline:
            return survivors
        time.sleep(0.002)


def end_tree(root: int) -> int:
    """Kill all descendants of a process, but not the process; return how many were not dead."""
    return _kill(lambda: _stop_children(root) | _find_descendants({root}, _read_parents()))


def _stop_children(root: int) -> set[int]:
    """Stop the children of a process, the newest first; return which.

    One that forks and exits, and its child again, is gone before the list of all processes has
    been read. As an orphan it is a child of ours, and the last in their list.
    """
    children: set[int] = set()
    for _ in range(_MAX_ROUNDS):
        new = [int(pid) for pid in _read(f"/proc/{root}/task/{root}/children").split()]
        new = [pid for pid in reversed(new) if pid not in children]
        if not new:
            break
        for pid in new:
            _signal(pid, _STOP)
        children.update(new)
    return children


def end_marked(mark: bytes, timeout: float = KILL_TIMEOUT) -> int:
    """Kill all processes that have a mark in their environment, and their descendants.

    Args:
        mark: bytes that no other process has in its environment.
        timeout: seconds in which they should be gone.

    Returns:
        How many remain.
    """

    def find() -> set[int]:
        parents = _read_parents()
        marked = {pid for pid in parents if mark in _read(f"/proc/{pid}/environ")}
        return marked | _find_descendants(marked, parents)

    deadline = time.monotonic() + timeout
    while (survivors := _kill(find)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return survivors


def _kill(find: Callable[[], set[int]]) -> int:
    """Stop what is found until nothing new is, so that nothing can fork away; then kill it."""
    processes: set[int] = set()
    for _ in range(_MAX_ROUNDS):
        new = find() - processes
        if not new:
            break
        processes |= new
        for pid in new:
            _signal(pid, _STOP)
    for pid in processes:
        _signal(pid, _KILL)
    return sum(_read_stat(str(pid))[:1] not in ([], [b"Z"], [b"X"]) for pid in processes)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended, or is another user's


def _find_descendants(roots: set[int], parents: dict[int, int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    descendants: set[int] = set()
    pending = list(roots)
    while pending:
        new = set(children.get(pending.pop(), ())) - descendants
        descendants |= new
        pending += new
    return descendants - roots


def _read_parents() -> dict[int, int]:
    """Return the parent of every process that is there."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  pathlib is slow to import
        if name.isdigit():
            fields = _read_stat(name)
            if fields:
                parents[int(name)] = int(fields[1])
    return parents


def _read_stat(pid: str) -> list[bytes]:
    """Return the fields of a process's stat, from its state on; nothing if it has ended."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  pathlib is slow to import
            return file.read()
    except OSError:
        return b""  # the process has ended, or is another user's


if __name__ == "__main__":
    main()
