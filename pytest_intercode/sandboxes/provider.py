"""Where environments get their sandboxes: one backend, its images and its pool, for one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.choice import Choice, choose
from pytest_intercode.sandboxes.pool import Pool
from pytest_intercode.sandboxes.protocol import Launcher, Sandbox, SandboxSpec
from pytest_intercode.suites.loader import bundled_folder
from pytest_intercode.suites.task import ImageSource

__all__ = ["SandboxProvider"]

Result = TypeVar("Result")


class _Resolver(Protocol):
    def resolve(self, source: ImageSource) -> str: ...


class SandboxProvider:
    """Starts the backend when the first sandbox is needed, and ends everything on ``close``.

    Args:
        base_images: replacements of base images (``--intercode-base-image``).
        progress: called with one line for each slow step, such as a build.
        pool_size: how many sandboxes may be started ahead.
        sandbox: the backend: ``docker``, ``bubblewrap``, or ``auto`` for the one that is there.
        rootfs: what bubblewrap uses in place of images (``--intercode-rootfs``).
        hidden: folders that bubblewrap shows to no sandbox, wherever they are.
    """

    def __init__(
        self,
        *,
        base_images: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
        pool_size: int = 4,
        sandbox: str = "auto",
        rootfs: Path | None = None,
        hidden: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self._wanted = sandbox
        self._rootfs = rootfs
        self._hidden = [os.fspath(folder) for folder in hidden]
        self._base_images = dict(base_images or {})
        self._progress = progress
        self._pool_size = pool_size
        self._lock = threading.Lock()
        self._engine: Launcher
        self._images: _Resolver
        self._started = False
        self._closed = False
        self._pid = os.getpid()
        self._shared: dict[str, Any] = {}
        self._sharing = threading.RLock()
        self._background: ThreadPoolExecutor | None = None

    def _start(self) -> None:
        self._check_process()
        with self._lock:
            if self._started:
                return
            if self.choice.backend == "bubblewrap":
                self._start_bubblewrap()
            else:
                self._start_docker()
            self._pool = Pool(self._engine, self._pool_size)
            self._started = True

    def _start_docker(self) -> None:
        from pytest_intercode.sandboxes.docker.engine import DockerEngine
        from pytest_intercode.sandboxes.docker.images import Images

        engine = DockerEngine()
        swept = engine.sweep()
        if swept and self._progress:
            self._progress(f"removed {swept} containers that an earlier run left behind")
        self._images = Images(engine.api, self._base_images, self._progress)
        self._engine = engine

    def _start_bubblewrap(self) -> None:
        from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
        from pytest_intercode.sandboxes.bubblewrap.layers import Layers
        from pytest_intercode.sandboxes.bubblewrap.systems import Systems

        ours = [Path(__file__).parents[1], bundled_folder("tasks"), Path.cwd()]
        engine = Bubblewrap([*map(str, ours), *self._hidden])
        engine.sweep()
        layers = Layers(engine, self._progress or (lambda line: None))
        dockerfiles = bundled_folder("dockerfiles")
        self._images = Systems(
            dockerfiles, self._rootfs, self._progress, layers.image, engine.owner
        )
        self._engine = engine

    @cached_property
    def choice(self) -> Choice:
        """The backend, and why it is this one."""
        if self._rootfs is not None and self._wanted == "auto":
            return Choice("bubblewrap", "--intercode-rootfs is given")
        return choose(self._wanted)

    def _check_process(self) -> None:
        # Before any lock: one may have been held in the moment of the fork.
        if os.getpid() != self._pid:
            raise SandboxError(
                "these sandboxes belong to the process that this one was forked from; make the "
                "environment in the process that uses it"
            )

    def image(self, source: ImageSource) -> str:
        """Return the name of a ready image; see the ``resolve`` of the backend's images."""
        self._start()
        return self._images.resolve(source)

    def expect(self, specs: Iterable[SandboxSpec]) -> None:
        """Have sandboxes started ahead; see :meth:`Pool.expect`."""
        wanted = list(specs)
        if wanted or self._started:  # what needs no sandbox needs no engine
            self._start()
            self._pool.expect(wanted)

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        """Return a fresh sandbox."""
        self._start()
        return self._pool.acquire(spec)

    def background(self, work: Callable[[], Result]) -> Future[Result]:
        """Run work beside the agent's."""
        self._check_process()
        with self._lock:
            if self._background is None:
                self._background = ThreadPoolExecutor(64, thread_name_prefix="intercode-gold")
            return self._background.submit(work)

    def share(self, name: str, make: Callable[[], Result]) -> Result:
        """Return what environments of one process share; ``close`` closes it, if it can be closed.

        Args:
            name: the name that it is shared under.
            make: makes it, the first time.
        """
        self._check_process()
        with self._sharing:
            if name not in self._shared:
                self._shared[name] = make()
            shared: Result = self._shared[name]
            return shared

    def close(self) -> None:
        """End every sandbox; may be called twice. Does nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._started:
            self._pool.close()
        if self._background is not None:
            self._background.shutdown(wait=True, cancel_futures=True)
        for shared in reversed(list(self._shared.values())):
            if hasattr(shared, "close"):
                shared.close()
        if self._started:
            self._engine.close()
