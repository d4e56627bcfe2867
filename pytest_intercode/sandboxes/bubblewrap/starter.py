"""The starter: a small process that mounts and starts sandboxes for its client.

It lives in a mount namespace of its own (and, for an ordinary user, in a user namespace in which
it is root), so that no mount of ours is ever seen outside, or outlives it. It has a single thread,
which lives as long as it does: ``--die-with-parent`` goes by the thread that started a sandbox.
When its client goes, however it goes, its socket ends, and it ends whatever it has started.

Its text, with that of ``wire.py`` and ``mounts.py``, is given to a Python with nothing but the
standard library; its arguments are the descriptor of its socket, and whose namespaces it is in.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import resource
import select
import signal
import socket
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from pytest_intercode.sandboxes.bubblewrap.mounts import (
    NODEV,
    NOSUID,
    PRIVATE,
    mount,
    unshare_mounts,
)
from pytest_intercode.sandboxes.bubblewrap.wire import HOLD, IDS, receive, send

PLACES = ("/sys/kernel", "/media", "/mnt")
"""Where, in our namespace alone, mounts are prepared: what nothing of is wanted in a sandbox."""

_PIPES = 3
_SHOWN = ("upper", "merged")
_PATIENCE = 3.0
# The signals that Python, or this program, ignores; whoever is started would ignore them, too.
_OURS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT)


class Starter:
    """Serves one client.

    Args:
        channel: the socket to it.
        own: make a mount namespace first; else we are in one already, in a user namespace.
    """

    def __init__(self, channel: socket.socket, own: bool) -> None:
        self._channel = channel
        self._own = own
        self._paths: dict[str, str] = {}  # of layers
        self._layers: dict[str, int] = {}  # descriptors of them
        self._running: list[int] = []  # descriptors of sandboxes' first processes
        self._groups: list[str] = []
        self._filter = -1
        self._spare: socket.socket | None = None
        self._base = next(place for place in PLACES if Path(place).is_dir())
        if own:
            unshare_mounts()
        mount("", "/", "", PRIVATE)
        mount("tmpfs", self._base, "tmpfs", NOSUID | NODEV, "mode=755")
        Path(self._base, "root").mkdir()
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
            if self._spare is None:
                self._spare = self._fork(descriptors[_PIPES:])
            for descriptor in descriptors[_PIPES:]:
                os.close(descriptor)

    # -- what the client may ask for

    def _hello(self, descriptors: list[int], groups: list[str], filtered: bool) -> Any:
        """Take what is the same for all sandboxes.

        Args:
            descriptors: that of the filter of system calls, which may be empty.
            groups: patterns of control groups, to be removed when the client is gone.
            filtered: whether there is a filter.
        """
        self._groups = groups
        self._filter = os.dup(descriptors[0]) if filtered else -1
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
        limits: list[tuple[int, int]],
    ) -> Any:
        """Start a sandbox on top of layers.

        Args:
            descriptors: its pipes; then what the process of the sandbox after this one writes to
                in order to enter its control group.
            name: what the process is called.
            argv: the command; ``{root}`` stands for where the layers are.
            lowers: the layers, topmost first.
            size: the bytes that may be written on top of them.
            limits: limits of each process.
        """
        layers = [self._paths[name] for name in lowers]
        order = {"name": name, "argv": argv, "layers": layers, "size": size, "limits": limits}
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
        if self._spare is not None:
            self._spare.close()
        for each in self._running:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(each, signal.SIGKILL)
        limit = time.monotonic() + _PATIENCE
        while time.monotonic() < limit:
            left = [path for pattern in self._groups for path in glob.glob(pattern)]  # noqa: PTH207
            for path in left:
                with contextlib.suppress(OSError):
                    Path(path).rmdir()
            if not left:
                return
            time.sleep(0.02)

    def _fork(self, doors: list[int]) -> socket.socket:
        """Make the process of the next sandbox, which waits to be told what to run.

        It enters its control group meanwhile, for which the kernel takes 10 ms and more.
        """
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                mine.close()
                self._channel.close()
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
        """Make the sandbox's root in a mount namespace of this process; run bubblewrap in it."""
        unshare_mounts()
        place = f"{self._base}/root"
        size = f"size={order['size']},nr_inodes=200k"
        *streams, tell, hold = pipes
        # By descriptors, as a path may hold what separates options; and by new ones, for a layer
        # has to be in the namespace that it is mounted in.
        lower = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in order["layers"]]
        layers = ":".join(f"/proc/self/fd/{each}" for each in lower)
        mount("tmpfs", place, "tmpfs", NOSUID | NODEV, size)
        for part in ("upper", "work", "merged"):
            Path(place, part).mkdir()
        options = f"lowerdir={layers},upperdir={place}/upper,workdir={place}/work"
        options += "" if self._own else ",userxattr"
        mount("overlay", f"{place}/merged", "overlay", NODEV, options)
        folders = [os.open(f"{place}/{part}", os.O_PATH | os.O_CLOEXEC) for part in _SHOWN]
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
        if self._filter >= 0:
            fresh = os.open(f"/proc/self/fd/{self._filter}", os.O_RDONLY)
            os.set_inheritable(fresh, True)
            extra += ["--seccomp", str(fresh)]
        program, *words = (f"{place}/merged" if w == "{root}" else w for w in order["argv"])
        os.execv(program, [order["name"], *extra, *words])

    def _start(self, order: dict[str, Any], pipes: list[int]) -> tuple[int, list[int]]:
        """Start bubblewrap; return the sandbox's first process, and its upper folder and root."""
        assert self._spare is not None
        told, tell = os.pipe()
        hold, go = os.pipe()
        folders: list[int] = []
        try:
            with self._spare:
                send(self._spare, order, [*pipes, tell, hold])
                os.close(tell)
                os.close(hold)
                answer, folders = receive(self._spare)
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
            self._spare = None
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
    try:
        starter.serve()
    finally:
        starter.end()


if __name__ == "__main__":
    main()
