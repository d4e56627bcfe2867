"""The process of the next sandbox: it waits for its command, makes a root for it, and runs it.

The starter forks it ahead of time, since entering a control group takes the kernel 10 ms and more.
Told, it mounts the sandbox's root in a mount namespace of its own, and becomes bubblewrap.

Its text is sent to the starter, so it imports the standard library and what is sent there alone.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from pathlib import Path
from typing import Any

from pytest_intercode.sandboxes.bubblewrap.mounts import NODEV, NOSUID, mount, unshare_mounts
from pytest_intercode.sandboxes.bubblewrap.wire import HOLD, receive, send

__all__ = ["Spare"]

_SHOWN = ("upper", "merged")
# The signals that Python, or the starter, ignores; whoever is started would ignore them, too.
_OURS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT)


class Spare:
    """Forks such processes.

    Args:
        place: where the sandbox's root is to be mounted, in the process's own namespace.
        own: we are the real root; else the root of a user namespace.

    Attributes:
        filtered: a descriptor of the filter of system calls; -1 for none.
    """

    def __init__(self, place: str, own: bool) -> None:
        self._place = place
        self._own = own
        self.filtered = -1

    def fork(self, doors: list[int], starters: socket.socket) -> socket.socket:
        """Fork one; return the socket on which it is told what to run.

        Args:
            doors: what it writes to in order to enter its control group.
            starters: what it has to close: the starter's own socket.
        """
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                mine.close()
                starters.close()
                for door in doors:
                    os.write(door, b"0")
                order, pipes = receive(its)
                if order is not None:
                    self._become(order, pipes, its)
            except OSError as error:
                send(its, {"error": error.strerror or str(error)}, [])
            finally:
                os._exit(127)
        its.close()
        return mine

    def _become(self, order: dict[str, Any], pipes: list[int], starter: socket.socket) -> None:
        """Make the sandbox's root; run bubblewrap in it."""
        *streams, tell, hold = pipes
        words = self._mount(order)
        folders = [os.open(f"{self._place}/{part}", os.O_PATH | os.O_CLOEXEC) for part in _SHOWN]
        send(starter, {}, folders)
        os.set_inheritable(tell, True)
        os.dup2(hold, HOLD)
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
        for kind, most in order["limits"]:
            resource.setrlimit(kind, (most, most))
        for number in _OURS:
            signal.signal(number, signal.SIG_DFL)
        extra = ["--info-fd", str(tell), "--userns-block-fd", str(HOLD)]
        if self.filtered >= 0:
            fresh = os.open(f"/proc/self/fd/{self.filtered}", os.O_RDONLY)
            os.set_inheritable(fresh, True)
            extra += ["--seccomp", str(fresh)]
        program, *rest = (words.get(word, word) for word in order["argv"])
        os.execv(program, [order["name"], *extra, *rest])

    def _mount(self, order: dict[str, Any]) -> dict[str, str]:
        """Mount what a sandbox may write to; return where it is, by its name in the command."""
        unshare_mounts()
        place = self._place
        # By descriptors, as a path may hold what separates options; and by new ones, for a layer
        # has to be in the namespace that it is mounted in.
        lower = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in order["layers"]]
        layers = ":".join(f"/proc/self/fd/{each}" for each in lower)
        size = f"size={order['size']},nr_inodes=200k"
        mount("tmpfs", place, "tmpfs", NOSUID | NODEV, size)
        for part in ("upper", "work", "merged", "shm"):
            Path(place, part).mkdir()
        options = f"lowerdir={layers},upperdir={place}/upper,workdir={place}/work"
        options += "" if self._own else ",userxattr"
        mount("overlay", f"{place}/merged", "overlay", NODEV, options)
        # bubblewrap itself can give memory a size since 0.7 only, and Ubuntu 22.04 has 0.6.
        mount("tmpfs", f"{place}/shm", "tmpfs", NOSUID | NODEV, f"size={order['shm']},mode=1777")
        return {"{root}": f"{place}/merged", "{shm}": f"{place}/shm"}
