"""One trivial action: through the channel, against a bare bash behind pipes, and against an exec.

The actions are the shell's ``:`` and the program ``ls``; on docker the bare bash is behind an open
``docker exec -i``. The SDK and the command line each execute ``true`` every time. A step includes
what the environment does around an action; the SDK's function is ``exec_run``, which also asks for
the exit status.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator
from functools import partial

import pytest_intercode
from benchmarks.bare import bare_containers, bare_shell
from benchmarks.machine import backends, needs
from benchmarks.measuring import Scale, in_turn, seconds
from benchmarks.table import Bound, Part, against
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings

TASK = pytest_intercode.Task("t", "nothing", ("true",), "bash", "benchmark", "benchmark")
ACTIONS = (":", "ls")
BOUNDS = {"docker": Bound("at most", 1 / 40), "bubblewrap": Bound("at most", 1 / 100)}
OPEN_BOUND = Bound("at most", 1.5)
BARE_BOUNDS = {":": Bound("at most", 2), "ls": Bound("at most", 1.2)}


@contextlib.contextmanager
def episode(backend: str) -> Iterator[Callable[[str], object]]:
    """Begin an episode that never ends, and yield the function that runs its actions."""
    provider = SandboxProvider(SandboxSettings(backend))
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
    """Measure one action in each way."""
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
        runs: dict[str, Callable[[str], object]] = {"bare": stack.enter_context(bare_shell())}
        if client is not None:
            command = [client, "exec", "-i", container, "bash"]
            runs["open"] = stack.enter_context(bare_shell(command))
        for backend in backends():
            runs[backend] = stack.enter_context(episode(backend))
        for name, run in runs.items():
            run("cd /")
            for action in ACTIONS:
                works[f"{name} {action}"] = several(partial(run, action), scale.pick(30, 3))
        times = in_turn(works, scale.pick(10, 2))
    for backend in backends():
        name = f"`:` on {backend}"
        ours = times[f"{backend} :"]
        part.rows.append(against(name, ours, "SDK `exec_run`", times["sdk"], BOUNDS[backend]))
        if client is not None:
            theirs = times["command line"]
            part.rows.append(against(name, ours, "command line `docker exec`", theirs))
    if "open" in runs:
        ours, theirs = times["docker :"], times["open :"]
        comparison = "an open `docker exec -i bash`"
        part.rows.append(against("`:` on docker", ours, comparison, theirs, OPEN_BOUND))
    if "bubblewrap" in runs:
        for action in ACTIONS:
            ours, theirs = times[f"bubblewrap {action}"], times[f"bare {action}"]
            name, bound = f"`{action}` on bubblewrap", BARE_BOUNDS[action]
            part.rows.append(against(name, ours, "a bare bash behind pipes", theirs, bound))
    return part
