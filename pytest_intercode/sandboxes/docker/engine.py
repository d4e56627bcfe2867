"""The Docker engine as a launcher of sandboxes, and the removal of what earlier runs left."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pytest_intercode.errors import ConfigurationError, EngineUnavailable, SandboxError, suggestion
from pytest_intercode.sandboxes.attached import GUARD
from pytest_intercode.sandboxes.docker.address import Address, find_address
from pytest_intercode.sandboxes.docker.container import Container, host_config
from pytest_intercode.sandboxes.docker.errors import NoEngine, client_errors, plain
from pytest_intercode.sandboxes.docker.link import Link
from pytest_intercode.sandboxes.docker.places import list_places
from pytest_intercode.sandboxes.docker.platforms import (
    engine_platform,
    image_info,
    image_platform,
    platform_of_name,
)
from pytest_intercode.sandboxes.docker.podman import REMOTE_PODMAN, Podman, is_podman
from pytest_intercode.sandboxes.docker.reaper import Reaper, remove_all, remove_container
from pytest_intercode.sandboxes.docker.services import ServiceGroup
from pytest_intercode.sandboxes.docker.sharing import shares_machine
from pytest_intercode.sandboxes.docker.streams import AttachedStreams
from pytest_intercode.sandboxes.docker.volumes import Volumes, remove_old_volumes
from pytest_intercode.sandboxes.egress.process import Proxy
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.system.forks import MakingProcess
from pytest_intercode.system.platform import IS_LINUX, is_dead, owner_name

__all__ = [
    "NO_SERVICES",
    "RUN_LABEL",
    "DockerEngine",
    "connect",
    "limits_problem",
    "max_starters",
    "runtime_problem",
]

RUN_LABEL = "pytest-intercode.run"
OWNER_LABEL = "pytest-intercode.owner"

NO_SERVICES = "services of tasks need Docker's engine, but this one is Podman"
"""Why a sandbox with services cannot be started."""

_OTHER_BACKEND = (
    "; or install bubblewrap (on Debian and Ubuntu: apt-get install bubblewrap) and give "
    "--intercode-sandbox=bubblewrap"
    if IS_LINUX
    else ""
)


def max_starters(cpus: int) -> int:
    """Return how many simultaneous starts are useful for an engine with so many processors."""
    # With two processors, four starts are as fast as six or eight, where each only takes longer.
    return min(8, max(2, 2 * cpus))


STARTERS = max_starters(os.cpu_count() or 2)


def connect() -> Link:
    """Return the clients of the engine that ``docker`` uses here; see :func:`find_address`.

    Raises:
        EngineUnavailable: no engine answers there, its socket may not be opened, or Docker's
            current context cannot be used.
    """
    _refuse_recorder()
    try:
        address = find_address()
    except ConfigurationError as error:  # for callers, this means that nothing can start
        raise EngineUnavailable(f"no Docker engine: {error}") from None
    try:
        return Link(address)
    except NoEngine as error:
        raise EngineUnavailable(
            f"{error}{_describe_search(address)}. Start it (how it is installed is at "
            f"docs.docker.com/engine/install), or set DOCKER_HOST{_OTHER_BACKEND}"
        ) from None


def _describe_search(address: Address) -> str:
    """Describe where else an engine was looked for, if it was."""
    was_named = address.context or os.environ.get("DOCKER_HOST")
    places = "" if was_named else list_places()
    return f"; nor at {places}" if places else ""


def runtime_problem(facts: Mapping[str, Any], name: str) -> str:
    """Return why an engine cannot start containers with a runtime, or nothing.

    Args:
        facts: what the engine reports about itself.
        name: the runtime.
    """
    runtimes = sorted(facts.get("Runtimes") or {})
    # A name with dots is that of a program, containerd-shim-NAME, which newer engines find by name.
    if name in runtimes or "." in name:
        return ""
    runtimes = [name for name in runtimes if "." not in name]
    return (
        f"the Docker engine has no such runtime.{suggestion(name, runtimes)} Available: "
        f"{', '.join(runtimes)}. To add others, edit its daemon.json, as docs/isolation.md shows"
    )


def limits_problem(facts: Mapping[str, Any]) -> str:
    """Return which limits an engine does not set, or nothing.

    Such an engine is refused: a fork bomb would fill the whole machine.

    Args:
        facts: what the engine reports about itself.
    """
    unlimited = [
        resource
        for resource, key in (("memory", "MemoryLimit"), ("processes", "PidsLimit"))
        if facts.get(key) is False
    ]
    if not unlimited:
        return ""
    return (
        f"the Docker engine does not limit {' and '.join(unlimited)}, like a rootless one whose "
        "control groups are of version 1 or are not delegated to its user (docs/isolation.md). "
        "Use another engine, or --intercode-sandbox=bubblewrap"
    )


def _refuse_recorder() -> None:
    """Refuse to reach the engine through vcrpy, whose connection stub never answers."""
    if "vcr" in sys.modules and http.client.HTTPConnection.__module__.startswith("vcr"):
        raise EngineUnavailable(
            "vcrpy records the Docker engine's own connections too. Give vcr_config "
            '"skip_patchers": ["httplib", "requests", "urllib3"], as in docs/rescoring.md'
        )


class _DelayedEnds:
    """Delays the ends of containers while others start: an end costs half as much as a start.

    Nothing waits for an end. A waiting container is empty, and uses no more than an idle sandbox.
    """

    _MAX_WAITING, _MAX_DELAY = 32, 3.0  # containers that wait at a time; seconds

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starting = 0
        self._waiting: deque[tuple[float, AttachedStreams]] = deque()

    @contextlib.contextmanager
    def after_start(self) -> Iterator[None]:
        """Let containers wait while one is started."""
        with self._lock:
            self._starting += 1
        try:
            yield
        finally:
            with self._lock:
                self._starting -= 1
            self.end_due()

    def end(self, streams: AttachedStreams) -> None:
        """Close the streams of a container, now or soon, which ends the container."""
        with self._lock:
            self._waiting.append((time.monotonic() + self._MAX_DELAY, streams))
        self.end_due()

    def end_due(self, *, every: bool = False) -> None:
        """End the containers that need not wait any more, or all of them."""
        while True:
            with self._lock:
                many = every or not self._starting or len(self._waiting) > self._MAX_WAITING
                if not self._waiting or not (many or self._waiting[0][0] <= time.monotonic()):
                    return
                _, streams = self._waiting.popleft()
            streams.close()


class DockerEngine:
    """Starts sandboxes in containers; there is one for each pytest process.

    Args:
        link: the clients of the engine, which are closed with this; by default those of the engine
            that ``docker`` uses here.
        runtime: the runtime that starts containers; None for the engine's own.
        make: makes a sandbox from a container.

    Attributes:
        link: the clients of the engine.
        api: the client for requests that may take a while.
        run: the value of the label that marks this process's containers.
        starters: how many simultaneous starts are useful for the engine.
        is_local: the engine has this machine's kernel and files.
        facts: what the engine reports about itself.
        platform: the engine's own platform.
        has_services: the engine can start the services of a sandbox.

    Raises:
        EngineUnavailable: no engine answers, it sets no limits, or it does not have the runtime.
    """

    starters = STARTERS

    def __init__(
        self,
        link: Link | None = None,
        runtime: str | None = None,
        make: Callable[..., Container] = Container,
    ) -> None:
        self._make = make
        self.link = link or connect()
        self.api = self.link.api
        self.runtime = runtime
        try:
            self._podman = self._check_facts()
            self.has_services = self._podman is None
        except BaseException:
            self.link.close()
            raise
        self.run = secrets.token_hex(6)
        self._labels = {RUN_LABEL: self.run, OWNER_LABEL: owner_name(os.getpid())}
        self._label = f"{RUN_LABEL}={self.run}"
        self._image_ids: dict[str, str] = {}
        self._volumes = Volumes(self.api, self._labels)
        self._reaper = Reaper(self._label, self.link.address)
        self._process = MakingProcess()
        self._egress = Proxy()
        self._endings = _DelayedEnds()
        self._removers = ThreadPoolExecutor(2, thread_name_prefix="intercode-services")

    def _check_facts(self) -> Podman | None:
        """Check that the engine can do what sandboxes need; return an adapter if it is Podman."""
        with _engine_errors("the engine"):
            facts = self.facts = self.api.info()
        self.is_local = shares_machine(self.link.address, facts)
        problem = limits_problem(facts)
        if problem:
            raise EngineUnavailable(problem)
        self.platform = engine_platform(facts)
        problem = runtime_problem(facts, self.runtime) if self.runtime else ""
        if problem:
            raise EngineUnavailable(f"runtime {self.runtime}: {problem}")
        if not is_podman(facts):
            return None
        if not self.is_local:
            raise EngineUnavailable(REMOTE_PODMAN)
        return Podman(facts)

    def launch(self, spec: SandboxSpec) -> Container:
        """Create, attach and start a container.

        Raises:
            SandboxError: the engine refused, or the keeper did not answer.
            EngineUnavailable: vcrpy stands between us and the engine.
        """
        _refuse_recorder()
        with self._endings.after_start():
            return self._create_and_start(spec)

    def _end_with_services(
        self, container_id: str, services: ServiceGroup, streams: AttachedStreams
    ) -> None:
        """End a container and its services, without waiting."""
        streams.close()
        with contextlib.suppress(RuntimeError):  # the engine is closing, and removes everything
            self._removers.submit(services.close, container_id)

    def _create_and_start(self, spec: SandboxSpec) -> Container:
        group: ServiceGroup | None = None
        if spec.is_connected:
            group = self._services(spec)
        container_id, container = "", None
        try:
            with _engine_errors(f"the services of {spec.image}"):
                if group is not None:
                    group.parts.begin()
                    group.start()
            container_id = self._create(spec, group)
            if group is not None:
                with _engine_errors(f"a container of {spec.image}"):
                    group.parts.connect_own(container_id)
            container = self._start(spec, container_id)
            if not spec.scratch:  # the memory of such a folder must not stay in use
                container.let_go = self._endings.end
            if group is not None:
                container.services = group
                container.let_go = partial(self._end_with_services, container_id, group)
                with _engine_errors(f"the services of {spec.image}"):
                    group.wait()
            return container
        except BaseException:
            if container is not None:
                container.close()  # with its services
            elif group is not None:
                group.close(container_id)
            raise

    def _services(self, spec: SandboxSpec) -> ServiceGroup:
        """Return what a sandbox has besides its container; nothing of it exists yet."""
        if not self.has_services:
            raise SandboxError(NO_SERVICES)

        def limit(spec: SandboxSpec) -> dict[str, Any]:
            return host_config(self.api, spec, self.runtime)

        create = self._create_container
        return ServiceGroup(self.api, spec, self._labels, self._image_id, create, limit)

    def _create(self, spec: SandboxSpec, group: ServiceGroup | None) -> str:
        """Create a container; return its id."""
        from docker.types import Healthcheck

        with _engine_errors(f"a container of {spec.image}"):
            host = self._host_config(spec)
            if group is not None:
                settings = group.parts.own_settings()
                host |= {**settings, "Binds": [*(host.get("Binds") or ()), *settings["Binds"]]}
            config = self.api.create_container_config(
                self._image_id(spec.image),
                entrypoint=[*(GUARD if spec.guarded else ()), "bash"],
                command=[],
                stdin_open=True,
                tty=False,
                detach=False,  # detach=True would silently close the input after one client
                user="0:0",
                working_dir="/",
                # Loopback comes up nevertheless, and a start takes half the time that it takes with
                # only the network mode `none`.
                network_disabled=not (spec.limits.network or spec.is_connected),
                hostname=spec.hostname,
                # An image's own check would run the agent's programs while the end state is read.
                healthcheck=Healthcheck(test=["NONE"]),
                environment={**_network_variables(spec), **dict(spec.variables)},
                labels=self._labels,
                networking_config=group.parts.own_endpoints() if group else None,  # type: ignore[arg-type]
                host_config=host,  # type: ignore[arg-type]
            )
            return self._create_container(config, spec.image)

    def _create_container(self, config: Any, image: str) -> str:
        """Create a container; an engine may store one image per platform under the same id."""
        platform = platform_of_name(image) if self._names_platforms else None
        created = self.api.create_container_from_config(  # type: ignore[no-untyped-call]
            config, platform=None if platform is None else str(platform)
        )
        return str(created["Id"])

    def _start(self, spec: SandboxSpec, container_id: str) -> Container:
        """Attach to a container, and start it."""
        try:
            with _engine_errors(f"a container of {spec.image}"):
                # Before the start: what the keeper writes before a client is attached is lost.
                attached = self.api.attach_socket(
                    container_id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
                )
                streams = AttachedStreams(attached)
                try:
                    self.api.start(container_id)
                    runtime = self.runtime or (self._podman.runtime if self._podman else None)
                    local = self.is_local
                    container = self._make(
                        self.api, container_id, streams, spec, runtime, local=local
                    )
                    if spec.limits.hosts:
                        container.limit_network(self._egress, container.open_sockets)
                    return container
                except BaseException:
                    streams.close()
                    raise
        except SandboxError as error:
            self._remove(container_id)
            hint = self._start_hint(spec.image, str(error))
            raise SandboxError(f"{spec.image} does not start as a sandbox{hint}: {error}") from None
        except BaseException:
            self._remove(container_id)
            raise

    @property
    def _names_platforms(self) -> bool:
        """Whether a container can be created for a platform; older engines have one per id."""
        from docker.utils import version_gte

        return bool(version_gte(self.api.api_version, "1.41"))

    def _start_hint(self, image: str, message: str) -> str:
        """Return what may be wrong with an image whose container does not start."""
        if "executable file not found" in message:
            return " (it needs bash and setpriv)"
        with contextlib.suppress(*client_errors()):
            platform = platform_of_name(image) or image_platform(image_info(self.api, image))
            if platform is not None and self.platform.has_to_emulate(platform):
                return (
                    f" (it is for {platform}, and the engine is {self.platform}; does it emulate "
                    "that? See 'Another processor' in docs/suites.md)"
                )
        return ""

    def _image_id(self, name: str) -> str:
        """Return the id of an image, which stays the same as long as this engine is used.

        A tag may be moved in between, and then agent and gold would act in different images.
        """
        if name not in self._image_ids:
            image = self.api.inspect_image(name)  # type: ignore[no-untyped-call]
            # If several threads ask simultaneously, the first answer counts for all: the tag may be
            # moved in between.
            self._image_ids.setdefault(name, str(image["Id"]))
        return self._image_ids[name]

    def forget_images(self) -> None:
        """Look up images and volumes again, as the engine may have been restarted."""
        self._image_ids.clear()
        self._volumes.forget()

    def _host_config(self, spec: SandboxSpec) -> dict[str, Any]:
        volumes: dict[str, str] | None = None
        if not self.is_local:
            volumes = {
                outside: self._volumes.name(outside, self._image_id(spec.image))
                for outside, _ in spec.readonly
            }
        config = host_config(self.api, spec, self.runtime, volumes)
        return self._podman.adapted(config) if self._podman else config

    def sweep(self) -> int:
        """Remove the containers of runs that died, and old volumes; count the containers."""
        removed = 0
        with _engine_errors("the list of containers"):
            removed, _ = remove_all(
                self.api, RUN_LABEL, lambda labels: is_dead(labels.get(OWNER_LABEL, ""))
            )
            if not self.is_local:
                remove_old_volumes(self.api)
        return removed

    def close(self, *, answers: bool = True) -> None:
        """Remove what still runs; dismiss the reaper unless something cannot be removed yet.

        Args:
            answers: the engine is expected to answer; else everything is left to the reaper.
        """
        if not self._process.is_this:
            return  # a forked child must not end its parent's sandboxes
        self._endings.end_due(every=True)
        # What is cancelled here is removed below, by the label that all of it has.
        self._removers.shutdown(wait=answers, cancel_futures=True)
        gone = False
        with contextlib.suppress(Exception):
            if not answers:
                raise EngineUnavailable("it is asked nothing, as it would not answer")
            rows = self.api.containers(all=True, filters={"label": self._label})
            with ThreadPoolExecutor(STARTERS, thread_name_prefix="intercode-close") as removers:
                gone = all(removers.map(self._remove, [row["Id"] for row in rows]))
            gone = gone and not remove_all(self.api, self._label)[1]
        if gone:
            self._reaper.dismiss()
        else:
            self._reaper.unleash()
        self._egress.close()
        self.link.close()

    def _remove(self, container_id: str) -> bool:
        """Remove a container; return whether it is gone or being removed."""
        try:
            remove_container(self.api, container_id)
        except client_errors():
            return False
        return True


def _network_variables(spec: SandboxSpec) -> dict[str, str]:
    if not spec.limits.hosts:
        return {}
    from pytest_intercode.sandboxes.egress.plan import variables

    return variables()


@contextlib.contextmanager
def _engine_errors(subject: str) -> Iterator[None]:
    """Convert errors of the SDK and its HTTP library to ours."""
    try:
        yield
    except client_errors() as error:
        raise SandboxError(f"{subject}: {plain(error)}") from None
