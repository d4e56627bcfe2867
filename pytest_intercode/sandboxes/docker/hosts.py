"""Several Docker engines, used as one: sandboxes are spread over hosts with the same images.

A host has a share according to its slots. A host that stops answering loses its share and its idle
sandboxes, and gets the share back when it answers again; for what ran there, the infrastructure is
at fault. An image is made on the first host and copied to the others, or pulled from a registry by
all, so that agent and gold never act in different images.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import (
    ConfigurationError,
    EngineUnavailable,
    ImageError,
    InfrastructureError,
    SandboxError,
)
from pytest_intercode.sandboxes.backend import BackendEvents
from pytest_intercode.sandboxes.docker.address import find_address
from pytest_intercode.sandboxes.docker.engine import runtime_problem
from pytest_intercode.sandboxes.docker.host import PROBE_INTERVAL, Host, HostGroup
from pytest_intercode.sandboxes.docker.images import DockerImages, copy_image, layers_of
from pytest_intercode.sandboxes.docker.link import Link
from pytest_intercode.sandboxes.docker.platforms import engine_platform
from pytest_intercode.sandboxes.docker.podman import REMOTE_PODMAN, is_podman
from pytest_intercode.sandboxes.docker.registry import Registry
from pytest_intercode.sandboxes.docker.sharing import shares_machine
from pytest_intercode.sandboxes.images import ImageFact
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.settings import DockerHost, SandboxSettings
from pytest_intercode.system.forks import MakingProcess

__all__ = ["DockerHosts", "check_hosts"]

_START_TIMEOUT = 30.0  # seconds that a start waits for any host, once none answers


def check_hosts(
    hosts: Sequence[DockerHost], runtime: str | None, option: str, registry: str | None = None
) -> None:
    """Check that each host answers and can do what sandboxes need.

    Args:
        hosts: the hosts.
        runtime: the runtime that is to start sandboxes; None for the engines' own.
        option: the option with which the user gave the hosts, for messages.
        registry: the registry that all hosts have to reach; None for none.

    Raises:
        ConfigurationError: one does not, two are the same engine, or their kinds differ.
    """

    def ask(host: DockerHost) -> Mapping[str, Any] | str:
        try:
            address = find_address(host.name)
            with contextlib.closing(Link(address)) as link, link.explained_failures():
                facts: Mapping[str, Any] = link.probe.info()
                problem = runtime_problem(facts, runtime) if runtime else ""
                if registry and not problem:
                    problem = Registry(link.api, registry).problem()
            remote = is_podman(facts) and not shares_machine(address, facts)
            return problem or (REMOTE_PODMAN if remote else facts)
        except (ConfigurationError, EngineUnavailable) as error:
            return str(error)

    with ThreadPoolExecutor(max(1, len(hosts)), thread_name_prefix="intercode-hosts") as threads:
        answers = list(threads.map(ask, hosts))
    names = [host.name for host in hosts]
    engine_names: dict[tuple[str, ...], str] = {}
    kinds: dict[str, str] = {}
    for host, facts in zip(hosts, answers, strict=True):
        setting = f"{option}={host.name}"
        if isinstance(facts, str):
            raise ConfigurationError(f"{setting}: {facts}")
        first_name = engine_names.setdefault(_identity(facts), host.name)
        if first_name != host.name or names.count(host.name) > 1:
            raise ConfigurationError(
                f"{setting}: this is the same engine as {first_name}; name each host once"
            )
        kinds.setdefault(_kind(facts), host.name)
    if len(kinds) > 1:
        words = ", ".join(f"{kind} at {name}" for kind, name in kinds.items())
        raise ConfigurationError(
            f"{option}: hosts must be of one kind, because they share images: {words}"
        )


def _identity(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return values that differ between engines; Podman makes up a new id for each request."""
    engine_id = "" if is_podman(facts) else str(facts.get("ID"))
    return engine_id, str(facts.get("Name")), str(facts.get("DockerRootDir"))


def _kind(facts: Mapping[str, Any]) -> str:
    system = str(facts.get("OSType") or "linux")
    return str(engine_platform(facts)).replace("linux", system, 1)


