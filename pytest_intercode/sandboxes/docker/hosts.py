"""Several Docker engines as one: sandboxes are spread over hosts, each with the same images.

A host has a share by its slots. One that stops answering loses it, with what was idle there, and
has it again when it answers; what ran there is the infrastructure's fault. An image is made on the
first host and copied to the others, or pulled from a registry by all, so that agent and gold never
act in different ones.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pytest_intercode.core.forks import MakingProcess
from pytest_intercode.core.task import ImageSource, Limits
from pytest_intercode.errors import (
    ConfigurationError,
    EngineUnavailable,
    ImageError,
    InfrastructureError,
    SandboxError,
)
from pytest_intercode.sandboxes.docker.address import (
    Address,
    Link,
    find_address,
    link_failure,
)
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.docker.engine import (
    RUN_LABEL,
    DockerEngine,
    max_starters,
    runtime_problem,
)
from pytest_intercode.sandboxes.docker.images import Images, copy_image, layers_of
from pytest_intercode.sandboxes.docker.podman import REMOTE_PODMAN, is_podman
from pytest_intercode.sandboxes.docker.registry import Registry
from pytest_intercode.sandboxes.hosts import DockerHost
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec

__all__ = ["DockerHosts", "check_hosts"]

_INTERVAL = 2.0  # seconds between two looks at a host
_MAX_TRIES = 2  # a machine that is very busy may need the second
_NOTICE_TIMEOUT = 0.1  # seconds in which all connections of an engine that died are closed
_START_TIMEOUT = 30.0  # seconds that a start waits for any host, once none answers
_MAX_FAULTS = 3  # starts in a row that fail on one host and not on another, until it is left out
_COOLDOWN = 60.0  # seconds for which it is
_SLOTS_PER_CPU = 4  # an agent waits for its model most of the time
_USABLE_MEMORY = 0.8  # of a host's memory
_ANY = Limits()

Drop = Callable[[Callable[[Sandbox], bool]], None]


def check_hosts(
    hosts: Sequence[DockerHost], runtime: str | None, option: str, registry: str | None = None
) -> None:
    """See that each host answers and can do what sandboxes need.

    Args:
        hosts: the hosts.
        runtime: what sandboxes are to be started with; None for the engines' own.
        option: what the user wrote them after, for messages.
        registry: the registry that all of them have to reach; None for none.

    Raises:
        ConfigurationError: one does not, two are one engine, or they are of different kinds.
    """

    def ask(host: DockerHost) -> Mapping[str, Any] | str:
        try:
            address = find_address(host.name)
            with contextlib.closing(Link(address)) as link, link_failure(link):
                facts: Mapping[str, Any] = link.probe.info()
                problem = runtime_problem(facts, runtime) if runtime else ""
                if registry and not problem:
                    problem = Registry(link.api, registry).problem()
            remote = is_podman(facts) and not address.is_local
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
            f"{option}: hosts have to be of one kind, as they have the same images: {words}"
        )


def _identity(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what two engines do not have in common; Podman invents its id at each question."""
    engine_id = "" if is_podman(facts) else str(facts.get("ID"))
    return engine_id, str(facts.get("Name")), str(facts.get("DockerRootDir"))


def _kind(facts: Mapping[str, Any]) -> str:
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = str(facts.get("Architecture"))
    return f"{facts.get('OSType') or 'linux'}/{names.get(machine, machine)}"


def _slots(facts: Mapping[str, Any]) -> int:
    """Return how many sandboxes suit an engine, by its processors and its memory."""
    by_cpus = _SLOTS_PER_CPU * int(facts.get("NCPU") or 1)
    by_memory = int(_USABLE_MEMORY * int(facts.get("MemTotal") or 0)) // _ANY.memory
    return max(1, min(by_cpus, by_memory))


