"""Docker as a backend: the engine that the environment names, or the engines of several hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pytest_intercode.core.facts import Fact
from pytest_intercode.core.platforms import Platform
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.sandboxes.backend import Backend, BackendEvents, EngineBackend
from pytest_intercode.sandboxes.docker.address import DEFAULT_SOCKET, find_address
from pytest_intercode.sandboxes.docker.places import ping
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.platform import IS_LINUX

if TYPE_CHECKING:
    from docker import APIClient

    from pytest_intercode.sandboxes.docker.link import Link
    from pytest_intercode.sandboxes.images import DescribedImages

__all__ = ["DockerBackend", "DockerHostsBackend", "make_docker", "open_images"]

_PING_TIMEOUT = 5.0  # seconds


def make_docker(settings: SandboxSettings) -> Backend:
    """Return the backend for one engine, or the backend for hosts if some are given."""
    return DockerHostsBackend(settings) if settings.docker_hosts else DockerBackend(settings)


@contextlib.contextmanager
def open_images(settings: SandboxSettings) -> Iterator[DescribedImages]:
    """Provide the engine's images within a context; nothing is started.

    Raises:
        EngineUnavailable: the engine does not answer.
    """
    from pytest_intercode.sandboxes.docker.engine import connect
    from pytest_intercode.sandboxes.docker.images import DockerImages

    with contextlib.closing(connect()) as link, link.explained_failures():
        yield DockerImages(link.api, settings)


class DockerBackend(EngineBackend):
    """One Docker engine; see :class:`~pytest_intercode.sandboxes.backend.Backend`."""

    name = "docker"
    takes = frozenset({"docker_hosts", "platform", "registry", "runtime"})
    builds_images = True
    shares_network = False

    @cached_property
    def has_services(self) -> bool:
        """Whether one of its engines isolates networks; those of Podman lead to its machine."""
        answers = list(self._ask_for_podman())
        return not answers or not all(answers)  # an engine that does not answer fails later

    def _ask_for_podman(self) -> Iterator[bool]:
        """Ask each engine that answers whether it is Podman's."""
        from pytest_intercode.sandboxes.docker.podman import is_podman

        for connect in self._connectors():
            with (
                contextlib.suppress(EngineUnavailable),
                contextlib.closing(connect()) as link,
                link.explained_failures(),
            ):
                yield is_podman(link.probe.info())

    def _connectors(self) -> list[Callable[[], Link]]:
        """Return the functions that connect to each engine."""
        from pytest_intercode.sandboxes.docker.engine import connect

        return [connect]

    def __str__(self) -> str:
        label = self._label()
        details = [f"runtime {self.settings.runtime}"] if self.settings.runtime else []
        details += [str(self.settings.platform)] if self.settings.platform else []
        return ", ".join([label, *details])

    def _label(self) -> str:
        """Return its name, with its engine if that is not the usual one."""
        try:
            return f"{self.name} {find_address().origin}".rstrip()
        except ConfigurationError:  # its first use will report it
            return self.name

    def requested(self) -> str | None:
        """Return an empty reason if a runtime is given, and no root file system."""
        is_for_docker = self.settings.runtime is not None and self.settings.rootfs is None
        return "" if is_for_docker else None

    def problem(self) -> str:
        """Return why its engine cannot be used here, or nothing."""
        try:
            address = find_address()
        except ConfigurationError as error:
            return str(error)
        if not address.is_socket:
            return ""  # it was set up by the user; if it does not answer, that is an error
        if address.place and IS_LINUX:
            # The user has not named it, and on Linux `auto` can use bubblewrap, which needs no
            # engine.
            return (
                f"no Docker engine answers at unix://{DEFAULT_SOCKET}, only {address.place} at "
                f"{address.url}"
            )
        answer = ping(address.url.removeprefix("unix://"), _PING_TIMEOUT)
        if answer == "permission":
            return f"no permission to use the Docker engine {address.label}"
        return f"no Docker engine answers {address.label}" if answer else ""

    def describe(self, problem: str) -> Iterable[Fact]:
        """Return facts about its engine, which is only asked, not changed."""
        from pytest_intercode.sandboxes.docker.facts import describe_engine, describe_problem

        if problem:
            return [describe_problem(self.name, problem)]
        return describe_engine(self.name, "", self.settings.runtime)

    def check(self, options: Mapping[str, str]) -> None:
        """Check that the engine has the runtime, and that it reaches the registry."""
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
        """Return the platform of its engine, by asking the engine.

        Raises:
            EngineUnavailable: the engine does not answer.
        """
        from pytest_intercode.sandboxes.docker.engine import connect
        from pytest_intercode.sandboxes.docker.platforms import engine_platform

        with contextlib.closing(connect()) as link, link.explained_failures():
            return engine_platform(link.probe.info())

    def start(self, events: BackendEvents) -> None:
        """Connect to the engine, and remove what earlier runs left there."""
        from pytest_intercode.sandboxes.docker.engine import DockerEngine
        from pytest_intercode.sandboxes.docker.images import DockerImages

        engine = DockerEngine(runtime=self.settings.runtime)
        self.engine = engine
        swept = engine.sweep()
        if swept:
            events.report(f"removed {swept} containers that an earlier run left behind")
        self.images = DockerImages(engine.api, self.settings, events.report_build, engine.platform)


class DockerHostsBackend(DockerBackend):
    """The Docker engines of several hosts, used as one."""

    def _connectors(self) -> list[Callable[[], Link]]:
        from pytest_intercode.sandboxes.docker.link import Link

        return [partial(Link, find_address(host.name)) for host in self.settings.hosts]

    def _label(self) -> str:
        return f"{self.name} on {', '.join(host.name for host in self.settings.hosts)}"

    def requested(self) -> str | None:
        """Return an empty reason: hosts are given."""
        return ""

    def problem(self) -> str:
        """Return nothing: `check` asks each host, and the run continues with those that answer."""
        return ""

    def describe(self, problem: str) -> Iterable[Fact]:
        """Return facts about the engine of each host, which are asked in parallel."""
        from pytest_intercode.sandboxes.docker.facts import describe_engine

        def describe_host(name: str) -> list[Fact]:
            return list(describe_engine(f"{self.name} {name}", name, self.settings.runtime))

        names = [host.name for host in self.settings.hosts]
        with ThreadPoolExecutor(len(names), thread_name_prefix="intercode-hosts") as threads:
            return [fact for facts in threads.map(describe_host, names) for fact in facts]

    def check(self, options: Mapping[str, str]) -> None:
        """Check that all hosts answer, and can do what sandboxes need."""
        if "docker_hosts" not in options:
            return
        from pytest_intercode.sandboxes.docker.hosts import check_hosts

        settings, option = self.settings, options["docker_hosts"]
        check_hosts(settings.hosts, settings.runtime, option, settings.registry)

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
