"""The images of one process: each is made once, in the background, and its users wait for it.

Only those that need an image wait for it, and the wait of an episode can be called off. A build
goes on then until the run is over, as other episodes may need the image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from pytest_intercode.core.phases import timed
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ImageError, ImageMissing, IntercodeError, SandboxError

__all__ = [
    "DescribedImages",
    "ImageFact",
    "ImageNotReady",
    "ImageWait",
    "Images",
    "ReadyImages",
    "waiting_for_images",
    "without_waiting",
]

RUN_IS_OVER = "the run is over, and no image is waited for any more"
_BUILD_END_TIMEOUT = 5.0  # seconds that builds have to end when the run is over


class Images(Protocol):
    """The images of a backend; everything may be called from several threads."""

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        """Return the name of an image that exists here; make it first if necessary.

        Args:
            source: where the image comes from.
            purpose: the task that needs it, for messages.

        Raises:
            ImageError: it cannot be found or made.
        """

    def pinned(self, name: str) -> str:
        """Return the permanent name of an image in its registry (``NAME@sha256:...``), or nothing.

        Args:
            name: what :meth:`resolve` returned.
        """

    def identity(self, name: str) -> str:
        """Return a value that changes with an image's content; nothing if that is not known.

        Args:
            name: what :meth:`resolve` returned.
        """

    def stop_builds(self) -> None:
        """End what :meth:`resolve` does in other threads; nothing is begun afterwards."""


@dataclass(frozen=True)
class ImageFact:
    """What is known of an image that a task needs, before it is made.

    Attributes:
        name: its name, or the path of the Dockerfile that makes it.
        step: how it is made available here: ``pull`` or ``build``.
        present: it is here already.
        size: bytes that it takes here, with the layers that it shares; 0 if that is not known.
        platform: the platform that it is for; empty if that is not known.
        replacement: the image that is used in its place; empty for itself.
        optional: if it cannot be pulled, its Dockerfile is built.
        problem: why it is not available, if that is known.
        cause: why it and other images are not available; empty if only this one is concerned.
    """

    name: str
    step: Literal["pull", "build"]
    present: bool
    size: int = 0
    platform: str = ""
    replacement: str = ""
    optional: bool = False
    problem: str = ""
    cause: str = ""


@runtime_checkable
class DescribedImages(Protocol):
    """The images of a backend that can report which are here; callable from any thread.

    An object with the methods of `Images` makes them.
    """

    def describe(self, source: ImageSource, *, built: bool = True) -> Iterable[ImageFact]:
        """Yield what is known of an image and of the images that it is made from; make nothing.

        Args:
            source: where the image comes from.
            built: also report what is built, which requires reading everything that it is built
                from.

        Raises:
            ImageError: a file cannot be read.
        """

    def pull(self, source: ImageSource) -> None:
        """Pull an image, or the images that it is built from, and build nothing.

        Raises:
            ImageError: it is not available.
        """

    def find_published(self, fact: ImageFact) -> Sequence[str]:
        """Return the platforms that an image can be pulled for; nothing if that is not known.

        Raises:
            ImageError: it cannot be pulled; the message says why.
        """


class ImageNotReady(IntercodeError):
    """An image has to be made, and the caller does not want to wait for it."""


class ImageWait:
    """One episode's waiting for images; another thread may call it off.

    Args:
        task: the task's id, for messages.
        key: distinguishes its episode from others; calls with the same key get the same errors.
    """

    def __init__(self, task: str = "", key: object = None) -> None:
        self.task = task
        self.key = key
        self.cancelled = False
        self._wake: Callable[[], None] = lambda: None

    def cancel(self) -> None:
        """End the waiting, now or once it begins, with a ``SandboxError``."""
        self.cancelled = True
        self._wake()

    @contextlib.contextmanager
    def woken_by(self, wake: Callable[[], None]) -> Iterator[None]:
        """Let :meth:`cancel` call a function."""
        self._wake = wake
        try:
            yield
        finally:
            self._wake = lambda: None


_THREAD = threading.local()  # its `wait`: an ImageWait, or a task's id if it does not wait


@contextlib.contextmanager
def waiting_for_images(wait: ImageWait) -> Iterator[None]:
    """Let another thread end this thread's waiting for images."""
    with _in_thread(wait):
        yield