class _Container(Container):
    """A container that has its host looked after when it fails.

    Attributes:
        host: where it is.
        lost: its connection ended with its engine's.
    """

    def __init__(self, host: _Host, *args: Any, **kwargs: Any) -> None:
        self.host = host
        self.lost = False
        self._probed = False
        super().__init__(*args, **kwargs)
        self.place = host.name

    def outside_cause(self) -> str:
        """Return what is the cause of a fault, if it lies outside of the sandbox."""
        # Seen to now, so that nothing is tried again on a host that is gone.
        if not self.host.probe() or self.lost:
            return f"the Docker host {self.host.name} was lost"
        return super().outside_cause()

    def _classify(self, error: SandboxError) -> Any:
        if not self._acted and not self._probed:
            self._probed = True
            self.host.probe()
        return super()._classify(error)

    def close(self) -> None:
        """End the container and everything in it."""
        super().close()
        self.host.forget(self)


class _Host:
    """One host of a run.

    Args:
        hosts: all of them.
        setting: what the user wrote.

    Attributes:
        name: what the user calls it.
        up: it answers.
        ready_images: images that it has, and that are those of the others.
        coming_images: images that are being brought to it.
        refused_images: images that it cannot have, and why.
        starting: how many sandboxes are being started there.
        cooldown_until: until when nothing is started there, as starts fail.
    """

    def __init__(self, hosts: DockerHosts, setting: DockerHost) -> None:
        self._hosts = hosts
        self.name = setting.name
        self._slots = setting.slots
        self.slots = setting.slots or 1
        self.address: Address = find_address(setting.name)
        self.link: Link | None = None
        self.engine: DockerEngine | None = None
        self.images: Images | None = None
        self.up = False
        self.ready_images: set[str] = set()
        self.coming_images: set[str] = set()
        self.refused_images: dict[str, str] = {}
        self.starting = 0
        self.cooldown_until = 0.0
        self._faults = 0
        self._containers: set[_Container] = set()
        self._probing = threading.Lock()
        self._probed_at = 0.0
        self._copying = threading.Lock()
        self._ended = threading.Event()  # what was connected to the engine has ended
        self._events: Any = None
        self._threads: list[threading.Thread] = []

    # -- what it does

    def connect(self) -> None:
        """Connect to its engine.

        Raises:
            InfrastructureError: it does not answer, or cannot do what sandboxes need.
        """
        link = Link(self.address)
        try:
            make = partial(_Container, self)
            self.engine = DockerEngine(link.api, self._hosts.runtime, link.address, make)
            self.engine.starters = max_starters(int(self.engine.facts.get("NCPU") or 1))
            with contextlib.suppress(SandboxError):
                self.engine.sweep()
        except BaseException:
            link.close()
            raise
        self.link = link
        self.slots = self._slots or _slots(self.engine.facts)

    def begin(self) -> None:
        """Take a share of the sandboxes from now on."""
        assert self.engine is not None
        self.images = Images(
            self.engine.api,
            self._hosts.base_images,
            lambda line: self._hosts.report_building(f"{self.name}: {line}"),
            self._hosts.registry,
            self._hosts.verbosity,
        )
        self.engine.forget_images()
        with self._hosts.changed:
            self.ready_images, self.refused_images = set(), {}
            self.cooldown_until, self._faults = 0.0, 0
            self.up = True
            self._hosts.changed.notify_all()

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox there."""
        assert self.engine is not None
        container = self.engine.launch(spec)
        assert isinstance(container, _Container)
        with self._hosts.changed:
            self._containers.add(container)
            self._faults = 0
        return container

    def forget(self, container: _Container) -> None:
        """Note that a sandbox has ended."""
        with self._hosts.changed:
            self._containers.discard(container)

    def record_failure(self, problem: str) -> None:
        """Note that a start failed there which did not fail elsewhere."""
        with self._hosts.changed:
            self._faults += 1
            if self._faults < _MAX_FAULTS or self.cooldown_until > time.monotonic():
                return
            self.cooldown_until = time.monotonic() + _COOLDOWN
        self._hosts.report(
            f"Docker host {self.name}: {_MAX_FAULTS} starts failed that other hosts made; it is "
            f"left out for {_COOLDOWN:.0f} seconds ({problem})"
        )

    def load(self, spec: SandboxSpec) -> tuple[int, float, float]:
        """Return how much there is to do, to be compared with other hosts'."""
        # Our servers share the work best with one on each host.
        servers = [container.spec for container in self._containers if container.spec.mounts]
        similar = sum(server.image == spec.image for server in servers) if spec.mounts else 0
        return similar, (len(self._containers) + self.starting + 1) / self.slots, random.random()

    def suits(self, spec: SandboxSpec) -> bool:
        """Whether such a sandbox can be there: a limited network needs the engine's own machine."""
        return self.address.is_local or not spec.limits.hosts

    # -- whether it answers

    def probe(self) -> bool:
        """See whether it answers, and drop what it has lost; return whether it does."""
        asked_at = time.monotonic()
        with self._probing:
            if self._probed_at > asked_at:  # another thread has asked it meanwhile
                return self.up
            problem = self._find_problem()
            self._probed_at = time.monotonic()
        if problem:
            self._mark_down(problem)
        elif self._ended.wait(_NOTICE_TIMEOUT):
            self._drop_lost()
        return self.up

    def start_threads(self) -> None:
        """Look after it from now on."""
        for work in (self.watch, self.listen):
            thread = threading.Thread(target=work, name="intercode-host", daemon=True)
            thread.start()
            self._threads.append(thread)

    def watch(self) -> None:
        """Look after it until the run is over."""
        while not self._hosts.closed.wait(_INTERVAL):
            if self.up:
                self.probe()
                continue
            with contextlib.suppress(InfrastructureError):
                if self.link is None:
                    self.connect()
                elif self._find_problem():
                    continue
                self.begin()
                self._hosts.report(f"Docker host {self.name} answers again")

    def _find_problem(self) -> str:
        """Return why it does not answer, or nothing."""
        if self.link is None:
            return "it was never reached"
        problem = ""
        for _ in range(_MAX_TRIES):
            try:
                with link_failure(self.link):
                    self.link.ask()
                return ""
            except EngineUnavailable as error:
                problem = str(error)
        return problem

    def listen(self) -> None:
        """Notice at once that the engine ends: its stream of events ends with it."""
        while not self._hosts.closed.is_set():
            if self.up and self.engine is not None:
                with contextlib.suppress(Exception):  # whatever the SDK makes of an end
                    nothing = {"label": f"{RUN_LABEL}.events={self.engine.run}"}
                    self._events = self.engine.api.events(filters=nothing)
                    self._ended.clear()
                    try:
                        for _ in self._events:
                            pass
                    finally:
                        self._ended.set()
                        self._events._response.close()  # or its socket stays open
                    if not self._hosts.closed.wait(_NOTICE_TIMEOUT):
                        self.probe()
            self._hosts.closed.wait(_NOTICE_TIMEOUT)

    def _mark_down(self, problem: str) -> None:
        with self._hosts.changed:
            if not self.up:
                return
            self.up = False
            running = sum(host.up for host in self._hosts.hosts)
            self._hosts.lost_at = time.monotonic()
            self._hosts.changed.notify_all()
        count = len(self._hosts.hosts)
        remaining = f"{running} of {count} hosts go on" if running else "none remains"
        self._hosts.report(
            f"Docker host {self.name} does not answer any more ({problem}): its sandboxes are "
            f"lost, {remaining}"
        )
        self._drop_lost()
        self._hosts.drop(
            lambda container: isinstance(container, _Container) and container.host is self
        )

    def _drop_lost(self) -> None:
        """Note which sandboxes have lost their engine, and drop those that were idle."""
        with self._hosts.changed:
            for container in self._containers:
                container.lost = container.lost or container.hung_up()
        self._hosts.drop(lambda container: isinstance(container, _Container) and container.lost)

    # -- images

    def request_image(self, image: str) -> None:
        """Have an image brought there in the background; with the lock held."""
        if (
            image not in self.ready_images
            and image not in self.coming_images
            and image not in self.refused_images
        ):
            self.coming_images.add(image)
            threading.Thread(
                target=self._fetch_image, args=(image,), name="intercode-image", daemon=True
            ).start()

    def _fetch_image(self, image: str) -> None:
        problem = ""
        try:
            with self._copying:  # one at a time is as fast
                self._hosts.give_image(self, image)
        except Exception as error:
            problem = " ".join(str(error).split())
        with self._hosts.changed:
            self.coming_images.discard(image)
            if not problem:
                self.ready_images.add(image)
            else:
                self.refused_images[image] = problem
            self._hosts.changed.notify_all()
        if problem and self.up and not self._hosts.closed.is_set() and self.probe():
            self._hosts.report(f"Docker host {self.name} cannot have the image {image}: {problem}")

    def close(self) -> None:
        """End what it runs for us."""
        with contextlib.suppress(Exception):
            if self._events is not None:
                self._events.close()
        for thread in self._threads:
            thread.join(_NOTICE_TIMEOUT * 10)
        if self.engine is not None:
            self.engine.close(answers=self.up)
        if self.link is not None:
            self.link.close()


