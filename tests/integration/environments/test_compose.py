"""Task folders with compose files are played in Docker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.environments.swe.strict import SweEnvironment
from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.harbor.datasets import folder_tasks


@pytest.fixture(scope="module")
def provider() -> Iterator[SandboxProvider]:
    try:
        connect().close()
    except EngineUnavailable as error:
        pytest.skip(str(error))
    made = SandboxProvider(SandboxSettings("docker", pool_size=4))
    yield made
    made.close()


def write(folder: Path, files: dict[str, str]) -> Task:
    """Write a task folder, and return its task."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (task,) = folder_tasks(folder)
    assert task.skip is None
    return task


def play(provider: SandboxProvider, task: Task, *actions: str) -> tuple[float, list[str]]:
    """Return the reward of actions, and what they print."""
    environment = SweEnvironment(provider)
    try:
        environment.reset(task=task)
        outputs = [str(environment.step(action)[0]) for action in actions]
        environment.step("submit")
        assert environment.final is not None
        return environment.final.value, outputs
    finally:
        environment.close()


def test_a_shared_folder_hides_the_images_and_brings_no_secrets(
    provider: SandboxProvider, tmp_path: Path
) -> None:
    task = write(
        tmp_path,
        {
            "task.yaml": "instruction: Sum data/numbers into /app/sum.\ndifficulty: easy\n",
            "Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\nRUN touch a .b\n",
            "docker-compose.yaml": "services: {client: {build: ., volumes: ['./:/app']}}\n",
            "data/numbers": "3\n4\n",
            "solution.sh": "echo 7 >sum\n",
            "tests/expected": "7\n",
            "run-tests.sh": "cmp /app/sum /app/tests/expected && result=PASSED || result=FAILED\n"
            'echo "== short test summary info =="; echo "$result x.py::test_sum"\n',
        },
    )
    reward, (listing, *_) = play(provider, task, "ls -A", "echo $((3 + 4)) >sum")
    assert listing.split() == ["Dockerfile", "data", "docker-compose.yaml", "task.yaml"]
    assert reward == 1.0
    reward, _ = play(provider, task, "mkdir tests; echo 8 | tee sum tests/expected")
    assert reward == 0.0
