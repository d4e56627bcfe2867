"""An episode with both of its sandboxes against a bare container, and the backends' ratio.

A single sandbox on bubblewrap, from its start to its first answer, is compared with a bare one: the
program ``bwrap`` with a bash in all namespaces, without an overlay, limits or a system call filter.

A single episode is reset, one action of the oracle, grading and close, with nothing started ahead.
The engine removes its containers after the episode's end; the next episode does not wait for this,
but shares the processors with it. A bare cycle waits for the removal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from benchmarks.bare import BareContainers, bare_containers, bare_shell
from benchmarks.machine import backends, needs
from benchmarks.measuring import Scale, in_turn, seconds
from benchmarks.table import Bound, Part, against
from pytest_intercode.agents.oracle import make_oracle
from pytest_intercode.core.task import Task
from pytest_intercode.environments.bash.strict import BashEnvironment
from pytest_intercode.rollouts.turn_loop import run_episode
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings

TASK = Task("t", "Print 7", ("echo 7",), "bash", "benchmark", "benchmark")
TIMEOUT = 10.0
BARE = ("bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "bash")


def episodes(provider: SandboxProvider, count: int) -> float:
    """Return the mean seconds of an episode, over several in a row."""
    environment = BashEnvironment(provider)

    def one_after_another() -> None:
        for _ in range(count):
            first, _ = environment.reset(task=TASK)
            record = run_episode(make_oracle(TASK), environment, first)
            environment.close()
            assert record.solved, record.headline

    return seconds(one_after_another) / count


def sandboxes(engine: Bubblewrap, count: int) -> float:
    """Return the mean seconds of a sandbox, over several in a row."""

    def one_after_another() -> None:
        for _ in range(count):
            with contextlib.closing(engine.launch(SandboxSpec(HOST))) as sandbox:
                assert sandbox.run(":", TIMEOUT).status == 0

    return seconds(one_after_another) / count


def bare_sandboxes(count: int) -> float:
    """Return the mean seconds of a bare sandbox, over several in a row."""

    def one_after_another() -> None:
        for _ in range(count):
            with bare_shell(BARE) as run:
                assert run(":") == b""

    return seconds(one_after_another) / count


def settled(bare: BareContainers, before: int) -> None:
    """Wait until the engine has removed the sandboxes of earlier episodes."""
    deadline = time.monotonic() + TIMEOUT
    while bare.sandboxes() > before and time.monotonic() < deadline:
        time.sleep(0.02)


def measure(scale: Scale) -> Part:
    """Measure episodes and containers."""
    needs("docker")
    part = Part("an episode with its two sandboxes, nothing started ahead")
    count = scale.pick(8, 1)
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(bare_containers())
        sandboxes_before = bare.sandboxes()
        works: dict[str, Callable[[], float]] = {}
        for backend in backends():
            provider = stack.enter_context(
                contextlib.closing(SandboxProvider(SandboxSettings(backend)))
            )
            episodes(provider, 1)

            def work(provider: SandboxProvider = provider) -> float:
                settled(bare, sandboxes_before)
                return episodes(provider, count)

            works[backend] = work

        def cycle(disabled: bool) -> float:
            settled(bare, sandboxes_before)
            return bare.cycles(count, disabled=disabled) / count

        if "bubblewrap" in works:
            engine = stack.enter_context(contextlib.closing(Bubblewrap()))
            works["sandbox"] = lambda: sandboxes(engine, count)
            works["bare bwrap"] = lambda: bare_sandboxes(count)
        works["disabled"] = lambda: cycle(disabled=True)
        works["none"] = lambda: cycle(disabled=False)
        times = in_turn(works, scale.pick(7, 1))
    product, bare_cycle = times["docker"], "a bare container cycle"
    for kind, name in (("disabled", "networking disabled"), ("none", "network mode `none`")):
        part.rows.append(
            against("an episode on docker", product, f"{bare_cycle}, {name}", times[kind])
        )
    if "bubblewrap" in times:
        reference, bound = times["bubblewrap"], Bound("at most", 1 / 8)
        part.rows.append(
            against("an episode on bubblewrap", reference, "on docker", product, bound)
        )
        product, reference, bound = times["sandbox"], times["bare bwrap"], Bound("at most", 2)
        part.rows.append(
            against(
                "a sandbox on bubblewrap", product, "a bare `bwrap` with bash", reference, bound
            )
        )
    return part
