"""The source of an environment's sandboxes: one backend, its images and its pool, per process."""

from __future__ import annotations

import contextlib
import copy
import itertools
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from pytest_intercode.core.machine import ImageSource, Limits, Services
from pytest_intercode.errors import ConfigurationError, IntercodeError, SandboxError
from pytest_intercode.sandboxes.backend import Backend, BackendEvents
from pytest_intercode.sandboxes.choice import AUTO, Choice, choose, only_with
from pytest_intercode.sandboxes.images import DescribedImages, ReadyImages
from pytest_intercode.sandboxes.pool import RUN_IS_OVER, Pool
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.sandboxes.slots import Slots
from pytest_intercode.sandboxes.stock import MIN_STOCK, Order
from pytest_intercode.system.closing import Closing
from pytest_intercode.system.forks import MakingProcess

__all__ = ["SandboxProvider"]

Result = TypeVar("Result")

_MAX_THREADS = 10_000  # more than ever run, so that waiting work blocks no other
# What a backend does not have if it does not support a setting, in the words of a user.
_LACKS = {
    "docker_hosts": "hosts",
    "kube_context": "contexts",
    "kube_namespace": "namespaces",
    "kube_nodes": "nodes",
    "kube_pull_secrets": "secrets",
    "platform": "platforms",
    "registry": "images",
    "rootfs": "root file system",
    "runtime": "runtimes",
}
# The settings with which a user says what the sandboxes are to run on.
_ASKS = ("docker_hosts", "kube_context", "kube_namespace", "kube_nodes", "kube_pull_secrets")


class _State:
    """The changing state of a provider, which its views share."""

    def __init__(self) -> None:
        self.chosen: tuple[Backend, Choice] | None = None
        self.ready: ReadyImages  # this and the pool are set when it starts
        self.pool: Pool
        self.started = False
        self.closed = False
        self.background: ThreadPoolExecutor | None = None


