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
    most_starters,
    runtime_problem,
)
from pytest_intercode.sandboxes.docker.images import Images, copy_image, layers_of
from pytest_intercode.sandboxes.docker.podman import REMOTE_PODMAN, is_podman
from pytest_intercode.sandboxes.docker.registry import Registry
from pytest_intercode.sandboxes.hosts import DockerHost
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec

__all__ = ["DockerHosts", "check_hosts"]

_INTERVAL = 2.0  # seconds between two looks at a host
_TRIES = 2  # a machine that is very busy may need the second
_AT_ONCE = 0.1  # seconds in which all connections of an engine that died are closed
_WAITING = 30.0  # seconds that a start waits for any host, once none answers
_FAULTS = 3  # starts in a row that fail on one host and not on another, until it is left out
_PAUSE = 60.0  # seconds for which it is
_SLOTS_PER_CPU = 4  # an agent waits for its model most of the time
_USABLE = 0.8  # of a host's memory
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

    def told(host: DockerHost) -> Mapping[str, Any] | str:
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
        found = list(threads.map(told, hosts))
    known: dict[tuple[str, ...], str] = {}
    kinds: dict[str, str] = {}
    for host, facts in zip(hosts, found, strict=True):
        shown = f"{option}={host.name}"
        if isinstance(facts, str):
            raise ConfigurationError(f"{shown}: {facts}")
        other = known.setdefault(_identity(facts), host.name)
        if other != host.name or [each.name for each in hosts].count(host.name) > 1:
            raise ConfigurationError(
                f"{shown}: this is the same engine as {other}; name each host once"
            )
        kinds.setdefault(_kind(facts), host.name)
    if len(kinds) > 1:
        words = ", ".join(f"{kind} at {name}" for kind, name in kinds.items())
        raise ConfigurationError(
            f"{option}: hosts have to be of one kind, as they have the same images: {words}"
        )


