"""The parts of a task's machines: images, files, limits, and services. Pure data."""

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
"""The network of machines that do not name one."""

_KERNEL_FOLDERS = re.compile(r"/(?:proc|sys|dev)(?:/(?!shm(?:/|$)).*)?")

ServiceCondition: TypeAlias = Literal["started", "healthy", "completed"]
"""What a machine waits for in another one: that it runs, that its health check succeeds, or that
its command exits with 0."""


@dataclass(frozen=True)
class Limits:
    """The limits of one sandbox.

    Attributes:
        memory: bytes of memory; there is no additional swap.
        cpus: number of processors, which may be a fraction.
        pids: maximum number of processes and threads at the same time.
        file_size: maximum size of one file in bytes.
        network: whether it has a network; without one it reaches only loopback and ``hosts``.
        offline: the task itself asks for no network, so options that allow one do not apply to it.
        hosts: hosts that the sandbox may reach although ``network`` is false, each as
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
    """A tar archive, or a folder, whose content is put into a sandbox before the agent starts.

    Attributes:
        path: the archive or the folder on the host.
        at: the directory in the sandbox that it is unpacked in; if it is empty, the root for an
            archive, and the task's ``workdir`` for a folder's content.
        keep_times_before: entries last modified before this time (seconds since the epoch) keep
            their time; all others get the time of unpacking. Tasks about "files older than a week"
            need this as the archive itself grows old. None keeps every time of a tar archive and
            none of a folder, whose times come from when it was copied.
        optional: skip a task whose archive is missing; otherwise a missing archive is an error.
        exclude: paths below a folder that are left out.
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
            is built if the image is not available.
        context: further files of the build's context, as pairs of a name there and a path here.
        layers: tar archives that are laid over the image, in order; sandboxes share them.
        text: the text to build in place of the Dockerfile's own text, if it is not empty.
        platform: the image's platform; None for the run's, or the engine's own.
    """

    dockerfile: Path | None = None
    image: str | None = None
    context: tuple[tuple[str, Path], ...] = ()
    layers: tuple[Path, ...] = ()
    text: str = ""
    platform: Platform | None = None

    @property
    def name(self) -> str:
        """The name for messages: the image's name, else its Dockerfile's path."""
        return self.image or str(self.dockerfile)


@dataclass(frozen=True)
class HealthCheck:
    """A command that exits with 0 if a service is ready.

    Attributes:
        command: its words, run in the service; empty for the image's own check.
        interval: maximum seconds between two tries; the first tries follow each other faster.
        timeout: seconds that one try may take.
        retries: how many tries may fail, at that interval, after the start period.
        start_period: seconds at the start in which failures do not count.
    """

    command: tuple[str, ...] = ()
    interval: float = 1.0
    timeout: float = 30.0
    retries: int = 30
    start_period: float = 0.0


@dataclass(frozen=True)
class Service:
    """An additional machine of a task, which runs its own command.

    Attributes:
        name: the name by which the other machines reach it.
        image: where its image comes from; for a backend, an image that is ready.
        entrypoint: the words of its entry point; None for the image's.
        command: the words of its command; None for the image's.
        variables: environment variables, as pairs.
        workdir: the working directory of its command; empty for the image's.
        user: the user that runs the command; empty for the image's.
        aliases: further names by which it is reached.
        networks: its networks; machines without a common network cannot reach each other.
        depends_on: the services that start before it, each with the condition to wait for.
        health: the check whether it is ready; None if it is ready as soon as it runs.
        volumes: folders that it shares with other machines, as pairs of a name and a path.
        tmpfs: its folders in memory.
        mounts: folders that replace everything that the image has at the same path.
        files: its files, as pairs of a path and its content.
        limits: its limits; its only network is the episode's.
        restarts: when to start it again after its command ends: never, after a failure, or always.
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
    """The services of a task, and how the agent's machine is connected to them.

    Attributes:
        machines: the services, each after those that it depends on.
        names: the names by which they reach the agent's machine.
        networks: the networks of the agent's machine.
        volumes: folders that it shares with the services, as pairs of a name and a path.
        depends_on: further conditions that it waits for, besides healthy services.
        read_only: the paths of volumes that the agent's machine cannot write to.
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
        ValueError: a service depends on one that does not exist, or they wait for each other.
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
