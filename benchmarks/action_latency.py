"""One trivial action: through the environment, against an exec of the Docker SDK."""

from __future__ import annotations

import docker

import pytest_intercode
from benchmarks.measuring import median, show
from pytest_intercode.sandboxes.provider import SandboxProvider


def main() -> None:
    client = docker.from_env()
    provider = SandboxProvider()
    task = pytest_intercode.Task("t", "nothing", ("true",), "bash", "benchmark", "benchmark")
    environment = pytest_intercode.make("bash", provider=provider, max_turns=100000)
    environment.reset(task=task)
    image = type(environment).sandboxes(task, provider)[0].image
    container = client.containers.run(image, ["sleep", "1000"], detach=True, network_mode="none")
    try:
        exec_run = median(lambda: container.exec_run(["true"]), 40)
        builtin = median(lambda: environment.step(":"), 300)
        program = median(lambda: environment.step("/bin/true"), 300)
    finally:
        container.remove(force=True)
        environment.close()
        provider.close()
    show("docker SDK exec_run of `true` (reference)", exec_run)
    show("environment.step(':')", builtin, exec_run)
    show("environment.step('/bin/true')", program, exec_run)
