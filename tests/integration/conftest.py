"""Fixtures for tests against a real Docker engine; without one, these tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.docker.engine import DockerEngine, connect
from pytest_intercode.sandboxes.docker.images import Images
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.suites.loader import bundled_folder
from pytest_intercode.suites.task import ImageSource
from tests.integration.sql_shop import (  # noqa: F401 - fixtures
    shop,
    sql_provider,
    sqlite_engine,
    start,
)


class Launch(Protocol):
    """Starts a fresh sandbox of the bash image; it is closed when the test is over."""

    def __call__(self, **spec: Any) -> Container:
        """Start one; keywords are fields of :class:`SandboxSpec`."""


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """Return an engine with a run label of its own."""
    try:
        api = connect()
    except EngineUnavailable as unavailable:
        pytest.skip(str(unavailable))
    engine = DockerEngine(api)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def bash_image(docker_engine: DockerEngine) -> str:
    """Return the name of the bundled bash image, built if need be."""
    dockerfile = bundled_folder("dockerfiles") / "bash.Dockerfile"
    return Images(docker_engine.api).resolve(ImageSource(dockerfile=dockerfile))


@pytest.fixture
def launch(docker_engine: DockerEngine, bash_image: str) -> Iterator[Launch]:
    """Return a factory of fresh sandboxes."""
    started: list[Container] = []

    def start_one(**spec: Any) -> Container:
        spec.setdefault("variables", (("LC_ALL", "C.UTF-8"),))
        container = docker_engine.launch(SandboxSpec(bash_image, **spec))
        started.append(container)
        return container

    yield start_one
    for container in started:
        container.close()


@pytest.fixture
def sandbox(launch: Launch) -> Container:
    """Return a fresh sandbox with default limits."""
    return launch()
