"""Agents on their threads: interrupting them hits nobody else."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.ledger import Ledger
from pytest_intercode.agents.loader import adapt
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.rollouts.agent_thread import AgentRun, SharedLoop
from pytest_intercode.rollouts.budgets import RunBudget
from tests.unit.rollouts.test_turn_loop import TASK, Counter

TIMEOUT = 30  # seconds for what takes none


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Have threads take turns as often as possible, so that every moment is met."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@contextlib.contextmanager
def agent_run(agent: Any) -> Iterator[AgentRun]:
    """Return an agent that is ready to begin."""
    environment, run_budget = Counter(), RunBudget(RunLimits())
    first, _ = environment.reset(task=TASK)
    ledger = Ledger(None, run_budget.charge, lambda: None)
    with contextlib.closing(SharedLoop()) as shared_loop:
        yield AgentRun(adapt(agent), environment, first, ledger, run_budget, shared_loop)


def idle(task: TaskView, env: AgentEnvironment) -> None:
    while True:
        time.sleep(0.001)


@pytest.mark.usefixtures("quick_switches")
def test_interrupting_one_that_has_not_begun_hits_no_thread_that_starts() -> None:
    """Since Python 3.12, a thread that is being started has the id 0."""

    def start_others() -> None:
        for _ in range(500):
            threading.Thread(target=int, daemon=True).start()  # waits until the other one runs

    starting = threading.Thread(target=start_others, daemon=True)
    with agent_run(idle) as run:
        starting.start()
        deadline = time.monotonic() + TIMEOUT
        while starting.is_alive():
            assert time.monotonic() < deadline
            run.interrupt(0)


def test_one_that_is_cancelled_before_it_begins_does_not_play() -> None:
    with agent_run(idle) as run:
        run.cancel("not wanted")
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(TIMEOUT)
        assert not thread.is_alive()
        assert run.failure is None


def test_one_that_waits_in_c_holds_up_no_thread_that_is_traced() -> None:
    """Python 3.11 enters no traced function while an exception waits for a thread that is in C."""
    reading, writing = os.pipe()
    waits, entered = threading.Event(), threading.Event()

    def wait_in_c(task: TaskView, env: AgentEnvironment) -> None:
        waits.set()
        os.read(reading, 1)
        while True:
            time.sleep(0.001)

    def enter_a_function() -> None:
        sys.settrace(lambda *_: None)
        entered.set()  # a method of Python

    with agent_run(wait_in_c) as run:
        agent = threading.Thread(target=run, daemon=True)
        traced = threading.Thread(target=enter_a_function, daemon=True)
        agent.start()
        assert waits.wait(TIMEOUT)
        run.stop("timed out")
        assert not run.interrupt(0.05)
        traced.start()
        was_entered = entered.wait(TIMEOUT)
        os.write(writing, b"-")
        for thread in (agent, traced):
            thread.join(TIMEOUT)
            assert not thread.is_alive()
        assert was_entered
    os.close(reading)
    os.close(writing)
