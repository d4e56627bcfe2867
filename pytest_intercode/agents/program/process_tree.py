"""Finds and ends all processes that a program started, where no process can adopt orphans.

psutil reads the list of processes (on macOS it asks libproc). A process belongs to the program if

- its parent is the supervisor, or belongs to the program;
- it is in one of the program's sessions: the supervisor's, or one that a process of the program has
  created. No process can join a session from outside, so this also holds for orphans;
- it has the mark in its environment.

A process that was found once is remembered, whatever happens to its parent. A process with neither
arguments nor an environment is in the middle of exec(2), and is checked again. Not found is
a process that leaves the session, whose parent ends between two scans, and whose environment does
not show the mark: the environment was cleared, or it is one of Apple's own programs, whose
environment macOS hides. A chain of processes that each create a session and end immediately may be
faster than the scans. The Linux supervisor finds all of these.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psutil

__all__ = ["ProcessTree", "is_alive"]

_MAX_ROUNDS = 100  # searches for new processes
_LOOK_INTERVAL, _MAX_LOOK_INTERVAL = 0.02, 0.5  # seconds between two scans, minimum and maximum
_IDLE_FACTOR = 20  # times the duration of a scan, so that scans take 1/20 of a processor
_WAIT_INTERVAL = 0.005  # seconds that killed processes have until they are checked again


class ProcessTree:
    """The processes of one program.

    Args:
        root: the supervisor's process id. The supervisor leads a session, has the program as its
            only child, and is not one of the program's processes.
        mark: ``NAME=VALUE``, an environment variable that no other process has.

    Attributes:
        interval: seconds until the next scan.
    """

    def __init__(self, root: int, mark: bytes) -> None:
        self.interval = _LOOK_INTERVAL
        self._root = root
        self._name, _, self._value = mark.decode().partition("=")
        self._program = 0  # its process id, once it has been found
        self._own: dict[int, psutil.Process] = {}
        self._others: set[int] = set()  # processes that were checked, and are not the program's
        self._executing: set[int] = set()  # processes that cannot be classified yet
        self._sessions = {root}

    def look(self) -> None:
        """Remember the processes that exist now."""
        is_first = not self._others  # it checks all processes, and takes much longer than later
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
        self._others.clear()  # check all processes again
        while (survivors := self._kill()) or self._executing:
            if time.monotonic() >= deadline:
                break
            time.sleep(_WAIT_INTERVAL)
        return survivors

    def _kill(self) -> int:
        """Stop processes until no new one is found, so that none can fork away; then kill them."""
        for process in self._own.values():
            with contextlib.suppress(psutil.Error):
                process.suspend()
        for _ in range(_MAX_ROUNDS):
            # A process that forks and ends immediately is gone by the time the list is complete,
            # but its group still exists.
            self._signal_groups(signal.SIGSTOP)
            if not self._find(stop=True):
                break
        self._signal_groups(signal.SIGKILL)
        for process in self._own.values():
            with contextlib.suppress(psutil.Error):
                process.kill()  # psutil checks that the id still belongs to the same process
        return sum(map(is_alive, self._own.values()))

    def _find(self, *, stop: bool) -> int:
        """Check the new processes, the newest first; return how many belong to the program.

        Args:
            stop: stop those immediately, as each may be about to fork and to end.
        """
        # 0 and 1 are never the program's; and 0 means the caller in the calls below.
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
        # The number of a session in which no process of ours remains may be reused.
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
                # During exec(2), a process has neither for an instant. The kernel's own processes
                # never have either, but they have no session.
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
        """Send a signal to the program's process groups; each group lies within one session."""
        # The program's id is also its group's. It is not reused, as the program is reaped last.
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
    """Whether a process has not ended; a zombie has ended."""
    try:
        is_zombie = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return not is_zombie and process.is_running()
