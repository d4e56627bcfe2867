"""Streams of rollouts, with an environment that lives in memory: order, back-pressure, the end."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pytest_intercode
from pytest_intercode import (
    EpisodeRecord,
    Observation,
    RolloutStream,
    SandboxProvider,
    SandboxSettings,
    Task,
    run_rollouts,
)
from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.core.conversation import Conversation, Exchange
from pytest_intercode.core.task import TaskView
from pytest_intercode.environments import registry
from pytest_intercode.errors import (
    AgentLoadError,
    ConfigurationError,
    EngineUnavailable,
    GoldError,
    SandboxError,
)
from pytest_intercode.rollouts.parameters import ParameterSource
from tests.support.interrupts import ctrl_c_after
from tests.unit.rollouts.test_turn_loop import TASK, Counter

PATIENCE = 20


class Adding(Counter):
    """The environment of these tests; a task's setup error is in :attr:`broken_tasks`."""

    name = "adding"
    broken_tasks: dict[str, Exception]

    def __init__(self, provider: Any, **options: Any) -> None:
        super().__init__(**options)

    def start(self, task: Task) -> None:
        super().start(task)
        if task.id in self.broken_tasks:
            raise self.broken_tasks[task.id]


@pytest.fixture(autouse=True)
def adding(monkeypatch: pytest.MonkeyPatch) -> type[Adding]:
    """Register the environment, with no broken task."""
    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.setattr(Adding, "broken_tasks", {}, raising=False)
    return pytest_intercode.register_environment(Adding)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Whatever happens to a stream, its threads end."""
    others = set(threading.enumerate())  # an agent of another test may be deaf to its end
    yield
    until = time.monotonic() + PATIENCE
    while left := [
        each for each in threading.enumerate() if each.name.startswith(OURS) and each not in others
    ]:
        assert time.monotonic() < until, left
        time.sleep(0.01)


OURS = ("intercode-rollout", "intercode-tasks", "intercode-agent", "intercode-closing")


def numbered(count: int | None = None) -> Iterator[Task]:
    """Return tasks 0, 1, and so on; without a count there is no end."""
    numbers = itertools.count() if count is None else range(count)
    return (replace(TASK, id=str(number), env="adding") for number in numbers)


def solve(task: TaskView, env: AgentEnvironment) -> None:
    """Solve a task, and report tokens for it."""
    env.spend(input_tokens=7, output_tokens=3)
    env.step("5")
    env.submit()


def test_a_task_has_its_user() -> None:
    def agent(task: TaskView, env: AgentEnvironment) -> None:
        reply = env.ask("How much?")
        assert reply is not None
        env.step(reply)

    tasks = [replace(task, conversation=Conversation(("5",))) for task in numbered(2)]
    with run_rollouts(tasks, agent) as stream:
        records = list(stream)
    assert [record.outcome for record in records] == ["solved"] * 2
    assert {record.dialogue for record in records} == {(Exchange(0, "How much?", "5"),)}


class Gate:
    """A policy whose episodes wait until they are let through, by their tasks' ids.

    It takes no lock, as it is ended by an exception that may come anywhere.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.open: set[str] = set()

    def __call__(self, task: TaskView, env: AgentEnvironment) -> None:
        self.begun.append(task.id)
        soon(lambda: {task.id, "all"} & self.open)
        env.step("5")
        self.ended.append(task.id)

    def wait_until_begun(self, count: int) -> None:
        soon(lambda: len(self.begun) >= count)

    def wait_until_ended(self, count: int) -> None:
        soon(lambda: len(self.ended) >= count)