class DockerHosts:
    """All hosts of a run: a launcher of sandboxes, and the images that they start from.

    Args:
        hosts: the hosts, at least one.
        runtime: what sandboxes are started with; None for the engines' own.
        base_images: replacements of base images.
        progress: called with a line where a host is lost, and for each slow step.
        registry: where images are looked for before they are built, and pushed to.
        building: called with a line for each slow step of an image's, in a thread of its own; by
            default ``progress``.
        verbosity: 1 to have the steps of builds reported as well, -1 for no builds.

    Attributes:
        runtime: what sandboxes are started with.
        base_images: replacements of base images.
        verbosity: what is reported of builds.
        registry: where images are looked for first.
        hosts: the hosts.
        changed: guards what is known of all hosts; notified of every change.
        closed: the run is over.
        drop: closes the idle sandboxes for which a function returns true; the pool's.
        lost_at: when the last host was lost.

    Raises:
        InfrastructureError: none of them answers.
        ConfigurationError: there is no such context.
    """

    def __init__(
        self,
        hosts: Sequence[DockerHost],
        *,
        runtime: str | None = None,
        base_images: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
        registry: str | None = None,
        building: Callable[[str], None] | None = None,
        verbosity: int = 0,
    ) -> None:
        self.runtime = runtime
        self.verbosity = verbosity
        self._building = building or progress
        self.base_images = dict(base_images or {})
        self.registry = registry
        self._progress = progress
        self.changed = threading.Condition(threading.RLock())
        self.closed = threading.Event()
        self.drop: Drop = lambda lost: None
        self.lost_at = time.monotonic()
        self._sources: dict[str, ImageSource] = {}
        self._pinned: dict[str, str] = {}
        self._process = MakingProcess()
        self.hosts = [_Host(self, host) for host in hosts]
        try:
            self._connect()
        except BaseException:
            self.close()
            raise
        for host in self.hosts:
            host.start_threads()

    def _connect(self) -> None:
        problems: list[tuple[_Host, InfrastructureError]] = []

        def connect(host: _Host) -> None:
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
        """How many starts at the same time are good for all hosts together."""
        return sum(host.engine.starters for host in self.hosts if host.engine is not None)

    def report(self, line: str) -> None:
        """Show a line of progress."""
        if self._progress is not None and not self.closed.is_set():
            self._progress(line)

    def report_building(self, line: str) -> None:
        """Show a line of an image's progress."""
        if self._building is not None and not self.closed.is_set():
            self._building(line)

    # -- sandboxes

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox on the host that has most room; elsewhere, if it cannot be had there.

        Raises:
            SandboxError: no host can start it, or none answers.
        """
        failures: dict[_Host, SandboxError] = {}
        while True:
            host = self._choose_host(spec, failures)
            if host is None:
                raise next(iter(failures.values()))
            try:
                container = host.launch(spec)
            except SandboxError as error:
                if host.probe():
                    failures[host] = SandboxError(f"{error} (Docker host {host.name})")
            else:
                for failed_host, fault in failures.items():
                    failed_host.record_failure(str(fault))
                return container
            finally:
                with self.changed:
                    host.starting -= 1

    def _choose_host(self, spec: SandboxSpec, failures: Iterable[_Host]) -> _Host | None:
        """Return the host for a sandbox, one start more on it; None if all were tried.

        Raises:
            SandboxError: there is none for it.
        """
        suited = [host for host in self.hosts if host.suits(spec)]
        if not suited:
            raise SandboxError(
                "limited network on Docker: the engine has to be on this machine (docs/sandbox.md)"
            )
        with self.changed:
            while not self.closed.is_set():
                candidates = [host for host in suited if host.up and host not in failures]
                current_time = time.monotonic()
                fresh = [
                    host for host in candidates if host.cooldown_until <= current_time
                ] or candidates
                for host in fresh:
                    host.request_image(spec.image)
                ready = [host for host in fresh if spec.image in host.ready_images]
                if ready:
                    least_loaded = min(ready, key=lambda host: host.load(spec))
                    least_loaded.starting += 1
                    return least_loaded
                if candidates:
                    refusing = [host.refused_images.get(spec.image) for host in fresh]
                    if all(refusing):
                        if failures:
                            return None
                        raise SandboxError(f"{spec.image}: {refusing[0]}")
                    self.changed.wait(_INTERVAL)
                    continue
                if failures:
                    return None
                remaining = self.lost_at + _START_TIMEOUT - current_time
                if remaining <= 0:
                    names = ", ".join(host.name for host in suited)
                    raise SandboxError(f"no Docker host answers: {names}")
                self.changed.wait(min(remaining, _INTERVAL))
        raise SandboxError("the run is over")

    # -- images

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        """Return the name of an image, made on the first host that answers and can make it.

        Raises:
            ImageError: it cannot be built or found there.
        """
        failed: dict[_Host, InfrastructureError] = {}
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

    def pinned(self, name: str) -> str:
        """Return what names an image in its registry permanently, or nothing."""
        return self._pinned.get(name, "")

    def identity(self, name: str) -> str:
        """Return nothing: each host may have made an image of its own."""
        return ""

    def stop_builds(self) -> None:
        """End the builds and pulls that are under way on all hosts."""
        for host in self.hosts:
            if host.images is not None:
                host.images.stop_builds()

    def _choose_builder(self, failed: Iterable[_Host]) -> _Host | None:
        """Return the first host that answers and has not failed; None if all that answer have.

        Raises:
            EngineUnavailable: none answers.
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

    def give_image(self, host: _Host, image: str) -> None:
        """Make sure that a host has an image, and the one that other hosts have.

        Raises:
            Exception: it cannot be had; whatever the engine or its client says.
        """
        assert host.engine is not None
        with self.changed:
            donors = [
                other_host
                for other_host in self.hosts
                if other_host.up and image in other_host.ready_images
            ]
            source = self._sources.get(image)
        if not donors:
            if source is not None and host.images is not None:
                host.images.resolve(source)
            elif not layers_of(host.engine.api, image):
                raise ImageError(f"there is no image {image}")
            return
        donor_engine = donors[0].engine
        assert donor_engine is not None
        donor_layers = layers_of(donor_engine.api, image)
        if layers_of(host.engine.api, image) == donor_layers:
            return
        pinned = self.pinned(image)
        if self.registry and host.images is not None and pinned.startswith(f"{self.registry}/"):
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
        if self.verbosity >= 0:
            self.report_building(
                f"copying {image} from {donors[0].name} to {host.name} (first use)"
            )
        copy_image(donor_engine.api, host.engine.api, image)
        if layers_of(host.engine.api, image) != donor_layers:
            raise ImageError(f"the copy of {image} is another one than that of {donors[0].name}")

    def close(self) -> None:
        """End every sandbox on every host."""
        if not self._process.is_this:
            return
        self.closed.set()
        with self.changed:
            self.changed.notify_all()
        with ThreadPoolExecutor(len(self.hosts), thread_name_prefix="intercode-close") as threads:
            list(threads.map(lambda host: host.close(), self.hosts))
