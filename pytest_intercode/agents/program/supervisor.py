"""The process between pytest and a program: it ends the program with everything it started.

Run as a script, with ``python -I -S supervisor.py FD PROGRAM WORD...``. Every episode waits for its
start, so it imports none of our modules, no installed package (``-IS`` hides them, psutil too) and
little else. ``FD`` is one end of a socket pair. The supervisor writes ``started`` or ``failed
ERRNO`` to it, then ``exit STATUS COUNT`` when the program and all its descendants have ended;
``COUNT`` is the number of processes that could not be killed. When the other end is shut down,
which also happens if pytest dies, everything is killed.

Linux gives orphans to the nearest ancestor that is a subreaper, which is this process. So its
descendants are all processes that the program ever started, in any session or process group. Once
it has no child, none is left. Other systems use :mod:`portable_supervisor`, which shares the
functions that do not depend on this.
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
"""The environment variable that has a unique value for every program."""

KILL_TIMEOUT = 5.0
"""Seconds in which killed processes should be gone."""

_SET_CHILD_SUBREAPER = 36  # from <linux/prctl.h>
_KILL, _CHILD, _STOP = 9, 17, 19
_IGNORED_BY_PYTHON = (13, 25)  # SIGPIPE and SIGXFSZ; a program expects their default actions
_MAX_ROUNDS = 100  # searches for new processes


def main() -> None:
    """Start the program, wait until it ends or must be ended, and leave no process behind."""
    control, parent = int(sys.argv[1]), os.getppid()
    program = start_program(control, _adopt_orphans)
    if program is None:
        return
    lock = _thread.allocate_lock()
    _thread.start_new_thread(_watch, (control, parent, lock))
    while True:
        # WNOWAIT does not reap: a process id must not be reused while the other thread kills.
        if sys.platform == "linux":  # for type checkers that run on other systems
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
    """Start the program that the command line names, and report that.

    Args:
        control: our end of the socket pair.
        prepare: called before the program is started.

    Returns:
        The program's process id; None if it cannot be started, which is reported as well.
    """
    os.set_inheritable(control, False)
    try:
        prepare()
        program = os.posix_spawn(
            sys.argv[2],
            sys.argv[3:],
            os.environ,
            setpgroup=0,  # so that `kill 0` in the program does not reach us
            setsigmask=(),
            setsigdef=_IGNORED_BY_PYTHON,
        )
    except OSError as error:
        os.write(control, b"failed %d\n" % (error.errno or 0))
        return None
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # hold no copies of the program's pipes, so that they can end
        os.dup2(nowhere, stream)
    os.write(control, b"started\n")
    return program


def wait_for_order(control: int, parent: int) -> None:
    """Wait until the other end is shut down, which is the order to kill everything.

    Args:
        control: our end of the socket pair.
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
    libc.signal(_CHILD, None)  # if SIGCHLD is ignored, children cannot be waited for


def _watch(control: int, parent: int, lock: _thread.LockType) -> None:
    """Kill everything when ordered to; the main thread notices the program's end."""
    wait_for_order(control, parent)
    while True:
        with lock:
            end_tree(os.getpid())
        time.sleep(0.02)


def _kill_children(lock: _thread.LockType) -> int:
    """Kill and reap all children until none is left or time is up; return how many are left."""
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
    """Kill all descendants of a process, but not itself; return how many were still alive."""
    return _kill(lambda: _stop_children(root) | _find_descendants({root}, _read_parents()))


def _stop_children(root: int) -> set[int]:
    """Stop the children of a process, the newest first; return their process ids.

    A process that forks and exits, as its child does in turn, is gone before the list of all
    processes has been read. As an orphan, however, it becomes our child, the last in their list.
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
    """Stop processes until no new one is found, so that none can fork away; then kill them."""
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
    """Return the parent of every process that exists."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  pathlib is slow to import
        if name.isdigit():
            fields = _read_stat(name)
            if fields:
                parents[int(name)] = int(fields[1])
    return parents


def _read_stat(pid: str) -> list[bytes]:
    """Return the fields of a process's stat, starting with its state; empty if it has ended."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  pathlib is slow to import
            return file.read()
    except OSError:
        return b""  # the process has ended, or is another user's


if __name__ == "__main__":
    main()