@contextlib.contextmanager
def without_waiting(task: str) -> Iterator[None]:
    """Raise an `ImageNotReady` in this thread if an image has to be made.

    Args:
        task: the id of the task that will need the images, for messages.
    """
    with _in_thread(task):
        yield


@contextlib.contextmanager
def _in_thread(wait: ImageWait | str) -> Iterator[None]:
    previous = getattr(_THREAD, "wait", None)
    _THREAD.wait = wait
    try:
        yield
    finally:
        _THREAD.wait = previous


class _Owner(NamedTuple):
    """The episode that was given the whole error about a missing image.

    Attributes:
        key: distinguishes its episode from others.
        task: the task's id.
        image: the image that it needs.
    """

    key: str
    task: str
    image: str


class _Owners:
    """Assigns each error to one owner: the first to ask, in all processes that share a file.

    Args:
        shared: files are made next to it, with names that begin with its name; None for one
            process.
    """

    def __init__(self, shared: Path | None) -> None:
        self._shared = shared
        self._lock = threading.Lock()
        self._owners: dict[str, _Owner] = {}

    def claim(self, cause: str, claimant: _Owner) -> _Owner:
        """Return who owns the error about a cause: the claimant, unless there is an owner."""
        with self._lock:
            owner = self._owners.get(cause)
            if owner is None:
                owner = self._owners[cause] = self._claim_shared(cause, claimant)
            return owner

    def _claim_shared(self, cause: str, claimant: _Owner) -> _Owner:
        if self._shared is None:
            return claimant
        name = f"{self._shared.name}.missing-{hashlib.sha256(cause.encode()).hexdigest()[:16]}"
        path = self._shared.with_name(name)
        own_path = path.with_name(f"{name}.{os.getpid()}")
        try:
            own_path.write_text(json.dumps(claimant), "utf-8")
            with contextlib.suppress(FileExistsError):
                os.link(own_path, path)  # appears complete, and only for the first
            return _Owner(*json.loads(path.read_text("utf-8")))
        except OSError:  # the run is over, or the disk is full: each process has an owner
            return claimant
        finally:
            own_path.unlink(missing_ok=True)


