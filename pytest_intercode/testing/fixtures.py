"""Shared parts of the contract: the backend under test, its sandboxes, and their outputs."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import pytest

from pytest_intercode.core.task import ImageSource, Limits
from pytest_intercode.errors import IntercodeError
from pytest_intercode.sandboxes.backend import Backend, BackendEvents
from pytest_intercode.sandboxes.choice import make_backend
from pytest_intercode.sandboxes.protocol import Launcher, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.archives import add_entry
from pytest_intercode.system.files import bundled_folder

__all__ = [
    *("GO", "PROMPTLY", "SOON", "UTF_8"),
    *("BackendUnderTest", "ContractFixtures", "Launch"),
    *("await_only_shell", "once", "output_of", "pack"),
]

SOON = 30.0
"""Seconds; far more than any short action takes, even on a busy machine."""
PROMPTLY = 10.0
"""Seconds that ending an action may take; also far more than it does."""
GO = "until [ -e /tmp/go ]; do sleep 0.02; done"
"""Makes a background job wait for a signal, so that no test depends on timing."""
UTF_8 = (("LC_ALL", "C.UTF-8"),)
"""Variables of most sandboxes, as the default locales of images differ."""

_SHARED: pytest.StashKey[dict[object, Any]] = pytest.StashKey()
_KEEPER_AND_SHELL = ["bash", "bash"]  # the names of these two processes
_MAX_PROCESSES = 32
SMALL_LIMITS = Limits(memory=64 * 1024**2, pids=_MAX_PROCESSES, file_size=1024**2, cpus=1.0)
# Starts more processes than _MAX_PROCESSES; they are harmless and end on their own.
_FILL = (
    'LC_ALL=C python3 -c "from subprocess import Popen\n'
    f"for _ in range({_MAX_PROCESSES + 8}): Popen(['sleep', '10'])\" 2>&1"
)
_KILL_TIMEOUT = 3.0  # seconds until killed processes are gone


class _Closes(Protocol):
    def close(self) -> None: ...


Closing = TypeVar("Closing", bound=_Closes)


class BackendUnderTest(NamedTuple):
    """A started backend.

    Attributes:
        launcher: starts its sandboxes.
        image: the name of the image from which they are made.
        small_limits: limits that are quickly reached.
    """

    launcher: Launcher
    image: str
    small_limits: Limits = SMALL_LIMITS


class _StartedBackend:
    """A backend that was started, with its image.

    Attributes:
        problem: why it cannot be used here, as reported by the backend; empty if it can.
        under_test: the backend; None if there is a problem or a failure.
        failure: why it does not start; kept, so that not every test tries again.
    """

    def __init__(self, name: str, settings: SandboxSettings, image: ImageSource) -> None:
        self.problem = self.failure = ""
        self.under_test: BackendUnderTest | None = None
        self._backend: Backend | None = None
        try:
            self._backend = make_backend(name, settings)
            self.problem = self._backend.problem()
            if not self.problem:
                self._backend.start(BackendEvents())
                image_name = self._backend.images.resolve(image)
                self.under_test = BackendUnderTest(self._backend, image_name)
        except IntercodeError as error:
            self.failure = str(error)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the backend, even if it failed to start."""
        if self._backend is not None:
            self._backend.close()


class Launch(Protocol):
    """Starts a fresh sandbox, which is closed when the test is over."""

    def __call__(self, **spec: Any) -> Sandbox:
        """Start a sandbox; keywords are fields of :class:`SandboxSpec`."""


