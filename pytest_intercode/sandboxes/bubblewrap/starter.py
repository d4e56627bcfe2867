"""The starter: a small process that mounts and starts sandboxes for its client.

It lives in a mount namespace of its own (and, for an ordinary user, in a user namespace in which
it is root), so that none of our mounts is visible outside or outlives it. It has one thread for its
whole life: a process that ends with its parent ends with the thread that started it. When the
client goes, for whatever reason, the socket ends, and the starter ends everything it started.

Its text, with that of the modules it imports from our package, is given to a Python with nothing
but the standard library. The arguments are the descriptor of its socket, and whose namespaces it is
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
import shutil
import signal
import socket
import sys
import tarfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.platform != "linux":
    raise ImportError("bubblewrap runs on Linux only")

from pytest_intercode.sandboxes.bubblewrap.mounts import (
    NODEV,
    NOSUID,
    PRIVATE,
    Trees,
    detach_needless,
    mount,
)
from pytest_intercode.sandboxes.bubblewrap.preforker import (
    Preforked,
    Preforker,
    ProcessLost,
    error_answer,
)
from pytest_intercode.sandboxes.bubblewrap.rights import NEW_MOUNTS, close_all_but, unshare
from pytest_intercode.sandboxes.egress.namespace import enter, open_sockets
from pytest_intercode.sandboxes.messages import receive, send

_MAX_OPEN_FILES = 1024  # per process, the usual limit
_MIN_OPEN_FILES = 256  # the keeper's own descriptors have numbers around 200

IDS = 65536
"""User and group ids that a sandbox knows, if we may give it that many."""

_MOUNT_FOLDERS = ("/sys/kernel", "/media", "/mnt")  # no sandbox needs anything in them
_PIPES = 3  # of a sandbox: its input, output and answers
_CLEANUP_TIMEOUT = 3.0  # seconds for processes that were killed, or have little to do
_SIGNALLED = 128
_MAX_FILTER_SIZE = 8 * 4096  # bytes, the kernel's limit


class Starter:
    """Serves one client.

    Args:
        channel: the socket to the client.
        real_root: make a mount namespace first; else we are in one already, in a user namespace.
    """

    def __init__(self, channel: socket.socket, real_root: bool) -> None:
        self._channel = channel
        self._paths: dict[str, str] = {}  # of layers
        self._layers: dict[str, int] = {}  # descriptors of layers
        # By the descriptor of a sandbox's first process: the pipe that reports how it ended.
        self._running: dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._real_root = real_root
        self._groups: list[tuple[int, str]] = []  # folders, and patterns of names in them
        self._base = next(
            mount_point for mount_point in _MOUNT_FOLDERS if Path(mount_point).is_dir()
        )
        # The oldest first, as in the client's list of control groups; None for a failed fork.
        self._ready: deque[Preforked | None] = deque()
        self._last: dict[str, Any] | None = None  # the last command: the next is often like it
        self._problem = ""  # why no process waits for a command
        if real_root:
            unshare(NEW_MOUNTS)
        mount("", "/", "", PRIVATE)
        mount("tmpfs", self._base, "tmpfs", NOSUID | NODEV, "mode=755")
        Path(self._base, "root").mkdir()
        self._trees = Trees(self._base)
        self._preforker = Preforker(f"{self._base}/root", self._trees, real_root)
        self._ids = {kind: _read_id_ranges(f"/proc/self/{kind}_map") for kind in ("gid", "uid")}
        self._all_ids = all(
            sum(count for _, count in ranges) == IDS for ranges in self._ids.values()
        )

    def serve(self) -> None:
        """Answer until the client closes its end."""
        while True:
            if not self._wait_for_request():
                continue
            try:
                message, descriptors = receive(self._channel)
            except ConnectionError:
                return
            if message is None:
                return
            answer: dict[str, Any] = {}
            back: list[int] = []
            count = message.pop("prefork", 0)  # the other descriptors are for these, in equal parts
            try:
                answer, back = getattr(self, f"_{message.pop('do')}")(descriptors, **message)
            except Exception as error:  # else it would end every sandbox
                answer = error_answer(error)
            with contextlib.suppress(ConnectionError):
                send(self._channel, answer, back)
            for descriptor in back:
                if descriptor not in self._layers.values():
                    os.close(descriptor)
            # The next process must not hold this sandbox's pipes open.
            for descriptor in descriptors[:_PIPES]:
                os.close(descriptor)
            procs = descriptors[_PIPES:]  # after the answer, as the client waits only for that
            for number in range(count):
                group_procs = procs[
                    number * len(procs) // count : (number + 1) * len(procs) // count
                ]
                preforked = None
                try:
                    preforked = self._preforker.fork(group_procs, self._last)
                except OSError as error:
                    self._problem = str(error.strerror)
                self._ready.append(preforked)  # even None: the client expects an entry for each
            for descriptor in procs:
                os.close(descriptor)

    def _wait_for_request(self) -> bool:
        """Wait for a request, or for the end of sandboxes; return whether there is a request."""
        has_request = False
        for descriptor, _ in self._poll.poll():
            if descriptor == self._channel.fileno():
                has_request = True
                continue
            self._poll.unregister(descriptor)
            _reap(descriptor, self._running.pop(descriptor))
        return has_request

    # -- requests of the client

    def _hello(
        self,
        descriptors: list[int],
        groups: list[str],
        filtered: bool,
        shared: dict[str, list[str]],
    ) -> Any:
        """Accept what is the same for all sandboxes; see :class:`StarterProcess`."""
        for pattern in groups:
            folder, _, name = pattern.rpartition("/")
            for path in glob.glob(folder):  # noqa: PTH207
                self._groups.append((os.open(path, os.O_RDONLY | os.O_CLOEXEC), name))
        for path, covered in shared.items():
            self._trees.share(path, covered)
        if self._real_root:
            detach_needless()
        if filtered:
            self._preforker.steps = os.pread(descriptors[0], _MAX_FILTER_SIZE, 0)
        return {"all_ids": self._all_ids}, []

    def _folder(self, descriptors: list[int], name: str, path: str) -> Any:
        """Use a folder as a layer."""
        self._layers[name] = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._paths[name] = path
        return {}, []

    def _archive(self, descriptors: list[int], name: str) -> Any:
        """Unpack a tar archive as a layer, in memory."""
        with (
            self._new_layer(name) as path,
            os.fdopen(os.dup(descriptors[0]), "rb") as file,
            tarfile.open(fileobj=file) as archive,
        ):
            for member in archive:
                if not self._all_ids:
                    member.uid = member.gid = 0
                    member.uname = member.gname = ""
                archive.extract(member, path, numeric_owner=True)
        return {}, []

    def _skeleton(self, descriptors: list[int], name: str) -> Any:
        """Make a layer, in memory, from the result of ``hosttree.skeleton``."""
        with (
            self._new_layer(name) as layer,
            os.fdopen(os.dup(descriptors[0]), "rb") as file,
        ):
            for inner, mode, group, content in json.loads(file.readline()):
                path = Path(layer, inner)
                if isinstance(content, str):
                    path.symlink_to(content)
                elif content is None:
                    path.mkdir()
                else:
                    path.write_bytes(file.read(content))
                if not isinstance(content, str):
                    os.chown(path, 0, group if self._all_ids else 0)
                    path.chmod(mode)  # after chown, which removes set-group-ID
                os.utime(path, (0, 0), follow_symlinks=False)
        return {}, []

    @contextlib.contextmanager
    def _new_layer(self, name: str) -> Iterator[str]:
        """Make a folder in memory that becomes a layer when it is filled; on errors, remove it."""
        path = f"{self._base}/layer{len(self._layers)}"
        Path(path).mkdir()
        try:
            yield path
            self._folder([], name, path)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def _launch(
        self,
        descriptors: list[int],
        lowers: list[str],
        size: int,
        shm: int,
        shared: bool,
        **command: Any,
    ) -> Any:
        """Start a sandbox on top of layers (``lowers``).

        The command also has: ``argv``, a program in the sandbox and its arguments, and its
        ``variables``; the ``hostname``; the ``workdir``, which is made; ``mounts`` and
        ``readonly``, pairs of a path on the host and one inside; ``scratch``, pairs of a path and
        bytes; whether it uses the host's ``network``; the ``limits`` of each process; the numbers
        of the ``capabilities`` that are kept; whether it is ``guarded``, see ``give_up``; and
        whether it has a file for a shell's ``state``.
        """
        preforked = self._ready.popleft()  # even on failure, the next command gets the next one
        if preforked is None:
            raise ProcessLost(0, self._problem)
        layers = [self._paths[name] for name in lowers]
        command["root"] = {"layers": layers, "size": size, "shm": shm, "shared": shared}
        self._last = command
        status, end = os.pipe()
        self._running[preforked.process] = end
        self._poll.register(preforked.process, select.POLLIN)
        try:
            with preforked.channel:
                folders = self._begin(preforked, command, descriptors[:_PIPES])
        except BaseException:
            os.close(status)
            with contextlib.suppress(OSError):  # it may have ended already
                signal.pidfd_send_signal(preforked.process, signal.SIGKILL)
            raise
        layer_descriptors = [self._layers[name] for name in lowers]
        return {"pid": preforked.pid}, [
            os.dup(preforked.process),
            status,
            *folders,
            *layer_descriptors,
        ]

    def _begin(self, begun: Preforked, command: dict[str, Any], pipes: list[int]) -> list[int]:
        """Have a waiting process become the first one of a sandbox.

        The process takes its command, and answers when it is in its own user namespace. It is given
        ids there, which only its parent may give, and is told to continue. Then either its socket
        ends, as the program is executed, or it reports what went wrong.

        Returns:
            Descriptors of the sandbox's upper folder and root.
        """
        answer: dict[str, Any] | None = None
        folders: list[int] = []
        try:
            with contextlib.suppress(ConnectionError):  # it may have reported why it is gone
                send(begun.channel, command, pipes)
            answer, folders = receive(begun.channel)
            if answer is not None and "error" not in answer:
                self._map_ids(begun.pid)
                send(begun.channel, {}, [])
                answer, _ = receive(begun.channel)
                if answer is None:  # the socket ended when the program was executed
                    return folders
        except (ConnectionError, TimeoutError, FileNotFoundError, ProcessLookupError):
            pass
        except BaseException:
            for descriptor in folders:
                os.close(descriptor)
            raise
        for descriptor in folders:
            os.close(descriptor)
        if answer is None or "error" not in answer:
            raise ProcessLost(0, "the starter's process ended")
        raise (ProcessLost if answer["lost"] else OSError)(0, answer["error"])

    def _map_ids(self, pid: int) -> None:
        """Give a process in a new user namespace its users and groups."""
        for kind, ranges in self._ids.items():
            if not self._all_ids:
                ranges = [(0, 1)]
                if kind == "gid":
                    Path(f"/proc/{pid}/setgroups").write_text("deny")
            lines = [f"{first} {first} {count}\n" for first, count in ranges]
            Path(f"/proc/{pid}/{kind}_map").write_text("".join(lines))

    def _sockets(self, descriptors: list[int], tcp: list[Any], udp: list[Any]) -> Any:
        """Open sockets in the network of a sandbox, given its process; see ``open_sockets``."""
        channel, child_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:  # a process cannot always leave a namespace again
            try:
                enter(descriptors[0])
                sockets = open_sockets(tcp, udp)
                send(child_channel, {}, [sock.fileno() for sock in sockets])
            except OSError as error:
                send(child_channel, error_answer(error), [])
            finally:
                os._exit(0)
        child_channel.close()
        try:
            channel.settimeout(_CLEANUP_TIMEOUT)
            answer, opened = receive(channel)
        finally:
            channel.close()
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)  # it is of no further use
                os.waitpid(pid, 0)
        if answer is None or "error" in answer:
            raise OSError((answer or {"error": "the sandbox's network cannot be entered"})["error"])
        return {}, opened

    def end(self) -> None:
        """End every sandbox, and remove the control groups."""
        for descriptor in (
            *self._running,
            *(waiting.process for waiting in self._ready if waiting),
        ):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        limit = time.monotonic() + _CLEANUP_TIMEOUT
        with contextlib.suppress(ChildProcessError):  # there is no child any more
            while time.monotonic() < limit:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.002)
        while time.monotonic() < limit:
            remaining = [
                (folder, name)
                for folder, pattern in self._groups
                for name in fnmatch.filter(os.listdir(folder), pattern)  # noqa: PTH208
            ]
            for folder, name in remaining:
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=folder)
            if not remaining:
                return
            time.sleep(0.02)


def _reap(process: int, end: int) -> None:
    """Report how a sandbox's first process ended, as a shell does; close both descriptors."""
    with contextlib.suppress(OSError):
        exit_info = os.waitid(os.P_PIDFD, process, os.WEXITED)
        if exit_info is not None:
            by_itself = exit_info.si_code == os.CLD_EXITED
            status = exit_info.si_status if by_itself else _SIGNALLED + exit_info.si_status
            os.write(end, str(status).encode())
    os.close(process)
    os.close(end)


