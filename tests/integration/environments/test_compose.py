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
from tests.support.servers import IMAGE, ask, write_files, write_task


@pytest.fixture(scope="module")
def provider() -> Iterator[SandboxProvider]:
    try:
        connect().close()
    except EngineUnavailable as error:
        pytest.skip(str(error))
    provider = SandboxProvider(SandboxSettings("docker", pool_size=4))
    yield provider
    provider.close()


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
    task = write_files(
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


def test_tests_reach_the_services_as_the_agent_left_them(
    provider: SandboxProvider, tmp_path: Path
) -> None:
    check = f'[ "$(bash -c "{ask("get colour")}")" = blue ] && reward=1 || reward=0\n'
    save = "echo $reward >/logs/verifier/reward.txt\n"
    task = write_task(tmp_path, {"tests/test.sh": "#!/bin/bash\n" + check + save})
    reward, outputs = play(provider, task, ask("put colour blue"), ask("get colour"), "ls /tests")
    assert (reward, outputs[1]) == (1.0, "blue\n")
    assert "No such file" in outputs[2]
    assert play(provider, task, ask("put colour red"))[0] == 0.0
    assert play(provider, task, *task.gold)[0] == 1.0


@pytest.mark.slow
def test_a_separate_verifier_gets_what_services_hold(
    provider: SandboxProvider, tmp_path: Path
) -> None:
    toml = """
        artifacts = [{ source = "/var/log/requests", service = "db" },
                     { source = "/tmp/count", service = "db" }]
        [verifier]
        environment_mode = "separate"
        [[verifier.collect]]
        service = "db"
        command = "grep -c put /var/log/requests >/tmp/count"
    """
    test = (
        "#!/bin/bash\n"
        "[ $(cat /tmp/count) = 1 ] && grep -q blue /var/log/requests && reward=1 || reward=0\n"
        "getent hosts db && reward=0\n"
        "echo $reward >/logs/verifier/reward.txt\n"
    )
    dockerfile = f"FROM {IMAGE}\nCOPY . /tests/\nRUN chmod +x /tests/test.sh\n"
    files = {"tests/Dockerfile": dockerfile, "tests/test.sh": test}
    task = write_task(tmp_path, files, toml)
    assert play(provider, task, ask("put colour blue"))[0] == 1.0
    forged = "mkdir -p /var/log; echo put colour blue >/var/log/requests; echo 1 >/tmp/count"
    assert play(provider, task, forged)[0] == 0.0
