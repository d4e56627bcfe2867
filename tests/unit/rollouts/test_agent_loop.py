"""Async agents that share an event loop, several at a time, in environments that live in memory."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pytest_intercode.agents import ledger
from pytest_intercode.agents.loader import adapt
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.turn import Observation
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.turn_loop import run_episode
from tests.unit.rollouts.test_turn_loop import TASK, Counter

Play = Callable[..., EpisodeRecord]


@pytest.fixture
def shared() -> Iterator[SharedLoop]:
    before = set(threading.enumerate())  # other tests leave agents that never end
    loop = SharedLoop()
    yield loop
    loop.close()
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("intercode-")]


@pytest.fixture
def play(shared: SharedLoop, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setattr("pytest_intercode.rollouts.turn_loop._AGENT_EXIT_TIMEOUT", 0.2)

    def run(agent: Any, timeout: float = 20, environment: Any = None) -> EpisodeRecord:
        environment = environment or Counter()
        first, _ = environment.reset(task=TASK)
        return run_episode(adapt(agent), environment, first, timeout=timeout, shared_loop=shared)

    return run


def together(*jobs: Callable[[], EpisodeRecord]) -> list[EpisodeRecord]:
    """Play several at a time."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


class Slow(Counter):
    """An environment whose actions take their time.

    Attributes:
        running: actions that run now, in all environments.
        most: as many have run at the same time.
    """

    lock = threading.Lock()
    running = most = 0

    def execute(self, action: str) -> Observation:
        with self.lock:
            Slow.running += 1
            Slow.most = max(Slow.most, Slow.running)
        time.sleep(0.15)
        with self.lock:
            Slow.running -= 1
        return super().execute(action)


def test_all_episodes_have_one_loop_and_each_its_own_thread(play: Play) -> None:
    loops: list[object] = []
    threads: set[int] = set()
    both = asyncio.Event()

    async def agent(task: Any, env: Any) -> None:
        loops.append(asyncio.get_running_loop())
        threads.add(threading.get_ident())
        if len(loops) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 10)  # they meet: an event belongs to one loop
        assert asyncio.current_task() is not None
        env.step("5")

    assert [each.outcome for each in together(lambda: play(agent), lambda: play(agent))] == [
        "solved"
    ] * 2
    assert play(agent).solved
    assert len(set(map(id, loops))) == 1
    assert len(threads) >= 2


def test_actions_let_the_others_go_on(play: Play) -> None:
    async def agent(task: Any, env: Any) -> None:
        for _ in range(4):
            env.step("1.25")
            await asyncio.sleep(0)

    Slow.most = 0
    records = together(*[lambda: play(agent, environment=Slow())] * 6)
    assert [record.outcome for record in records] == ["solved"] * 6
    assert Slow.most > 2
    assert not any(record.left_behind for record in records)


