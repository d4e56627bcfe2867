"""An episode of swe on Docker, less its own commands and tests, in bare container cycles.

The episode has two sandboxes, the agent's and the verifier's, and nothing is started ahead. The
time of its own commands, gold's and the tests' (sentinels included), is taken from the same
episode: a compilation of seconds varies by more than a cycle. The rest is ours: both sandboxes, the
turns, the transfer of the end state into the verifier, and grading. A bare cycle creates, starts,
kills and removes one container.

The second row of each task shows that our sandboxes do not slow down the commands themselves: the
same commands on the same files with the same variables and limits, in bare containers, one for gold
and one for the tests, timed inside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from unittest import mock

from benchmarks.bare import BareContainers, bare_containers
from benchmarks.lifecycle import settled
from benchmarks.machine import needs
from benchmarks.measuring import Scale, in_turn, seconds
from benchmarks.table import Bound, Part, against, duration
from pytest_intercode.agents.oracle import make_oracle
from pytest_intercode.core.task import FileSpec, Task
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.environments.swe.sentinels import sentinels_for
from pytest_intercode.environments.swe.strict import SweEnvironment
from pytest_intercode.rollouts.turn_loop import run_episode
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.protocol import Execution, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.catalogue import bundled_tasks
from pytest_intercode.system.archives import pack_files

# One for each kind of tests: unittest, shell scripts, C with make, Perl.
TASKS = ("saldo-lost-cents", "logturn-odd-names", "inix-many-keys", "tally-quotes")
MOST = 1.5


@contextlib.contextmanager
def noted_actions() -> Iterator[list[float]]:
    """Record the seconds of each action that runs in a sandbox."""
    noted: list[float] = []
    run = AttachedSandbox.run

    def noting(sandbox: AttachedSandbox, action: str, timeout: float) -> Execution:
        execution: Execution = run(sandbox, action, timeout)
        noted.append(execution.seconds)
        return execution

    with mock.patch.object(AttachedSandbox, "run", noting):
        yield noted


def episode(provider: SandboxProvider, task: Task) -> tuple[float, float]:
    """Return the seconds of one episode of the oracle, and of its own commands."""
    environment = SweEnvironment(provider)

    def play() -> None:
        first, _ = environment.reset(task=task)
        record = run_episode(make_oracle(task), environment, first)
        environment.close()
        assert record.solved, record.headline

    with noted_actions() as noted:
        whole = seconds(play)
    assert len(noted) == len(gold_actions(task)) + 1, noted
    return whole, sum(noted)


def own_commands(bare: BareContainers, specs: list[SandboxSpec], task: Task) -> float:
    """Return the seconds of gold and the tests in bare containers, by the containers' own clock."""
    verification = task.verification
    assert verification is not None
    sentinels = sentinels_for(verification)
    files, command = dict(verification.files), verification.command
    variables = dict(verification.variables)
    if sentinels is not None:
        files[sentinels.path] = FileSpec("file", sentinels.text.encode())
        command = sentinels.command
        variables |= sentinels.variables
    gold = "\n".join([f"cd {task.workdir}", *gold_actions(task)])
    agents, verifiers = specs
    seconds = 0.0
    with bare.lent(agents) as container:
        seconds += bare.timed(container, gold, {})
    with bare.lent(verifiers) as container:
        bare.timed(container, gold, {})  # the end state
        bare.put(container, pack_files(files, task.workdir, 0.0))
        seconds += bare.timed(container, f"cd {task.workdir}\n{command}", variables)
    return seconds


def measure(scale: Scale) -> Part:
    """Measure episodes, their commands and containers."""
    needs("docker")
    part = Part("an episode of swe on docker, with gold, nothing started ahead")
    tasks_by_id = {task.id: task for task in bundled_tasks("swe", "")}
    tasks = [tasks_by_id[name] for name in scale.pick(TASKS, TASKS[:1])]
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(bare_containers())
        provider = stack.enter_context(
            contextlib.closing(SandboxProvider(SandboxSettings("docker")))
        )
        sandboxes_before = bare.sandboxes()
        count = scale.pick(2, 1)
        inside: dict[str, float] = {}
        works: dict[str, Callable[[], float]] = {}

        def cycle() -> float:
            settled(bare, sandboxes_before)
            return bare.cycles(count) / count

        for task in tasks:
            specs = SweEnvironment.sandboxes(task, provider)
            episode(provider, task)  # build its image first

            def rest(task: Task = task) -> float:
                settled(bare, sandboxes_before)
                whole, inside[task.id] = episode(provider, task)
                return whole - inside[task.id]

            def own(task: Task = task, specs: list[SandboxSpec] = specs) -> float:
                settled(bare, sandboxes_before)
                return own_commands(bare, specs, task)

            works[f"{task.id} cycle"] = cycle  # just before, as the machine's load changes
            works[f"{task.id} rest"] = rest
            works[f"{task.id} inside"] = partial(inside.__getitem__, task.id)
            works[f"{task.id} own"] = own
        times = in_turn(works, scale.pick(9, 1))
    for task in tasks:
        product, durations = times[f"{task.id} rest"], times[f"{task.id} inside"]
        title = f"{task.id}: an episode less its own commands ({duration(durations)})"
        one = times[f"{task.id} cycle"]
        bound = Bound("at most", MOST)
        part.rows.append(against(title, product, "a bare container cycle", one, bound))
        title = f"{task.id}: its own commands"
        own_time = times[f"{task.id} own"]
        part.rows.append(against(title, durations, "in bare containers", own_time))
    return part
