"""Builds and pulls: how many run at a time, one for each image, and their end with the run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.build import RUN_IS_OVER

if TYPE_CHECKING:
    from docker import APIClient
    from requests import Response

__all__ = ["Transfers"]

_MAX_BUILDS = 4  # builds and pulls at the same time; they mostly wait for the network


class Transfers:
    """The builds and pulls of one engine.

    Args:
        api: the engine's client.

    Attributes:
        stopped: the run is over, and no transfer is begun any more.
    """

    def __init__(self, api: APIClient) -> None:
        self._api = api
        self._slots = threading.BoundedSemaphore(_MAX_BUILDS)
        self._lock = threading.Lock()  # guards the attributes below, only briefly
        self._responses: set[Response] = set()
        self.stopped = False

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        """Wait until one more build or pull may run; `stop` ends it.

        Raises:
            ImageError: the run is over.
        """
        # The SDK does not give access to the response of a stream. Its HTTP library passes each
        # response to hooks, in the thread that asked, which shows which ones are of this transfer.
        thread = threading.get_ident()
        responses: list[Response] = []

        def record(response: Response, *_: object, **__: object) -> None:
            if threading.get_ident() == thread:
                with self._lock:
                    responses.append(response)
                    self._responses.add(response)
                if self.stopped:  # before the engine answered
                    response.close()
                    raise ImageError(RUN_IS_OVER)

        with self._slots:
            with self._lock:
                if self.stopped:
                    raise ImageError(RUN_IS_OVER)
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
            # As in the SDK: this shuts the socket down, which wakes the thread that reads.
            with contextlib.suppress(Exception):  # it may have ended already
                CancellableStream(iter(()), response).close()
