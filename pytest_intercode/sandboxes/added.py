"""A backend of an installed package: a mistake in it becomes one line that names the package."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from importlib.metadata import EntryPoint
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from pytest_intercode.errors import (
    ConfigurationError,
    EngineUnavailable,
    ImageError,
    IntercodeError,
    SandboxError,
)
from pytest_intercode.sandboxes.backend import Backend, BackendEvents
from pytest_intercode.sandboxes.images import DescribedImages, Images
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.imports import call_others, describe_point, load_point

__all__ = ["AddedBackend"]

_VALUES = ("name", "takes", "builds_images", "shares_network")
_METHODS = ("requested", "problem", "check", "start", "launch", "close")
_IMAGE_METHODS = ("resolve", "pinned", "identity", "stop_builds")
_DESCRIBED_METHODS = ("describe", "pull", "find_published")
_SANDBOX_METHODS = ("run", "admin", "unpack", "close")  # needed for any episode to begin and end
_LAUNCH_TIMEOUT = 600.0  # seconds, as for our own clusters, which may add a machine first


class AddedBackend:
    """Wraps a backend of another package, and handles whatever it raises or returns.

    Args:
        point: the entry point, which refers to what makes the backend.
        settings: the settings that the backend is made with.

    Raises:
        ConfigurationError: the backend cannot be made, or lacks an attribute.
    """

    def __init__(self, point: EntryPoint, settings: SandboxSettings) -> None:
        self._label = f"the sandbox backend {point.name!r} ({describe_point(point)})"
        make = load_point(point, f"the sandbox backend {point.name!r}")
        self._backend: Backend = self._call(ConfigurationError, make, "the class", settings)
        if missing := _missing(self._backend, (*_VALUES, *_METHODS)):
            raise ConfigurationError(f"{self._label} has no {missing}")
        self._launches = _Launches()
        self.name = self._backend.name
        self.takes = self._backend.takes
        self.builds_images = self._backend.builds_images
        self.shares_network = self._backend.shares_network
        if self.name != point.name:
            raise ConfigurationError(
                f"{self._label}: its name is {self.name!r}, but its entry point calls it "
                f"{point.name!r}"
            )
        if not isinstance(self.takes, (frozenset, set)):
            raise ConfigurationError(
                f"{self._label}: takes: a set of names is needed, found {self.takes!r:.60}"
            )
        for optional in ("describe", "platform"):
            if hasattr(self._backend, optional):
                setattr(self, optional, partial(self._ask, optional))

    def __str__(self) -> str:
        has_own = type(self._backend).__str__ is not object.__str__
        return str(self._ask("__str__")) if has_own else self.name

    @property
    def has_services(self) -> bool:
        """Whether the backend starts the services of a spec."""
        return bool(getattr(self._backend, "has_services", False))

    @property
    def starters(self) -> int:
        """How many simultaneous starts are useful."""
        return self._backend.starters

    @property
    def images(self) -> Images:
        """The backend's images, wrapped in the same way."""
        images = self._backend.images
        described = _DESCRIBED_METHODS if isinstance(images, DescribedImages) else ()
        methods = {
            name: partial(self._call, ImageError, getattr(images, name), f"images.{name}()")
            for name in (*_IMAGE_METHODS, *described)
        }
        return cast(Images, SimpleNamespace(**methods))

    def requested(self) -> str | None:
        """Return why ``auto`` chooses this backend."""
        return cast("str | None", self._ask("requested"))

    def problem(self) -> str:
        """Return why the backend cannot be used here."""
        problem = self._ask("problem")
        if not isinstance(problem, str):
            raise ConfigurationError(
                f"{self._label}: problem(): a text is needed, found {problem!r:.60}"
            )
        return problem

    def check(self, options: Mapping[str, str]) -> None:
        """Check that the backend supports the settings that are given."""
        self._ask("check", options)

    def start(self, events: BackendEvents) -> None:
        """Start the backend, unless it reports that it cannot be used here.

        Raises:
            EngineUnavailable: it cannot be used, or what it reports is not valid.
        """
        if problem := self.problem():
            raise EngineUnavailable(f"{self.name}: {problem}")
        self._call(EngineUnavailable, self._backend.start, "start()", events)
        if missing := _missing(self._backend, ("images", "starters")):
            raise EngineUnavailable(f"{self._label} has no {missing}")
        if missing := _missing(self._backend.images, _IMAGE_METHODS):
            raise EngineUnavailable(f"{self._label}: images has no {missing}")
        if not isinstance(self.starters, int) or self.starters < 1:
            raise EngineUnavailable(
                f"{self._label}: starters: a whole number from 1 on is needed, "
                f"found {self.starters!r:.60}"
            )

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a fresh sandbox.

        Raises:
            SandboxError: this failed, or took too long.
        """
        launch = partial(self._call, SandboxError, self._backend.launch, "launch()", spec)
        try:
            sandbox = self._launches.wait_for(launch)
        except FutureTimeout:
            raise SandboxError(
                f"{self._label}: launch() did not return within {_LAUNCH_TIMEOUT:g} s"
            ) from None
        if missing := _missing(sandbox, _SANDBOX_METHODS):
            raise SandboxError(
                f"{self._label}: launch(): a Sandbox is needed, found {sandbox!r:.60}, which has "
                f"no {missing}"
            )
        return cast(Sandbox, sandbox)

    def close(self) -> None:
        """End every sandbox, and release everything."""
        self._launches.close()
        self._ask("close")

    def _ask(self, name: str, *arguments: object) -> Any:
        """Call a method of the backend that does not make a sandbox, and return its result."""
        method = getattr(self._backend, name)
        return self._call(ConfigurationError, method, f"{name}()", *arguments)

    def _call(
        self,
        error_class: type[IntercodeError],
        function: Callable[..., Any],
        name: str,
        *arguments: object,
    ) -> Any:
        def mistake(reason: str) -> IntercodeError:
            return error_class(f"{self._label}: {name} raised {reason}")

        result = call_others(function, mistake, *arguments)
        return call_others(list, mistake, result) if isinstance(result, Iterator) else result


_Launch: TypeAlias = "tuple[Callable[[], Any], Future[Any]]"


class _Launches:
    """Threads that launch sandboxes; a thread that does not return is abandoned.

    Each thread is reused: a sandbox may end with the thread that started it
    (``PR_SET_PDEATHSIG``, as with ``bwrap --die-with-parent``).
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Launch | None]] = []
        self._lock = threading.Lock()

    def wait_for(self, launch: Callable[[], Any]) -> Any:
        """Return what a launch returns, or raise what it raises.

        Raises:
            TimeoutError: it takes too long; a sandbox that it still returns later is closed.
        """
        with self._lock:
            thread = self._idle.pop() if self._idle else self._start_thread()
        future: Future[Any] = Future()
        thread.put((launch, future))
        try:
            return future.result(_LAUNCH_TIMEOUT)
        except FutureTimeout:
            if future.cancel():
                raise
            return future.result()  # it has returned just now
        except BaseException:
            # The launch failed, or Ctrl-C ended the wait: then nobody takes its sandbox.
            if not future.cancel() and future.exception() is None:
                with contextlib.suppress(Exception):
                    future.result().close()
            raise
        finally:
            if future.done() and not future.cancelled():
                with self._lock:
                    self._idle.append(thread)

    def close(self) -> None:
        """End the threads that are not launching anything."""
        with self._lock:
            while self._idle:
                self._idle.pop().put(None)

    def _start_thread(self) -> SimpleQueue[_Launch | None]:
        launches: SimpleQueue[_Launch | None] = SimpleQueue()
        name = "intercode-launch"
        thread = threading.Thread(target=self._work, args=(launches,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no room for it
            raise SandboxError(f"no sandbox can be started: {error}") from None
        return launches

    @staticmethod
    def _work(launches: SimpleQueue[_Launch | None]) -> None:
        while (task := launches.get()) is not None:
            is_wanted = _carry_out(*task)
            if not is_wanted:
                return
            del task  # or it would keep the sandbox until the next launch


def _carry_out(launch: Callable[[], Any], future: Future[Any]) -> bool:
    """Launch a sandbox; if nobody waits for it any more, close it and return False."""
    try:
        sandbox = launch()
    except BaseException as error:
        with contextlib.suppress(InvalidStateError):
            future.set_exception(error)
    else:
        try:
            future.set_result(sandbox)
        except InvalidStateError:
            with contextlib.suppress(Exception):
                sandbox.close()
    return not future.cancelled()


def _missing(value: object, names: tuple[str, ...]) -> str:
    return ", ".join(name for name in names if not hasattr(value, name))