class ContractFixtures:
    """The fixtures of the contract.

    Attributes:
        backend: the backend's name, as ``--intercode-sandbox`` takes it.
        image: the source of an image with bash, coreutils, util-linux, tar, procps and Python, such
            as our own for the environment ``bash``.
        settings: the backend's settings.
    """

    backend = ""
    image = ImageSource(dockerfile=bundled_folder("dockerfiles") / "bash.Dockerfile")
    settings = SandboxSettings()

    @pytest.fixture
    def under_test(self, request: pytest.FixtureRequest) -> BackendUnderTest:
        """Return the backend, started once for the class; skip if it cannot be used."""
        if not self.backend:
            name = type(self).__name__
            pytest.fail(f'{name} does not name its backend: give it `backend = "NAME"`', False)
        start = partial(_StartedBackend, self.backend, self.settings, self.image)
        started = once(request, "backend", start)
        if started.problem:
            pytest.skip(started.problem)
        if started.under_test is None:
            pytest.fail(f"the backend {self.backend!r} does not start: {started.failure}", False)
        return started.under_test

    @pytest.fixture
    def launch(self, under_test: BackendUnderTest) -> Iterator[Launch]:
        """Return a factory of fresh sandboxes."""
        sandboxes: list[Sandbox] = []

        def start_one(**spec: Any) -> Sandbox:
            sandbox = under_test.launcher.launch(
                SandboxSpec(under_test.image, **{"variables": UTF_8, **spec})
            )
            sandboxes.append(sandbox)
            return sandbox

        yield start_one
        for sandbox in sandboxes:
            sandbox.close()

    @pytest.fixture
    def sandbox(self, launch: Launch) -> Sandbox:
        """Return a fresh sandbox with default limits."""
        return launch()

    @pytest.fixture
    def shared(self, request: pytest.FixtureRequest, under_test: BackendUnderTest) -> Sandbox:
        """Return a shared sandbox, for tests that leave nothing that affects other tests."""
        spec = SandboxSpec(under_test.image, limits=Limits(pids=64), variables=UTF_8)
        key = "shared", id(under_test.launcher)
        return once(request, key, lambda: under_test.launcher.launch(spec))

    @pytest.fixture
    def separate(self, launch: Launch) -> None:
        """Skip a test that would kill other processes of this machine, without isolation."""
        if output_of(launch(), "echo $PPID") != "1\n":
            pytest.skip("the keeper is not the first process of a process namespace of its own")

    @pytest.fixture
    def bounded(self, launch: Launch) -> None:
        """Skip a test that would use up all processes of this machine if ``pids`` had no effect."""
        filled = launch(limits=Limits(pids=_MAX_PROCESSES)).run(_FILL, SOON)
        if b"Resource temporarily unavailable" not in filled.output:
            pytest.skip("a fork bomb would take the whole machine: `pids` is not kept")


def once(request: pytest.FixtureRequest, key: object, make: Callable[[], Closing]) -> Closing:
    """Return an object that all tests of a class share; it is closed after the last test.

    This is not a class-scoped fixture, because versions of pytest differ in how a class can have
    one.
    """
    node = request.node.getparent(pytest.Class)
    assert node is not None, "the contract is a class"
    values: dict[object, Any] = node.stash.setdefault(_SHARED, {})
    if key not in values:
        values[key] = make()
        node.addfinalizer(values[key].close)
    value: Closing = values[key]
    return value


def output_of(sandbox: Sandbox, action: str, timeout: float = SOON) -> str:
    """Run an action that should end on its own and leave its shell alive; return its output."""
    execution = sandbox.run(action, timeout)
    assert (execution.ended, execution.restarted) == ("itself", False), (
        f"{action!r} should end by itself, and leave its shell alive: {execution}"
    )
    return execution.output.decode("utf-8", "surrogateescape")


def await_only_shell(sandbox: Sandbox) -> None:
    """Check that only the keeper and the shell run; killed processes need a moment to go."""
    limit = time.monotonic() + _KILL_TIMEOUT
    while (names := _processes(sandbox)) != _KEEPER_AND_SHELL:
        assert time.monotonic() < limit, (
            f"{names} run, and nothing but the keeper and the shell should: {_KEEPER_AND_SHELL}"
        )
        time.sleep(0.02)


def _processes(sandbox: Sandbox) -> list[str]:
    """Return the names of the running processes, except for the listing's own."""
    script = (
        "cd /proc; for p in [0-9]*; do "
        '[ $p = $$ ] || [ $p = $PPID ] || { read -r name <$p/comm && echo "$name"; }; '
        "done 2>&-; true"
    )
    status, output = sandbox.admin(script, SOON)
    assert status == 0
    return sorted(output.decode().split())


def pack(*files: tuple[str, bytes]) -> bytes:
    """Return a tar archive of some files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files:
            add_entry(archive, name, data)
    return buffer.getvalue()
