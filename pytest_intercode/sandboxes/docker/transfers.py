"""Builds and pulls: how many there are at a time, one of each image, and their end with the run."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pytest_intercode.core.files import cache_folder
from pytest_intercode.errors import ImageError

if TYPE_CHECKING:
    from docker import APIClient
    from requests import Response

__all__ = ["Transfers", "one_builder"]

_MAX_LOCK_NAME = 100  # characters of an image's name in that of a file
_RUN_IS_OVER = "the run is over, and no image is built any more"
_LOCK_INTERVAL = 0.1  # seconds between two tries to lock an image that is being made
_MAX_BUILDS = 4  # builds and pulls at the same time; most of their time is the network's


@contextlib.contextmanager
def one_builder(tag: str, stopped: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Let only one thread of this user's processes make a given image at a time.

    Args:
        tag: the image.
        stopped: whether there is no use in waiting any more.

    Raises:
        ImageError: ``stopped`` is true, or the locks have no folder.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImageError(f"{folder} is needed for the locks of image builds: {error}") from None
    words = re.sub(r"[^a-z0-9]", "-", tag)[:_MAX_LOCK_NAME]
    path = folder / f"{words}-{hashlib.sha256(tag.encode()).hexdigest()[:12]}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while not _try_lock(descriptor):
            if stopped():
                raise ImageError(_RUN_IS_OVER)
            time.sleep(_LOCK_INTERVAL)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock a file unless another has locked it; return whether that was done."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Transfers:
    """The builds and pulls of one engine.

    Args:
        api: the engine's client.

    Attributes:
        stopped: the run is over, and none is begun any more.
    """

    def __init__(self, api: APIClient) -> None:
        self._api = api
        self._slots = threading.BoundedSemaphore(_MAX_BUILDS)
        self._lock = threading.Lock()  # guards what follows, for a moment
        self._responses: set[Response] = set()
        self.stopped = False

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        """Wait for room for one more build or pull, which `stop` ends.

        Raises:
            ImageError: the run is over.
        """
        thread = threading.get_ident()
        responses: list[Response] = []

        def record(response: Response, *_: object, **__: object) -> None:
            if threading.get_ident() == thread:
                with self._lock:
                    responses.append(response)
                    self._responses.add(response)

        with self._slots:
            with self._lock:
                if self.stopped:
                    raise ImageError(_RUN_IS_OVER)
                # New lists, as requests of other threads walk through the old one.
                self._api.hooks["response"] = [*self._api.hooks["response"], record]
            try:
                yield
            finally:
                with self._lock:
                    hooks = [hook for hook in self._api.hooks["response"] if hook is not record]
                    self._api.hooks["response"] = hooks
                    self._responses.difference_update(responses)

    def stop(self) -> None:
        """End the builds and pulls that are under way; none is begun afterwards."""
        from docker.types import CancellableStream

        with self._lock:
            self.stopped = True
            responses = list(self._responses)
        for response in responses:
            with contextlib.suppress(Exception):  # it may have ended meanwhile
                CancellableStream(iter(()), response).close()
