"""The starter: a small process that mounts and starts sandboxes for its client.

It lives in a mount namespace of its own (and, for an ordinary user, in a user namespace in which
it is root), so that no mount of ours is ever seen outside, or outlives it. It has a single thread,
which lives as long as it does: ``--die-with-parent`` goes by the thread that started a sandbox.
When its client goes, however it goes, its socket ends, and it ends everything that it has started.

Its text, with that of the modules it imports from our package, is given to a Python with nothing
but the standard library; its arguments are the descriptor of its socket, and whose namespaces it is
in.
"""

from __future__ import annotations

import contextlib
import fnmatch
import gc
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
from collections import deque
from pathlib import Path
from typing import Any

from pytest_intercode.sandboxes.bubblewrap.mounts import (
    NODEV,
    NOSUID,
    PRIVATE,
    Trees,
    detach_needless,
    mount,
    unmount,
    unshare_mounts,
)
from pytest_intercode.sandboxes.egress.namespace import enter, open_sockets
from pytest_intercode.sandboxes.messages import receive, send

BLOCK_FD = 199
"""bubblewrap waits for it (``--userns-block-fd``) and leaves it open; the keeper closes it."""

_OPEN_FILES = 1024  # that a process may have open, as is usual
_LEAST_FILES = 256  # the keeper's own have numbers of about 200

IDS = 65536
"""User and group ids that a sandbox knows, where we may give it that many."""

_PLACES = ("/sys/kernel", "/media", "/mnt")  # where we mount: no sandbox needs anything of them
_PIPES = 3  # of a sandbox: its input, output and answers
_PATIENCE = 3.0
_RETURNED = ("upper", "merged")
# Python and the starter ignore these signals; a program that they start would ignore them, too.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT)


class ProcessLost(OSError):
    """A process that waited for its command is gone; the next one may be asked."""


