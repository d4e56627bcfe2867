"""One container as a sandbox."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.channel import Channel, ChannelClosed
from pytest_intercode.sandboxes.docker.overlay import OUTSIDE, OverlayProbe, Unreadable
from pytest_intercode.sandboxes.docker.stream import AttachedStreams
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.protocol import Changes, Entry, Execution, SandboxSpec
from pytest_intercode.sandboxes.python_channel import PythonChannel

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Container", "host_config"]

# What su, useradd, tar, chmod 4755, git and crontab need, and nothing that reaches the host.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
# Only the keeper has this one; the shell is started without it (see keeper.sh).
KEEPER_CAPABILITY = "SETPCAP"
# The engine's own list, and one more: with the first version of cgroups a tmpfs without a size is
# mounted there, and files that fill a sandbox's memory are the end of its keeper.
READONLY = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/sys/fs/cgroup",
)
SHM_SIZE = 16 * 1024**2

Method = TypeVar("Method", bound=Callable[..., Any])


class _Probe(Protocol):
    def mark(self) -> None: ...
    def changes(self) -> Changes: ...
    def entries(self, paths: Iterable[str]) -> dict[str, Entry | None]: ...


def host_config(api: APIClient, spec: SandboxSpec) -> dict[str, Any]:
    """Return the limits of a container, as the engine's API takes them."""
    from docker.types import LogConfig, Ulimit

    limits = spec.limits
    config: dict[str, Any] = api.create_host_config(
        auto_remove=True,
        init=False,  # an init would be killed by `kill -9 -1`, the keeper is not
        network_mode="bridge" if limits.network else "none",
        log_config=LogConfig(type="none"),  # a flood would fill the host's disk
        cap_drop=["ALL"],
        cap_add=[*CAPABILITIES, *([KEEPER_CAPABILITY] if spec.guarded else [])],
        security_opt=["no-new-privileges"],
        pids_limit=limits.pids,
        mem_limit=limits.memory,
        memswap_limit=limits.memory,
        nano_cpus=int(limits.cpus * 1e9),
        binds=[f"{outside}:{inside}" for outside, inside in spec.mounts],
        shm_size=min(SHM_SIZE, limits.memory // 4),
        ulimits=[
            Ulimit(name="fsize", soft=limits.file_size, hard=limits.file_size),
            Ulimit(name="core", soft=0, hard=0),
        ],
    )
    config["ReadonlyPaths"] = list(READONLY)
    return config


def _explained(method: Method) -> Method:
    """Turn a channel that closed into a sentence about why the container ended."""

    @functools.wraps(method)
    def call(self: Container, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except ChannelClosed as closed:
            raise SandboxError(f"sandbox {self.name} ended while in use: {closed}") from closed

    return call  # type: ignore[return-value]


class Container:
    """A started container and the channel to its keeper.

    Attributes:
        probe: reads what changed on disk; made at the first mark.
    """

    def __init__(
        self, api: APIClient, container_id: str, streams: AttachedStreams, spec: SandboxSpec
    ) -> None:
        self._api = api
        self._id = container_id
        self._streams = streams
        channel = PythonChannel if spec.worker == "python" else Channel
        self._channel = channel(
            streams,
            workdir=spec.workdir,
            output_limit=spec.limits.output,
            guarded=spec.guarded,
            offline=not spec.limits.network,
        )
        self.probe: _Probe | None = None

    @property
    def name(self) -> str:
        """The first characters of the container's id."""
        return self._id[:12]

    @_explained
    def run(self, action: str, timeout: float) -> Execution:
        """Run one action in the shell."""
        return self._channel.run(action, timeout)

    @_explained
    def admin(self, command: str, timeout: float) -> tuple[int, bytes]:
        """Run a command of ours outside the shell."""
        return self._channel.admin(command, timeout)

    @_explained
    def settle(self, timeout: float) -> bytes:
        """Wait for what runs in the background."""
        return self._channel.settle(timeout)

    @_explained
    def unpack(self, archive: bytes) -> None:
        """Unpack a tar archive at the root."""
        self._channel.unpack(archive)

    @_explained
    def mark(self) -> None:
        """Remember the state of the file system."""
        if self.probe is None:
            self.probe = self._make_probe()
        self.probe.mark()

    @_explained
    def changes(self) -> Changes:
        """Return what changed on disk since the mark."""
        if self.probe is None:
            raise SandboxError(f"sandbox {self.name} was never marked")
        return self.probe.changes()

    @_explained
    def entries(self, paths: Iterable[str]) -> dict[str, Entry | None]:
        """Return what stands at the given paths."""
        if self.probe is None:
            self.probe = self._make_probe()
        return self.probe.entries(paths)

    def interrupt(self) -> None:
        """End a running action from another thread."""
        self._channel.interrupt()

    def close(self) -> None:
        """End the container; the engine removes it by itself."""
        with contextlib.suppress(OSError):
            self._channel.close()

    def _make_probe(self) -> _Probe:
        details = self._api.inspect_container(self._id).get("GraphDriver") or {}
        layers = details.get("Data") or {}
        if details.get("Name") == "overlay2" and "UpperDir" in layers:
            with contextlib.suppress(Unreadable):
                return OverlayProbe(
                    layers["UpperDir"], layers["LowerDir"].split(":"), layers["MergedDir"]
                )
        return ListingProbe(self.admin, OUTSIDE)
