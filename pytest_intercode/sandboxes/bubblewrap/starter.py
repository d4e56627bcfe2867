"""The starter: a small process that mounts and starts sandboxes for its client.

It lives in a mount namespace of its own (and, for an ordinary user, in a user namespace in which
it is root), so that no mount of ours is ever seen outside, or outlives it. It has a single thread,
which lives as long as it does: ``--die-with-parent`` goes by the thread that started a sandbox.
When its client goes, however it goes, its socket ends, and it ends whatever it has started.

Its text, with that of ``wire.py``, ``mounts.py``, ``trees.py`` and ``spare.py``, is given to a
Python with nothing but the standard library; its arguments are the descriptor of its socket, and
whose namespaces it is in.
"""

from __future__ import annotations

import contextlib
import fnmatch
import gc
import glob
import json
import os
import select
import signal
import socket
import sys
import tarfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from pytest_intercode.sandboxes.bubblewrap.mounts import (
    NODEV,
    NOSUID,
    PRIVATE,
    detach_needless,
    mount,
    unshare_mounts,
)
from pytest_intercode.sandboxes.bubblewrap.spare import Spare
from pytest_intercode.sandboxes.bubblewrap.trees import Trees
from pytest_intercode.sandboxes.bubblewrap.wire import IDS, receive, send

PLACES = ("/sys/kernel", "/media", "/mnt")
"""Where, in our namespace alone, mounts are prepared: what nothing of is wanted in a sandbox."""

_PIPES = 3
_PATIENCE = 3.0


