"""The supervisor for systems on which a process cannot adopt the orphans of its descendants.

It uses the protocol of :mod:`supervisor`, and is started by ``python -I -S -c``. The folders of
this package and of psutil are at the end of the path, so that nothing in them hides the standard
library. It lists all processes repeatedly, to find a daemon before the daemon's parent has ended
(:mod:`process_tree` describes which processes it cannot find).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from pytest_intercode.agents.program.supervisor import (
    KILL_TIMEOUT,
    MARK,
    start_program,
    wait_for_order,
)

if TYPE_CHECKING:
    from pytest_intercode.agents.program.process_tree import ProcessTree

__all__ = ["main"]

_EXIT_INTERVAL = 0.01  # seconds between checks of the program itself
_KILL_INTERVAL = 0.02  # seconds between searches for processes to kill


def main() -> None:
    """Start the program, wait until it ends or must be ended, and leave no process behind."""
    control, parent = int(sys.argv[1]), os.getppid()
    program = start_program(control, _keep_ended_children)
    if program is None:
        return
    import psutil  # slow, so import it after the program has started

    from pytest_intercode.agents.program.process_tree import ProcessTree, is_alive

    tree = ProcessTree(os.getpid(), f"{MARK}={os.environ[MARK]}".encode())
    lock = threading.Lock()
    threading.Thread(target=_watch, args=(control, parent, tree, lock), daemon=True).start()
    process = psutil.Process(program)
    next_look = 0.0
    # It is not reaped before the end, so until then its process and group id are not reused.
    while is_alive(process):
        if time.monotonic() >= next_look:
            with lock:
                tree.look()
            next_look = time.monotonic() + tree.interval
        time.sleep(_EXIT_INTERVAL)
    with lock:
        survivors = tree.end(KILL_TIMEOUT)
        _, status = os.waitpid(program, 0)
        try:
            os.write(control, b"exit %d %d\n" % (os.waitstatus_to_exitcode(status), survivors))
        except OSError:
            pass  # pytest has ended
        os.killpg(os.getpid(), signal.SIGKILL)  # also ends processes that have joined our group


def _keep_ended_children() -> None:
    """Restore SIGCHLD: if our parent process ignores it, children cannot be waited for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _watch(control: int, parent: int, tree: ProcessTree, lock: threading.Lock) -> None:
    """Kill everything when ordered to; the main thread notices the program's end."""
    wait_for_order(control, parent)
    while True:
        with lock:
            tree.end(0)
        time.sleep(_KILL_INTERVAL)
