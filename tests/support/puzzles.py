"""Fixtures for tests of the ctf environment on each backend: sandboxes, and episodes on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.environments.ctf.strict import CtfEnvironment
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings

FLAG = "flag{It's_the_0ne}"

Start = Callable[..., CtfEnvironment]


@pytest.fixture(scope="module", params=["docker", "bubblewrap"])
def provider(request: pytest.FixtureRequest) -> Iterator[SandboxProvider]:
    """Return a provider of each backend in turn."""
    yield from _provided(request, request.param)


@pytest.fixture(scope="module")
def quick_provider(request: pytest.FixtureRequest) -> Iterator[SandboxProvider]:
    """Return a provider of the quicker backend that is here, for what is the same on both."""
    try:
        request.getfixturevalue("bubblewrap")
    except pytest.skip.Exception:
        yield from _provided(request, "docker")
    else:
        yield from _provided(request, "bubblewrap")


def _provided(request: pytest.FixtureRequest, backend: str) -> Iterator[SandboxProvider]:
    request.getfixturevalue("docker_engine" if backend == "docker" else backend)
    provider = SandboxProvider(SandboxSettings(backend))
    yield provider
    provider.close()


@pytest.fixture
def start(provider: SandboxProvider) -> Iterator[Start]:
    """Return a factory of episodes that have begun; keywords are fields of the task."""
    started: list[CtfEnvironment] = []

    def make(
        kind: type[CtfEnvironment] = CtfEnvironment, feedback: Any = "observation", **fields: Any
    ) -> CtfEnvironment:
        environment = kind(provider, feedback=feedback)
        started.append(environment)
        fields = {"gold": (FLAG,), "workdir": "/ctf", **fields}
        task = Task(id="t", query="Find it.", env="ctf", suite="s", dataset="s", **fields)
        environment.reset(task=task)
        return environment

    yield make
    for environment in started:
        environment.close()
