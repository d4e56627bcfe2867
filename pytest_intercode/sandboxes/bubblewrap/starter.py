"""The starter: a small process that mounts and starts sandboxes for its client.

It lives in a mount namespace of its own (and, for an ordinary user, in a user namespace in which
it is root), so that no mount of ours is ever seen outside, or outlives it. It has a single thread,
which lives as long as it does: ``--die-with-parent`` goes by the thread that started a sandbox.
When its client goes, however it goes, its socket ends, and it ends whatever it has started.

Run as a file of its own, with nothing but the standard library: ``starter.py DESCRIPTOR``. Each
message on that socket is one JSON object; descriptors travel beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

PLACES = ("/sys/kernel", "/media", "/mnt")
"""Where, in our namespace alone, mounts are prepared: what nothing of is wanted in a sandbox."""

HOLD = 199
"""A descriptor that bubblewrap leaves open in the sandbox, and that the keeper has to close."""

IDS = 65536
"""User and group ids that a sandbox knows, where we may give it that many."""

_MESSAGE = 1 << 18
_MOST_DESCRIPTORS, _INT = 32, 4
_PATIENCE = 3.0
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 16384, 1 << 18
_MNT_DETACH = 2
_CLONE_NEWNS = 0x20000
_LIBC = ctypes.CDLL(None, use_errno=True)


def send(channel: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    """Send a message, and copies of descriptors with it."""
    data = json.dumps(message).encode()
    socket.send_fds(channel, [data], descriptors)


def receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its descriptors; None when there is no other end any more."""
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _INT)
    data, beside, _, _ = channel.recvmsg(_MESSAGE, room, socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, content in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            count = len(content) // _INT
            descriptors += struct.unpack(f"={count}i", content[: count * _INT])
    return (json.loads(data) if data else None), descriptors


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{kind or 'mount'} on {target}: {os.strerror(number)}")


def _unmount(target: str) -> None:
    _LIBC.umount2(os.fsencode(target), _MNT_DETACH)


class Starter:
    """Serves one client.

    Args:
        channel: the socket to it.
        own: make a mount namespace first; else we are in one already, in a user namespace.
    """

    def __init__(self, channel: socket.socket, own: bool) -> None:
        self._channel = channel
        self._own = own
        self._lowers: dict[str, int] = {}
        self._running: list[int] = []  # descriptors of sandboxes' first processes
        self._groups: list[str] = []
        self._filter = -1
        self._base = next(place for place in PLACES if Path(place).is_dir())
        if own and _LIBC.unshare(_CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        _mount("", "/", "", _MS_REC | _MS_PRIVATE)
        _mount("tmpfs", self._base, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
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
            answer, back = {}, []
            try:
                answer, back = getattr(self, f"_{message.pop('do')}")(descriptors, **message)
            except OSError as error:
                answer = {"error": error.strerror or str(error)}
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            with contextlib.suppress(ConnectionError):
                send(self._channel, answer, back)
            for descriptor in back:
                if descriptor not in self._kept():
                    os.close(descriptor)

    def _kept(self) -> set[int]:
        return {*self._lowers.values()}

    # -- what the client may ask for

    def _hello(self, descriptors: list[int], groups: list[str]) -> Any:
        """Take what is the same for all sandboxes.

        Args:
            descriptors: that of the filter of system calls, if there is one.
            groups: patterns of control groups, to be removed when the client is gone.
        """
        self._groups = groups
        self._filter = os.dup(descriptors[0]) if descriptors else -1
        return {"everyone": self._everyone}, []

    def _folder(self, descriptors: list[int], name: str, path: str) -> Any:
        """Know a folder as a layer."""
        self._lowers[name] = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return {}, []

    def _archive(self, descriptors: list[int], name: str) -> Any:
        """Unpack an archive as a layer, in memory."""
        path = f"{self._base}/layer{len(self._lowers)}"
        Path(path).mkdir()
        with os.fdopen(os.dup(descriptors[0]), "rb") as file, tarfile.open(fileobj=file) as archive:
            for member in archive:
                _unpack(archive, member, path, self._everyone)
        return self._folder([], name, path)

    def _launch(
        self,
        descriptors: list[int],
        argv: list[str],
        lowers: list[str],
        size: int,
        limits: list[tuple[int, int]],
    ) -> Any:
        """Start a sandbox on top of layers; ``{root}`` among its arguments is where they are."""
        # Always the same place: if it were removed, it would be with the sandbox's copy of it.
        place = f"{self._base}/next"
        Path(place).mkdir(exist_ok=True)
        _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size},nr_inodes=200k")
        back: list[int] = []
        try:
            for part in ("upper", "work", "merged"):
                Path(place, part).mkdir()
            layers = [self._lowers[name] for name in lowers]
            options = "".join(
                (
                    "lowerdir=" + ":".join(f"/proc/self/fd/{layer}" for layer in layers),
                    f",upperdir={place}/upper,workdir={place}/work",
                    "" if self._own else ",userxattr",
                )
            )
            merged = f"{place}/merged"
            _mount("overlay", merged, "overlay", _MS_NODEV, options)
            argv = [merged if word == "{root}" else word for word in argv]
            pid = self._start(argv, descriptors, limits)
            back.append(os.pidfd_open(pid))
            self._watch(os.dup(back[0]))
            for part in ("upper", "merged"):
                back.append(os.open(f"{place}/{part}", os.O_PATH | os.O_CLOEXEC))
            return {"pid": pid}, [*back, *layers]
        except BaseException:
            for descriptor in back:
                os.close(descriptor)
            raise
        finally:
            _unmount(f"{place}/merged")
            _unmount(place)

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

    def _start(self, argv: list[str], descriptors: list[int], limits: list[Any]) -> int:
        """Start bubblewrap; return the sandbox's first process when its ids are mapped."""
        told, tell = os.pipe()
        hold, go = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.set_inheritable(tell, True)
                os.dup2(hold, HOLD)
                for target, descriptor in enumerate(descriptors[:3]):
                    os.dup2(descriptor, target)
                for cgroup in descriptors[3:]:
                    os.write(cgroup, b"0")
                for kind, most in limits:
                    resource.setrlimit(kind, (most, most))
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                extra = ["--info-fd", str(tell), "--userns-block-fd", str(HOLD)]
                if self._filter >= 0:
                    fresh = os.open(f"/proc/self/fd/{self._filter}", os.O_RDONLY)
                    os.set_inheritable(fresh, True)
                    extra += ["--seccomp", str(fresh)]
                os.execv(argv[0], [argv[0], *extra, *argv[1:]])
            except OSError as error:
                os.write(2, f"bwrap: {error}\n".encode())
            finally:
                os._exit(127)
        os.close(tell)
        os.close(hold)
        try:
            with os.fdopen(told, "rb") as file:
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
            return pid
        finally:
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
