"""An episode of swe on Docker, in bare container cycles above its own commands and tests.

The episode has two sandboxes, the agent's and the verifier's, and nothing is started ahead. Its own
commands are gold's and the tests' (sentinels included), run in one container of the same image and
timed in there, by its own clock. What is left is ours: both sandboxes, the turns, the end state's
way into the verifier, grading. A bare cycle creates, starts, kills and removes one container.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from benchmarks.bare import BareContainers, bare_containers
from benchmarks.lifecycle import settled
from benchmarks.machine import needs
from benchmarks.measuring import Scale, in_turn, seconds
from benchmarks.table import Bound, Part, Row, duration
from pytest_intercode.agents.oracle import make_oracle
from pytest_intercode.core.task import FileSpec, Task
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.environments.swe.sentinels import sentinels_for
from pytest_intercode.environments.swe.strict import SweEnvironment
from pytest_intercode.rollouts.turn_loop import run_episode
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.catalogue import bundled_tasks
from pytest_intercode.suites.files import pack_files

# One for each kind of tests: unittest, a shell's, C with make, Perl.
TASKS = ("saldo-lost-cents", "logturn-odd-names", "inix-many-keys", "tally-quotes")
MOST = 1.5


def episode(provider: SandboxProvider, task: Task) -> float:
    """Return the seconds of one episode of the oracle."""
    environment = SweEnvironment(provider)

    def play() -> None:
        first, _ = environment.reset(task=task)
        done = run_episode(make_oracle(task), environment, first)
        environment.close()
        assert done.solved, done.headline

    return seconds(play)


def own_commands(bare: BareContainers, spec: SandboxSpec, task: Task) -> float:
    """Return the seconds of gold and the tests alone, by a container's own clock."""
    verification = task.verification
    assert verification is not None
    sentinels = sentinels_for(verification)
    files, command = dict(verification.files), verification.command
    variables = dict(verification.variables)
    if sentinels is not None:
        files[sentinels.path] = FileSpec("file", sentinels.text.encode())
        command = sentinels.command
        variables |= sentinels.variables
    container = bare.start(image=spec.image)
    try:
        taken = bare.timed(container, "\n".join([f"cd {task.workdir}", *gold_actions(task)]), {})
        bare.put(container, pack_files(files, task.workdir, time.time()))
        return taken + bare.timed(container, f"cd {task.workdir}\n{command}", variables)
    finally:
        bare.end(container)


def measure(scale: Scale) -> Part:
    """Measure episodes, their commands and containers."""
    needs("docker")
    part = Part("an episode of swe on docker, with gold, nothing started ahead")
    known = {task.id: task for task in bundled_tasks("swe", "")}
    tasks = [known[name] for name in scale.pick(TASKS, TASKS[:1])]
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(bare_containers())
        provider = stack.enter_context(contextlib.closing(SandboxProvider(sandbox="docker")))
        before = bare.sandboxes()
        count = scale.pick(4, 1)
        works: dict[str, Callable[[], float]] = {}

        def cycle() -> float:
            settled(bare, before)
            return bare.cycles(count) / count

        works["cycle"] = cycle
        for task in tasks:
            spec = SweEnvironment.spec(task, provider)
            episode(provider, task)  # its image is made

            def whole(task: Task = task) -> float:
                settled(bare, before)
                return episode(provider, task)

            def own(task: Task = task, spec: SandboxSpec = spec) -> float:
                settled(bare, before)
                return own_commands(bare, spec, task)

            works[f"{task.id} whole"], works[f"{task.id} own"] = whole, own
        times = in_turn(works, scale.pick(9, 1))
    for task in tasks:
        ours, own_time = times[f"{task.id} whole"], times[f"{task.id} own"]
        part.rows.append(
            Row(
                f"{task.id}: an episode less its own commands ({duration(own_time)})",
                duration(ours - own_time),
                f"a bare container cycle, {duration(times['cycle'])}",
                (ours - own_time) / times["cycle"],
                Bound("at most", MOST),
            )
        )
    return part