def _identity(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what two engines do not have in common; Podman invents its id at each question."""
    own = "" if is_podman(facts) else str(facts.get("ID"))
    return own, str(facts.get("Name")), str(facts.get("DockerRootDir"))


def _kind(facts: Mapping[str, Any]) -> str:
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = str(facts.get("Architecture"))
    return f"{facts.get('OSType') or 'linux'}/{names.get(machine, machine)}"


def _slots(facts: Mapping[str, Any]) -> int:
    """Return how many sandboxes suit an engine, by its processors and its memory."""
    by_cpus = _SLOTS_PER_CPU * int(facts.get("NCPU") or 1)
    by_memory = int(_USABLE * int(facts.get("MemTotal") or 0)) // _ANY.memory
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
        self._told = False
        super().__init__(*args, **kwargs)
        self.place = host.name

    def outside_cause(self) -> str:
        """Return what is the cause of a fault, if it lies outside of the sandbox."""
        # Seen to now, so that nothing is tried again on a host that is gone.
        if not self.host.look() or self.lost:
            return f"the Docker host {self.host.name} was lost"
        return super().outside_cause()

    def _blamed(self, error: SandboxError) -> Any:
        if not self._acted and not self._told:
            self._told = True
            self.host.look()
        return super()._blamed(error)

    def close(self) -> None:
        """End the container and everything in it."""
        super().close()
        self.host.gone(self)


class _Host:
    """One host of a run.

    Args:
        hosts: all of them.
        written: what the user wrote.

    Attributes:
        name: what the user calls it.
        up: it answers.
        ready: images that it has, and that are those of the others.
        bringing: images that are being brought to it.
        refused: images that it cannot have, and why.
        starting: how many sandboxes are being started there.
        rests: until when nothing is started there, as starts fail.
    """

    def __init__(self, hosts: DockerHosts, written: DockerHost) -> None:
        self._hosts = hosts
        self.name = written.name
        self._slots = written.slots
        self.slots = written.slots or 1
        self.address: Address = find_address(written.name)
        self.link: Link | None = None
        self.engine: DockerEngine | None = None
        self.images: Images | None = None
        self.up = False
        self.ready: set[str] = set()
        self.bringing: set[str] = set()
        self.refused: dict[str, str] = {}
        self.starting = 0
        self.rests = 0.0
        self._faults = 0
        self._boxes: set[_Container] = set()
        self._looking = threading.Lock()
        self._looked = 0.0
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
            self.engine.starters = most_starters(int(self.engine.facts.get("NCPU") or 1))
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
            self.ready, self.refused = set(), {}
            self.rests, self._faults = 0.0, 0
            self.up = True
            self._hosts.changed.notify_all()

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox there."""
        assert self.engine is not None
        box = self.engine.launch(spec)
        assert isinstance(box, _Container)
        with self._hosts.changed:
            self._boxes.add(box)
            self._faults = 0
        return box

    def gone(self, box: _Container) -> None:
        """Note that a sandbox has ended."""
        with self._hosts.changed:
            self._boxes.discard(box)

    def blame(self, why: str) -> None:
        """Note that a start failed there which did not fail elsewhere."""
        with self._hosts.changed:
            self._faults += 1
            if self._faults < _FAULTS or self.rests > time.monotonic():
                return
            self.rests = time.monotonic() + _PAUSE
        self._hosts.report(
            f"Docker host {self.name}: {_FAULTS} starts failed that other hosts made; it is left "
            f"out for {_PAUSE:.0f} seconds ({why})"
        )

    def load(self, spec: SandboxSpec) -> tuple[int, float, float]:
        """Return how much there is to do, to be compared with other hosts'."""
        # Servers of ours share the work best with one on each host.
        servers = [box.spec for box in self._boxes if box.spec.mounts] if spec.mounts else []
        like = sum(other.image == spec.image for other in servers)
        return like, (len(self._boxes) + self.starting + 1) / self.slots, random.random()

    def suits(self, spec: SandboxSpec) -> bool:
        """Whether such a sandbox can be there: a limited network needs the engine's own machine."""
        return self.address.is_local or not spec.limits.hosts

    # -- whether it answers

    def look(self) -> bool:
        """See whether it answers, and drop what it has lost; return whether it does."""
        asked = time.monotonic()
        with self._looking:
            if self._looked > asked:  # another thread has looked meanwhile
                return self.up
            why = self._trouble()
            self._looked = time.monotonic()
        if why:
            self._down(why)
        elif self._ended.wait(_AT_ONCE):
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
                self.look()
                continue
            with contextlib.suppress(InfrastructureError):
                if self.link is None:
                    self.connect()
                elif self._trouble():
                    continue
                self.begin()
                self._hosts.report(f"Docker host {self.name} answers again")

    def _trouble(self) -> str:
        """Return why it does not answer, or nothing."""
        if self.link is None:
            return "it was never reached"
        why = ""
        for _ in range(_TRIES):
            try:
                with link_failure(self.link):
                    self.link.ask()
                return ""
            except EngineUnavailable as error:
                why = str(error)
        return why

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
                    if not self._hosts.closed.wait(_AT_ONCE):
                        self.look()
            self._hosts.closed.wait(_AT_ONCE)

    def _down(self, why: str) -> None:
        with self._hosts.changed:
            if not self.up:
                return
            self.up = False
            others = sum(each.up for each in self._hosts.hosts)
            self._hosts.fell = time.monotonic()
            self._hosts.changed.notify_all()
        left = f"{others} of {len(self._hosts.hosts)} hosts go on" if others else "none is left"
        self._hosts.report(
            f"Docker host {self.name} does not answer any more ({why}): its sandboxes are lost, "
            f"{left}"
        )
        self._drop_lost()
        self._hosts.drop(lambda box: isinstance(box, _Container) and box.host is self)

    def _drop_lost(self) -> None:
        """Note which sandboxes have lost their engine, and drop those that were idle."""
        with self._hosts.changed:
            for box in self._boxes:
                box.lost = box.lost or box.hung_up()
        self._hosts.drop(lambda box: isinstance(box, _Container) and box.lost)

    # -- images

    def bring(self, image: str) -> None:
        """Have an image brought there in the background; with the lock held."""
        if image not in self.ready and image not in self.bringing and image not in self.refused:
            self.bringing.add(image)
            threading.Thread(
                target=self._bring, args=(image,), name="intercode-image", daemon=True
            ).start()

    def _bring(self, image: str) -> None:
        why = ""
        try:
            with self._copying:  # one at a time is as fast
                self._hosts.give(self, image)
        except Exception as error:
            why = " ".join(str(error).split())
        with self._hosts.changed:
            self.bringing.discard(image)
            if not why:
                self.ready.add(image)
            else:
                self.refused[image] = why
            self._hosts.changed.notify_all()
        if why and self.up and not self._hosts.closed.is_set() and self.look():
            self._hosts.report(f"Docker host {self.name} cannot have the image {image}: {why}")

    def close(self) -> None:
        """End what it runs of ours."""
        with contextlib.suppress(Exception):
            if self._events is not None:
                self._events.close()
        for thread in self._threads:
            thread.join(_AT_ONCE * 10)
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
        fell: when the last host was lost.

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
        self.fell = time.monotonic()
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
        tried: dict[_Host, SandboxError] = {}
        while True:
            host = self._chosen(spec, tried)
            if host is None:
                raise next(iter(tried.values()))
            try:
                box = host.launch(spec)
            except SandboxError as error:
                if host.look():
                    tried[host] = SandboxError(f"{error} (Docker host {host.name})")
            else:
                for other, fault in tried.items():
                    other.blame(str(fault))
                return box
            finally:
                with self.changed:
                    host.starting -= 1

    def _chosen(self, spec: SandboxSpec, tried: Iterable[_Host]) -> _Host | None:
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
                up = [host for host in suited if host.up and host not in tried]
                now = time.monotonic()
                fresh = [host for host in up if host.rests <= now] or up
                for host in fresh:
                    host.bring(spec.image)
                ready = [host for host in fresh if spec.image in host.ready]
                if ready:
                    found = min(ready, key=lambda host: host.load(spec))
                    found.starting += 1
                    return found
                if up:
                    refusing = [host.refused.get(spec.image) for host in fresh]
                    if all(refusing):
                        if tried:
                            return None
                        raise SandboxError(f"{spec.image}: {refusing[0]}")
                    self.changed.wait(_INTERVAL)
                    continue
                if tried:
                    return None
                left = self.fell + _WAITING - now
                if left <= 0:
                    names = ", ".join(host.name for host in suited)
                    raise SandboxError(f"no Docker host answers: {names}")
                self.changed.wait(min(left, _INTERVAL))
        raise SandboxError("the run is over")

    # -- images

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        """Return the name of an image, made on the first host that answers and can make it.

        Raises:
            ImageError: it cannot be built or found there.
        """
        failed: dict[_Host, InfrastructureError] = {}
        while True:
            host = self._first(failed)
            if host is None:
                raise next(iter(failed.values()))
            images = host.images
            assert images is not None
            try:
                name = images.resolve(source, purpose)
            except InfrastructureError as error:
                if host.look():
                    failed[host] = error
                continue
            pinned = images.pinned(name)
            with self.changed:
                self._sources[name] = source
                self._pinned[name] = pinned
                host.ready.add(name)
                for other in self.hosts:
                    if other.up:
                        other.bring(name)
            return name

    def pinned(self, name: str) -> str:
        """Return what names an image in its registry for ever, or nothing."""
        return self._pinned.get(name, "")

    def identity(self, name: str) -> str:
        """Return nothing: each host may have made an image of its own."""
        return ""

    def stop_builds(self) -> None:
        """End the builds and pulls that are under way on all hosts."""
        for host in self.hosts:
            if host.images is not None:
                host.images.stop_builds()

    def _first(self, failed: Iterable[_Host]) -> _Host | None:
        """Return the first host that answers and has not failed; None if all that answer have.

        Raises:
            EngineUnavailable: none answers.
        """
        with self.changed:
            while not self.closed.is_set():
                up = [host for host in self.hosts if host.up]
                if up:
                    return next((host for host in up if host not in failed), None)
                left = self.fell + _WAITING - time.monotonic()
                if left <= 0:
                    break
                self.changed.wait(left)
        raise EngineUnavailable("no Docker host answers")

    def give(self, host: _Host, image: str) -> None:
        """Make sure that a host has an image, and the one that other hosts have.

        Raises:
            Exception: it cannot be had; whatever the engine or its client says.
        """
        assert host.engine is not None
        with self.changed:
            donors = [other for other in self.hosts if other.up and image in other.ready]
            source = self._sources.get(image)
        if not donors:
            if source is not None and host.images is not None:
                host.images.resolve(source)
            elif not layers_of(host.engine.api, image):
                raise ImageError(f"there is no image {image}")
            return
        theirs = donors[0].engine
        assert theirs is not None
        wanted = layers_of(theirs.api, image)
        if layers_of(host.engine.api, image) == wanted:
            return
        pinned = self.pinned(image)
        if self.registry and host.images is not None and pinned.startswith(f"{self.registry}/"):
            try:
                host.images.take(image, pinned)
            except ImageError as error:
                self.report(f"{host.name}: {pinned} cannot be pulled: {error}")
            if layers_of(host.engine.api, image) == wanted:
                return
        if source is not None and source.image and not source.layers and host.images is not None:
            with contextlib.suppress(ImageError):  # a registry may be nearer than we are
                host.images.resolve(source)
            if layers_of(host.engine.api, image) == wanted:
                return
        if self.verbosity >= 0:
            self.report_building(
                f"copying {image} from {donors[0].name} to {host.name} (first use)"
            )
        copy_image(theirs.api, host.engine.api, image)
        if layers_of(host.engine.api, image) != wanted:
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
