"""An episode with two services, against bare containers in their own bare network.

Both are measured in turn, until everything is removed. The bare ones are three containers from the
same image with the same limits, in an internal network, which are started one after another.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from benchmarks.bare import BareContainers, bare_containers
from benchmarks.machine import needs
from benchmarks.measuring import Scale, in_turn, seconds
from benchmarks.table import Bound, Part, against
from pytest_intercode.core.machine import ImageSource, Service, Services
from pytest_intercode.core.task import Task
from pytest_intercode.environments.ctf.strict import CtfEnvironment
from pytest_intercode.sandboxes.docker.engine import RUN_LABEL, DockerEngine
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.files import bundled_folder

SERVICES = 2
TIMEOUT = 20.0  # seconds until everything is removed
WAIT = ("sleep", "1000")


def task() -> Task:
    """Return a task with a known flag, and services that only wait."""
    image = ImageSource(bundled_folder("dockerfiles") / "bash.Dockerfile")
    names = (f"service{number}" for number in range(SERVICES))
    machines = tuple(Service(name, image, entrypoint=(), command=WAIT) for name in names)
    services = Services(machines, ("main",))
    return Task("t", "Say it", ("flag",), "ctf", "b", "b", image=image, services=services)


def episode(provider: SandboxProvider, played: Task, settle: Callable[[], None]) -> float:
    """Return the seconds of an episode, until nothing is left of it."""
    environment = CtfEnvironment(provider)

    def play() -> None:
        environment.reset(task=played)
        environment.step(":")
        environment.step("submit flag")
        assert environment.final is not None
        assert environment.final.value == 1.0
        environment.close()
        settle()

    return seconds(play)


def measure(scale: Scale) -> Part:
    """Measure episodes and their containers."""
    needs("docker")
    part = Part("an episode with two services, nothing started ahead")
    played = task()
    with contextlib.ExitStack() as stack:
        bare: BareContainers = stack.enter_context(bare_containers())
        provider = stack.enter_context(
            contextlib.closing(SandboxProvider(SandboxSettings("docker")))
        )
        episode(provider, played, lambda: None)
        engine = getattr(provider.backend, "engine", None)
        assert isinstance(engine, DockerEngine)
        filters = {"label": f"{RUN_LABEL}={engine.run}"}

        def settle() -> None:
            deadline = time.monotonic() + TIMEOUT
            while time.monotonic() < deadline and (
                engine.api.containers(all=True, filters=filters)
                or engine.api.networks(filters=filters)
            ):
                time.sleep(0.01)

        settle()
        works = {
            "ours": lambda: episode(provider, played, settle),
            "bare": lambda: bare.networked_cycle(1 + SERVICES),
        }
        times = in_turn(works, scale.pick(9, 1))
    part.rows.append(
        against(
            *("an episode with two services", times["ours"]),
            *(f"{1 + SERVICES} bare containers in a network", times["bare"]),
            Bound("at most", 1.3),
        )
    )
    return part
