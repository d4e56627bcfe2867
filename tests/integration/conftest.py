"""Fixtures for tests against real backends; what is not on this machine is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.protocol import SandboxSpec
from tests.support.axe import Axe, axe_path
from tests.support.backends import SOURCE, Backend, BubblewrapBackend, DockerBackend
from tests.support.browser import Browser, chromium
from tests.support.bundled import BACKENDS
from tests.support.gvisor import exception
from tests.support.sql_shop import (  # noqa: F401 - fixtures
    shop,
    sql_provider,
    sqlite_engine,
    start,
    way,
)
from tests.support.thinning import every


class Launch(Protocol):
    """Starts a fresh sandbox of the bash image; it is closed when the test is over."""

    def __call__(self, **spec: Any) -> AttachedSandbox:
        """Start one; keywords are fields of :class:`SandboxSpec`."""


@pytest.fixture(scope="module")
def shared_browser() -> Iterator[Browser]:
    """A browser for the pages of a module; the test is skipped where there is no Chromium."""
    if chromium() is None:
        pytest.skip("there is no Chromium; scripts/browser-up installs it")
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def axe() -> Axe:
    """The rules by which everybody can use a page; the test is skipped where they are not there."""
    path = axe_path()
    if not path.is_file():
        pytest.skip(f"there is no {path}; scripts/test installs it, INTERCODE_AXE names another")
    return Axe(path)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """Return an engine with a run label of its own."""
    try:
        engine = DockerEngine()
    except EngineUnavailable as unavailable:
        pytest.skip(str(unavailable))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def bash_image(docker_engine: DockerEngine) -> str:
    """Return the name of the bundled bash image, built if need be."""
    return DockerImages(docker_engine.api).resolve(SOURCE)


class AttachedEngine(DockerEngine):
    """Has no pipes to its containers, as for ordinary users and on other machines."""

    def _container(self, *args: Any) -> Container:
        return Container(self.api, *args, local=False)


ATTACHED = "attached"
RUNTIMES = [
    pytest.param(f"docker-{name}", marks=pytest.mark.slow) for name in ("crun", "runsc", ATTACHED)
]


@pytest.fixture(autouse=True)
def _kept(request: pytest.FixtureRequest) -> None:
    """Skip what a runtime does not keep of the contract."""
    parameters = getattr(getattr(request.node, "callspec", None), "id", "")
    if "docker-runsc" in parameters:
        reason = exception(request.node.originalname, parameters)
        if reason:
            pytest.skip(f"gVisor: {reason}")


@pytest.fixture(scope="session", params=["docker", "bubblewrap", *RUNTIMES])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Return each backend in turn, and Docker with other runtimes where its engine has them."""
    name, _, runtime = request.param.partition("-")
    if name == "bubblewrap":
        yield BubblewrapBackend(request.getfixturevalue("bubblewrap"))
    elif not runtime:
        yield DockerBackend(request.getfixturevalue("docker_engine"))
    else:
        try:
            engine = AttachedEngine() if runtime == ATTACHED else DockerEngine(runtime=runtime)
        except EngineUnavailable as unavailable:
            pytest.skip(str(unavailable))
        yield DockerBackend(engine)
        engine.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test's many cases, every sixth is tried on Docker, and all of them on demand.

    All are tried with bubblewrap: what differs is how a sandbox is started and talked to, which
    does not depend on the case.
    """
    cases: dict[str, dict[object, list[pytest.Function]]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            given = item.callspec.params
            backend = given.get("backend", given.get("provider"))
            test = item.nodeid.partition("[")[0]
            cases.setdefault(test, {}).setdefault(backend, []).append(item)
    for of_test in cases.values():
        if "bubblewrap" in of_test:
            for number, item in enumerate(of_test.get("docker", [])):
                if number % every(6):
                    item.add_marker(pytest.mark.slow)


@pytest.fixture(params=BACKENDS)
def suite_backend(request: pytest.FixtureRequest) -> str:
    """Return the name of each backend that the oracle plays bundled suites on."""
    name = str(request.param)
    request.getfixturevalue("docker_engine" if name == "docker" else name)
    return name


@pytest.fixture
def launch(backend: Backend) -> Iterator[Launch]:
    """Return a factory of fresh sandboxes."""
    started: list[AttachedSandbox] = []

    def start_one(**spec: Any) -> AttachedSandbox:
        spec.setdefault("variables", (("LC_ALL", "C.UTF-8"),))
        sandbox = backend.engine.launch(SandboxSpec(backend.image, **spec))
        started.append(sandbox)
        return sandbox

    yield start_one
    for sandbox in started:
        sandbox.close()


@pytest.fixture
def sandbox(launch: Launch) -> AttachedSandbox:
    """Return a fresh sandbox with default limits."""
    return launch()
