"""Where environments get their sandboxes: one backend, its images and its pool, for one process."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_intercode.core.files import bundled_folder
from pytest_intercode.core.forks import MakingProcess
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import (
    ConfigurationError,
    EngineUnavailable,
    IntercodeError,
    SandboxError,
)
from pytest_intercode.sandboxes.choice import Choice, choose
from pytest_intercode.sandboxes.images import Images, ReadyImages
from pytest_intercode.sandboxes.pool import RUN_IS_OVER, Pool
from pytest_intercode.sandboxes.protocol import Launcher, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.slots import Slots
from pytest_intercode.sandboxes.stock import MIN_STOCK, Order

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.hosts import DockerHost

__all__ = ["SandboxProvider", "images_here"]

Result = TypeVar("Result")

_THREADS = 10_000  # more than ever run: work must not be kept from starting by work that waits


class SandboxProvider:
    """Starts the backend when the first sandbox is needed, and ends everything on ``close``.

    Everything may be called from any thread.

    Args:
        base_images: replacements of base images (``--intercode-base-image``).
        progress: called with one line for each slow step, such as a build; for what is built in the
            background, in a thread that waits for it.
        verbosity: 1 to have the steps of builds reported as well, -1 for no builds.
        pool_size: how many sandboxes may be idle at a time. Several processes have a share of it
            each, but at least four.
        processes: how many processes there are that share an engine, this one among them.
        slots: a file that they share, of this machine and of their own; it bounds how many
            sandboxes start at the same time in all of them. It is the callers' to remove.
        sandbox: the backend: ``docker``, ``bubblewrap``, or ``auto`` for the one that is there.
        rootfs: what bubblewrap uses instead of images (``--intercode-rootfs``).
        runtime: what Docker starts sandboxes with (``--intercode-runtime``); None for the engine's
            own. Where one is given, the backend is Docker.
        docker_hosts: the hosts whose Docker engines start the sandboxes
            (``--intercode-docker-host``), each as ``sandboxes.hosts.parse_host`` reads it; none
            for the engine that the environment names. Where one is given, the backend is Docker.
        registry: where our images are looked for before they are built, and pushed to
            (``--intercode-registry``), as ``sandboxes.hosts.parse_registry`` reads it; Docker's.
        hidden: folders that bubblewrap shows to no sandbox, wherever they are.
        readonly: folders of this machine that the sandboxes of agents may read, and so gold's, as
            pairs of a path here and a path inside.
        scratch: their folders in memory; see :class:`SandboxSpec`.
    """

    def __init__(
        self,
        *,
        base_images: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
        verbosity: int = 0,
        pool_size: int = 32,
        processes: int = 1,
        slots: Path | None = None,
        sandbox: str = "auto",
        rootfs: Path | None = None,
        runtime: str | None = None,
        docker_hosts: Iterable[DockerHost | str] = (),
        registry: str | None = None,
        hidden: Iterable[str | os.PathLike[str]] = (),
        readonly: Iterable[tuple[str, str]] = (),
        scratch: Iterable[str] = (),
    ) -> None:
        self.readonly = tuple(readonly)
        self.scratch = tuple(scratch)
        self._wanted = sandbox
        self._rootfs = rootfs
        self._runtime = runtime
        self._hosts = tuple(map(_parsed, docker_hosts))
        self._registry = registry
        self._hidden = [os.fspath(folder) for folder in hidden]
        self._base_images = dict(base_images or {})
        self._progress = progress
        self._verbosity = verbosity
        self._pool_size = max(MIN_STOCK, pool_size // processes)
        self._slots = slots
        self._lock = threading.Lock()
        self._engine: Launcher
        self._images: Images
        self._ready: ReadyImages
        self._lines: deque[str] = deque()  # of images that are made in other threads
        self._started = False
        self._closed = False
        self._process = MakingProcess("these sandboxes belong", "the environment")
        self._shared: dict[str, Any] = {}
        self._shared_locks: dict[str, threading.RLock] = {}  # each is held while its value is made
        self._sharing = threading.Lock()
        self._token = secrets.token_hex(8)
        self._background: ThreadPoolExecutor | None = None

    def _start(self) -> None:
        self._process.check()
        if self._started:
            return
        with self._lock:
            if self._started:
                return
            if self._closed:
                raise SandboxError(RUN_IS_OVER)
            if self.choice.backend == "bubblewrap":
                self._start_bubblewrap()
            elif self._hosts:
                self._start_hosts()
            else:
                self._start_docker()
            slots = None if self._slots is None else Slots(self._slots, self._engine.starters)
            self._ready = ReadyImages(self._images, self._lines, self._progress)
            self._pool = Pool(self._engine, self._pool_size, slots=slots)
            if self._hosts:
                self._engine.drop = self._pool.drop  # type: ignore[attr-defined]
            self._started = True

    def _start_hosts(self) -> None:
        from pytest_intercode.sandboxes.docker.hosts import DockerHosts

        self._engine = self._images = DockerHosts(
            self._hosts,
            runtime=self._runtime,
            base_images=self._base_images,
            progress=self._progress,
            registry=self._registry,
            building=self._report_building,
            verbosity=self._verbosity,
        )

    def _start_docker(self) -> None:
        from pytest_intercode.sandboxes.docker.engine import DockerEngine
        from pytest_intercode.sandboxes.docker.images import Images

        engine = DockerEngine(runtime=self._runtime)
        swept = engine.sweep()
        if swept and self._progress:
            self._progress(f"removed {swept} containers that an earlier run left behind")
        self._images = Images(
            engine.api,
            self._base_images,
            self._report_building,
            self._registry,
            self._verbosity,
        )
        self._engine = engine

    def _start_bubblewrap(self) -> None:
        from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
        from pytest_intercode.sandboxes.bubblewrap.images import Images

        own_folders = [Path(__file__).parents[1], bundled_folder("tasks"), Path.cwd()]
        engine = Bubblewrap([*map(str, own_folders), *self._hidden])
        engine.sweep()
        dockerfiles = bundled_folder("dockerfiles")
        self._images = Images(
            dockerfiles, self._rootfs, self._report_building, engine, self._verbosity
        )
        self._engine = engine

    @cached_property
    def choice(self) -> Choice:
        """The backend, and why it is this one."""
        if self._hosts and self._wanted != "bubblewrap":
            names = tuple(host.name for host in self._hosts)
            return Choice("docker", runtime=self._runtime or "", hosts=names)
        if self._rootfs is not None and self._wanted == "auto":
            return Choice("bubblewrap", "--intercode-rootfs is given")
        if self._runtime is not None and self._wanted != "bubblewrap":
            return Choice("docker", runtime=self._runtime)
        return choose(self._wanted)

    def check_runtime(self, option: str) -> None:
        """See that sandboxes can have the runtime that is asked for, if one is.

        Where no engine answers, that is what the first episode meets.

        Args:
            option: what the user wrote, for the message.

        Raises:
            ConfigurationError: they cannot.
        """
        if self._runtime is None or self._hosts:  # each host is asked by `check_hosts`
            return
        setting = f"{option}={self._runtime}"
        if self.choice.backend != "docker":
            raise ConfigurationError(
                f"{setting}: {self.choice.backend} has no runtimes, only docker has; leave it out"
            )
        from pytest_intercode.sandboxes.docker.engine import connect, runtime_problem

        with contextlib.suppress(EngineUnavailable), contextlib.closing(connect()) as api:
            problem = runtime_problem(api.info(), self._runtime)
            if problem:
                raise ConfigurationError(f"{setting}: {problem}")

    def check_hosts(self, option: str) -> None:
        """See that Docker's hosts answer and can do what sandboxes need, if any are given.

        Args:
            option: what the user wrote them after, for the message.

        Raises:
            ConfigurationError: one does not, or is named twice.
        """
        if not self._hosts:
            return
        if self._wanted == "bubblewrap":
            raise ConfigurationError(
                f"{option}={self._hosts[0].name}: bubblewrap has no hosts, only docker has; leave "
                "it out, or take --intercode-sandbox=docker"
            )
        from pytest_intercode.sandboxes.docker.hosts import check_hosts

        check_hosts(self._hosts, self._runtime, option, self._registry)
        if self.readonly:
            from pytest_intercode.sandboxes.docker.address import find_address

            for host in self._hosts:
                if not find_address(host.name).is_local:
                    raise ConfigurationError(
                        f"{option}={host.name}: an agent that lives in the sandbox needs engines "
                        "on this machine (unix://)"
                    )

    def check_registry(self, option: str) -> None:
        """See that the registry answers the engine, if one is given.

        Where no engine answers, that is what the first episode meets.

        Args:
            option: what the user wrote, for the message.

        Raises:
            ConfigurationError: it does not, or refuses us.
        """
        if self._registry is None or self._hosts:  # `check_hosts` has each host ask it
            return
        setting = f"{option}={self._registry}"
        if self._wanted == "bubblewrap":
            raise ConfigurationError(
                f"{setting}: bubblewrap has no images, only docker has; leave it out"
            )
        if self.choice.backend != "docker":
            return
        from pytest_intercode.sandboxes.docker.engine import connect
        from pytest_intercode.sandboxes.docker.registry import Registry

        with contextlib.suppress(EngineUnavailable), contextlib.closing(connect()) as api:
            problem = Registry(api, self._registry).problem()
            if problem:
                raise ConfigurationError(f"{setting}: {problem}")

    @property
    def servers(self) -> int:
        """How many servers like each other are of use: one on each host."""
        return max(1, len(self._hosts))

    def image(self, source: ImageSource) -> str:
        """Return the name of a ready image; it is made in the background, and waited for.

        Raises:
            ImageError: it cannot be had. Of several episodes that need it, the first one that asks
                is given the reason, and the others get an ``ImageMissing``.
            SandboxError: the episode that asks was called off, or the run is over.
            ImageNotReady: the thread does not wait for images; see ``without_waiting``.
        """
        self._start()
        return self._ready.name(source)

    def _report_building(self, line: str) -> None:
        """Keep a line for a thread that waits for an image, as only that one may print."""
        self._lines.append(line)
        if self._started:
            self._ready.wake()

    def pinned_image(self, name: str) -> str:
        """Return what names an image in its registry permanently (``NAME@sha256:...``), or nothing.

        Args:
            name: what :meth:`image` returned.
        """
        return self._images.pinned(name) if self._started else ""

    def identity(self, image: str) -> str:
        """Return what identifies the content of an image, as far as that is known.

        It is as good in another run; where it is not known, it is good for this provider alone.

        Args:
            image: what :meth:`image` returned.
        """
        return self._images.identity(image) or f"{image} of {self._token}"

    def expect(self, specs: Iterable[SandboxSpec]) -> None:
        """Have sandboxes started before they are asked for; see :meth:`Pool.expect`.

        An ``IntercodeError`` of ``specs`` ends it; the episode that needs the sandbox meets it.
        """
        coming = _until_error(specs)
        first = list(itertools.islice(coming, 1))
        if first or self._started:  # what needs no sandbox needs no engine
            self._start()
            self._pool.expect(itertools.chain(first, coming))

    @property
    def lacks(self) -> bool:
        """Whether it is time to say what will be asked for; see :meth:`expect`."""
        return not self._started or self._pool.lacks

    def order(self, spec: SandboxSpec, *, urgent: bool = True) -> Order:
        """Ask for a fresh sandbox without waiting for it; see :meth:`Pool.order`."""
        self._start()
        return self._pool.order(spec, urgent=urgent)

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        """Return a fresh sandbox."""
        return self.order(spec).wait()

    def background(self, work: Callable[[], Result]) -> Future[Result]:
        """Run work in a thread of its own, at once."""
        self._process.check()
        with self._lock:
            if self._closed:
                raise SandboxError(RUN_IS_OVER)
            if self._background is None:
                name = "intercode-gold"
                self._background = ThreadPoolExecutor(_THREADS, thread_name_prefix=name)
            return self._background.submit(work)

    def share(self, name: str, make: Callable[[], Result]) -> Result:
        """Return what environments of one process share; ``close`` closes it, if it can be closed.

        Args:
            name: the name that it is shared under.
            make: makes it, the first time; callers with the same name wait meanwhile.
        """
        self._process.check()
        with self._sharing:
            lock = self._shared_locks.setdefault(name, threading.RLock())
        with lock:
            if name not in self._shared:
                value = make()
                with self._sharing:
                    closed = self._closed
                    if not closed:
                        self._shared[name] = value
                if closed:
                    _close(value)
                    raise SandboxError(RUN_IS_OVER)
            result: Result = self._shared[name]
            return result

    def close(self) -> None:
        """End every sandbox; may be called twice. Does nothing in a forked child."""
        if not self._process.is_this:
            return
        with self._lock, self._sharing:
            if self._closed:
                return
            self._closed = True
        if self._started:
            self._ready.close()
            self._pool.close()
        if self._background is not None:
            self._background.shutdown(wait=True, cancel_futures=True)
        for shared in reversed(self._shared.values()):
            _close(shared)
        if self._started:
            self._engine.close()


def images_here(names: Iterable[str]) -> set[str] | None:
    """Return which of these images the Docker engine has; None where no engine answers."""
    from pytest_intercode.sandboxes.docker.engine import connect
    from pytest_intercode.sandboxes.docker.images import layers_of

    try:
        with contextlib.closing(connect()) as api:
            return {name for name in names if layers_of(api, name)}
    except EngineUnavailable:
        return None


def _parsed(host: DockerHost | str) -> DockerHost:
    from pytest_intercode.sandboxes.hosts import parse_host

    return parse_host(host) if isinstance(host, str) else host


def _until_error(specs: Iterable[SandboxSpec]) -> Iterator[SandboxSpec]:
    with contextlib.suppress(IntercodeError):
        yield from specs


def _close(shared: Any) -> None:
    if hasattr(shared, "close"):
        shared.close()