def _read_id_ranges(path: str) -> list[tuple[int, int]]:
    """Return the ranges of ids that we have and can pass on; each is one of our parent's."""
    rows = [[int(word) for word in line.split()] for line in Path(path).read_text().splitlines()]
    return [(first, min(count, IDS - first)) for first, _, count in rows if first < IDS]


def allow_descriptors() -> None:
    """Let sandboxes use descriptor numbers as high as our own, whatever the host's limit is.

    Raises:
        OSError: the limit is too low and cannot be raised.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _MAX_OPEN_FILES:
        return
    for maximum in (max(hard, _MAX_OPEN_FILES), hard):  # the first works for root only
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(maximum, _MAX_OPEN_FILES), maximum))
            break
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _MIN_OPEN_FILES:
        raise OSError(0, f"sandboxes need {_MIN_OPEN_FILES} open files, but `ulimit -n` is {soft}")


def main() -> None:
    """Serve the client whose socket is given on the command line."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    close_all_but([channel.fileno()])  # bubblewrap, for example, leaves some open
    os.umask(0o022)  # sandboxes inherit it, whichever user starts them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client ends us
    try:
        allow_descriptors()
        starter = Starter(channel, real_root=sys.argv[2] == "own")
    except OSError as error:
        channel.recv(1)  # closing a channel with an unread request would discard the answer
        send(channel, error_answer(error), [])
        return
    gc.freeze()  # a garbage collection would copy the memory that forked processes share
    try:
        starter.serve()
    finally:
        starter.end()


if __name__ == "__main__":
    main()
