"""One trivial action: through the channel, against an exec of the SDK and of the command line.

All of them run nothing: the shell's ``:`` and ``/bin/true``. A step includes what the environment
does around an action; the SDK's is ``exec_run``, which asks for the exit status too.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator

import pytest_intercode
from benchmarks.bare import bare_containers
from benchmarks.machine import backends, needs
from benchmarks.measuring import Scale, in_turn, seconds
from benchmarks.table import Bound, Part, against
from pytest_intercode.sandboxes.provider import SandboxProvider

TASK = pytest_intercode.Task("t", "nothing", ("true",), "bash", "benchmark", "benchmark")
BOUNDS = {"docker": Bound("at most", 1 / 40), "bubblewrap": Bound("at most", 1 / 100)}


@contextlib.contextmanager
def episode(backend: str) -> Iterator[Callable[[str], object]]:
    """Begin an episode that never ends, and lend what runs its actions."""
    provider = SandboxProvider(sandbox=backend)
    environment = pytest_intercode.make("bash", provider=provider, max_turns=1_000_000)
    try:
        environment.reset(task=TASK)
        yield environment.step
    finally:
        environment.close()
        provider.close()


def several(work: Callable[[], object], times: int) -> Callable[[], float]:
    """Return a measure: the median time of a few calls."""
    return lambda: statistics.median(seconds(work) for _ in range(times))


def measure(scale: Scale) -> Part:
    """Measure one action, each way."""
    needs("docker")
    part = Part("an action")
    client = shutil.which("docker")
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(bare_containers())
        works: dict[str, Callable[[], float]] = {}
        container = bare.start()
        stack.callback(bare.end, container)
        works["sdk"] = several(lambda: bare.exec_run(container, ["true"]), scale.pick(4, 1))
        if client is not None:
            command = [client, "exec", container, "true"]
            works["command line"] = several(
                lambda: subprocess.run(command, check=True), scale.pick(3, 1)
            )
        for backend in backends():
            step = stack.enter_context(episode(backend))
            for action in (":", "/bin/true"):
                step(action)
                works[f"{backend} {action}"] = several(
                    lambda step=step, action=action: step(action),  # type: ignore[misc]
                    scale.pick(30, 3),
                )
        times = in_turn(works, scale.pick(10, 2))
    for backend in backends():
        for action in (":", "/bin/true"):
            ours = times[f"{backend} {action}"]
            bound = BOUNDS[backend] if action == ":" else None
            name = f"`{action}` on {backend}"
            part.rows.append(against(name, ours, "SDK `exec_run`", times["sdk"], bound))
            if client is not None and action == ":":
                theirs = times["command line"]
                part.rows.append(against(name, ours, "command line `docker exec`", theirs))
    return part
