"""A Docker container as a sandbox."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import shlex
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.attached import (
    CAPABILITIES,
    SHM_SIZE,
    AttachedSandbox,
    find_killer,
)
from pytest_intercode.sandboxes.channel import INPUT_ENDED
from pytest_intercode.sandboxes.docker.carrier import Carrier
from pytest_intercode.sandboxes.docker.errors import NO_ANSWER, client_errors, plain
from pytest_intercode.sandboxes.docker.relay import Relay
from pytest_intercode.sandboxes.docker.services import ServiceGroup
from pytest_intercode.sandboxes.docker.streams import AttachedStreams, own_pipes
from pytest_intercode.sandboxes.egress.process import Plan, open_from_thread
from pytest_intercode.sandboxes.overlay import OverlayProbe, Unreadable
from pytest_intercode.sandboxes.pipes import PipeStreams
from pytest_intercode.sandboxes.protocol import OUTSIDE, SCRATCH_SIZE, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.seccomp import profile
from pytest_intercode.sandboxes.transport import ChannelClosed

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["NOT_HERE", "Container", "host_config"]

NOT_HERE = (
    "the Docker engine must run on this machine, and not in a virtual one, as on a Mac; remove "
    "`hosts`, or run pytest on the engine's own machine"
)
"""Why a sandbox on another machine cannot have a limited network, and what to do."""

_CPU_PERIOD = 100_000  # microseconds; a quota of processor time is for this period
_HALT = b"K - all\n"  # tells the keeper to kill everything but itself
_LOST = "the connection to it was lost"
_KILLED = "137"  # the engine's status for a container that was ended by SIGKILL
_END_NOTICE_DELAY = 2  # seconds within which the engine surely notices that a container ended

# Runtimes whose containers write to the engine's layers, as they use the host's kernel. Others may
# keep changes in memory, or on the disk of a virtual machine.
_WRITE_THROUGH = ("", "runc", "crun", "youki", "nvidia", "io.containerd.runc.v2")
_OVERLAYS = ("overlay2", "overlay")  # the names in Docker and in Podman

# The engine's own list, and more: with version 1 of cgroups, a tmpfs without a size is mounted
# there, and files that fill a sandbox's memory would end its keeper. Its submounts are listed one
# by one, as crun would otherwise show them a second time, writable.
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


# Files that the engine keeps on the host and mounts into a container, with their keys in its facts.
_MOUNTED = {
    "/etc/hostname": "HostnamePath",
    "/etc/hosts": "HostsPath",
    "/etc/resolv.conf": "ResolvConfPath",
}
_ADDRESSES = "/etc/hosts"  # with a network, it contains this container's own address


def host_config(
    api: APIClient,
    spec: SandboxSpec,
    runtime: str | None = None,
    volumes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the limits of a container, in the form of the engine's API.

    Args:
        api: the engine's client.
        spec: the spec that is asked for.
        runtime: the runtime that is to start it; None for the engine's own.
        volumes: for an engine that does not see this machine's files: its volumes, which replace
            the read-only folders; shared folders are then left out.
    """
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
        # This is what `--cpus` means, but engines refuse more `--cpus` than their machine has.
        cpu_period=_CPU_PERIOD,
        cpu_quota=int(limits.cpus * _CPU_PERIOD),
        binds=[
            *(f"{outside}:{inside}" for outside, inside in spec.mounts if volumes is None),
            *(
                f"{(volumes or {}).get(outside, outside)}:{inside}:ro"
                for outside, inside in spec.readonly
            ),
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


def _local_process(number: int, container_id: str) -> int:
    """Return the number of a container's first process; 0 if the engine is on another machine."""
    try:
        return number if container_id in Path(f"/proc/{number}/cgroup").read_text() else 0
    except OSError:
        return 0


class Container(AttachedSandbox):
    """A started container, and the channel to its keeper.

    Args:
        api: the engine's client.
        container_id: its id.
        streams: the streams that are attached to its keeper.
        spec: the spec that was asked for.
        runtime: the runtime that started it; by default, the one that the engine reports.
        local: the engine has this machine's kernel and files.

    Attributes:
        let_go: called with the streams when this is closed; closes them now or soon, which ends
            the container.
        services: its services, and the networks that lead to them; None if it is in no network.
    """

    let_go: Callable[[AttachedStreams], None] = staticmethod(AttachedStreams.close)

    def __init__(
        self,
        api: APIClient,
        container_id: str,
        streams: AttachedStreams,
        spec: SandboxSpec,
        runtime: str | None = None,
        *,
        local: bool = True,
    ) -> None:
        # Asked now, while the keeper starts, and not while an episode waits for it.
        container_info = api.inspect_container(container_id)
        self._storage = container_info.get("GraphDriver") or {}
        self._runtime = runtime or str(
            (container_info.get("HostConfig") or {}).get("Runtime") or ""
        )
        self._mounted = {
            path: container_info[key] for path, key in _MOUNTED.items() if container_info.get(key)
        }
        # For each volume that an image declares, one is made; our own mounts are not the agent's.
        own_mounts = {inside for _, inside in (*spec.mounts, *spec.readonly)}
        self.volumes = {
            str(mount["Destination"]): str(mount.get("Source") or "")
            for mount in container_info.get("Mounts") or ()
            if mount.get("Type") == "volume" and mount.get("Destination") not in own_mounts
        }
        if spec.limits.network or spec.is_connected:
            self.outside = OUTSIDE | {_ADDRESSES}
        self.services: ServiceGroup | None = None
        self._api = api
        self._id = container_id
        self._streams = streams
        self._relays: list[Relay] = []
        self._carriers: list[Carrier] = []
        self._local = local
        # Without a guard, an action might make it kill itself.
        self._process = _local_process(container_info["State"].get("Pid", 0), container_id)
        self._pid = self._process if spec.guarded else 0
        self._started_at = time.monotonic()
        self._transport = self._choose_transport(streams)
        try:
            super().__init__(container_id[:12], self._transport, spec)
        except BaseException:
            self._transport.close()
            raise

    def _choose_transport(self, streams: AttachedStreams) -> AttachedStreams | PipeStreams:
        """Return the shortest way to the keeper: pipes for root, else the attached streams."""
        usable = self._local and self._process and os.geteuid() == 0
        if not usable or self._runtime not in _WRITE_THROUGH:
            return streams
        try:
            folder = os.open(f"/proc/{self._process}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ChannelClosed(f"the sandbox has ended ({error.strerror})") from None
        try:
            # This folder never becomes another process's, while its number may be used again.
            if not _local_process(self._process, self._id):
                return streams
            return own_pipes(streams, folder) or streams
        finally:
            os.close(folder)

    def outside_cause(self) -> str:
        """Return what the engine reports, if the container was ended or paused from outside."""
        from docker.errors import NotFound

        try:
            try:
                state = self._api.inspect_container(self._id)["State"]
            except NotFound:
                state = {}
            if state.get("Paused"):
                return "somebody has paused it"
            # The engine closes its streams only after the container's keeper has ended.
            if self.hung_up() and self._process and _local_process(self._process, self._id):
                return _LOST
            hung_up = self._transport.hung_up()  # pipes show it before the engine knows
            return self._find_end_event(ended=hung_up or not state.get("Running"))
        except client_errors(OSError, ValueError) as error:
            message = plain(error)
            return message if message.startswith(NO_ANSWER) else f"{NO_ANSWER}: {message}"

    def _find_end_event(self, ended: bool) -> str:
        """Return the cause in the engine's events; wait for the last one of an ended container."""
        # By the engine's clock, which may be another machine's. The engine closes a stream of
        # events that has an end time.
        system_time = re.sub(r"\.\d+", "", self._api.info()["SystemTime"]).replace("Z", "+00:00")
        end_time = int(datetime.fromisoformat(system_time).timestamp()) + (
            _END_NOTICE_DELAY if ended else 0
        )
        filters = {"container": self._id, "event": ["kill", "pause", "die"]}
        events = self._api.events(since=1, until=end_time, filters=filters, decode=True)
        try:
            # The first event is the cause: an engine that is asked to kill reports that before it
            # reports that the container died.
            event = next(events, None)
        finally:
            with contextlib.suppress(*client_errors(OSError)):  # it may have ended
                events.close()
        if event is None:
            return ""
        if event["Action"] != "die":
            return f"the Docker engine was asked to {event['Action']} it"
        status = event["Actor"]["Attributes"].get("exitCode")
        if status == str(INPUT_ENDED):
            return _LOST
        return find_killer(self._pid, self._started_at) if self._pid and status == _KILLED else ""

    def hung_up(self) -> bool:
        """Whether its engine has closed its streams, as far as that is known without asking."""
        return self._streams.hung_up()

    def lead_to(self, inside: str, outside: Path) -> None:
        """Make a socket in it reachable at a path here, where no folder is shared with it."""
        if not self._local:
            folder = shlex.quote(posixpath.dirname(inside))
            status, output = self._channel.admin(f"mkdir -p {folder} && chmod 1777 {folder}", 10.0)
            if status != 0:
                raise SandboxError(f"{inside} cannot be: {output!r:.200}")
            relay = Relay(self._api, self._id, inside, outside)
            self._relays.append(relay)

    def forward_port(self, port: int, outside: Path) -> Callable[[], None] | None:
        """Forward a port of its loopback to a Unix socket here, if no folder is shared."""
        if self._local:
            return None
        carrier = Carrier(self._api, self._id, port, outside)
        self._carriers.append(carrier)
        return carrier.close

    def close(self) -> None:
        """End the container and everything in it."""
        for relay in self._relays:
            relay.close()
        for carrier in self._carriers:
            carrier.close(wait=False)
        # Before anything ends: an error that this causes in another thread is not the agent's
        # fault.
        first, self._ended = not self._ended, True
        if isinstance(self._transport, PipeStreams):
            # The container may stay for a while (see `_DelayedEnds`); its processes end now.
            self._transport.close(_HALT)
        super().close()
        if first:
            self.let_go(self._streams)

    def join(self, other: Sandbox) -> None:
        """Leave its own services, and reach those of another sandbox."""
        other_services = other.services if isinstance(other, Container) else None
        if self.services is None or other_services is None or other.host != self.host:
            raise SandboxError(f"sandbox {self.name} cannot join {other.name}")
        try:
            self.services.move(self._id, other_services)
        except client_errors() as error:
            raise SandboxError(f"sandbox {self.name}: {plain(error)}") from None

    def command_service(
        self, service: str, command: str, user: str, timeout: float
    ) -> tuple[int, bytes]:
        """Run a command in one of its services."""
        return self._group(service).run(service, command, user, timeout)

    def archive_service(self, service: str, path: str) -> bytes:
        """Return a tar archive of a path of a service, and of everything below it."""
        return self._group(service).archive(service, path)

    def _group(self, service: str) -> ServiceGroup:
        if self.services is None:
            raise SandboxError(f"sandbox {self.name} has no service {service!r}")
        return self.services

    def open_sockets(self, plan: Plan) -> list[int]:
        """Open sockets in its network; see ``egress.namespace``.

        Raises:
            SandboxError: this is not possible from here; the message says why.
        """
        reason = ""
        if not self._process:
            reason = NOT_HERE
        elif os.geteuid() != 0:
            reason = "only root may enter a container's network; bubblewrap needs no root"
        elif self._runtime not in _WRITE_THROUGH:
            reason = f"the network of the runtime {self._runtime} cannot be entered from outside"
        if reason:
            raise SandboxError(f"limited network on Docker: {reason} (docs/sandbox.md)")
        from pytest_intercode.sandboxes.egress.namespace import open_process

        try:
            process = open_process(self._process)
        except OSError as error:
            raise SandboxError(f"limited network: {error.strerror}") from None
        try:
            if not _local_process(self._process, self._id):  # the number was used again
                raise SandboxError("the sandbox has ended")
            return open_from_thread(process, plan)
        finally:
            os.close(process)

    def layers(self) -> OverlayProbe:
        """Return the probe that reads the layers; for root, on the engine's own machine."""
        if not (self._local or self._process):  # there, a path may mean something else
            raise Unreadable("the engine is on another machine")
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
            volumes=self.volumes,
            outside=self.outside,
        )
