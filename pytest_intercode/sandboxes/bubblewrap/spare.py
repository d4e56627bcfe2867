"""The process of the next sandbox: it waits for its command, makes a root for it, and runs it.

The starter forks it ahead of time, since entering a control group takes the kernel 10 ms and more.
In a mount namespace of its own it mounts a root like the last sandbox's, or, told, that which it
is to be, and becomes bubblewrap.

Its text is sent to the starter, so it imports the standard library and what is sent there alone.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
from pathlib import Path
from typing import Any

from pytest_intercode.sandboxes.bubblewrap.mounts import (
    NODEV,
    NOSUID,
    mount,
    unmount,
    unshare_mounts,
)
from pytest_intercode.sandboxes.bubblewrap.trees import Trees
from pytest_intercode.sandboxes.bubblewrap.wire import HOLD, receive, send

__all__ = ["Spare"]

_SHOWN = ("upper", "merged")
# The signals that Python, or the starter, ignores; whoever is started would ignore them, too.
_OURS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT)


class Spare:
    """Forks such processes.

    A root is a dictionary: the paths of the ``layers`` below what may be written, topmost first;
    the bytes that may be written (``size``), and those of shared memory (``shm``). A command is
    one, too: the ``name`` of the process, its ``argv``, its ``root``, and ``limits`` of each
    process. In ``argv``, ``{root}`` and the words of :class:`Trees` stand for places.

    Args:
        place: where the sandbox's root is to be mounted, in the process's own namespace.
        trees: what sandboxes share.
        own: we are the real root; else the root of a user namespace.

    Attributes:
        filtered: a descriptor of the filter of system calls; -1 for none.
    """

    def __init__(self, place: str, trees: Trees, own: bool) -> None:
        self._place = place
        self._trees = trees
        self._own = own
        self.filtered = -1

    def fork(
        self, doors: list[int], others: list[socket.socket], root: dict[str, Any] | None
    ) -> socket.socket:
        """Fork one; return the socket on which it is told what to run.

        Args:
            doors: what it writes to in order to enter its control group.
            others: what it has to close: the starter's own sockets.
            root: what it is expected to mount.
        """
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                gc.disable()
                mine.close()
                for each in others:
                    each.close()
                for door in doors:
                    os.write(door, b"0")
                unshare_mounts()
                mounted = self._mounted(root)
                order, pipes = receive(its)
                if order is not None:
                    self._become(order, pipes, its, mounted)
            except OSError as error:
                send(its, {"error": error.strerror or str(error)}, [])
            finally:
                os._exit(127)
        its.close()
        return mine

    def _mounted(self, root: dict[str, Any] | None) -> dict[str, Any] | None:
        """Mount what is expected; return it, or None where that was in vain."""
        if root is None:
            return None
        try:
            self._mount(root)
        except OSError:  # it is no error before it is asked for
            self._unmount()
            return None
        return root

    def _become(
        self,
        order: dict[str, Any],
        pipes: list[int],
        starter: socket.socket,
        mounted: dict[str, Any] | None,
    ) -> None:
        """Make the sandbox's root; run bubblewrap in it."""
        *streams, tell, hold = pipes
        if mounted != order["root"]:
            if mounted:
                self._unmount()
            self._mount(order["root"])
        words = {**self._trees.words, "{root}": f"{self._place}/merged"}
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

    def _mount(self, root: dict[str, Any]) -> None:
        place = self._place
        # By descriptors, as a path may hold what separates options; and by new ones, for a layer
        # has to be in the namespace that it is mounted in.
        lower = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in root["layers"]]
        layers = ":".join(f"/proc/self/fd/{each}" for each in lower)
        mount("tmpfs", place, "tmpfs", NOSUID | NODEV, f"size={root['size']},nr_inodes=200k")
        for part in ("upper", "work", "merged"):
            Path(place, part).mkdir()
        options = f"lowerdir={layers},upperdir={place}/upper,workdir={place}/work"
        options += "" if self._own else ",userxattr"
        mount("overlay", f"{place}/merged", "overlay", NOSUID | NODEV, options)
        self._trees.mount_own(root["shm"])

    def _unmount(self) -> None:
        self._trees.unmount_own()
        unmount(self._place)
