"""Processes that wait for a command, and then become the first processes of sandboxes.

The text of this module is sent to the starter, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any

if sys.platform != "linux":
    raise ImportError("bubblewrap runs on Linux only")

from pytest_intercode.sandboxes.bubblewrap.mounts import (
    BIND,
    NODEV,
    NOSUID,
    RDONLY,
    RECURSIVE,
    Trees,
    enter_root,
    mount,
    mount_in,
    open_in_root,
    seal,
    unmount,
)
from pytest_intercode.sandboxes.bubblewrap.rights import (
    NEW_CGROUP,
    NEW_IPC,
    NEW_MOUNTS,
    NEW_NET,
    NEW_PIDS,
    NEW_USERS,
    NEW_UTS,
    clone,
    close_all_but,
    end_with_parent,
    enter_namespace,
    give_up,
    raise_loopback,
    unshare,
)
from pytest_intercode.sandboxes.messages import receive, send

__all__ = ["Preforked", "Preforker", "ProcessLost", "error_answer"]

_LAUNCH_STEP_TIMEOUT = 10.0  # seconds for a step of a launch, on a busy machine
_RETURNED_FOLDERS = ("upper", "merged")
_STATE = 203  # an unnamed file, in which the shell saves its state; see keeper.sh
# Python and the starter ignore these signals; programs that they start would inherit that.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)


class ProcessLost(OSError):
    """A process that waited for its command is gone; another one can be tried."""


class Preforked:
    """A process that waits for its command.

    Attributes:
        pid: its process number.
        process: a descriptor of it (pidfd).
        channel: the socket on which it waits.
    """

    def __init__(self, pid: int, process: int, channel: socket.socket) -> None:
        self.pid = pid
        self.process = process
        self.channel = channel


class Preforker:
    """Forks processes in advance; each waits for its command and becomes a sandbox's first one.

    They are forked in advance because the kernel takes 10 ms or more to enter a control group. Each
    process is in namespaces of its own, where it mounts a root like the last sandbox's, and another
    root if its command needs one. Only the user namespace comes last: with it, the process loses
    the right to do any of this, so that nothing in the sandbox has rights over its other
    namespaces.

    A root is a dictionary: the paths of the read-only ``layers``, topmost first; the bytes of the
    writable layer (``size``), and of shared memory (``shm``); and whether folders of the host are
    ``shared``. A command is a dictionary, too: its ``root``, whether it uses the host's
    ``network``, and the arguments of :meth:`Starter._launch`.

    Args:
        mount_point: where to mount the sandbox's root, in the process's own namespace.
        trees: the mounts that sandboxes share.
        real_root: we are the real root; else we are root in a user namespace.

    Attributes:
        steps: the filter of system calls; empty for none.
    """

    def __init__(self, mount_point: str, trees: Trees, real_root: bool) -> None:
        self._mount_point = mount_point
        self._trees = trees
        self._real_root = real_root
        self._host_network = -1  # a descriptor, once we have left it
        self.steps = b""

    def fork(self, procs: list[int], last: dict[str, Any] | None) -> Preforked:
        """Fork a process that waits for its command.

        Args:
            procs: descriptors to which it writes in order to enter its control group.
            last: the last command, which the next one is probably like.
        """
        channel, child_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid, process = clone(NEW_PIDS | NEW_MOUNTS | NEW_IPC | NEW_UTS)
        except OSError:
            channel.close()
            child_channel.close()
            raise
        if pid == 0:
            try:
                self._run_child(child_channel, procs, last)
            except Exception as error:
                send(child_channel, error_answer(error), [])
            finally:
                os._exit(127)
        child_channel.close()
        channel.settimeout(_LAUNCH_STEP_TIMEOUT)
        return Preforked(pid, process, channel)

    def _run_child(
        self, channel: socket.socket, procs: list[int], last: dict[str, Any] | None
    ) -> None:
        # If the starter has ended already, its end of the socket is closed, and `receive` below
        # returns nothing.
        end_with_parent()
        # A collection would copy memory that is shared with the starter, for objects that end with
        # this program.
        gc.disable()
        # Import nothing from here on: after the change of the root, it would be an agent's module.
        sys.path.clear()
        sys.meta_path.clear()
        close_all_but([channel.fileno(), *procs])
        problem: OSError | None = None
        root = None
        try:
            self._enter_groups(procs)
            if last is not None:
                if self._real_root and not last["network"]:
                    self._leave_network()
                root = self._mount_early(last["root"])
        except OSError as error:
            problem = ProcessLost(error.errno, error.strerror)
        command, pipes = receive(channel)
        if command is None:  # the starter has ended
            return
        if problem is not None:  # only now: with an unread command, the answer would be lost
            raise problem
        if command["root"] != root:
            if root is not None:
                unmount(self._mount_point)
            self._mount(command["root"])
        if not command["network"]:
            if self._host_network < 0:
                self._leave_network()
        elif self._host_network >= 0:
            enter_namespace(self._host_network, NEW_NET)
        self._exec_command(command, pipes, channel)

    @staticmethod
    def _enter_groups(procs: list[int]) -> None:
        for entrance in procs:
            os.write(entrance, b"0")
            os.close(entrance)
        if Path("/proc/self/ns/cgroup").exists():
            # Only now, in its own group: its view of control groups begins there.
            unshare(NEW_CGROUP)

    def _leave_network(self) -> None:
        self._host_network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        unshare(NEW_NET)
        raise_loopback()

    def _mount_early(self, root: dict[str, Any]) -> dict[str, Any] | None:
        """Mount what is probably needed; return None if that fails, as it might not matter."""
        try:
            self._mount(root)
        except OSError:
            unmount(self._mount_point)
            return None
        return root

    def _exec_command(
        self, command: dict[str, Any], pipes: list[int], channel: socket.socket
    ) -> None:
        """Become the first process of a sandbox; the end of the socket then reports success.

        In between, the starter gives us ids when we ask for them, as only a process outside of a
        user namespace may.
        """
        flags = os.O_PATH | os.O_CLOEXEC
        folders = [os.open(f"{self._mount_point}/{part}", flags) for part in _RETURNED_FOLDERS]
        root = os.open(f"{self._mount_point}/root", flags)
        for outside, inside in command["mounts"]:
            self._share(root, outside, inside, NOSUID | NODEV)
        for outside, inside in command["readonly"]:
            self._share(root, outside, inside, NOSUID | NODEV | RDONLY)
        for path, size in command["scratch"]:
            options = f"size={size},mode=1777"
            mount_in(root, path, "tmpfs", "tmpfs", NOSUID | NODEV, options)
        with contextlib.suppress(OSError):  # the shell will report why it does not exist
            os.close(open_in_root(root, command["workdir"]))
        enter_root(root)
        name = command["hostname"]
        try:
            socket.sethostname(name)
        except OSError as error:
            raise OSError(error.errno, f"the host name {name}: {error.strerror}") from None
        os.setsid()
        for target, descriptor in enumerate(pipes):
            os.dup2(descriptor, target)
        close_all_but([channel.fileno(), *folders])
        if command["state"]:
            state = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            os.dup2(state, _STATE)
            os.close(state)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_DFL)
        for kind, maximum in command["limits"]:
            resource.setrlimit(kind, (maximum, maximum))
        with contextlib.suppress(PermissionError):  # an ordinary user may not do this
            os.setgroups([])
        # After this, nothing can be mounted or named any more, so it comes last.
        unshare(NEW_USERS)
        send(channel, {}, folders)
        answer, _ = receive(channel)
        if answer is None:  # the starter has ended, or has no ids for us
            return
        give_up(command["capabilities"], command["guarded"], self.steps)
        program, *_ = words = command["argv"]
        problem = OSError(0, f"{program} is not in the sandbox")
        for folder in command["variables"]["PATH"].split(":"):
            try:
                os.execve(f"{folder}/{program}", words, command["variables"])
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                message = f"{folder}/{program} in the sandbox: {error.strerror}"
                problem = OSError(error.errno or 0, message)
        raise problem

    @staticmethod
    def _share(root: int, outside: str, inside: str, flags: int) -> None:
        mount_in(root, inside, outside, "", BIND | RECURSIVE)
        descriptor = open_in_root(root, inside)
        seal("", flags, descriptor)
        os.close(descriptor)

    def _mount(self, root: dict[str, Any]) -> None:
        mount_point = self._mount_point
        # Use descriptors, as a path may contain the separators of options; and new ones, as a layer
        # has to be in the namespace in which it is mounted.
        lower = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in root["layers"]]
        layers = ":".join(f"/proc/self/fd/{descriptor}" for descriptor in lower)
        mount("tmpfs", mount_point, "tmpfs", NOSUID | NODEV, f"size={root['size']},nr_inodes=200k")
        for part in ("upper", "work", "merged", "root"):
            Path(mount_point, part).mkdir()
        options = f"lowerdir={layers},upperdir={mount_point}/upper,workdir={mount_point}/work"
        options += "" if self._real_root else ",userxattr"
        mount("overlay", f"{mount_point}/merged", "overlay", NOSUID | NODEV, options)
        # The reader of a sandbox's files uses `merged` from outside, where nothing else is mounted.
        mount(f"{mount_point}/merged", f"{mount_point}/root", "", BIND)
        top = os.open(f"{mount_point}/root", os.O_PATH | os.O_CLOEXEC)
        self._trees.mount_in(top, root["shared"], root["shm"])
        for descriptor in (top, *lower):
            os.close(descriptor)


def error_answer(error: Exception) -> dict[str, Any]:
    """Return an error as an answer to the client, in one line."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
    return {"error": reason, "lost": isinstance(error, ProcessLost)}