class SandboxProvider(Closing):
    """Starts the backend when the first sandbox is needed, and ends everything on ``close``.

    It also holds what the environments of one process share: values made once, and threads.
    Everything may be called from any thread.

    Args:
        settings: where sandboxes come from; by default from whatever works here.
        progress: called with one line for each slow step, such as a build. For images that are
            built in the background, it is called in a thread that waits for them.

    Raises:
        ConfigurationError: there is no such backend, or its package cannot be used. With ``auto``,
            no backend is looked for until one is needed.
    """

    def __init__(
        self,
        settings: SandboxSettings | None = None,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._process = MakingProcess("these sandboxes belong", "the environment")
        self.settings = settings or SandboxSettings()
        self._progress = progress
        self._lock = threading.Lock()
        self._state = _State()
        self._choosing = threading.Lock()
        self._lines: deque[str] = deque()  # of images that are made in other threads
        self._token = secrets.token_hex(8)
        self._shared: dict[str, Any] = {}
        self._shared_locks: dict[str, threading.RLock] = {}  # each is held while its value is made
        # Guards the shared values, only briefly. The other lock is held while the backend starts.
        self._sharing = threading.Lock()
        if self.settings.backend != AUTO:
            self._choose()

    def _choose(self) -> tuple[Backend, Choice]:
        with self._choosing:
            if self._state.chosen is None:
                self._state.chosen = choose(self.settings)
            return self._state.chosen

    @property
    def backend(self) -> Backend:
        """The backend, which might not be started yet."""
        return self._choose()[0]

    @property
    def choice(self) -> Choice:
        """The backend's name, and why it was chosen."""
        return self._choose()[1]

    @property
    def readonly(self) -> tuple[tuple[str, str], ...]:
        """The folders of this machine that the sandboxes of agents may read; see the settings."""
        return tuple((outside, inside) for outside, inside in self.settings.readonly)

    @property
    def scratch(self) -> tuple[str, ...]:
        """The folders in memory of these sandboxes; see the settings."""
        return tuple(self.settings.scratch)

    def with_folders(
        self, readonly: Sequence[tuple[str, str]], scratch: Sequence[str]
    ) -> SandboxProvider:
        """Return a view of this provider, whose sandboxes of agents have other folders.

        Both have the same backend, images, pool and shared values, and end together.

        Args:
            readonly: folders of this machine that these sandboxes may read; see the settings.
            scratch: folders in memory of these sandboxes.
        """
        view = copy.copy(self)  # all changing state is in objects that both share
        view.settings = replace(self.settings, readonly=readonly, scratch=scratch)
        return view

    def provides_for(self, environment: object) -> bool:
        """Whether an environment gets its sandboxes from this provider, or from a view of it."""
        provider = getattr(environment, "provider", None)
        return isinstance(provider, SandboxProvider) and provider._state is self._state

    def _start(self) -> None:
        self._process.check()
        if self._state.started:
            return
        with self._lock:
            if self._state.started:
                return
            if self._state.closed:
                raise SandboxError(RUN_IS_OVER)
            settings, backend = self.settings, self.backend
            try:
                backend.start(BackendEvents(self._report, self._report_building, self._drop))
                slots = None if settings.slots is None else Slots(settings.slots, backend.starters)
                self._state.ready = ReadyImages(
                    backend.images, self._lines, self._progress, settings.slots
                )
                pool_size = max(MIN_STOCK, settings.pool_size // settings.processes)
                self._state.pool = Pool(backend, pool_size, slots=slots)
            except BaseException:
                backend.close()
                raise
            self._state.started = True

    def check(self, options: Mapping[str, str]) -> None:
        """Check that the backend supports what the settings ask for.

        If the backend does not answer at all, this does not fail: the first episode reports it.

        Args:
            options: the fields of the settings to check, with the option that the user wrote before
                each value; for messages.

        Raises:
            ConfigurationError: the backend does not, or this provider is closed.
        """
        if self._state.closed:
            raise ConfigurationError("this SandboxProvider is closed; create another one")
        in_use = {name: option for name, option in options.items() if getattr(self.settings, name)}
        if in_use:
            _check(self.backend, self.settings, in_use)

    @property
    def hosts(self) -> int:
        """How many hosts the sandboxes are spread over."""
        return max(1, len(self.settings.docker_hosts))

    def image(self, source: ImageSource) -> str:
        """Return the name of a ready image; wait for it while it is made in the background.

        Raises:
            ImageError: it is not available. The first of the episodes that ask for it is given the
                reason, and the others get an ``ImageMissing``.
            SandboxError: the episode that asks was called off, or the run is over.
            ImageNotReady: this thread does not wait for images; see ``without_waiting``.
        """
        self._start()
        return self._state.ready.name(source)

    def pull_image(self, source: ImageSource) -> None:
        """Pull an image, or the images that it is built from, and build nothing.

        Raises:
            ImageError: it cannot be pulled.
            ConfigurationError: the backend does not pull images itself.
        """
        images = self.described_images
        self._state.ready.pull(source, images)

    @property
    def described_images(self) -> DescribedImages:
        """The images of the backend, which can describe what is here.

        Raises:
            ConfigurationError: the backend cannot.
        """
        self._start()
        images = self.backend.images
        if not isinstance(images, DescribedImages):
            raise ConfigurationError(
                f"the sandbox backend {self.backend.name} does not say which images it has"
            )
        return images

    def _report(self, line: str) -> None:
        if self._progress is not None:
            self._progress(line)

    def _drop(self, is_lost: Callable[[Sandbox], bool]) -> None:
        if self._state.started:
            self._state.pool.drop(is_lost)

    def _report_building(self, line: str) -> None:
        """Keep a line for a thread that waits for an image, as only such a thread may print."""
        self._lines.append(line)
        if self._state.started:
            self._state.ready.wake()

    def pinned_image(self, name: str) -> str:
        """Return the permanent name of an image in its registry (``NAME@sha256:...``), or nothing.

        Args:
            name: what :meth:`image` returned.
        """
        return self.backend.images.pinned(name) if self._state.started else ""

    def identity(self, image: str) -> str:
        """Return what identifies the content of an image, as far as that is known.

        If it is known, it is also valid in other runs; else it is valid for this provider only.

        Args:
            image: what :meth:`image` returned.
        """
        return self.backend.images.identity(image) or f"{image} of {self._token}"

    def expect(self, specs: Iterable[SandboxSpec]) -> None:
        """Start sandboxes before they are asked for; see :meth:`Pool.expect`.

        An ``IntercodeError`` of ``specs`` ends it; the episode that needs the sandbox raises it.
        """
        coming = _until_error(specs)
        first = list(itertools.islice(coming, 1))
        if first or self._state.started:  # without a sandbox to start, no engine is needed
            self._start()
            self._state.pool.expect(itertools.chain(first, coming))

    @property
    def lacks(self) -> bool:
        """Whether it is time to report what will be asked for; see :meth:`expect`."""
        return not self._state.started or self._state.pool.lacks

    def services_problem(self, services: Services, limits: Limits) -> str:
        """Return why a sandbox cannot have services here, in one line, or nothing.

        Args:
            services: its services, if it has any.
            limits: what the sandbox may use.
        """
        if services and limits.hosts:
            return "services, and an agent that may reach only some hosts: allow all hosts, or none"
        if not services or getattr(self.backend, "has_services", False):
            return ""
        return (
            f"services, and {self.backend} has none: use --intercode-sandbox=docker, with "
            "Docker's own engine (not Podman)"
        )

    def order(self, spec: SandboxSpec, *, urgent: bool = True) -> Order:
        """Ask for a fresh sandbox without waiting for it; see :meth:`Pool.order`.

        Raises:
            ConfigurationError: the backend does not start services.
        """
        if problem := self.services_problem(spec.services, spec.limits):
            raise ConfigurationError(f"the task has {problem}")
        self._start()
        return self._state.pool.order(spec, urgent=urgent)

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        """Return a fresh sandbox."""
        return self.order(spec).wait()

    # -- what the environments of one process share

    def background(self, work: Callable[[], Result]) -> Future[Result]:
        """Run work in a thread of its own, immediately."""
        self._process.check()
        with self._sharing:
            if self._state.closed:
                raise SandboxError(RUN_IS_OVER)
            if self._state.background is None:
                self._state.background = ThreadPoolExecutor(_MAX_THREADS, "intercode-background")
            return self._state.background.submit(work)

    def share(self, name: str, make: Callable[[], Result]) -> Result:
        """Return a value that the environments of a process share; ``close`` closes it, if it can.

        Args:
            name: the name under which it is shared.
            make: makes the value, the first time; other callers with the same name wait for it.
        """
        self._process.check()
        with self._sharing:
            lock = self._shared_locks.setdefault(name, threading.RLock())
        with lock:
            if name not in self._shared:
                value = make()
                with self._sharing:
                    closed = self._state.closed
                    if not closed:
                        self._shared[name] = value
                if closed:
                    _close(value)
                    raise SandboxError(RUN_IS_OVER)
            result: Result = self._shared[name]
            return result

    # -- the end

    def close(self) -> None:
        """End every sandbox; may be called twice. Does nothing in a forked child."""
        if not self._process.is_this:
            return
        with self._lock, self._sharing:  # a start that is under way ends first, and is closed too
            if self._state.closed:
                return
            self._state.closed = True
        with contextlib.ExitStack() as stack:  # last in, first out; an error in one stops no other
            if self._state.started:
                stack.callback(self.backend.close)
            for value in self._shared.values():
                stack.callback(_close, value)
            if self._state.background is not None:  # closing the pool ends what they wait for
                stack.callback(self._state.background.shutdown, wait=True, cancel_futures=True)
            if self._state.started:
                stack.callback(self._state.pool.close)
                stack.callback(self._state.ready.close)


def _until_error(specs: Iterable[SandboxSpec]) -> Iterator[SandboxSpec]:
    with contextlib.suppress(IntercodeError):
        yield from specs


def _check(backend: Backend, settings: SandboxSettings, options: Mapping[str, str]) -> None:
    """Check that a backend supports the settings that are given; see `SandboxProvider.check`.

    Raises:
        ConfigurationError: it does not.
    """
    for name, option in options.items():
        # With `auto`, a registry is used only where another backend is chosen.
        is_optional = name == "registry" and settings.backend == AUTO
        if name not in backend.takes and name in _LACKS and not is_optional:
            value = getattr(settings, name)
            text = settings.hosts[0].name if name == "docker_hosts" else value
            raise _refusal(name, text, option, backend.name)
    backend.check({name: option for name, option in options.items() if name in backend.takes})


def _refusal(name: str, value: object, option: str, backend: str) -> ConfigurationError:
    """Return the error that a backend does not support a setting, naming those that do.

    Args:
        name: the setting's field.
        value: its value.
        option: the option that the user wrote before it.
        backend: the backend.
    """
    if isinstance(value, Mapping):
        value = tuple(f"{key}={element}" for key, element in value.items())
    text = ",".join(value) if isinstance(value, tuple) else value
    owners = only_with(name)
    verb = "does" if len(owners) == 1 else "do"
    is_hinted = len(owners) == 1 and name in _ASKS
    hint = f", or use --intercode-sandbox={owners[0]}" if is_hinted else ""
    return ConfigurationError(
        f"{option}={text}: {backend} has no {_LACKS[name]}, only {' and '.join(owners)} {verb}; "
        f"remove it{hint}"
    )


def _close(value: Any) -> None:
    if hasattr(value, "close"):
        value.close()
