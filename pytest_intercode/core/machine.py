"""What machines are made of, as a task says it: images, files, limits, and services. Pure data."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal, TypeAlias

from pytest_intercode.core.platforms import Platform

__all__ = [
    "DEFAULT_NETWORK",
    "Archive",
    "FileSpec",
    "HealthCheck",
    "ImageSource",
    "Limits",
    "Service",
    "ServiceCondition",
    "Services",
    "can_mount_at",
    "in_order",
]

DEFAULT_NETWORK = "default"
"""The network of machines that name none."""

_KERNEL_FOLDERS = re.compile(r"/(?:proc|sys|dev)(?:/(?!shm(?:/|$)).*)?")

ServiceCondition: TypeAlias = Literal["started", "healthy", "completed"]
"""What a machine waits for in another one: that it runs, that its health check succeeds, or that
its command ends with 0."""


@dataclass(frozen=True)
class Limits:
    """What one sandbox may use.

    Attributes:
        memory: bytes of memory; swap is not given on top.
        cpus: processors, as a fraction of one.
        pids: processes and threads alive at a time.
        file_size: bytes that one file may grow to.
        network: False for loopback only, and for ``hosts``.
        offline: the task itself wants no network, and options that give one leave it without.
        hosts: what the sandbox may reach of the network although ``network`` is false, each as
            :func:`~pytest_intercode.core.hosts.parse_host` reads it.
        output: bytes of one action's output that are kept and shown.
    """

    memory: int = 512 * 1024**2
    cpus: float = 1.0
    pids: int = 256
    file_size: int = 256 * 1024**2
    network: bool = False
    output: int = 64 * 1024
    hosts: tuple[str, ...] = ()
    offline: bool = False


@dataclass(frozen=True)
class FileSpec:
    """One entry of a task's file tree: a file, a symbolic link or a directory."""

    kind: Literal["file", "link", "directory"]
    content: bytes = b""
    target: str = ""
    mode: int | None = None


@dataclass(frozen=True)
class Archive:
    """A tar archive, or a folder, whose content is there before the agent starts.

    Attributes:
        path: the archive or the folder on the host.
        at: the directory in the sandbox that it is unpacked in; empty for the root, and for a
            folder's content, for the task's ``workdir``.
        keep_times_before: entries last modified before this time (seconds since the epoch) keep
            their time; all others get the time of unpacking. This is what tasks about "files older
            than a week" need when the archive itself grows old. None keeps every time of a tar
            archive and none of a folder, whose times are those of its copying about.
        optional: a task without its archive is skipped; else a missing archive is an error.
        exclude: what of a folder is left out: paths below it.
    """

    path: Path
    at: str = ""
    keep_times_before: float | None = None
    optional: bool = False
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageSource:
    """Where a sandbox's image comes from: a Dockerfile to build, or the name of an image.

    Attributes:
        dockerfile: the Dockerfile.
        image: the name of an image, instead of a Dockerfile. Where both are given, the Dockerfile
            is built if the image cannot be had.
        context: further files of the build's context, as pairs of a name there and a path here.
        layers: tar archives that are laid over the image, in order; sandboxes share them.
        text: what is built instead of the Dockerfile's own text; empty for that.
        platform: the platform that it is for; None for the run's, or the engine's own.
    """

    dockerfile: Path | None = None
    image: str | None = None
    context: tuple[tuple[str, Path], ...] = ()
    layers: tuple[Path, ...] = ()
    text: str = ""
    platform: Platform | None = None

    @property
    def name(self) -> str:
        """What it is called in messages: the image's name, else its Dockerfile's path."""
        return self.image or str(self.dockerfile)


@dataclass(frozen=True)
class HealthCheck:
    """A command that shows, by ending with 0, that a service is ready.

    Attributes:
        command: its words, run in the service; none for the image's own check.
        interval: the most seconds between two tries; the first ones follow each other faster.
        timeout: seconds that one try has.
        retries: how many tries may fail, at that interval, after the start period.
        start_period: seconds in which failures do not count.
    """

    command: tuple[str, ...] = ()
    interval: float = 1.0
    timeout: float = 30.0
    retries: int = 30
    start_period: float = 0.0


@dataclass(frozen=True)
class Service:
    """A further machine of a task, which runs a command of its own.

    Attributes:
        name: the name by which the other machines reach it.
        image: where its image comes from; for a backend, an image that is ready.
        entrypoint: the words of its entry point; None for the image's.
        command: the words of its command; None for the image's.
        variables: environment variables, as pairs.
        workdir: the directory of its command; empty for the image's.
        user: who runs it; empty for the image's.
        aliases: further names by which it is reached.
        networks: the networks that it is in; machines with none in common do not reach each other.
        depends_on: the services that it starts after, with what is waited for.
        health: how it is known to be ready; None where it is ready as soon as it runs.
        volumes: folders that it has in common with others, as pairs of a name and a path.
        tmpfs: its folders in memory.
        mounts: folders that it gets, each instead of all that the image has at its place.
        files: its files, as pairs of a path and what stands there.
        limits: what it may use; it has no network but the episode's.
        restarts: it is started again when its command ends: never, after a failure, or always.
        read_only: the paths of volumes that it cannot write to.
    """

    name: str
    image: ImageSource
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    variables: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    user: str = ""
    aliases: tuple[str, ...] = ()
    networks: tuple[str, ...] = (DEFAULT_NETWORK,)
    depends_on: tuple[tuple[str, ServiceCondition], ...] = ()
    health: HealthCheck | None = None
    volumes: tuple[tuple[str, str], ...] = ()
    tmpfs: tuple[str, ...] = ()
    mounts: tuple[Archive, ...] = ()
    files: tuple[tuple[str, FileSpec], ...] = ()
    limits: Limits = Limits()
    restarts: Literal["never", "on-failure", "always"] = "never"
    read_only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Services:
    """The machines of a task next to the one that the agent acts in, and its share in them.

    Attributes:
        machines: the services, each after those that it depends on.
        names: how they reach the agent's machine.
        networks: the networks that it is in.
        volumes: folders that it has in common with them, as pairs of a name and a path.
        depends_on: what it waits for besides that they are healthy.
        read_only: the paths of volumes that it cannot write to.
    """

    machines: tuple[Service, ...] = ()
    names: tuple[str, ...] = ()
    networks: tuple[str, ...] = (DEFAULT_NETWORK,)
    volumes: tuple[tuple[str, str], ...] = ()
    depends_on: tuple[tuple[str, ServiceCondition], ...] = ()
    read_only: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.machines)


def can_mount_at(path: str) -> bool:
    """Whether a machine can have a volume, or a folder in memory, at a path."""
    normal = posixpath.normpath(path)
    is_usual = normal.startswith("/") and normal.strip("/") != "" and ":" not in path
    return is_usual and not _KERNEL_FOLDERS.fullmatch(normal)


def in_order(machines: Iterable[Service]) -> tuple[Service, ...]:
    """Return services, each after those that it depends on.

    Raises:
        ValueError: one depends on a service that there is not, or they wait for each other.
    """
    machines_by_name = {machine.name: machine for machine in machines}
    dependencies = {
        machine.name: [name for name, _ in machine.depends_on]
        for machine in machines_by_name.values()
    }
    for name, needed_names in dependencies.items():
        for needed_name in needed_names:
            if needed_name not in machines_by_name:
                raise ValueError(f"there is no {needed_name}, which {name} depends on")
    try:
        order = tuple(TopologicalSorter(dependencies).static_order())
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise ValueError(f"they wait for each other: {circle}") from None
    return tuple(machines_by_name[name] for name in order)