class Starter:
    """Serves one client.

    Args:
        channel: the socket to it.
        own: make a mount namespace first; else we are in one already, in a user namespace.
    """

    def __init__(self, channel: socket.socket, own: bool) -> None:
        self._channel = channel
        self._paths: dict[str, str] = {}  # of layers
        self._layers: dict[str, int] = {}  # descriptors of them
        self._running: list[int] = []  # descriptors of sandboxes' first processes
        self._own = own
        self._groups: list[tuple[int, str]] = []  # where they are, and what they are called
        self._base = next(place for place in PLACES if Path(place).is_dir())
        self._ready: deque[socket.socket] = deque()  # spares, the oldest first
        self._root: dict[str, Any] | None = None  # the last sandbox's: the next is often like it
        if own:
            unshare_mounts()
        mount("", "/", "", PRIVATE)
        mount("tmpfs", self._base, "tmpfs", NOSUID | NODEV, "mode=755")
        Path(self._base, "root").mkdir()
        self._trees = Trees(self._base)
        self._spares = Spare(f"{self._base}/root", self._trees, own)
        self._ids = {kind: _identity(f"/proc/self/{kind}_map") for kind in ("gid", "uid")}
        self._everyone = all(
            sum(count for _, count in ranges) == IDS for ranges in self._ids.values()
        )

    def serve(self) -> None:
        """Answer until the client goes."""
        while True:
            try:
                message, descriptors = receive(self._channel)
            except ConnectionError:
                return
            if message is None:
                return
            answer: dict[str, Any] = {}
            back: list[int] = []
            spares = message.pop("spares", 0)  # to be forked; the doors are theirs, in equal parts
            try:
                answer, back = getattr(self, f"_{message.pop('do')}")(descriptors, **message)
            except OSError as error:
                answer = {"error": error.strerror or str(error)}
            with contextlib.suppress(ConnectionError):
                send(self._channel, answer, back)
            for descriptor in back:
                if descriptor not in self._layers.values():
                    os.close(descriptor)
            # The next process must not hold this sandbox's pipes open.
            for descriptor in descriptors[:_PIPES]:
                os.close(descriptor)
            doors = descriptors[_PIPES:]
            for number in range(spares):
                mine = doors[number * len(doors) // spares : (number + 1) * len(doors) // spares]
                others = [self._channel, *self._ready]
                self._ready.append(self._spares.fork(mine, others, self._root))
            for descriptor in doors:
                os.close(descriptor)

    # -- what the client may ask for

    def _hello(
        self,
        descriptors: list[int],
        groups: list[str],
        filtered: bool,
        shared: dict[str, list[str]],
    ) -> Any:
        """Take what is the same for all sandboxes.

        Args:
            descriptors: that of the filter of system calls, which may be empty.
            groups: patterns of control groups, to be removed when the client is gone.
            filtered: whether there is a filter.
            shared: folders of the host's that sandboxes see, and for each what of it is covered.
        """
        for pattern in groups:
            folder, _, name = pattern.rpartition("/")
            for path in glob.glob(folder):  # noqa: PTH207
                self._groups.append((os.open(path, os.O_RDONLY | os.O_CLOEXEC), name))
        for path, covered in shared.items():
            self._trees.share(path, covered)
        if self._own:
            detach_needless()
        if filtered:
            self._spares.filtered = os.dup(descriptors[0])
        return {"everyone": self._everyone}, []

    def _folder(self, descriptors: list[int], name: str, path: str) -> Any:
        """Know a folder as a layer."""
        self._layers[name] = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._paths[name] = path
        return {}, []

    def _archive(self, descriptors: list[int], name: str) -> Any:
        """Unpack an archive as a layer, in memory."""
        path = f"{self._base}/layer{len(self._layers)}"
        Path(path).mkdir()
        with os.fdopen(os.dup(descriptors[0]), "rb") as file, tarfile.open(fileobj=file) as archive:
            for member in archive:
                _unpack(archive, member, path, self._everyone)
        return self._folder([], name, path)

    def _launch(
        self,
        descriptors: list[int],
        name: str,
        argv: list[str],
        lowers: list[str],
        size: int,
        shm: int,
        limits: list[tuple[int, int]],
    ) -> Any:
        """Start a sandbox on top of layers.

        Args:
            descriptors: its pipes.
            name: what the process is called.
            argv: the command; ``{root}`` stands for where the layers are, and the words of
                ``trees.py`` for what is there.
            lowers: the layers, topmost first.
            size: bytes that may be written on top of them.
            shm: bytes of shared memory.
            limits: limits of each process.
        """
        self._root = {"layers": [self._paths[name] for name in lowers], "size": size, "shm": shm}
        order = {"name": name, "argv": argv, "root": self._root, "limits": limits}
        pid, folders = self._start(order, descriptors[:_PIPES])
        try:
            process = os.pidfd_open(pid)
        except OSError:
            for folder in folders:
                os.close(folder)
            raise
        self._watch(os.dup(process))
        return {"pid": pid}, [process, *folders, *(self._layers[name] for name in lowers)]

    def _watch(self, process: int) -> None:
        """Remember a process, and forget those that have ended."""
        poll = select.poll()
        for each in self._running:
            poll.register(each, select.POLLIN)
        ended = {each for each, _ in poll.poll(0)}
        for each in ended:
            os.close(each)
        self._running = [*(each for each in self._running if each not in ended), process]

    def end(self) -> None:
        """End every sandbox, and remove the control groups."""
        for spare in self._ready:
            spare.close()
        for each in self._running:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(each, signal.SIGKILL)
        limit = time.monotonic() + _PATIENCE
        while time.monotonic() < limit:
            left = [
                (folder, name)
                for folder, pattern in self._groups
                for name in fnmatch.filter(os.listdir(folder), pattern)  # noqa: PTH208
            ]
            for folder, name in left:
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=folder)
            if not left:
                return
            time.sleep(0.02)

    def _start(self, order: dict[str, Any], pipes: list[int]) -> tuple[int, list[int]]:
        """Start bubblewrap; return the sandbox's first process, and its upper folder and root."""
        spare = self._ready.popleft()
        told, tell = os.pipe()
        hold, go = os.pipe()
        folders: list[int] = []
        try:
            with spare:
                send(spare, order, [*pipes, tell, hold])
                os.close(tell)
                os.close(hold)
                answer, folders = receive(spare)
                if answer is None or "error" in answer:
                    raise OSError(0, (answer or {}).get("error", "the starter's process ended"))
            with os.fdopen(told, "rb", closefd=False) as file:
                said = file.read()
            if not said:
                raise OSError(0, "bubblewrap ended at once")
            pid = int(json.loads(said)["child-pid"])
            for kind, ranges in self._ids.items():
                if not self._everyone:
                    ranges = [(0, 1)]
                    if kind == "gid":
                        Path(f"/proc/{pid}/setgroups").write_text("deny")
                lines = [f"{first} {first} {count}\n" for first, count in ranges]
                Path(f"/proc/{pid}/{kind}_map").write_text("".join(lines))
            os.write(go, b"..")
            return pid, folders
        except BaseException:
            for folder in folders:
                os.close(folder)
            raise
        finally:
            os.close(told)
            os.close(go)


def _identity(path: str) -> list[tuple[int, int]]:
    """Return the ranges of ids that we have and can give on; each is one of our parent's."""
    rows = [[int(word) for word in line.split()] for line in Path(path).read_text().splitlines()]
    return [(first, min(count, IDS - first)) for first, _, count in rows if first < IDS]


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: str, owners: bool) -> None:
    if not owners:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
    archive.extract(member, folder, numeric_owner=True)


def main() -> None:
    """Serve the client at the descriptor that the command line names."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client's affair
    try:
        starter = Starter(channel, own=sys.argv[2] == "own")
    except OSError as error:
        send(channel, {"error": error.strerror or str(error)}, [])
        return
    gc.freeze()  # or a look for garbage would copy what is shared with each forked process
    try:
        starter.serve()
    finally:
        starter.end()


if __name__ == "__main__":
    main()
