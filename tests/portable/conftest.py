"""A simulated Mac, and an engine behind it; what cannot be made here is skipped and says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.engine import connect
from tests.support.engine_proxy import EngineProxy
from tests.support.portable import mac as simulation
from tests.support.portable.mac import Mac
from tests.support.portable.machine import BASE, Machine, bundled_images, made_machine
from tests.support.second_engine import SecondEngine


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """Return a virtual machine with an engine, which has the images of the bundled suites."""
    if obstacle := simulation.obstacle() or SecondEngine.obstacle():
        pytest.skip(obstacle)
    try:
        connect().close()
    except EngineUnavailable as reason:
        pytest.skip(str(reason))  # that engine builds the images
    with made_machine([BASE, *bundled_images()]) as new_machine:
        yield new_machine


@pytest.fixture(scope="session")
def mac(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Mac:
    """Return a Mac whose engine is in that machine."""
    return Mac(tmp_path_factory.mktemp("mac"), machine.tcp)


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Mac:
    """Return a Mac without an engine."""
    if obstacle := simulation.obstacle():
        pytest.skip(obstacle)
    return Mac(tmp_path_factory.mktemp("mac"))


@pytest.fixture(scope="module")
def near_mac(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mac]:
    """Return a Mac whose engine is this machine's, by TCP: it is there at once."""
    if obstacle := simulation.obstacle():
        pytest.skip(obstacle)
    try:
        connect().close()
    except EngineUnavailable as reason:
        pytest.skip(str(reason))
    with EngineProxy(None) as proxy:
        yield Mac(tmp_path_factory.mktemp("mac"), proxy.url)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty project of a user."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path