class Preforker:
    """Forks processes in advance, each of which waits for its command and becomes bubblewrap.

    In advance, since entering a control group takes the kernel 10 ms and more. In a mount namespace
    of its own, a process mounts a root like the last sandbox's, and another one if its command
    needs another one.

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
        self, procs: list[int], others: list[socket.socket], root: dict[str, Any] | None
    ) -> socket.socket:
        """Fork one; return the socket on which it waits for its command.

        Args:
            procs: what it writes to in order to enter its control group.
            others: the starter's own sockets, which it closes.
            root: what it probably has to mount.
        """
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                gc.disable()
                mine.close()
                for other in others:
                    other.close()
                for entrance in procs:
                    os.write(entrance, b"0")
                unshare_mounts()
                mounted = root is not None and self._mount_early(root)
                command, pipes = receive(its)
                if command is not None:
                    if not mounted or command["root"] != root:
                        if mounted:
                            self._unmount()
                        self._mount(command["root"])
                    self._become(command, pipes, its)
            except OSError as error:
                send(its, {"error": error.strerror or str(error)}, [])
            finally:
                os._exit(127)
        its.close()
        mine.settimeout(_PATIENCE)
        return mine

    def _mount_early(self, root: dict[str, Any]) -> bool:
        """Mount what is probably needed; if it fails, that is no error before it is needed."""
        try:
            self._mount(root)
        except OSError:
            self._unmount()
            return False
        return True

    def _become(self, command: dict[str, Any], pipes: list[int], starter: socket.socket) -> None:
        """Run bubblewrap in this process."""
        *streams, info, status, block = pipes
        words = {**self._trees.words, "{root}": f"{self._place}/merged"}
        folders = [os.open(f"{self._place}/{part}", os.O_PATH | os.O_CLOEXEC) for part in _RETURNED]
        send(starter, {}, folders)
        os.set_inheritable(info, True)
        os.set_inheritable(status, True)
        os.dup2(block, BLOCK_FD)
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
        for kind, most in command["limits"]:
            resource.setrlimit(kind, (most, most))
        for number in _IGNORED:
            signal.signal(number, signal.SIG_DFL)
        extra = ["--info-fd", str(info), "--json-status-fd", str(status)]
        extra += ["--userns-block-fd", str(BLOCK_FD)]
        if self.filtered >= 0:
            fresh = os.open(f"/proc/self/fd/{self.filtered}", os.O_RDONLY)
            os.set_inheritable(fresh, True)
            extra += ["--seccomp", str(fresh)]
        program, *rest = (words.get(word, word) for word in command["argv"])
        os.execv(program, [command["name"], *extra, *rest])

    def _mount(self, root: dict[str, Any]) -> None:
        place = self._place
        # By descriptors, as a path may hold what separates options; and by new ones, as a layer has
        # to be in the namespace that it is mounted in.
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
        self._groups: list[tuple[int, str]] = []  # folders, and patterns of names in them
        self._base = next(place for place in _PLACES if Path(place).is_dir())
        self._ready: deque[socket.socket] = deque()  # the preforked processes, the oldest first
        self._root: dict[str, Any] | None = None  # the last sandbox's: the next is often like it
        if own:
            unshare_mounts()
        mount("", "/", "", PRIVATE)
        mount("tmpfs", self._base, "tmpfs", NOSUID | NODEV, "mode=755")
        Path(self._base, "root").mkdir()
        self._trees = Trees(self._base)
        self._preforker = Preforker(f"{self._base}/root", self._trees, own)
        self._ids = {kind: _identity(f"/proc/self/{kind}_map") for kind in ("gid", "uid")}
        self._all_ids = all(
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
            count = message.pop("prefork", 0)  # the further descriptors are theirs, in equal parts
            try:
                answer, back = getattr(self, f"_{message.pop('do')}")(descriptors, **message)
            except OSError as error:
                answer = {"error": error.strerror or str(error)}
                answer["lost"] = isinstance(error, ProcessLost)
            with contextlib.suppress(ConnectionError):
                send(self._channel, answer, back)
            for descriptor in back:
                if descriptor not in self._layers.values():
                    os.close(descriptor)
            # The next process must not hold this sandbox's pipes open.
            for descriptor in descriptors[:_PIPES]:
                os.close(descriptor)
            procs = descriptors[_PIPES:]
            for number in range(count):
                its = procs[number * len(procs) // count : (number + 1) * len(procs) // count]
                others = [self._channel, *self._ready]
                self._ready.append(self._preforker.fork(its, others, self._root))
            for descriptor in procs:
                os.close(descriptor)

    # -- what the client may ask for

    def _hello(
        self,
        descriptors: list[int],
        groups: list[str],
        filtered: bool,
        shared: dict[str, list[str]],
    ) -> Any:
        """Take what is the same for all sandboxes; see :class:`StarterProcess`."""
        for pattern in groups:
            folder, _, name = pattern.rpartition("/")
            for path in glob.glob(folder):  # noqa: PTH207
                self._groups.append((os.open(path, os.O_RDONLY | os.O_CLOEXEC), name))
        for path, covered in shared.items():
            self._trees.share(path, covered)
        if self._own:
            detach_needless()
        if filtered:
            self._preforker.filtered = os.dup(descriptors[0])
        return {"all_ids": self._all_ids}, []

    def _folder(self, descriptors: list[int], name: str, path: str) -> Any:
        """Use a folder as a layer."""
        self._layers[name] = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._paths[name] = path
        return {}, []

    def _archive(self, descriptors: list[int], name: str) -> Any:
        """Unpack an archive as a layer, in memory."""
        path = f"{self._base}/layer{len(self._layers)}"
        Path(path).mkdir()
        with os.fdopen(os.dup(descriptors[0]), "rb") as file, tarfile.open(fileobj=file) as archive:
            for member in archive:
                _unpack(archive, member, path, self._all_ids)
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
        """Start a sandbox on top of layers (``lowers``); see :class:`Preforker`."""
        self._root = {"layers": [self._paths[name] for name in lowers], "size": size, "shm": shm}
        command = {"name": name, "argv": argv, "root": self._root, "limits": limits}
        pid, folders = self._start(command, descriptors[:_PIPES])
        try:
            process = os.pidfd_open(pid)
        except OSError:
            for folder in folders:
                os.close(folder)
            raise
        self._watch(os.dup(process))
        return {"pid": pid}, [process, *folders, *(self._layers[name] for name in lowers)]

    def _sockets(self, descriptors: list[int], tcp: list[Any], udp: list[Any]) -> Any:
        """Open sockets in the network of a sandbox, given its process; see ``open_sockets``."""
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:  # who enters a namespace cannot always come back
            try:
                enter(descriptors[0])
                made = open_sockets(tcp, udp)
                send(its, {}, [each.fileno() for each in made])
            except OSError as error:
                send(its, {"error": error.strerror or str(error)}, [])
            finally:
                os._exit(0)
        its.close()
        with mine:
            mine.settimeout(_PATIENCE)
            answer, opened = receive(mine)
        if answer is None or "error" in answer:
            raise OSError((answer or {"error": "the sandbox's network cannot be entered"})["error"])
        return {}, opened

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
        for process in self._ready:
            process.close()
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

    def _start(self, command: dict[str, Any], pipes: list[int]) -> tuple[int, list[int]]:
        """Start bubblewrap.

        Returns:
            The sandbox's first process; and descriptors of what bubblewrap says of its end, of its
            upper folder, and of its root.
        """
        preforked = self._ready.popleft()
        info, info_end = os.pipe()
        status, status_end = os.pipe()
        block_end, block = os.pipe()
        folders: list[int] = []
        try:
            with preforked:
                try:
                    send(preforked, command, [*pipes, info_end, status_end, block_end])
                    answer, folders = receive(preforked)
                except (ConnectionError, TimeoutError):
                    answer = None
                finally:
                    os.close(info_end)
                    os.close(status_end)
                    os.close(block_end)
                if answer is None:
                    raise ProcessLost(0, "the starter's process ended")
                if "error" in answer:
                    raise OSError(0, answer["error"])
            with os.fdopen(info, "rb", closefd=False) as file:
                said = file.read()
            if not said:
                raise OSError(0, "bubblewrap ended at once")
            pid = int(json.loads(said)["child-pid"])
            for kind, ranges in self._ids.items():
                if not self._all_ids:
                    ranges = [(0, 1)]
                    if kind == "gid":
                        Path(f"/proc/{pid}/setgroups").write_text("deny")
                lines = [f"{first} {first} {count}\n" for first, count in ranges]
                Path(f"/proc/{pid}/{kind}_map").write_text("".join(lines))
            os.write(block, b"..")
            return pid, [status, *folders]
        except BaseException:
            for descriptor in (status, *folders):
                os.close(descriptor)
            raise
        finally:
            os.close(info)
            os.close(block)


def _identity(path: str) -> list[tuple[int, int]]:
    """Return the ranges of ids that we have and can give on; each is one of our parent's."""
    rows = [[int(word) for word in line.split()] for line in Path(path).read_text().splitlines()]
    return [(first, min(count, IDS - first)) for first, _, count in rows if first < IDS]


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: str, owners: bool) -> None:
    if not owners:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
    archive.extract(member, folder, numeric_owner=True)


def allow_descriptors() -> None:
    """Let sandboxes have open files with the numbers that ours have, whatever the host's limit.

    Raises:
        OSError: the limit is too low and may not be raised.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _OPEN_FILES:
        return
    for most in (max(hard, _OPEN_FILES), hard):  # the first is for root
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, _OPEN_FILES), most))
            break
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _LEAST_FILES:
        raise OSError(0, f"sandboxes need {_LEAST_FILES} open files, and `ulimit -n` is {soft}")


def main() -> None:
    """Serve the client at the descriptor that the command line names."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # we never wait for children
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client ends us
    try:
        allow_descriptors()
        starter = Starter(channel, own=sys.argv[2] == "own")
    except OSError as error:
        channel.recv(1)  # the end of a channel with an unread request takes the answer with it
        send(channel, {"error": error.strerror or str(error)}, [])
        return
    gc.freeze()  # a garbage collection would copy the memory that forked processes share
    try:
        starter.serve()
    finally:
        starter.end()


if __name__ == "__main__":
    main()