class ReadyImages:
    """Has images made, and keeps the results.

    Args:
        images: makes them.
        lines: progress reported in other threads; the threads that wait pass it on to ``report``.
        report: called with each of these lines.
        shared: a file of the processes of a run, which share one error about what is missing.
    """

    def __init__(
        self,
        images: Images,
        lines: deque[str],
        report: Callable[[str], None] | None,
        shared: Path | None = None,
    ) -> None:
        self._images = images
        self._lines = lines
        self._report = report or (lambda line: None)
        self._changed = threading.Condition()  # its lock guards what follows
        self._made: dict[Hashable, Future[str]] = {}
        self._threads: list[threading.Thread] = []
        self._owners = _Owners(shared)
        self._closed = False

    def wake(self) -> None:
        """Make the waiting threads check again."""
        with self._changed:
            self._changed.notify_all()

    def name(self, source: ImageSource) -> str:
        """Return the name of an image, after waiting until it is here.

        Raises:
            ImageError: it is not available.
            ImageMissing: another episode was given that error.
            SandboxError: the waiting was called off, or the run is over.
            ImageNotReady: this thread does not wait.
        """
        wait: ImageWait | str = getattr(_THREAD, "wait", None) or ImageWait()
        if isinstance(wait, str):
            return self._name_if_ready(source, wait)
        return self._wait_for(self._begin(source, wait.task), wait, source)

    def pull(self, source: ImageSource, images: DescribedImages) -> None:
        """Have an image pulled, or the images that it is built from, and wait for it.

        Raises:
            ImageError: it is not available.
            SandboxError: the run is over.
        """

        def pull() -> str:
            images.pull(source)
            return ""

        self._wait_for(self._begin_work(("pull", source), pull), ImageWait(), source)

    def _name_if_ready(self, source: ImageSource, task: str) -> str:
        """Return the name of an image that is here; else have it made, if no other is being made.

        Raises:
            ImageNotReady: it is not here yet, or not available.
        """
        with self._changed:
            is_known = source in self._made
            # One at a time: images that may be needed must not slow down those that an episode
            # waits for.
            busy = not all(image.done() for image in self._made.values())
            if busy and not is_known:
                raise ImageNotReady(task)
        image = self._begin(source, task)
        if not image.done() or image.exception() is not None:
            raise ImageNotReady(task)
        return image.result()

    def close(self) -> None:
        """Call off all waiting, and end what is being made."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._images.stop_builds()
        deadline = time.monotonic() + _BUILD_END_TIMEOUT
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _begin(self, source: ImageSource, task: str) -> Future[str]:
        """Return a future for the name of an image, and have it made unless that has begun."""
        return self._begin_work(source, lambda: self._images.resolve(source, task))

    def _begin_work(self, key: Hashable, make: Callable[[], str]) -> Future[str]:
        """Return a future for the result of some work, and begin it unless it has begun."""
        with self._changed:
            if self._closed:
                raise SandboxError(RUN_IS_OVER)
            image = self._made.get(key)
            if image is not None:
                return image
            image = self._made[key] = Future()
            # A daemon, as a build that the engine does not end must not keep the process alive.
            thread = threading.Thread(
                target=self._make, args=(image, make), name="intercode-image", daemon=True
            )
            self._threads = [worker for worker in self._threads if worker.is_alive()]
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no room for it
                del self._made[key]
                raise SandboxError(f"no image can be made: {error}") from None
            self._threads.append(thread)
        return image

    def _make(self, image: Future[str], make: Callable[[], str]) -> None:
        try:
            image.set_result(make())
        except BaseException as error:
            image.set_exception(error)
        self.wake()

    def _wait_for(self, image: Future[str], wait: ImageWait, source: ImageSource) -> str:
        """Return the result of making an image, after waiting until it is done.

        Raises:
            ImageError: it is not available; the error has the image's name.
            SandboxError: the waiting was called off, or the run is over.
        """
        if not image.done():
            with timed("build"), wait.woken_by(self.wake):
                self._wait_until_done(image, wait)
        self._show()
        try:
            return image.result()
        except ImageError as error:
            raise self._error_for(wait, error, source) from None

    def _wait_until_done(self, image: Future[str], wait: ImageWait) -> None:
        while True:
            with self._changed:
                while not (image.done() or self._lines or wait.cancelled or self._closed):
                    self._changed.wait()
                if self._closed:
                    raise SandboxError(RUN_IS_OVER)
                if wait.cancelled and not image.done():
                    raise SandboxError("the image is no longer waited for")
                if image.done():
                    return
            self._show()

    def _show(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._report(self._lines.popleft())

    def _error_for(self, wait: ImageWait, error: ImageError, source: ImageSource) -> ImageError:
        """Return the whole error for the first episode with its cause, and its name for others.

        An episode that is run again gets the whole error again.
        """
        name = error.image or source.name
        if wait.key is not None:
            claimant = _Owner(repr(wait.key), wait.task, name)
            owner = self._owners.claim(error.cause or name, claimant)
            if owner.key != claimant.key:
                comparison = "" if owner.image == name else f", as {owner.image} is"
                return ImageMissing(f"image {name} is missing{comparison}: see {owner.task}", name)
        return ImageError(str(error), name, error.cause)
