"""Finds and ends all processes that a program started, where no process can adopt orphans.

psutil reads the list of processes (on macOS it asks libproc). A process is one of the program's if

- its parent is the supervisor, or is one of the program's;
- it is in a session of the program's: the supervisor's, or one that a process of the program's has
  begun. Nobody joins a session from outside, so this holds for orphans, too;
- it has the mark in its environment.

Who was found once is remembered, whatever becomes of its parent. Who has neither arguments nor an
environment is just executing a program, and is looked at again. Not found is a process that leaves
the session, whose parent ends between two looks, and whose environment does not show the mark, as
it was cleared, or as macOS shows nobody the environment of Apple's own programs. A chain of
processes that each begin a session and end at once may be faster than they can be listed. Linux's
way finds all of these.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psutil

__all__ = ["ProcessTree", "is_alive"]

_MAX_ROUNDS = 100  # in which new processes are looked for
_LOOK_INTERVAL, _MAX_LOOK_INTERVAL = 0.02, 0.5  # seconds between two looks, at least and at most
_IDLE_FACTOR = 20  # of the duration of a look, so that looks take a twentieth of a processor
_WAIT_INTERVAL = 0.005  # seconds that killed processes have until they are looked at again


class ProcessTree:
    """The processes of one program.

    Args:
        root: the supervisor's process id. It has begun a session, has the program as its only
            child, and is not one of the program's processes.
        mark: ``NAME=VALUE``, an environment variable that no other process has.

    Attributes:
        interval: seconds until the next look.
    """

    def __init__(self, root: int, mark: bytes) -> None:
        self.interval = _LOOK_INTERVAL
        self._root = root
        self._name, _, self._value = mark.decode().partition("=")
        self._program = 0  # its process id, once it was seen
        self._own: dict[int, psutil.Process] = {}
        self._others: set[int] = set()  # processes that were looked at, and are not its own
        self._executing: set[int] = set()  # those of which nothing can be said yet
        self._sessions = {root}

    def look(self) -> None:
        """Remember the processes that are there now."""
        is_first = not self._others  # it looks at all, and takes much longer than those to come
        began = time.monotonic()
        self._find(stop=False)
        pause = 0.0 if is_first else _IDLE_FACTOR * (time.monotonic() - began)
        self.interval = min(max(_LOOK_INTERVAL, pause), _MAX_LOOK_INTERVAL)

    def end(self, timeout: float) -> int:
        """Kill all of them.

        Args:
            timeout: seconds in which they should be gone.

        Returns:
            How many remain.
        """
        deadline = time.monotonic() + timeout
        self._others.clear()  # all are looked at again
        while (survivors := self._kill()) or self._executing:
            if time.monotonic() >= deadline:
                break
            time.sleep(_WAIT_INTERVAL)
        return survivors

    def _kill(self) -> int:
        """Stop what is found until nothing new is, so that nothing can fork away; then kill it."""
        for process in self._own.values():
            with contextlib.suppress(psutil.Error):
                process.suspend()
        for _ in range(_MAX_ROUNDS):
            # What forks and ends at once is gone when the list is there; its group is not.
            self._signal_groups(signal.SIGSTOP)
            if not self._find(stop=True):
                break
        self._signal_groups(signal.SIGKILL)
        for process in self._own.values():
            with contextlib.suppress(psutil.Error):
                process.kill()  # psutil sees to it that the id is still the same process's
        return sum(map(is_alive, self._own.values()))

    def _find(self, *, stop: bool) -> int:
        """Look at the processes that are new, the newest first; return how many are its own.

        Args:
            stop: stop them at once; each may be about to fork and to end.
        """
        # The system's first two are nobody's; and 0 means the caller to the calls below.
        present = {pid for pid in psutil.pids() if pid > 1} - {self._root, os.getpid()}
        self._others &= present
        self._own = {pid: process for pid, process in self._own.items() if pid in present}
        self._sessions.update(pid for pid in self._own if _session_of(pid) == pid)
        new = sorted(present - self._others - self._own.keys(), reverse=True)
        self._executing.clear()
        count = 0
        while additions := [pid for pid in new if self._take(pid, stop)]:
            count += len(additions)
            new = [pid for pid in new if pid not in self._own]  # a child may have a lower id
        self._executing -= self._own.keys()
        self._others.update(pid for pid in new if pid not in self._executing)
        # The number of a session that has no process of ours by now may become another one's.
        self._sessions &= {self._root, *map(_session_of, self._own)}
        return count

    def _take(self, pid: int, stop: bool) -> bool:
        """Remember a process if it is one of the program's."""
        try:
            session = _session_of(pid)
            process = psutil.Process(pid)
            parent = process.ppid()
            related = parent == self._root or parent in self._own or session in self._sessions
            if not related:
                environment = process.environ()
                # In exec(2) there is an instant without either; the kernel's own processes never
                # have any, and no session.
                if not environment and session and not process.cmdline() and is_alive(process):
                    self._executing.add(pid)
                if environment.get(self._name) != self._value:
                    return False
        except (OSError, SystemError, psutil.Error):  # SystemError: psutil 7.2 on macOS
            return False  # it has ended, or is another user's
        if parent == self._root:
            self._program = pid
        if stop:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
        self._own[pid] = process
        if session == pid:
            self._sessions.add(session)
        return True

    def _signal_groups(self, number: signal.Signals) -> None:
        """Send a signal to the process groups of its own; each lies within one session."""
        # The program's id is its group's. It is not reaped before the end, so it stays its own.
        groups = {self._program}
        for pid in self._own:
            with contextlib.suppress(OSError):
                if _session_of(pid) in self._sessions:
                    groups.add(os.getpgid(pid))
        for group in groups - {0, self._root}:
            with contextlib.suppress(OSError):
                os.killpg(group, number)


def _session_of(pid: int) -> int:
    """Return the session of a process; 0 if it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def is_alive(process: psutil.Process) -> bool:
    """Whether a process has not ended; one that its parent has not yet waited for has."""
    try:
        is_zombie = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return not is_zombie and process.is_running()
