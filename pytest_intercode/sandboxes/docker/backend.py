"""Docker as a backend: the engine that the environment names, or those of several hosts."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pytest_intercode.core.platforms import Platform
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.sandboxes.backend import Backend, BackendEvents, EngineBackend
from pytest_intercode.sandboxes.docker.address import find_address
from pytest_intercode.sandboxes.settings import SandboxSettings

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["DockerBackend", "DockerHostsBackend", "find_images", "make_docker"]

_PING_TIMEOUT = 5.0  # seconds


def make_docker(settings: SandboxSettings) -> Backend:
    """Return the backend for one engine, or that for hosts where some are given."""
    return DockerHostsBackend(settings) if settings.docker_hosts else DockerBackend(settings)


class DockerBackend(EngineBackend):
    """One Docker engine; see :class:`~pytest_intercode.sandboxes.backend.Backend`."""

    name = "docker"
    takes = frozenset({"docker_hosts", "platform", "registry", "runtime"})
    builds_images = True
    shares_network = False

    def __str__(self) -> str:
        label = self._label()
        details = [f"runtime {self.settings.runtime}"] if self.settings.runtime else []
        details += [str(self.settings.platform)] if self.settings.platform else []
        return ", ".join([label, *details])

    def _label(self) -> str:
        """Return its name, with the context of Docker's that says where its engine is."""
        try:
            context = find_address().context
        except ConfigurationError:  # that is what its first use meets
            context = ""
        return f"{self.name} on {context}" if context else self.name

    def requested(self) -> str | None:
        """Return nothing where a runtime is given, and no root file system."""
        is_for_docker = self.settings.runtime is not None and self.settings.rootfs is None
        return "" if is_for_docker else None

    def problem(self) -> str:
        """Return why its engine cannot be used here, or nothing."""
        try:
            address = find_address()
        except ConfigurationError as error:
            return str(error)
        if not address.is_local:
            return ""  # it was set up by hand; if it does not answer, that is an error
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(_PING_TIMEOUT)
                probe.connect(address.url.removeprefix("unix://"))
                probe.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
                if b" 200 " in probe.recv(64):
                    return ""
        except PermissionError:
            return f"no permission to use the Docker engine {address.label}"
        except OSError:
            pass
        return f"no Docker engine answers {address.label}"

    def check(self, options: Mapping[str, str]) -> None:
        """See that the engine has the runtime, and that it reaches the registry."""
        values = {"runtime": self.settings.runtime, "registry": self.settings.registry}
        for field, value in values.items():
            if value is None or field not in options:
                continue
            from pytest_intercode.sandboxes.docker.engine import connect

            with contextlib.suppress(EngineUnavailable), contextlib.closing(connect()) as link:
                problem = self._find_problem(link.api, field, value)
                if problem:
                    raise ConfigurationError(f"{options[field]}={value}: {problem}")

    @staticmethod
    def _find_problem(api: APIClient, field: str, value: str) -> str:
        if field == "runtime":
            from pytest_intercode.sandboxes.docker.engine import runtime_problem

            return runtime_problem(api.info(), value)
        from pytest_intercode.sandboxes.docker.registry import Registry

        return Registry(api, value).problem()

    def platform(self) -> Platform:
        """Return the platform of its engine, which is asked for it.

        Raises:
            EngineUnavailable: it does not answer.
        """
        from pytest_intercode.sandboxes.docker.engine import connect
        from pytest_intercode.sandboxes.docker.platforms import engine_platform

        with contextlib.closing(connect()) as link, link.explained_failures():
            return engine_platform(link.probe.info())

    def start(self, events: BackendEvents) -> None:
        """Connect to the engine, and remove what earlier runs left behind there."""
        from pytest_intercode.sandboxes.docker.engine import DockerEngine
        from pytest_intercode.sandboxes.docker.images import DockerImages

        engine = DockerEngine(runtime=self.settings.runtime)
        self.engine = engine
        swept = engine.sweep()
        if swept:
            events.report(f"removed {swept} containers that an earlier run left behind")
        self.images = DockerImages(engine.api, self.settings, events.report_build, engine.platform)


class DockerHostsBackend(DockerBackend):
    """The Docker engines of several hosts as one."""

    def _label(self) -> str:
        return f"{self.name} on {', '.join(host.name for host in self.settings.hosts)}"

    def requested(self) -> str | None:
        """Return nothing: hosts are given."""
        return ""

    def problem(self) -> str:
        """Return nothing: `check` asks each host, and the run goes on with those that answer."""
        return ""

    def check(self, options: Mapping[str, str]) -> None:
        """See that all hosts answer, and can do what sandboxes need."""
        if "docker_hosts" not in options:
            return
        from pytest_intercode.sandboxes.docker.hosts import check_hosts

        settings, option = self.settings, options["docker_hosts"]
        check_hosts(settings.hosts, settings.runtime, option, settings.registry)
        if settings.readonly:
            for host in settings.hosts:
                if not find_address(host.name).is_local:
                    raise ConfigurationError(
                        f"{option}={host.name}: an agent that lives in the sandbox needs engines "
                        "on this machine (unix://)"
                    )

    def platform(self) -> Platform:
        """Return the platform of its hosts, which is the same for all (see ``check``).

        Raises:
            EngineUnavailable: none of them answers.
        """
        from pytest_intercode.sandboxes.docker.link import Link
        from pytest_intercode.sandboxes.docker.platforms import engine_platform

        for host in self.settings.hosts:
            with contextlib.suppress(ConfigurationError, EngineUnavailable):
                link = Link(find_address(host.name))
                with contextlib.closing(link), link.explained_failures():
                    return engine_platform(link.probe.info())
        raise EngineUnavailable("no Docker host answers")

    def start(self, events: BackendEvents) -> None:
        """Connect to the hosts."""
        from pytest_intercode.sandboxes.docker.hosts import DockerHosts

        self.engine = self.images = DockerHosts(self.settings, events)


def find_images(names: Iterable[str]) -> set[str] | None:
    """Return which of these images the engine has; None where none answers."""
    from pytest_intercode.sandboxes.docker.engine import connect
    from pytest_intercode.sandboxes.docker.images import layers_of

    try:
        with contextlib.closing(connect()) as link:
            return {name for name in names if layers_of(link.api, name)}
    except EngineUnavailable:
        return None