class DockerHosts(HostGroup):
    """All hosts of a run: a launcher of sandboxes, and the images for them.

    Args:
        settings: where sandboxes come from, with at least one host.
        events: the callbacks for progress, and for lost sandboxes.

    Raises:
        InfrastructureError: no host answers.
        ConfigurationError: a context does not exist.
    """

    def __init__(self, settings: SandboxSettings, events: BackendEvents) -> None:
        super().__init__(settings, events)
        self._sources: dict[str, ImageSource] = {}
        self._pinned: dict[str, str] = {}
        self._process = MakingProcess()
        self.hosts = [Host(self, host) for host in settings.hosts]
        try:
            self._connect()
        except BaseException:
            self.close()
            raise
        for host in self.hosts:
            host.start_threads()

    def _connect(self) -> None:
        problems: list[tuple[Host, InfrastructureError]] = []

        def connect(host: Host) -> None:
            try:
                host.connect()
                host.begin()
            except InfrastructureError as error:
                problems.append((host, error))

        with ThreadPoolExecutor(len(self.hosts), thread_name_prefix="intercode-hosts") as threads:
            list(threads.map(connect, self.hosts))
        if len(problems) == len(self.hosts):
            host, error = problems[0]
            raise EngineUnavailable(f"no Docker host answers: {host.name}: {error}")
        for host, error in problems:
            self.report(f"Docker host {host.name} has no share yet: {error}")

    @property
    def starters(self) -> int:
        """How many simultaneous starts are useful for all hosts together."""
        return sum(host.engine.starters for host in self.hosts if host.engine is not None)

    # -- sandboxes

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox on the host with the most room; on another one if that fails.

        Raises:
            SandboxError: no host can start it, or none answers.
        """
        failures: dict[Host, SandboxError] = {}
        while True:
            host = self._choose_host(spec, failures)
            if host is None:
                raise next(iter(failures.values()))
            try:
                container = host.launch(spec)
            except SandboxError as error:
                # A host that is gone is left out from now on: try another one, or wait for one.
                if host.probe():
                    failures[host] = SandboxError(f"{error} (Docker host {host.name})")
            else:
                # Another host could start it, so the image and the spec are not at fault.
                for failed_host, fault in failures.items():
                    failed_host.record_failure(str(fault))
                return container
            finally:
                with self.changed:
                    host.starting -= 1

    def _choose_host(self, spec: SandboxSpec, failures: Iterable[Host]) -> Host | None:
        """Return the host for a sandbox, and count the start on it; None if all were tried.

        Raises:
            SandboxError: no host can have it.
        """
        problems = [host.unsuitable(spec) for host in self.hosts]
        suited = [host for host, problem in zip(self.hosts, problems, strict=True) if not problem]
        if not suited:
            raise SandboxError(problems[0])
        with self.changed:
            while not self.closed.is_set():
                candidates = [host for host in suited if host.up and host not in failures]
                # Hosts whose starts fail are left out, unless there are no others.
                current_time = time.monotonic()
                fresh = [
                    host for host in candidates if host.cooldown_until <= current_time
                ] or candidates
                ready = [host for host in fresh if host.has_images(spec)]
                if ready:
                    least_loaded = min(ready, key=lambda host: host.load(spec))
                    least_loaded.starting += 1
                    return least_loaded
                if candidates:
                    # The image is on its way, unless no host can have it.
                    refusals = [host.refusal(spec) for host in fresh]
                    if all(refusals):
                        if failures:
                            return None
                        raise SandboxError(refusals[0])
                    self.changed.wait(PROBE_INTERVAL)
                    continue
                if failures:
                    return None
                remaining = self.lost_at + _START_TIMEOUT - current_time
                if remaining <= 0:
                    names = ", ".join(host.name for host in suited)
                    raise SandboxError(f"no Docker host answers: {names}")
                self.changed.wait(min(remaining, PROBE_INTERVAL))
        raise SandboxError("the run is over")

    # -- images

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        """Return the name of an image, made on the first host that answers and can make it."""
        failed: dict[Host, InfrastructureError] = {}
        while True:
            host = self._choose_builder(failed)
            if host is None:
                raise next(iter(failed.values()))
            images = host.images
            assert images is not None
            try:
                name = images.resolve(source, purpose)
            except InfrastructureError as error:
                if host.probe():
                    failed[host] = error
                continue
            pinned = images.pinned(name)
            with self.changed:
                self._sources[name] = source
                self._pinned[name] = pinned
                host.ready_images.add(name)
                for other_host in self.hosts:
                    if other_host.up:
                        other_host.request_image(name)
            return name

    def describe(self, source: ImageSource, *, built: bool = True) -> Iterator[ImageFact]:
        """Yield what is known of images on the host that would make them."""
        return self._images_of_builder().describe(source, built=built)

    def pull(self, source: ImageSource) -> None:
        """Pull an image, or the images that it is built from, on the host that would make it."""
        self._images_of_builder().pull(source)

    def find_published(self, fact: ImageFact) -> tuple[str, ...]:
        """Return the platforms for which its registry has an image, as seen from that host."""
        return self._images_of_builder().find_published(fact)

    def _images_of_builder(self) -> DockerImages:
        host = self._choose_builder(())
        assert host is not None, "none has failed"
        images = host.images
        assert images is not None, "it answers"
        return images

    def pinned(self, name: str) -> str:
        """Return the permanent name of an image in its registry, or nothing."""
        return self._pinned.get(name, "")

    def identity(self, name: str) -> str:
        """Return nothing: each host may have made its own image."""
        return ""

    def stop_builds(self) -> None:
        """End the builds and pulls that are under way on all hosts."""
        for host in self.hosts:
            if host.images is not None:
                host.images.stop_builds()

    def _choose_builder(self, failed: Iterable[Host]) -> Host | None:
        """Return the first host that answers and has not failed; None if all that answer failed.

        Raises:
            EngineUnavailable: no host answers.
        """
        with self.changed:
            while not self.closed.is_set():
                running = [host for host in self.hosts if host.up]
                if running:
                    return next((host for host in running if host not in failed), None)
                remaining = self.lost_at + _START_TIMEOUT - time.monotonic()
                if remaining <= 0:
                    break
                self.changed.wait(remaining)
        raise EngineUnavailable("no Docker host answers")

    def give_image(self, host: Host, image: str) -> None:
        """See :meth:`HostGroup.give_image`."""
        assert host.engine is not None
        with self.changed:
            donors = [
                other_host
                for other_host in self.hosts
                if other_host.up and image in other_host.ready_images
            ]
            source = self._sources.get(image)
        for donor in donors:
            try:
                self._give_image_of(donor, host, image, source)
                return
            except Exception:
                if donor.probe():
                    raise
                # It went down in between: another host may have the image, or it is made here.
        if source is not None and host.images is not None:
            host.images.resolve(source)
        elif not layers_of(host.engine.api, image):
            raise ImageError(f"there is no image {image}")

    def _give_image_of(
        self, donor: Host, host: Host, image: str, source: ImageSource | None
    ) -> None:
        """Make sure that a host has the image that another host has."""
        assert host.engine is not None
        assert donor.engine is not None
        donor_layers = layers_of(donor.engine.api, image)
        if layers_of(host.engine.api, image) == donor_layers:
            return
        pinned = self.pinned(image)
        registry = self.settings.registry
        if registry and host.images is not None and pinned.startswith(f"{registry}/"):
            try:
                host.images.take(image, pinned)
            except ImageError as error:
                self.report(f"{host.name}: {pinned} cannot be pulled: {error}")
            if layers_of(host.engine.api, image) == donor_layers:
                return
        if source is not None and source.image and not source.layers and host.images is not None:
            with contextlib.suppress(ImageError):  # a registry may be nearer than we are
                host.images.resolve(source)
            if layers_of(host.engine.api, image) == donor_layers:
                return
        if self.settings.verbosity >= 0:
            self.report_building(f"copying {image} from {donor.name} to {host.name} (first use)")
        copy_image(donor.engine.api, host.engine.api, image)
        if layers_of(host.engine.api, image) != donor_layers:
            raise ImageError(f"the copy of {image} differs from that of {donor.name}")

    def close(self) -> None:
        """End every sandbox on every host."""
        if not self._process.is_this:
            return
        self.closed.set()
        with self.changed:
            self.changed.notify_all()
        with ThreadPoolExecutor(len(self.hosts), thread_name_prefix="intercode-close") as threads:
            list(threads.map(lambda host: host.close(), self.hosts))
