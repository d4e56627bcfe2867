"""One of several Docker engines: its share of the sandboxes, and whether it answers."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pytest_intercode.core.task import Limits
from pytest_intercode.errors import EngineUnavailable, InfrastructureError, SandboxError
from pytest_intercode.sandboxes.backend import BackendEvents
from pytest_intercode.sandboxes.docker.address import Address, find_address
from pytest_intercode.sandboxes.docker.container import NOT_HERE, Container
from pytest_intercode.sandboxes.docker.engine import (
    NO_SERVICES,
    RUN_LABEL,
    DockerEngine,
    max_starters,
)
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.docker.link import Link
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.settings import DockerHost, SandboxSettings

__all__ = ["PROBE_INTERVAL", "Host", "HostGroup"]

PROBE_INTERVAL = 2.0
"""Seconds between two checks of a host."""

_MAX_TRIES = 2  # a very busy machine may need the second
_NOTICE_TIMEOUT = 0.1  # seconds within which all connections of an engine that died are closed
_MAX_FAULTS = 3  # consecutive starts that fail on one host but not on another; then it is left out
_COOLDOWN = 60.0  # seconds for which it is left out
_SLOTS_PER_CPU = 4  # an agent waits for its model most of the time
_USABLE_MEMORY = 0.8  # share of a host's memory
_ANY = Limits()


def _count_slots(facts: Mapping[str, Any]) -> int:
    """Return how many sandboxes an engine can run well, by its processors and its memory."""
    by_cpus = _SLOTS_PER_CPU * int(facts.get("NCPU") or 1)
    by_memory = int(_USABLE_MEMORY * int(facts.get("MemTotal") or 0)) // _ANY.memory
    return max(1, min(by_cpus, by_memory))


class HostGroup:
    """What the hosts of a run share.

    Args:
        settings: where sandboxes come from.
        events: receives lines for the user, and closes idle sandboxes that are lost.

    Attributes:
        settings: where sandboxes come from.
        events: the callbacks.
        hosts: the hosts.
        changed: guards the state of all hosts; notified of every change.
        closed: the run is over.
        lost_at: when the last host was lost, on the monotonic clock.
    """

    def __init__(self, settings: SandboxSettings, events: BackendEvents) -> None:
        self.settings = settings
        self.events = events
        self.hosts: list[Host] = []
        self.changed = threading.Condition(threading.RLock())
        self.closed = threading.Event()
        self.lost_at = time.monotonic()

    def report(self, line: str) -> None:
        """Show a line of progress."""
        if not self.closed.is_set():
            self.events.report(line)

    def report_building(self, line: str) -> None:
        """Show a line of progress for an image."""
        if not self.closed.is_set():
            self.events.report_build(line)

    def give_image(self, host: Host, image: str) -> None:
        """Make sure that a host has an image, and that it is the same as on other hosts.

        Raises:
            Exception: the image is not available; this is any error of the engine or its client.
        """
        raise NotImplementedError


class _Container(Container):
    """A container that has its host checked when it fails.

    Attributes:
        machine: the host that it is on.
        lost: its connection ended together with its engine's.
    """

    def __init__(self, host: Host, *args: Any, **kwargs: Any) -> None:
        self.machine = host
        self.lost = False
        self._probed = False
        super().__init__(*args, **kwargs)
        self.host = host.name

    def outside_cause(self) -> str:
        """Return the cause of a fault, if it is outside of the sandbox."""
        # Check the host now, so that nothing is tried again on a host that is gone.
        if not self.machine.probe() or self.lost:
            return f"the Docker host {self.machine.name} was lost"
        return super().outside_cause()

    def _classify(self, error: SandboxError) -> Any:
        if not self._acted and not self._probed:
            self._probed = True
            self.machine.probe()
        return super()._classify(error)

    def close(self) -> None:
        """End the container and everything in it."""
        super().close()
        self.machine.forget(self)


class Host:
    """One host of a run.

    Args:
        group: shared by all hosts.
        setting: the host as the user wrote it.

    Attributes:
        name: the user's name for it.
        up: it answers.
        ready_images: images that it has, and that are the same as on the other hosts.
        coming_images: images that are being copied to it, or pulled.
        refused_images: images that it cannot have, with the reasons.
        starting: how many sandboxes are being started there.
        cooldown_until: when starts are tried there again, after several failed.
    """

    def __init__(self, group: HostGroup, setting: DockerHost) -> None:
        self._group = group
        self.name = setting.name
        self._slots = setting.slots
        self.slots = setting.slots or 1
        self.address: Address = find_address(setting.name)
        self.engine: DockerEngine | None = None
        self.images: DockerImages | None = None
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
        self._ended = threading.Event()  # the connections to the engine have ended
        self._events: Any = None
        self._threads: list[threading.Thread] = []

    # -- what a host does

    def connect(self) -> None:
        """Connect to its engine.

        Raises:
            InfrastructureError: the engine does not answer, or cannot do what sandboxes need.
        """
        make = partial(_Container, self)
        engine = DockerEngine(Link(self.address), self._group.settings.runtime, make)
        try:
            engine.starters = max_starters(int(engine.facts.get("NCPU") or 1))
            with contextlib.suppress(SandboxError):
                engine.sweep()
            self.slots = self._slots or _count_slots(engine.facts)
        except BaseException:
            engine.close()
            raise
        self.engine = engine

    def begin(self) -> None:
        """Take a share of the sandboxes from now on."""
        assert self.engine is not None
        self.images = DockerImages(
            self.engine.api,
            self._group.settings,
            lambda line: self._group.report_building(f"{self.name}: {line}"),
            self.engine.platform,
        )
        self.engine.forget_images()
        with self._group.changed:
            self.ready_images, self.refused_images = set(), {}
            self.cooldown_until, self._faults = 0.0, 0
            self.up = True
            self._group.changed.notify_all()

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox on this host."""
        assert self.engine is not None
        container = self.engine.launch(spec)
        assert isinstance(container, _Container)
        with self._group.changed:
            self._containers.add(container)
            self._faults = 0
        return container

    def forget(self, container: _Container) -> None:
        """Note that a sandbox has ended."""
        with self._group.changed:
            self._containers.discard(container)

    def record_failure(self, problem: str) -> None:
        """Note that a start failed on this host that succeeded on another one."""
        with self._group.changed:
            self._faults += 1
            if self._faults < _MAX_FAULTS or self.cooldown_until > time.monotonic():
                return
            self.cooldown_until = time.monotonic() + _COOLDOWN
        self._group.report(
            f"Docker host {self.name}: {_MAX_FAULTS} starts failed here, but not on other hosts; "
            f"it is not used for {_COOLDOWN:.0f} seconds ({problem})"
        )

    def load(self, spec: SandboxSpec) -> tuple[int, float, float]:
        """Return how busy the host is, for comparison with other hosts."""
        # Our servers share the work best if there is one on each host.
        servers = [container.spec for container in self._containers if container.spec.mounts]
        similar = sum(server.image == spec.image for server in servers) if spec.mounts else 0
        return similar, (len(self._containers) + self.starting + 1) / self.slots, random.random()

    def unsuitable(self, spec: SandboxSpec) -> str:
        """Return why a sandbox cannot be on this host, or nothing."""
        if spec.host not in ("", self.name):
            return f"it has to be on {spec.host}"
        # A host that never answered is not chosen anyway, so assume that it may be this machine.
        is_local = self.address.is_socket if self.engine is None else self.engine.is_local
        if spec.limits.hosts and not is_local:
            return f"limited network on Docker: {NOT_HERE} (docs/sandbox.md)"
        if spec.is_connected and self.engine is not None and not self.engine.has_services:
            return NO_SERVICES
        return ""

    def has_images(self, spec: SandboxSpec) -> bool:
        """Whether the host has all images of a sandbox; request the missing ones.

        Call this with the lock held.
        """
        for image in spec.images - self.ready_images:
            self.request_image(image)
        return spec.images <= self.ready_images

    def refusal(self, spec: SandboxSpec) -> str:
        """Return why the host cannot have one of the images of a sandbox, or nothing."""
        refused = (image for image in sorted(spec.images) if image in self.refused_images)
        return next((f"{image}: {self.refused_images[image]}" for image in refused), "")

    # -- whether it answers

    def probe(self) -> bool:
        """Check whether it answers, and drop what it has lost; return whether it does."""
        asked_at = time.monotonic()
        with self._probing:
            if self._probed_at > asked_at:  # another thread has asked it since
                return self.up
            problem = self._find_problem()
            self._probed_at = time.monotonic()
        if problem:
            self._mark_down(problem)
        elif self._ended.wait(_NOTICE_TIMEOUT):  # it answers, but was restarted in between
            self._drop_lost()
        return self.up

    def start_threads(self) -> None:
        """Begin to watch the host."""
        for work in (self.watch, self.listen):
            thread = threading.Thread(target=work, name="intercode-host", daemon=True)
            thread.start()
            self._threads.append(thread)

    def watch(self) -> None:
        """Watch the host until the run is over."""
        while not self._group.closed.wait(PROBE_INTERVAL):
            if self.up:
                self.probe()
                continue
            with contextlib.suppress(InfrastructureError):
                if self.engine is None:
                    self.connect()
                elif self._find_problem():
                    continue
                self.begin()
                self._group.report(f"Docker host {self.name} answers again")

    def _find_problem(self) -> str:
        """Return why the host does not answer, or nothing."""
        if self.engine is None:
            return "it was never reached"
        problem = ""
        for _ in range(_MAX_TRIES):
            try:
                self.engine.link.ask()
                return ""
            except EngineUnavailable as error:
                problem = str(error)
        return problem

    def listen(self) -> None:
        """Notice immediately when the engine ends, as its stream of events ends with it."""
        while not self._group.closed.is_set():
            if self.up and self.engine is not None:
                with contextlib.suppress(Exception):  # whichever error the SDK raises at the end
                    # No container matches, as only the end of the stream matters.
                    nothing = {"label": f"{RUN_LABEL}.events={self.engine.run}"}
                    self._events = self.engine.api.events(filters=nothing)
                    # An end that was noted before belongs to an earlier stream.
                    self._ended.clear()
                    try:
                        for _ in self._events:
                            pass
                    finally:
                        self._ended.set()
                        self._events._response.close()  # or its socket stays open
                    if not self._group.closed.wait(_NOTICE_TIMEOUT):
                        self.probe()
            self._group.closed.wait(_NOTICE_TIMEOUT)

    def _mark_down(self, problem: str) -> None:
        with self._group.changed:
            if not self.up:
                return
            self.up = False
            running = sum(host.up for host in self._group.hosts)
            self._group.lost_at = time.monotonic()
            self._group.changed.notify_all()
        count = len(self._group.hosts)
        remaining = f"{running} of {count} hosts remain" if running else "no host remains"
        self._group.report(
            f"Docker host {self.name} no longer answers ({problem}): its sandboxes are lost, "
            f"{remaining}"
        )
        self._drop_lost()
        self._drop_idle(lambda container: container.machine is self)

    def _drop_lost(self) -> None:
        """Note which sandboxes have lost their engine, and drop the idle ones."""
        with self._group.changed:
            for container in self._containers:
                container.lost = container.lost or container.hung_up()
        self._drop_idle(lambda container: container.lost)

    def _drop_idle(self, is_lost: Callable[[_Container], bool]) -> None:
        """Close our idle sandboxes for which a function returns true."""
        self._group.events.drop(
            lambda sandbox: isinstance(sandbox, _Container) and is_lost(sandbox)
        )

    # -- images

    def request_image(self, image: str) -> None:
        """Have an image brought to this host in the background; call this with the lock held."""
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
        # Keep these sets: a host that goes down and comes back begins with new, empty ones.
        ready_images, refused_images = self.ready_images, self.refused_images
        try:
            with self._copying:  # several simultaneous copies are not faster
                self._group.give_image(self, image)
        except Exception as error:
            problem = " ".join(str(error).split())
        with self._group.changed:
            self.coming_images.discard(image)
            if not problem:
                ready_images.add(image)
            else:
                refused_images[image] = problem
            self._group.changed.notify_all()
        if problem and self.up and not self._group.closed.is_set() and self.probe():
            self._group.report(f"Docker host {self.name} cannot get the image {image}: {problem}")

    def close(self) -> None:
        """End everything that the host runs for us."""
        with contextlib.suppress(Exception):
            if self._events is not None:
                self._events.close()
        for thread in self._threads:
            thread.join(_NOTICE_TIMEOUT * 10)
        if self.engine is not None:
            self.engine.close(answers=self.up)