def test_one_that_blocks_the_loop_is_named(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_intercode.rollouts.agent_loop._SLOW_STEP", 0.1)
    waiting = threading.Event()

    async def blocks(task: Any, env: Any) -> None:
        while not waiting.is_set():
            await asyncio.sleep(0.01)
        time.sleep(0.4)  # here
        env.step("5")

    async def waits(task: Any, env: Any) -> None:
        waiting.set()
        await asyncio.sleep(0.05)
        env.step("5")

    blocker, waiter = together(lambda: play(blocks), lambda: play(waits))
    assert (blocker.outcome, waiter.outcome, waiter.left_behind) == ("solved", "solved", ())
    (line,) = blocker.left_behind
    code = blocks.__code__
    assert line.startswith("a blocked event loop: 1 other async agent waited 0.")
    assert line.endswith(f"test_agent_loop.py:{code.co_firstlineno + 3} in blocks")


def test_one_that_never_yields_holds_up_the_others_no_longer_than_its_time(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.rollouts.agent_loop._SLOW_STEP", 0.1)
    end = threading.Event()

    async def deaf(task: Any, env: Any) -> None:
        end.wait(10)  # in C, where no exception reaches it

    async def busy(task: Any, env: Any) -> None:
        while True:
            pass

    async def good(task: Any, env: Any) -> None:
        await asyncio.sleep(0.1)
        env.step("5")

    for bad, stays in ((deaf, True), (busy, False)):
        late, fine = together(lambda bad=bad: play(bad, 0.4), lambda: play(good))  # type: ignore[misc]
        assert (late.outcome, fine.outcome) == ("timed-out", "solved")
        assert f" in {bad.__name__}" in late.reason
        assert late.reason.startswith("it has blocked for 0.")
        left = "the agent's own thread, which still runs"
        assert (left in late.left_behind) == stays
    assert play(good).solved  # on the same loop
    end.set()
    time.sleep(0.1)


def test_one_whose_time_is_up_while_another_blocks_says_so(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.rollouts.agent_loop._SLOW_STEP", 0.1)
    waiting = threading.Event()

    async def blocks(task: Any, env: Any) -> None:
        while not waiting.is_set():
            await asyncio.sleep(0.01)
        time.sleep(0.8)

    async def waits(task: Any, env: Any) -> None:
        waiting.set()
        await asyncio.sleep(0.1)
        env.step("5")

    _, waiter = together(lambda: play(blocks), lambda: play(waits, 0.4))
    assert waiter.outcome == "timed-out"
    assert waiter.reason.startswith("the event loop was blocked for 0.")
    assert " s by the agent of t at " in waiter.reason
    assert " in blocks; " in waiter.reason


def test_tasks_threads_and_generators_of_an_agent(play: Play) -> None:
    closed: list[str] = []

    async def numbers() -> Any:
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(0)
            closed.append("generator")

    async def forever() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            closed.append("task")

    class Agent:
        async def run(self, task: Any, env: Any) -> None:
            self.background = asyncio.create_task(forever())
            self.generator = numbers()
            assert await self.generator.__anext__() == 0
            ledger.spend(input_tokens=1)
            await asyncio.gather(self.half(env), self.half(env))
            await asyncio.to_thread(env.step, "2")

        async def half(self, env: Any) -> None:
            await asyncio.sleep(0)
            await asyncio.to_thread(ledger.spend, input_tokens=10)
            env.spend(input_tokens=100)
            env.step("1.5")

    record = play(Agent())
    assert (record.outcome, record.usage.input_tokens) == ("solved", 221)
    assert sorted(closed) == ["generator", "task"]


def test_an_exit_in_a_task_ends_the_agent_and_not_the_loop(play: Play) -> None:
    async def leaves() -> None:
        sys.exit(3)

    async def agent(task: Any, env: Any) -> None:
        leaving = asyncio.create_task(leaves())
        await asyncio.sleep(10)
        await leaving

    async def stops(task: Any, env: Any) -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 4)
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        env.step("5")

    assert play(agent).reason == "SystemExit: 3"
    assert play(stops).solved


def test_a_sync_method_may_run_a_loop_of_its_own(play: Play) -> None:
    class Agent:
        def reset(self, task: Any) -> None:
            asyncio.run(asyncio.sleep(0))

        async def act(self, observation: str) -> str:
            await asyncio.sleep(0)
            return "5" if observation == "Say five." else "submit"

        def close(self) -> None:
            asyncio.run(asyncio.sleep(0))

    class Sync:
        def act(self, observation: str) -> str:
            return asyncio.run(self.think(observation))

        async def think(self, observation: str) -> str:
            return "5" if observation == "Say five." else "submit"

    assert play(Agent()).solved
    assert play(Sync()).solved


def test_a_timeout_of_the_agents_own_comes_after_the_action(play: Play) -> None:
    seen: list[str] = []

    async def agent(task: Any, env: Any) -> None:
        async def work() -> None:
            env.step("1")  # takes longer than it has
            seen.append("acted")
            await asyncio.sleep(10)
            seen.append("went on")

        try:
            await asyncio.wait_for(work(), 0.05)
        except (TimeoutError, asyncio.TimeoutError):
            seen.append("late")
        env.step("4")

    assert play(agent, environment=Slow()).solved
    assert seen == ["acted", "late"]


def test_one_that_ignores_its_cancellation_is_left(play: Play) -> None:
    async def agent(task: Any, env: Any) -> None:
        while True:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass

    record = play(agent, 0.2)
    assert (record.outcome, record.left_behind) == ("timed-out", ())
    assert play(agent, 0.1).outcome == "timed-out"


def test_the_loop_ends_at_once_although_an_agent_blocks_it(shared: SharedLoop) -> None:
    began, end = threading.Event(), threading.Event()

    async def agent(task: Any, env: Any) -> None:
        began.set()
        end.wait(20)

    environment = Counter()
    first, _ = environment.reset(task=TASK)
    playing = threading.Thread(
        target=lambda: run_episode(adapt(agent), environment, first, shared_loop=shared)
    )
    playing.start()
    assert began.wait(10)
    before = time.monotonic()
    shared.close()  # as where Ctrl-C ends the run
    assert time.monotonic() - before < 10
    end.set()
    playing.join(10)
    assert not playing.is_alive()
