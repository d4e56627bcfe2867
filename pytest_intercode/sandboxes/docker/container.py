"""One container as a sandbox."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pytest_intercode.sandboxes.attached import (
    CAPABILITIES,
    KEEPER_CAPABILITY,
    SHM_SIZE,
    AttachedSandbox,
    Probe,
)
from pytest_intercode.sandboxes.docker.stream import AttachedStreams
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.overlay import OUTSIDE, OverlayProbe, Unreadable
from pytest_intercode.sandboxes.protocol import SandboxSpec

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Container", "host_config"]

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


class Container(AttachedSandbox):
    """A started container and the channel to its keeper."""

    def __init__(
        self, api: APIClient, container_id: str, streams: AttachedStreams, spec: SandboxSpec
    ) -> None:
        self._id = container_id
        # Asked now, while the keeper starts, and not when an episode waits for it.
        self._storage = api.inspect_container(container_id).get("GraphDriver") or {}
        super().__init__(streams, spec)

    @property
    def name(self) -> str:
        """The first characters of the container's id."""
        return self._id[:12]

    def _make_probe(self) -> Probe:
        layers = self._storage.get("Data") or {}
        if self._storage.get("Name") == "overlay2" and "UpperDir" in layers:
            with contextlib.suppress(Unreadable):
                return OverlayProbe(
                    layers["UpperDir"], layers["LowerDir"].split(":"), layers["MergedDir"]
                )
        return ListingProbe(self.admin, OUTSIDE)
