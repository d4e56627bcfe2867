"""The settings for making sandboxes: one object, which can be sent as JSON.

This module also defines how Docker hosts and registries are written: a host is an address or the
name of a context, with its slots; a registry has a host and a prefix.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pytest_intercode.core.platforms import Platform, parse_platform

__all__ = [
    "FORMS",
    "DockerHost",
    "SandboxSettings",
    "parse_docker_host",
    "parse_registry",
    "split_url",
]

FORMS = "unix://PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT] or the name of a Docker context"
"""How a host may be written, for messages."""

_SCHEMES = ("unix", "tcp", "ssh")
_CONTEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")  # as in Docker
_MAX_SLOTS = 100_000
# Engines read the names of images like this: without a dot or a port, the first part is not a host.
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_REGISTRY = re.compile(
    rf"(?:localhost|{_LABEL}(?:\.{_LABEL})+|{_LABEL}(?=:))(?::[0-9]{{1,5}})?"
    r"(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
)


@dataclass(frozen=True)
class DockerHost:
    """A Docker host as the user writes it.

    Attributes:
        name: its address, or the name of a context.
        slots: its share of the sandboxes; None for the number that its engine reports.
    """

    name: str
    slots: int | None = None

    def __str__(self) -> str:
        return self.name if self.slots is None else f"{self.name}={self.slots}"


@dataclass(frozen=True)
class SandboxSettings:
    """Where sandboxes come from. A backend may read more settings than its own.

    Hosts and the platform may be written as in the options, such as ``ssh://ada@big-machine=24``.

    Attributes:
        backend: a backend's name, such as ``docker``, or ``auto`` for one that can be used here.
        rootfs: what bubblewrap uses instead of images; None for the machine's own programs.
        base_images: replacements of base images, by name.
        runtime: the runtime that Docker starts sandboxes with; None for the engine's own.
        registry: where images are looked for before they are built, and where they are pushed to.
        platform: the platform of images for which the task names none, such as ``linux/amd64``;
            None for the engine's own.
        docker_hosts: the hosts whose Docker engines start the sandboxes; none for the engine that
            ``docker`` uses here.
        kube_context: the context of kubeconfig whose cluster starts the sandboxes; None for the
            current one.
        kube_namespace: the namespace of the sandboxes; None for the context's own.
        kube_pull_secrets: the namespace's secrets with which its nodes pull images.
        kube_nodes: the labels that the nodes must have.
        hidden: folders of this machine that no sandbox may see, wherever they are.
        readonly: folders of this machine that the sandboxes of agents, and thus of gold, may read,
            as pairs of a path here and a path inside.
        scratch: folders in memory of these sandboxes; see :class:`SandboxSpec`.
        pool_size: how many sandboxes may be idle at a time. Several processes have a share of it
            each, but at least four.
        processes: how many processes share an engine, this one included.
        slots: a file of this machine that only these processes share; it bounds how many sandboxes
            start at the same time in all of them. Files are made next to it, with names that begin
            with its name; the caller removes them all.
        verbosity: 1 to report the steps of builds too, -1 to report no builds.
    """

    backend: str = "auto"
    rootfs: Path | None = None
    base_images: Mapping[str, str] = field(default_factory=dict)
    runtime: str | None = None
    registry: str | None = None
    platform: Platform | str | None = None
    docker_hosts: Sequence[DockerHost | str] = ()
    kube_context: str | None = None
    kube_namespace: str | None = None
    kube_pull_secrets: Sequence[str] = ()
    kube_nodes: Mapping[str, str] = field(default_factory=dict)
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
            "platform": self.default_platform,
            "docker_hosts": self.hosts,
            "kube_pull_secrets": tuple(self.kube_pull_secrets),
            "kube_nodes": dict(self.kube_nodes),
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
            ValueError: one is not written as a host; the message describes what is needed.
        """
        return tuple(
            parse_docker_host(host) if isinstance(host, str) else host for host in self.docker_hosts
        )

    @property
    def default_platform(self) -> Platform | None:
        """The platform of images for which the task names none; None for the engine's own.

        Raises:
            ValueError: it is not written as a platform; the message describes what is needed.
        """
        return parse_platform(self.platform) if isinstance(self.platform, str) else self.platform

    def to_fields(self) -> dict[str, Any]:
        """Return the settings as JSON values, from which they can be made again."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("rootfs", "slots"):
            values[name] = None if values[name] is None else os.fspath(values[name])
        values["platform"] = None if self.platform is None else str(self.platform)
        return {**values, "docker_hosts": list(map(str, self.hosts))}


def parse_docker_host(written: str) -> DockerHost:
    """Read ``HOST`` or ``HOST=SLOTS``.

    Raises:
        ValueError: it is written differently; the message describes what is needed.
    """
    name, sign, count = written.strip().rpartition("=")
    slots: int | None = None
    if sign:
        if not (count.isascii() and count.isdigit() and 0 < int(count[:9]) <= _MAX_SLOTS):
            raise ValueError(f"after = a number of sandboxes is needed, found {count!r:.80}")
        slots = int(count)
    else:
        name = count
    if "://" not in name:
        if not _CONTEXT.fullmatch(name):
            raise ValueError(f"{FORMS} is needed, found {name!r:.80}")
        return DockerHost(name, slots)
    split_url(name)
    return DockerHost(name, slots)


def parse_registry(written: str) -> str:
    """Read ``HOST[:PORT][/PREFIX]``.

    Raises:
        ValueError: it is written differently; the message describes what is needed.
    """
    if "@" in written:
        raise ValueError("credentials come from 'docker login'; HOST[:PORT][/PREFIX] is needed")
    name = written.rstrip("/")
    if not _REGISTRY.fullmatch(name):
        raise ValueError(
            "HOST[:PORT][/PREFIX] is needed, without https:// and in lower case, with a dot or a "
            f"port in HOST, found {written!r:.80}"
        )
    return name


def split_url(url: str) -> SplitResult:
    """Return the parts of an address.

    Raises:
        ValueError: the text is not such an address.
    """
    parts = urlsplit(url)
    port = parts.port  # raises if it is not a number
    good = parts.scheme in _SCHEMES and not parts.query and not parts.fragment
    if parts.scheme == "unix":
        good = good and not parts.netloc and parts.path.startswith("/")
    else:
        # A name that begins with a hyphen would be an option of the SSH client.
        words = (parts.hostname or "-", parts.username or "")
        good = good and not any(word.startswith("-") for word in words)
    if parts.scheme == "tcp":
        good = good and port is not None and parts.username is None and parts.path in ("", "/")
    if not good or parts.password is not None:
        raise ValueError(f"{FORMS} is needed, found {url!r:.80}")
    return parts
