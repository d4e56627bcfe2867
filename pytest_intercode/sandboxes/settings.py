"""What is needed to make sandboxes: one object, which can be sent as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pytest_intercode.sandboxes.hosts import DockerHost, parse_host

__all__ = ["SandboxSettings"]


@dataclass(frozen=True)
class SandboxSettings:
    """Where sandboxes come from. A backend may read more of it than is its own.

    Hosts may be written as the option's, such as ``ssh://ada@big-machine=24``.

    Attributes:
        backend: a backend's name, such as ``docker``, or ``auto`` for one that works here.
        rootfs: what bubblewrap uses instead of images; None for the machine's own programs.
        base_images: replacements of base images, by name.
        runtime: the runtime that Docker starts sandboxes with; None for the engine's own.
        registry: where images are looked for before they are built, and pushed to.
        docker_hosts: the hosts whose Docker engines start the sandboxes; none for the engine that
            the environment names.
        hidden: folders of this machine that no sandbox may see, wherever they are.
        readonly: folders of this machine that the sandboxes of agents may read, and so gold's, as
            pairs of a path here and a path inside.
        scratch: their folders in memory; see :class:`SandboxSpec`.
        pool_size: how many sandboxes may be idle at a time. Several processes have a share of it
            each, but at least four.
        processes: how many processes there are that share an engine, this one among them.
        slots: a file that they share, of this machine and of their own; it bounds how many
            sandboxes start at the same time in all of them. It is the callers' to remove.
        verbosity: 1 to have the steps of builds reported as well, -1 for no builds.
    """

    backend: str = "auto"
    rootfs: Path | None = None
    base_images: Mapping[str, str] = field(default_factory=dict)
    runtime: str | None = None
    registry: str | None = None
    docker_hosts: Sequence[DockerHost | str] = ()
    hidden: Sequence[str | os.PathLike[str]] = ()
    readonly: Sequence[Sequence[str]] = ()
    scratch: Sequence[str] = ()
    pool_size: int = 32
    processes: int = 1
    slots: Path | None = None
    verbosity: int = 0

    def __post_init__(self) -> None:
        values = {
            "rootfs": None if self.rootfs is None else Path(self.rootfs),
            "slots": None if self.slots is None else Path(self.slots),
            "base_images": dict(self.base_images),
            "docker_hosts": self.hosts,
            "hidden": tuple(os.fspath(folder) for folder in self.hidden),
            "readonly": tuple(tuple(pair) for pair in self.readonly),
            "scratch": tuple(self.scratch),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def hosts(self) -> tuple[DockerHost, ...]:
        """The Docker hosts.

        Raises:
            ValueError: one is not written as a host; the message says what is needed.
        """
        return tuple(
            parse_host(host) if isinstance(host, str) else host for host in self.docker_hosts
        )

    def to_fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("rootfs", "slots"):
            values[name] = None if values[name] is None else os.fspath(values[name])
        return {**values, "docker_hosts": list(map(str, self.hosts))}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> SandboxSettings:
        """Return what :meth:`to_fields` wrote."""
        return cls(**values)
