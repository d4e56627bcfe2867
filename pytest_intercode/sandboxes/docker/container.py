"""One container as a sandbox, and its attached streams as a transport for the command channel.

Docker frames what a container without a terminal writes: one byte for the stream (1 stdout, 2
stderr), three of padding, four for the length (big-endian), then the bytes.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.forks import close_in_children
from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.attached import (
    CAPABILITIES,
    SHM_SIZE,
    AttachedSandbox,
    who_killed,
)
from pytest_intercode.sandboxes.channel import INPUT_ENDED, ChannelClosed, Chunk
from pytest_intercode.sandboxes.docker.images import NO_ANSWER, plain
from pytest_intercode.sandboxes.egress.process import Plan, open_from_thread
from pytest_intercode.sandboxes.overlay import OverlayProbe, Unreadable
from pytest_intercode.sandboxes.protocol import OUTSIDE, SCRATCH_SIZE, SandboxSpec
from pytest_intercode.sandboxes.seccomp import profile

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["AttachedStreams", "Container", "host_config"]

_STDOUT, _STDERR = 1, 2
_KILLED = "137"  # the status that the engine gives to a container that SIGKILL ended
_LATE = 2  # seconds after which the engine has surely noticed that a container ended

# Runtimes whose containers write to the engine's layers, as they have the host's kernel. Others may
# keep changes in memory, or in a disk of a virtual machine.
_WRITE_THROUGH = ("", "runc", "crun", "youki", "nvidia", "io.containerd.runc.v2")
_OVERLAYS = ("overlay2", "overlay")  # as Docker and Podman call it

# The engine's own list, and more: with the first version of cgroups a tmpfs without a size is
# mounted there, and files that fill a sandbox's memory are the end of its keeper. What is mounted
# in it is named one by one, as crun would otherwise show it a second time, to be written to.
_HIERARCHIES = (
    "blkio",
    "cpu",
    "cpu,cpuacct",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "net_cls",
    "net_cls,net_prio",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
    "systemd",
    "unified",
)
READONLY = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/sys/fs/cgroup",
    *(f"/sys/fs/cgroup/{name}" for name in _HIERARCHIES),
)


# What the engine keeps on the host and mounts into a container, and under which key it says where.
_MOUNTED = {
    "/etc/hostname": "HostnamePath",
    "/etc/hosts": "HostsPath",
    "/etc/resolv.conf": "ResolvConfPath",
}
_ADDRESSES = "/etc/hosts"  # with a network, it holds the address of this one container


def host_config(api: APIClient, spec: SandboxSpec, runtime: str | None = None) -> dict[str, Any]:
    """Return the limits of a container, as the engine's API takes them."""
    from docker.types import LogConfig, Ulimit

    limits = spec.limits
    config: dict[str, Any] = api.create_host_config(
        auto_remove=True,
        runtime=runtime,
        init=False,  # an init would be killed by `kill -9 -1`, the keeper is not
        network_mode="bridge" if limits.network else "none",
        log_config=LogConfig(type="none"),  # a flood would fill the host's disk
        cap_drop=["ALL"],
        cap_add=list(CAPABILITIES),
        security_opt=["no-new-privileges", f"seccomp={profile()}"],
        pids_limit=limits.pids,
        mem_limit=limits.memory,
        memswap_limit=limits.memory,
        nano_cpus=int(limits.cpus * 1e9),
        binds=[
            *(f"{outside}:{inside}" for outside, inside in spec.mounts),
            *(f"{outside}:{inside}:ro" for outside, inside in spec.readonly),
        ],
        tmpfs=dict.fromkeys(spec.scratch, f"exec,mode=1777,size={SCRATCH_SIZE}"),
        shm_size=min(SHM_SIZE, limits.memory // 4),
        ulimits=[
            Ulimit(name="fsize", soft=limits.file_size, hard=limits.file_size),
            Ulimit(name="core", soft=0, hard=0),
        ],
    )
    config["ReadonlyPaths"] = list(READONLY)
    return config


class AttachedStreams:
    """A socket that is attached to a container's stdin, stdout and stderr.

    Args:
        attached: what ``docker.APIClient.attach_socket`` returns. It calls itself read-only, so
            the socket below it is used; both must be closed, or the container stays.
    """

    def __init__(self, attached: Any) -> None:
        self._attached = attached
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.setblocking(False)
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._closing = threading.Lock()
        self._closed = False
        close_in_children(self)

    def send(self, data: bytes) -> None:
        """Queue bytes and write as many as the socket takes now."""
        self._outgoing += data
        self._flush()

    def receive(self, timeout: float) -> list[Chunk]:
        """Wait for frames; write what is queued meanwhile."""
        chunks = self._frames()
        if chunks:
            return chunks
        if self._closed:
            raise ChannelClosed("the sandbox has ended")
        pending = getattr(self._socket, "pending", None)  # TLS may hold bytes that poll cannot see
        if not (pending and pending()):
            events = select.POLLIN | (select.POLLOUT if self._outgoing else 0)
            poll = select.poll()
            try:
                poll.register(self._socket, events)
            except ValueError as error:  # another thread closed it just now
                raise ChannelClosed("the sandbox has ended") from error
            ready = poll.poll(max(0, int(timeout * 1000 + 0.999)))
            if not ready:
                return []
            if ready[0][1] & select.POLLOUT:
                self._flush()
            if not ready[0][1] & ~select.POLLOUT:
                return []
        try:
            data = self._socket.recv(262144)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise ChannelClosed(f"the sandbox has ended ({error})") from error
        if not data:
            raise ChannelClosed("the sandbox has ended")
        self._incoming += data
        return self._frames()

    def written(self) -> None:
        """Return None: the engine carries what the container writes."""

    def _frames(self) -> list[Chunk]:
        chunks = []
        start = 0
        buffer = self._incoming
        while len(buffer) - start >= 8:
            end = start + 8 + int.from_bytes(buffer[start + 4 : start + 8], "big")
            if len(buffer) < end:
                break
            data = bytes(buffer[start + 8 : end])
            if buffer[start] == _STDOUT:
                chunks.append(Chunk("output", data))
            elif buffer[start] == _STDERR:
                chunks.append(Chunk("answers", data))
            start = end
        del buffer[:start]
        return chunks

    def _flush(self) -> None:
        try:
            while self._outgoing:
                sent = self._socket.send(self._outgoing[:262144])
                del self._outgoing[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            raise ChannelClosed(f"the sandbox has ended ({error})") from error

    def close_copies(self) -> None:
        """Close a forked child's copy of the socket; the container stays its parent's.

        With a copy left open, it would outlive a parent that is killed.
        """
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                os.close(self._socket.detach())

    def close(self) -> None:
        """Close both layers; the keeper's input ends, and with it the container."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()
        with contextlib.suppress(OSError, ValueError):
            self._attached.close()
        response = getattr(self._attached, "_response", None)
        if response is not None:
            with contextlib.suppress(OSError, ValueError):
                response.close()


def _local_process(number: int, container_id: str) -> int:
    """Return the number of a container's first process; 0 if the engine is on another machine."""
    try:
        return number if container_id in Path(f"/proc/{number}/cgroup").read_text() else 0
    except OSError:
        return 0


class Container(AttachedSandbox):
    """A started container and the channel to its keeper.

    Args:
        api: the engine's client.
        container_id: its id.
        streams: what is attached to its keeper.
        spec: what it was asked for.
        runtime: what started it; by default what the engine says.
    """

    def __init__(
        self,
        api: APIClient,
        container_id: str,
        streams: AttachedStreams,
        spec: SandboxSpec,
        runtime: str | None = None,
    ) -> None:
        # Asked now, while the keeper starts, and not when an episode waits for it.
        told = api.inspect_container(container_id)
        self._storage = told.get("GraphDriver") or {}
        self._runtime = runtime or str((told.get("HostConfig") or {}).get("Runtime") or "")
        self._mounted = {path: told[key] for path, key in _MOUNTED.items() if told.get(key)}
        if spec.limits.network:
            self.outside = OUTSIDE | {_ADDRESSES}
        self._api = api
        self._id = container_id
        # Unguarded, it might be made to kill itself.
        self._process = _local_process(told["State"].get("Pid", 0), container_id)
        self._pid = self._process if spec.guarded else 0
        self._since = time.monotonic()
        super().__init__(container_id[:12], streams, spec)

    def outside_cause(self) -> str:
        """Return what the engine says of the container, if somebody else has ended or paused it."""
        from docker.errors import DockerException, NotFound
        from requests.exceptions import RequestException

        try:
            try:
                state = self._api.inspect_container(self._id)["State"]
            except NotFound:
                state = {}
            if state.get("Paused"):
                return "somebody has paused it"
            return self._reported(ended=not state.get("Running"))
        except (DockerException, RequestException, OSError, ValueError) as error:
            said = plain(error)
            return said if said.startswith(NO_ANSWER) else f"{NO_ANSWER}: {said}"

    def _reported(self, ended: bool) -> str:
        """Return what the engine's events say; of a container that ended, wait for its end's."""
        from docker.errors import DockerException

        now = re.sub(r"\.\d+", "", self._api.info()["SystemTime"]).replace("Z", "+00:00")
        until = int(datetime.fromisoformat(now).timestamp()) + (_LATE if ended else 0)
        filters = {"container": self._id, "event": ["kill", "pause", "die"]}
        events = self._api.events(since=1, until=until, filters=filters, decode=True)
        try:
            event = next(events, None)
        finally:
            with contextlib.suppress(OSError, DockerException):  # it may be at its end
                events.close()
        if event is None:
            return ""
        if event["Action"] != "die":
            return f"the Docker engine was asked to {event['Action']} it"
        status = event["Actor"]["Attributes"].get("exitCode")
        if status == str(INPUT_ENDED):
            return "the connection to it was lost"
        return who_killed(self._pid, self._since) if self._pid and status == _KILLED else ""

    def open_sockets(self, plan: Plan) -> list[int]:
        """Open sockets in its network; see ``egress.namespace``.

        Raises:
            SandboxError: that cannot be done from here; the message says why.
        """
        why = ""
        if os.geteuid() != 0:
            why = "only root may enter a container's network; bubblewrap needs no root"
        elif self._runtime not in _WRITE_THROUGH:
            why = f"the network of the runtime {self._runtime} cannot be entered from outside"
        elif not self._process:
            why = "the Docker engine has to be on this machine"
        if why:
            raise SandboxError(f"limited network on Docker: {why} (docs/sandbox.md)")
        try:
            process = os.pidfd_open(self._process)
        except OSError as error:
            raise SandboxError(f"limited network: {error.strerror}") from None
        try:
            if not _local_process(self._process, self._id):  # its number is another one's by now
                raise SandboxError("the sandbox has ended")
            return open_from_thread(process, plan)
        finally:
            os.close(process)

    def layers(self) -> OverlayProbe:
        """Return the probe that reads the layers; for root, on the engine's own machine."""
        if self._runtime not in _WRITE_THROUGH:
            raise Unreadable("what the sandbox's own kernel holds is not on the host's disk")
        data = self._storage.get("Data") or {}
        complete = {"UpperDir", "LowerDir", "MergedDir"} <= data.keys()
        if self._storage.get("Name") not in _OVERLAYS or not complete:
            raise Unreadable("the engine stores containers in another way")
        return OverlayProbe(
            data["UpperDir"],
            data["LowerDir"].split(":"),
            data["MergedDir"],
            mounted=self._mounted,
            outside=self.outside,
        )
