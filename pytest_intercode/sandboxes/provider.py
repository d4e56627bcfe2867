"""Where environments get their sandboxes: one backend, its images and its pool, for one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.pool import Pool
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.suites.task import ImageSource

__all__ = ["SandboxProvider"]

Result = TypeVar("Result")


class SandboxProvider:
    """Starts the backend when the first sandbox is needed, and ends everything on ``close``.

    Args:
        base_images: replacements of base images (``--intercode-base-image``).
        progress: called with one line for each slow step, such as a build.
        pool_size: how many sandboxes may be started ahead.

    """

    def __init__(
        self,
        *,
        base_images: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
        pool_size: int = 4,
    ) -> None:
        self._base_images = dict(base_images or {})
        self._progress = progress
        self._pool_size = pool_size
        self._lock = threading.Lock()
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
            from pytest_intercode.sandboxes.docker.engine import DockerEngine
            from pytest_intercode.sandboxes.docker.images import Images

            self._engine = DockerEngine()
            swept = self._engine.sweep()
            if swept and self._progress:
                self._progress(f"removed {swept} containers that an earlier run left behind")
            self._images = Images(self._engine.api, self._base_images, self._progress)
            self._pool = Pool(self._engine, self._pool_size)
            self._started = True

    def _check_process(self) -> None:
        # Before any lock: one may have been held in the moment of the fork.
        if os.getpid() != self._pid:
            raise SandboxError(
                "these sandboxes belong to the process that this one was forked from; make the "
                "environment in the process that uses it"
            )

    def image(self, source: ImageSource) -> str:
        """Return the name of a ready image; see :meth:`Images.resolve`."""
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
