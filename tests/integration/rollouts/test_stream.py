"""Streams of rollouts on real sandboxes: what they leave when they are left, and their memory."""

from __future__ import annotations

import gc
import itertools
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import pytest_intercode
from pytest_intercode import SandboxProvider, SandboxSettings, run_rollouts
from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.core.task import TaskView

ROOT = Path(pytest_intercode.__file__).parents[1]

ENDLESS = """
import itertools, sys
import pytest_intercode

def policy(task, env):
    sys.stdout.write("began\\n")  # print() writes the end of a line by itself
    sys.stdout.flush()
    env.step("sleep 120")

provider = pytest_intercode.SandboxProvider(pytest_intercode.SandboxSettings(sys.argv[1]))
tasks = itertools.cycle(pytest_intercode.make("bash", provider=provider).tasks.tasks)
for record in pytest_intercode.run_rollouts(tasks, policy, concurrency=3, provider=provider):
    print(record)
"""


@pytest.fixture(scope="module")
def provider(quick_sandbox: str) -> Iterator[SandboxProvider]:
    made = SandboxProvider(SandboxSettings(quick_sandbox.partition("=")[2]))
    yield made
    made.close()


def below(process: psutil.Process) -> list[psutil.Process]:
    return process.children(recursive=True)


def test_ctrl_c_leaves_nothing(quick_sandbox: str) -> None:
    backend = quick_sandbox.partition("=")[2]
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, backend],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        began = [process.stdout.readline() for _ in range(3)]
        assert began == ["began\n"] * 3, began
        children = below(psutil.Process(process.pid))
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=60)
    assert (printed, process.returncode) == ("", -signal.SIGINT)
    assert said.rstrip().endswith("KeyboardInterrupt")
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not alive


def test_leaving_ends_the_sandboxes(provider: SandboxProvider) -> None:
    """What is left are idle ones, which end by themselves."""

    def policy(task: TaskView, env: AgentEnvironment) -> None:
        env.step("sleep 120" if began else "true")
        began.append(task.id)

    began: list[str] = []
    tasks = pytest_intercode.make("bash", provider=provider).tasks.tasks
    before = time.monotonic()
    with run_rollouts(itertools.cycle(tasks), policy, concurrency=3, provider=provider) as stream:
        next(stream)
    assert time.monotonic() - before < 60
    sleeping = [each for each in below(psutil.Process()) if _words(each)[:1] == ["sleep"]]
    _, alive = psutil.wait_procs(sleeping, timeout=15)
    assert not alive


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.slow
def test_records_that_were_consumed_leave_no_memory_behind(provider: SandboxProvider) -> None:
    """At most 1 MB of Python's memory for a thousand."""

    def policy(task: TaskView, env: AgentEnvironment) -> None:
        env.step("head -c 20000 /dev/zero | tr '\\0' x")
        env.submit()

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    [task, *_] = pytest_intercode.make("bash", provider=provider).tasks.tasks
    tasks = (replace(task, id=str(number)) for number in itertools.count())
    tracemalloc.start()
    try:
        with run_rollouts(tasks, policy, concurrency=8, provider=provider) as stream:
            first = list(itertools.islice(stream, 100))
            assert all(len(each.turns[0].observation) > 19_000 for each in first)
            first.clear()
            before = held()
            for _ in itertools.islice(stream, 500):
                pass
            assert held() - before < 500_000  # 10 MB of observations have passed
    finally:
        tracemalloc.stop()