def soon(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


# -- what comes


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("ordered", [True, False])
def test_each_try_comes_once(concurrency: int, ordered: bool) -> None:
    with run_rollouts(numbered(4), solve, n=2, concurrency=concurrency, ordered=ordered) as stream:
        records = list(stream)
    wanted = [(number, str(number // 2), number % 2 + 1) for number in range(8)]
    found = [(each.item, each.task.id, each.task.repeat) for each in records]
    assert (found if ordered else sorted(found)) == wanted
    for record in records:
        assert (record.outcome, record.reward) == ("solved", 1.0)
        assert [turn.action for turn in record.turns] == ["5", "submit"]
        assert [turn.usage.tokens for turn in record.turns] == [10, 0]
        assert (record.usage.tokens, record.agent) == (10, "solve")
    with pytest.raises(StopIteration):
        next(stream)


@pytest.mark.parametrize(("ordered", "wanted"), [(False, ["1", "0"]), (True, ["0", "1"])])
def test_an_episode_that_ends_first_comes_first_unless_they_are_ordered(
    ordered: bool, wanted: list[str]
) -> None:
    gate = Gate()
    gate.open.add("1")

    def open_later() -> None:
        soon(lambda: gate.ended == ["1"])
        time.sleep(0.05)
        gate.open.add("0")

    thread = threading.Thread(target=open_later)
    thread.start()
    records = list(run_rollouts(numbered(2), gate, concurrency=2, ordered=ordered))
    assert [each.task.id for each in records] == wanted
    thread.join()


def test_one_at_a_time_runs_in_the_thread_that_asks_and_when_it_asks() -> None:
    gate, taken, before = Gate(), [], set(threading.enumerate())
    gate.open.add("all")
    tasks = (taken.append(task.id) or task for task in numbered())  # type: ignore[func-returns-value]
    with run_rollouts(tasks, gate) as stream:
        assert (taken, set(threading.enumerate()) - before) == ([], set())
        assert [next(stream).task.id for _ in range(3)] == ["0", "1", "2"]
        assert taken == gate.begun == ["0", "1", "2"]


# -- back-pressure


@pytest.mark.parametrize("ordered", [True, False])
def test_nothing_begins_while_the_consumer_is_slow(ordered: bool) -> None:
    gate, taken = Gate(), []
    gate.open.add("all")
    tasks = (taken.append(task.id) or task for task in numbered())  # type: ignore[func-returns-value]
    with run_rollouts(tasks, gate, concurrency=3, buffer=2, ordered=ordered) as stream:
        most = 2 + 3 - 1
        next(stream)
        for number in range(1, 20):
            gate.wait_until_ended(number + 2)
            time.sleep(0.002)
            assert len(gate.begun) <= number + most
            next(stream)
        work = stream._playback
        soon(lambda: len(work.records) >= 2 and not work.running)
        begun = len(gate.begun)
        time.sleep(0.05)
        assert begun == len(gate.begun) <= 20 + most
        assert len(taken) <= begun + 1  # one more waits until it may begin


def test_without_a_buffer_episodes_begin_when_a_record_is_asked_for() -> None:
    gate = Gate()
    gate.open.add("all")
    with run_rollouts(numbered(), gate, concurrency=2, buffer=0) as stream:
        time.sleep(0.05)
        assert gate.begun == []
        for _ in range(5):
            next(stream)
        soon(lambda: not stream._playback.running)
        begun = len(gate.begun)
        time.sleep(0.05)
        assert len(gate.begun) == begun <= 5 + 2


def test_a_slow_source_of_tasks_blocks_nothing_else() -> None:
    more = threading.Event()

    def tasks() -> Iterator[Task]:
        yield from numbered(2)
        more.wait(PATIENCE)

    with run_rollouts(tasks(), solve, concurrency=4) as stream:
        assert [next(stream).solved for _ in range(2)] == [True, True]
        more.set()
        assert list(stream) == []
    endless = threading.Event()
    blocked: Any = (endless.wait(PATIENCE) for _ in range(1))
    began = time.monotonic()
    with run_rollouts(blocked, solve, concurrency=2):
        pass
    assert time.monotonic() - began < PATIENCE / 2
    endless.set()


# -- the end


@pytest.mark.parametrize("concurrency", [1, 3])
def test_leaving_cancels_what_runs(concurrency: int) -> None:
    gate = Gate()
    gate.open.add("0")
    with run_rollouts(numbered(), gate, concurrency=concurrency) as stream:
        for record in stream:
            assert record.task.id == "0"
            break
        if concurrency > 1:
            gate.wait_until_begun(3)
    assert gate.ended == ["0"]
    assert list(stream) == []
    stream.close()


def test_a_forgotten_stream_ends() -> None:
    gate = Gate()
    gate.open.add("0")
    for record in run_rollouts(numbered(), gate, concurrency=3):
        assert record.task.id == "0"
        break
    gc.collect()  # the fixture waits for the threads
    assert gate.ended == ["0"]


def test_another_thread_may_close_it() -> None:
    for concurrency in (1, 2):
        gate = Gate()
        stream = run_rollouts(numbered(), gate, concurrency=concurrency)
        closing = threading.Timer(0, lambda g=gate, s=stream: (g.wait_until_begun(1), s.close()))
        closing.start()
        assert list(stream) == []
        closing.join()


def test_closing_waits_for_another_thread_that_closes_it() -> None:
    events: list[str] = []
    may_end = threading.Event()
    with run_rollouts(numbered(), solve, concurrency=2) as stream:
        next(stream)
        work = stream._playback
        work.resources.callback(lambda: events.append("closed"))
        work.resources.callback(lambda: may_end.wait(PATIENCE))
        threading.Thread(target=stream.close).start()
        soon(lambda: work.records.closed)
        threading.Timer(0.1, may_end.set).start()
    assert events == ["closed"]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_ctrl_c_ends_it(concurrency: int) -> None:
    gate = Gate()
    stream = run_rollouts(numbered(), gate, concurrency=concurrency)
    interrupt = ctrl_c_after(lambda: gate.wait_until_begun(concurrency))
    with interrupt, pytest.raises(KeyboardInterrupt):
        next(stream)
    assert gate.ended == []
    assert list(stream) == []


def test_an_error_of_the_tasks_comes_after_what_had_ended() -> None:
    def tasks() -> Iterator[Task]:
        yield from numbered(2)
        soon(lambda: len(stream._playback.records) or stream._playback.records._next)
        raise LookupError("no more of them")

    gate = Gate()
    gate.open.add("0")
    with run_rollouts(tasks(), gate, concurrency=3) as stream:
        assert next(stream).task.id == "0"
        with pytest.raises(LookupError, match="no more of them"):
            next(stream)
        assert list(stream) == []
    assert gate.ended == ["0"]


# -- whose fault it is


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_error_of_the_parameters_reaches_the_consumer(
    concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: ParameterSource, parameters: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(ParameterSource, "give_back", fail)
    stream = run_rollouts(numbered(5), solve, concurrency=concurrency)
    with pytest.raises(OSError, match="no room"):
        list(stream)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_faults_are_in_the_records(adding: type[Adding], concurrency: int) -> None:
    adding.broken_tasks = {"0": SandboxError("it broke"), "1": GoldError("gold fails")}
    with run_rollouts(numbered(3), solve, concurrency=concurrency, ordered=True) as stream:
        records = list(stream)
    assert [(each.outcome, each.reason, each.item) for each in records] == [
        ("infrastructure-error", "it broke", 0),
        ("task-error", "gold fails", 1),
        ("solved", "", 2),
    ]
    assert [each.graded for each in records] == [False, False, True]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_faults_of_the_infrastructure_can_be_raised(adding: type[Adding], concurrency: int) -> None:
    adding.broken_tasks = {"0": GoldError("gold fails"), "3": SandboxError("it broke")}
    stream = run_rollouts(
        numbered(), solve, concurrency=concurrency, raise_infrastructure_errors=True
    )
    seen: list[str] = []
    with pytest.raises(SandboxError, match="it broke"):
        seen.extend(record.outcome for record in stream)
    assert set(seen) <= {"solved", "task-error"}
    assert list(stream) == []


@pytest.mark.parametrize("concurrency", [1, 2])
def test_without_an_engine_there_is_no_stream(adding: type[Adding], concurrency: int) -> None:
    adding.broken_tasks = {str(number): EngineUnavailable("no engine") for number in range(9)}
    with pytest.raises(EngineUnavailable, match="no engine"):
        list(run_rollouts(numbered(), solve, concurrency=concurrency))


def test_budgets_end_episodes() -> None:
    def talk(task: TaskView, env: AgentEnvironment) -> None:
        for _ in range(9):
            env.spend(output_tokens=10)
            env.step("1")

    def idle(task: TaskView, env: AgentEnvironment) -> None:
        while True:
            time.sleep(0.01)

    for policy, options, wanted, turns in (
        (talk, {"max_turns": 2}, "out-of-budget", 2),
        (talk, {"max_tokens": 35}, "out-of-budget", 3),
        (idle, {"timeout": 0.05}, "timed-out", 0),
    ):
        [record] = list(run_rollouts(numbered(1), policy, **options))
        assert (record.outcome, len(record.turns)) == (wanted, turns)


# -- agents


class Stepper:
    """Solves the task once it was reset, and only if it is fresh."""

    def __init__(self, number: str = "5") -> None:
        self.number, self.left = number, [number]

    def act(self, observation: Observation) -> str:
        return self.left.pop() if self.left else "submit"


async def asynchronous(observation: Observation) -> str:
    await asyncio.sleep(0)
    return "5" if observation == TASK.query else "submit"


def unmade() -> Stepper:
    raise LookupError("no weights")


@pytest.mark.parametrize(
    ("agent", "name", "outcome"),
    [
        (Stepper, "Stepper", "solved"),
        (lambda: Stepper("4"), "Stepper", "failed"),
        (lambda observation: "submit", "<lambda>", "failed"),
        (asynchronous, "asynchronous", "solved"),
        (f"{__name__}:Stepper", f"{__name__}:Stepper", "solved"),
        (unmade, "", "agent-error"),
    ],
)
def test_forms_of_agents(agent: Any, name: str, outcome: str) -> None:
    records = list(run_rollouts(numbered(2), agent, concurrency=2))
    assert [(each.agent, each.outcome) for each in records] == [(name, outcome)] * 2


class Wanting:
    def __init__(self, weights: object) -> None: ...

    def act(self, observation: Observation) -> str:
        return "submit"


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (Stepper(), "is an instance; give its class"),
        (dict, "the class has neither act"),
        (Wanting, r"missing a required argument: 'weights'; give a function .* lambda: Wanting"),
        (lambda a, b, c: None, r"takes \(observation\) or \(task, env\), but this one takes 3"),
        (7, "neither a class nor a callable"),
        ("oracel", r"run_rollouts\(\): agent=oracel: an agent is"),
        ("react", "agent=react: no model is given: give agent_arguments: model=NAME, or"),
        ("human", r"run_rollouts\(\): human uses your terminal"),
    ],
)
def test_what_is_no_agent(agent: Any, message: str) -> None:
    with pytest.raises((AgentLoadError, ConfigurationError), match=message):
        run_rollouts(numbered(1), agent)


# -- tasks and numbers


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (
            "bahs",
            r"run_rollouts\('bahs'\): there is no .* Did you mean 'bash'\? Allowed: the suites "
            "bash, ",
        ),
        ("nothing.yaml", "nothing.yaml"),
        (7, r"run_rollouts\(\): tasks has to be a name, a path or an iterable of tasks, not int"),
        ([], "there are no tasks to run"),
        ([replace(TASK, skip="not here")], "none of the 1 tasks can be run here; t: not here"),
    ],
)
def test_what_are_no_tasks(tasks: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run_rollouts(tasks, solve)


@pytest.mark.parametrize(
    ("tasks", "profile", "message"),
    [
        (["one"], "strict", "each task has to be a Task, not str: 'one'"),
        ([replace(TASK, env="bash")], "paper", "bash episodes of the paper profile depend on"),
        ([replace(TASK, env="none")], "strict", "the environment 'none' is not installed"),
        (itertools.repeat(replace(TASK, skip="no")), "strict", "none of the 10000 tasks"),
    ],
)
def test_what_is_found_when_a_task_comes(tasks: Any, profile: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        list(run_rollouts(tasks, solve, concurrency=2, profile=profile))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n=0: a whole number from 1 up"),
        ({"concurrency": True}, "concurrency=True: a whole number from 1 up"),
        ({"buffer": -1}, "buffer=-1: a whole number from 0 up"),
        ({"ordered": 1}, "ordered=1: True or False is needed"),
        ({"raise_infrastructure_errors": "no"}, "raise_infrastructure_errors='no': True or False"),
        ({"timeout": 0}, "timeout=0: a finite number above 0"),
        ({"timeout": "5"}, "timeout='5': a finite number above 0"),
        ({"timeout": math.inf}, "timeout=inf: a finite number above 0"),
        ({"max_turns": 1.5}, "max_turns=1.5: a whole number from 1 up"),
        ({"max_tokens": "9"}, "max_tokens='9': a whole number from 1 up"),
        ({"max_cost": True}, "max_cost=True: a finite number above 0"),
        ({"profile": "papr"}, "profile='papr': allowed: strict, paper. Did you mean 'paper'?"),
        ({"feedback": "rewards"}, r"feedback='rewards': allowed: .*Did you mean 'reward'\?"),
        ({"network": "pypi.org"}, "network='pypi.org': True, False or a list of texts is needed"),
        ({"allow_path": "/data"}, "allow_path='/data': a list of texts is needed"),
        ({"pass_env": [5]}, r"pass_env=\[5\]: a list of texts is needed, such as \['TOKEN'\]"),
        ({"data": 5}, "data=5: a text or a path is needed"),
        ({"provider": "bubblewrap"}, "provider='bubblewrap': a pytest_intercode.SandboxProvider"),
        (
            {"provider": SandboxProvider(SandboxSettings("bubblewrap", rootfs=Path("/nowhere")))},
            r"provider: SandboxSettings\(rootfs\)=/nowhere: there is no such folder",
        ),
        ({"cluster": 5}, "cluster=5: a pytest_intercode.Cluster is needed"),
        ({"parameters": ["w"]}, r"parameters=\['w'\]: a dictionary is needed"),
        ({"agent_arguments": {"a": 5}}, "agent_arguments: a=5: a text is needed"),
        ({"agent_arguments": {"a": "b"}}, "agent_arguments needs an agent that is given by name"),
    ],
)
def test_arguments_that_make_no_sense(options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run_rollouts([*numbered(1)], solve, **options)


def test_arguments_of_an_agent_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "class Policy:\n    def __init__(self, weights): ...\n    act = print\n"
    (tmp_path / "policy.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    message = r"agent=policy.py:Policy: Policy\(\) cannot .* agent_arguments and parameters: miss"
    with pytest.raises(AgentLoadError, match=message):
        run_rollouts(numbered(1), "policy.py:Policy")


@pytest.mark.parametrize(
    "use",
    [
        lambda provider: run_rollouts([TASK], solve, provider=provider),
        lambda provider: pytest_intercode.make("bash", provider=provider),
    ],
)
def test_closed_sandboxes_are_refused(use: Callable[[SandboxProvider], object]) -> None:
    with SandboxProvider(SandboxSettings("bubblewrap")) as provider:
        pass
    with pytest.raises(
        ConfigurationError, match="provider: this SandboxProvider is closed; create an"
    ):
        use(provider)


def test_numbers_of_other_classes_become_pythons_own() -> None:
    class Two:  # as numpy's int64
        def __index__(self) -> int:
            return 2

    options: Any = {"n": Two(), "max_turns": Two(), "timeout": Fraction(10**30)}
    [record, _] = list(run_rollouts(numbered(1), solve, **options))
    assert (record.solved, type(record.max_turns)) == (True, int)


def yielding(task: TaskView, env: AgentEnvironment) -> Iterator[None]:
    solve(task, env)
    yield


async def yielding_later(task: TaskView, env: AgentEnvironment) -> AsyncIterator[None]:
    solve(task, env)
    yield


@pytest.mark.parametrize("policy", [yielding, yielding_later])
def test_a_generator_would_never_run(policy: Any) -> None:
    [record] = list(run_rollouts(numbered(1), policy))
    reason = (
        f"{policy.__name__}() is a generator, whose code nothing runs: write it without `yield`"
    )
    assert (record.outcome, record.reason) == ("agent-error", reason)


def test_a_bundled_suite_by_its_name() -> None:
    with run_rollouts("bash", solve) as stream:
        assert stream._playback._tries.upcoming()[0].suite == "bash"


# -- async consumers


@pytest.mark.parametrize("concurrency", [1, 3])
def test_async_for(concurrency: int) -> None:
    async def consume() -> list[EpisodeRecord]:
        tasks = numbered(4)
        async with run_rollouts(tasks, solve, n=2, concurrency=concurrency, ordered=True) as stream:
            return [record async for record in stream]

    assert [each.item for each in asyncio.run(consume())] == list(range(8))


def test_the_event_loop_is_not_blocked_and_a_wait_that_is_cancelled_loses_nothing() -> None:
    gate = Gate()

    async def consume() -> list[str]:
        async with run_rollouts(numbered(2), gate, concurrency=2) as stream:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(stream), 0.05)
            gate.open.add("all")
            return sorted([record.task.id async for record in stream])

    assert asyncio.run(consume()) == ["0", "1"]


def test_breaking_an_async_loop_cancels_what_runs() -> None:
    gate = Gate()
    gate.open.add("0")

    async def consume() -> None:
        async with run_rollouts(numbered(), gate, concurrency=3) as stream:
            async for record in stream:
                assert record.task.id == "0"
                return

    asyncio.run(consume())
    assert gate.ended == ["0"]


def test_an_async_consumer_meets_errors(adding: type[Adding]) -> None:
    adding.broken_tasks = {"0": EngineUnavailable("no engine")}

    async def consume(stream: RolloutStream) -> None:
        async for _ in stream:
            pass

    with pytest.raises(EngineUnavailable):
        asyncio.run(consume(run_rollouts(numbered(), solve, concurrency=2)))


# -- the process


def test_a_forked_child_cannot_use_it() -> None:
    with run_rollouts(numbered(), solve, concurrency=2) as stream:
        next(stream)
        child = os.fork()
        if not child:
            status = 1
            try:
                next(stream)
            except SandboxError as error:
                status = 0 if "these rollouts belong to the process" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert next(stream).solved


def test_what_a_policy_changes_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OF_THE_POLICY", raising=False)

    def change(task: TaskView, env: AgentEnvironment) -> None:
        os.environ["OF_THE_POLICY"] = "1"
        solve(task, env)

    [record] = list(run_rollouts(numbered(1), change))
    assert (record.left_behind, os.environ.pop("OF_THE_POLICY")) == ((), "1")
