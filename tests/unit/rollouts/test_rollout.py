"""A rollout's phases, its one retry, and its end from another thread in each phase."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest

from pytest_intercode.agents.ledger import Ledger, current_ledger, spend
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation
from pytest_intercode.core.usage import Budget, RunLimits
from pytest_intercode.errors import (
    AgentLoadError,
    BudgetExhausted,
    EpisodeStopped,
    GoldError,
    InfrastructureError,
    RolloutCancelled,
    SandboxBroken,
    SandboxError,
    TaskError,
    UngradableState,
)
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.executor import Handle, Observer, Phase
from pytest_intercode.rollouts.inline import InlineExecutor
from pytest_intercode.rollouts.records import RecordBuilder
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.rollouts.threads import ThreadsExecutor
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.digest import digest
from tests.support.rollouts import play
from tests.unit.rollouts.test_turn_loop import TASK, Counter, acts

SPEC = RolloutSpec(TASK, agent="mine:Agent", agent_arguments={"a": "b"}, node_id="n", timeout=20)


class Breaking(Counter):
    """Breaks in the phase of its name, as often as it is told; or waits there to be cancelled."""

    def __init__(self, phase: str = "", error: Exception | None = None, times: int = 0) -> None:
        super().__init__()
        self.phase, self.error, self.times = phase, error, times
        self.reached = threading.Event()

    def _pass(self, phase: str) -> None:
        if phase != self.phase:
            return
        self.reached.set()
        if self.error is None:
            assert self.interrupted.wait(20)
            raise SandboxError("ended under its hands")
        if self.times:
            self.times -= 1
            raise self.error

    def start(self, task: Task) -> None:
        self._pass("reset")
        super().start(task)

    def execute(self, action: str) -> Observation:
        self._pass("action")
        return super().execute(action)

    def grade(self, answer: str | None) -> Reward:
        self._pass("grading")
        return super().grade(answer)


def services(environment: Counter, agent: Callable[[], Agent] | None = None) -> Services:
    """Return services that hand out one environment, and fresh agents that solve the task."""
    made = agent or (lambda: Agent("step", act=acts("5", "submit"), name="fresh"))
    return Services(
        cast("SandboxProvider", None),
        make_agent=lambda spec: replace(made(), again=made),
        make_environment=lambda spec: environment,
        isolate=lambda: nullcontext([]),
    )


def test_all_environments_are_closed_whatever_one_of_them_raises() -> None:
    class Stubborn(Counter):
        def stop(self) -> None:
            super().stop()
            raise SandboxError("it stays")

    environments = [Counter(), Stubborn()]
    remaining = iter(environments)
    rollout = Rollout(
        SPEC, replace(services(Counter()), make_environment=lambda _: next(remaining))
    )
    for _ in environments:
        rollout.make_environment()
    with pytest.raises(SandboxError, match="it stays"):
        rollout.close()
    assert [environment.stops for environment in environments] == [1, 1]
    rollout.close()
    assert [environment.stops for environment in environments] == [1, 1]


def test_what_cannot_be_graded_earns_nothing() -> None:
    """An environment of the user's raises; the agent left too much."""
    record = play(
        Rollout(SPEC, services(Breaking("grading", UngradableState("too many files"), 9)))
    )
    assert (record.outcome, record.reward, record.attempts) == ("failed", 0.0, ())
    assert record.reason == "what was left cannot be graded: too many files"


def test_an_environment_that_names_no_list_of_sandboxes_is_at_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Counter, "sandboxes", classmethod(lambda *_: None))
    message = r"sandboxes\(\) returned None, expected a list of SandboxSpec"
    with pytest.raises(TaskError, match=message):
        play(Rollout(SPEC, services(Counter())))


def test_a_record_has_what_the_spec_says() -> None:
    environment = Counter()
    record = play(Rollout(SPEC, services(environment)))
    assert (record.outcome, record.reward, len(record.turns)) == ("solved", 1.0, 2)
    assert (record.agent, record.agent_arguments, record.node_id) == ("mine:Agent", {"a": "b"}, "n")
    assert (record.task.id, record.task.digest) == (TASK.id, digest(TASK))
    assert environment.stops == 2  # before the reset, and at the end


@pytest.mark.parametrize("phase", ["reset", "action", "grading"])
def test_a_broken_sandbox_is_replaced_once(phase: str) -> None:
    record = play(Rollout(SPEC, services(Breaking(phase, SandboxError("gone"), 1))))
    assert record.outcome == "solved"
    assert record.attempts == ("gone",)


@pytest.mark.parametrize("phase", ["reset", "action", "grading"])
def test_a_second_broken_sandbox_is_a_fault(phase: str) -> None:
    rollout = Rollout(SPEC, services(Breaking(phase, SandboxError("gone"), 2)))
    with pytest.raises(SandboxError, match="gone"):
        play(rollout)


@pytest.mark.parametrize("error", [GoldError("gold never ends"), InfrastructureError("no engine")])
@pytest.mark.parametrize("phase", ["reset", "grading"])
def test_other_faults_are_not_tried_again(phase: str, error: Exception) -> None:
    environment = Breaking(phase, error, 1)
    with pytest.raises(type(error), match=str(error)):
        play(Rollout(SPEC, services(environment)))
    assert environment.times == 0


@pytest.mark.parametrize(("max_turns", "seen"), [(5, [5, 3]), (2, [2])])
def test_turns_stay_used_in_a_retry(max_turns: int, seen: list[int]) -> None:
    """So that nothing that goes wrong gives an agent more guesses than its budget."""
    budgets: list[int] = []

    class Told(Breaking):
        def execute(self, action: str) -> Observation:
            if not self.turns:
                budgets.append(self.max_turns)
            if len(self.turns) == 2 and len(budgets) == 1:
                raise SandboxError("gone")
            return super().execute(action)

        def grade(self, answer: str | None) -> Reward:
            if len(budgets) == 1:
                raise SandboxError("gone")
            return super().grade(answer)

    environment = Told()
    environment._max_turns = max_turns

    def agent() -> Agent:
        return Agent("step", act=acts("1", "1", "1", "1", "1", "1", "1"))

    rollout = Rollout(SPEC, services(environment, agent))
    if len(seen) == 1:  # nothing is left to play with
        with pytest.raises(SandboxError, match="gone"):
            play(rollout)
    else:
        record = play(rollout)
        assert (record.outcome, len(record.turns), record.max_turns) == ("out-of-budget", 3, 3)
        assert record.attempts == ("gone",)
    assert budgets == seen
    rollout.prepare(environment)
    assert environment.max_turns == max_turns  # the next episode has all of them


class Spending:
    """Agents that spend before each action, and so does the model that plays their user."""

    def __init__(self, *actions: str) -> None:
        self.actions = actions
        self.ledgers: list[Ledger] = []

    def __call__(self) -> Agent:
        actions = acts(*self.actions)

        def act(observation: str) -> str:
            ledger = current_ledger().get()
            assert ledger is not None
            if ledger not in self.ledgers:
                self.ledgers.append(ledger)
            ledger.spend_for_user(input_tokens=7, cost=0.5)
            ledger.spend(input_tokens=80, output_tokens=10, cost=1.0)
            return actions(observation)

        return Agent("step", act=act)


@pytest.mark.parametrize("phase", ["action", "grading"])
def test_what_a_broken_attempt_used_up_is_in_the_record(phase: str) -> None:
    run_budget = RunBudget(RunLimits(tokens=10_000))
    agents = Spending("5", "submit")
    environment = Breaking(phase, SandboxError("gone"), 1)
    record = play(Rollout(SPEC, replace(services(environment, agents), run_budget=run_budget)))
    requests = {"action": 3, "grading": 4}[phase]
    assert record.attempts == ("gone",)
    assert (record.usage.requests, record.usage.tokens) == (requests, requests * 90)
    assert (record.usage.cost, record.user_usage.cost) == (requests * 1.0, requests * 0.5)
    assert run_budget.used.tokens == record.usage.tokens + record.user_usage.tokens
    with pytest.raises(BudgetExhausted, match="the episode is over"):  # it goes on afterwards
        agents.ledgers[0].spend(input_tokens=1)


@pytest.mark.parametrize("budget", [Budget(tokens=200), Budget(cost=2.5)])
def test_a_retry_has_the_tokens_and_the_money_that_remain(budget: Budget) -> None:
    environment = Breaking("action", SandboxError("gone"), 1)
    rollout = Rollout(
        replace(SPEC, budget=budget), services(environment, Spending("1", "1", "5", "submit"))
    )
    record = play(rollout)
    assert (record.outcome, record.attempts, len(record.turns)) == ("out-of-budget", ("gone",), 1)
    assert (record.usage.tokens, record.usage.cost) == (270, 3.0)
    assert record.reason.startswith(("270 of 200 tokens used", "3 of 2.5 in cost used"))


def test_without_a_budget_that_remains_there_is_no_retry() -> None:
    """A fresh agent could do nothing, and would be graded for that."""
    environment = Breaking("grading", SandboxError("gone"), 1)
    rollout = Rollout(
        replace(SPEC, budget=Budget(tokens=90)), services(environment, Spending("5", "submit"))
    )
    with pytest.raises(SandboxError, match="gone"):
        play(rollout)


def test_the_status_of_a_retry_has_what_was_used_up_before() -> None:
    statuses: list[int] = []

    class Told(Breaking):
        def start(self, task: Task) -> None:
            statuses.append(rollout.status().tokens)
            super().start(task)

    rollout = Rollout(SPEC, services(Told("action", SandboxError("gone"), 1), Spending("5")))
    play(rollout)
    assert statuses == [0, 90]


@pytest.mark.parametrize("phase", ["action", "grading"])
def test_a_sandbox_that_the_agent_broke_is_not_replaced(phase: str) -> None:
    environment = Breaking(phase, SandboxBroken("it starts no shell"), 100)
    record = play(Rollout(SPEC, services(environment)))
    assert record.attempts == ()
    if phase == "action":
        assert record.turns[0].observation == "[this broke the sandbox: it starts no shell]\n"
        assert not record.turns[0].executed
        assert (record.outcome, len(record.turns)) == ("failed", 2)
    else:
        assert (record.outcome, record.reward, dict(record.state)) == ("failed", 0.0, {})
        assert record.reason == "the agent broke its sandbox: it starts no shell"


def test_a_retry_is_not_repeated_in_a_later_phase() -> None:
    environment = Breaking("reset", SandboxError("first"), 1)
    rollout = Rollout(SPEC, services(environment))
    agent = rollout.make_agent()
    rollout.prepare(rollout.make_environment())
    environment.phase, environment.times = "action", 1
    with pytest.raises(SandboxError, match="first"):
        rollout.run(agent, environment)


def test_failures_have_records() -> None:
    broken = RecordBuilder(SPEC).failure(SandboxError("gone"))
    assert (broken.outcome, broken.reason, broken.graded) == ("infrastructure-error", "gone", False)
    wrong = RecordBuilder(SPEC).failure(GoldError("never ends"))
    assert (wrong.outcome, wrong.headline) == ("task-error", "task error: never ends")


# -- cancelling


@pytest.mark.parametrize("phase", ["reset", "action", "grading"])
def test_cancelling_reaches_every_phase(phase: str) -> None:
    environment = Breaking(phase)
    rollout = Rollout(SPEC, services(environment))
    seen: list[BaseException] = []

    def run() -> None:
        try:
            play(rollout)
        except RolloutCancelled as error:
            seen.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert environment.reached.wait(20)
    rollout.cancel("not wanted")
    rollout.cancel("said twice")
    thread.join(20)
    assert [str(error) for error in seen] == ["not wanted"]
    assert environment.stops >= 1


@pytest.mark.parametrize(("phase", "turns"), [("reset", 0), ("action", 0), ("grading", 2)])
def test_a_rollout_that_the_user_stops_has_a_record(phase: str, turns: int) -> None:
    environment = Breaking(phase)
    rollout = Rollout(SPEC, services(environment))

    def stop() -> None:
        assert environment.reached.wait(20)
        rollout.stop("by the user")

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(EpisodeStopped, match="by the user") as stopped:
        play(rollout)
    thread.join(20)
    record = stopped.value.record
    assert isinstance(record, EpisodeRecord)
    assert (record.outcome, record.graded, record.reward) == ("stopped", False, 0.0)
    assert len(record.turns) == turns
    assert record.headline == f"stopped after {turns}/{record.max_turns} turns: by the user"
    with pytest.raises(EpisodeStopped, match="by the user"):
        rollout.make_agent()


def test_the_status_of_a_rollout() -> None:
    begun = threading.Event()
    goes_on = threading.Event()
    actions = acts("4", "5", "submit")

    def act(observation: str) -> str:
        if observation != TASK.query and not begun.is_set():
            spend(input_tokens=70, output_tokens=7, cost=0.5)
            begun.set()
            goes_on.wait(20)
        return actions(observation)

    def fail() -> list[str]:
        raise ValueError("this is an agent's function")

    environment = Counter()
    rollout = Rollout(SPEC, services(environment, lambda: Agent("step", act=act)))
    assert (rollout.status().phase, rollout.status().task) == ("start", TASK.id)
    thread = threading.Thread(target=lambda: play(rollout))
    thread.start()
    assert begun.wait(20)
    status = rollout.status()
    assert (status.phase, status.turns, status.max_turns) == ("agent", 1, environment.max_turns)
    assert (status.tokens, status.cost, status.action) == (77, 0.5, "4")
    environment.episode.pending = lambda: ["seen by the gateway"]
    assert (rollout.status().turns, rollout.status().action) == (2, "seen by the gateway")
    assert rollout.status(whole=False) == status
    environment.episode.pending = fail
    assert rollout.status() == status
    goes_on.set()
    thread.join(20)


def test_cancelling_an_agent_that_does_not_answer() -> None:
    waiting, left = threading.Event(), threading.Event()

    def act(observation: str) -> str:
        waiting.set()
        left.wait(60)
        return "submit"

    rollout = Rollout(SPEC, services(Counter(), lambda: Agent("step", act=act)))

    def cancel() -> None:
        assert waiting.wait(20)
        rollout.cancel("enough")

    threading.Thread(target=cancel).start()
    began = time.monotonic()
    with pytest.raises(RolloutCancelled, match="enough"):
        play(rollout)
    assert time.monotonic() - began < 15
    left.set()


def test_nothing_begins_once_it_is_cancelled() -> None:
    environment = Counter()
    rollout = Rollout(SPEC, services(environment))
    environment.reset(task=TASK)
    rollout.cancel("too late")
    for phase in (
        rollout.make_agent,
        rollout.make_environment,
        lambda: rollout.prepare(environment),
        lambda: rollout.run(Agent("step", act=acts("5")), environment),
    ):
        with pytest.raises(RolloutCancelled, match="too late"):
            phase()
    assert environment.ran == []


def test_cancelling_what_is_over_changes_nothing() -> None:
    rollout = Rollout(SPEC, services(Counter()))
    assert play(rollout).solved
    rollout.cancel("afterwards")


# -- executors


class Events(Observer):
    """An observer that remembers what it was notified of."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @contextmanager
    def surrounding(self, handle: Handle) -> Iterator[None]:
        self.seen.append("begun")
        yield
        self.seen.append("over")

    def entering(self, handle: Handle, phase: str) -> None:
        self.seen.append(phase)

    def wait(self, handle: Handle, future: Any) -> Any:
        return future.result(20)

    def preparing(self, handle: Handle, environment: object) -> None:
        self.seen.append("preparing")

    def prepared(self, handle: Handle, environment: object) -> None:
        self.seen.append("prepared")

    def ended(self, handle: Handle, record: object) -> None:
        self.seen.append("ended")

    def failed(self, handle: Handle, error: BaseException) -> None:
        self.seen.append(f"failed: {error}")


def ask(handle: Handle) -> Any:
    """Ask for all that a handle has, as fixtures do."""
    agent = handle.agent()
    environment = handle.environment()
    assert environment.first == TASK.query
    record = handle.record(agent, environment)
    assert handle.record(agent, environment) is record
    handle.close()
    return record


def test_both_executors_return_the_same() -> None:
    events = Events()
    handle = InlineExecutor(services(Counter()), events).submit(SPEC)
    inline = ask(handle)
    assert all(handle.phases[name].seconds > 0 for name in ("prepare", "run", "close"))
    assert events.seen == [
        *("prepare", "preparing", "begun", "over", "prepared"),
        *("run", "begun", "over", "ended", "close"),
    ]
    events.seen.clear()
    executor = ThreadsExecutor(services(Counter()), events, 2, lambda: None)
    handle = executor.submit(SPEC)
    concurrent = ask(handle)
    executor.stop()
    assert executor.join(20)
    assert all(handle.phases[name].seconds > 0 for name in ("prepare", "run", "close"))
    assert events.seen == [
        *("begun", "prepare", "preparing", "prepared", "run", "ended", "close", "over")
    ]

    def untimed(record: Any) -> Any:
        turns = tuple(replace(turn, seconds=0.0, agent_seconds=0.0) for turn in record.turns)
        return replace(record, seconds=0.0, turns=turns, phases={})

    assert untimed(inline) == untimed(concurrent)


def test_a_phase_may_begin_while_the_status_is_asked_for() -> None:
    handle = InlineExecutor(services(Counter())).submit(SPEC)

    class Beginning(Phase):
        @property
        def began(self) -> float:
            handle.phases["run"] = Phase(time.time())
            return time.time() - 60

        @began.setter
        def began(self, value: float) -> None: ...

    handle.phases["prepare"] = Beginning(0.0)
    assert handle.status().seconds >= 60


def test_a_handle_raises_what_its_phase_raised() -> None:
    events = Events()
    broken = Breaking("reset", SandboxError("gone"), 2)
    executor = ThreadsExecutor(services(broken), events, 1, lambda: None)
    handle = executor.submit(SPEC)
    agent = handle.agent()
    with pytest.raises(SandboxError, match="gone"):
        handle.environment()
    with pytest.raises(SandboxError, match="gone"):
        handle.record(agent, broken)
    assert not handle.cancelled
    assert "failed: gone" in events.seen
    executor.stop()
    assert executor.join(20)


@pytest.mark.parametrize("phase", ["reset", "action"])
def test_a_phase_that_failed_is_not_run_again(phase: str) -> None:
    environments: list[Counter] = []

    def make(spec: RolloutSpec) -> Counter:
        environments.append(Breaking(phase, TaskError("no such table"), 100))
        return environments[-1]

    events = Events()
    handle = InlineExecutor(replace(services(Counter()), make_environment=make), events).submit(
        SPEC
    )
    for _ in range(3):
        with pytest.raises(TaskError, match="no such table"):
            handle.record(handle.agent(), handle.environment())
    assert len(environments) == 1
    assert events.seen.count("prepare") == 1
    assert (handle.running, handle.cancelled, handle.result) == (False, False, None)


def test_an_agent_that_cannot_be_made_is_asked_for_once() -> None:
    """A test may take one of its own in its place."""
    specs: list[RolloutSpec] = []

    def fail(spec: RolloutSpec) -> Agent:
        specs.append(spec)
        raise AgentLoadError("no such agent")

    handle = InlineExecutor(replace(services(Counter()), make_agent=fail)).submit(SPEC)
    for _ in range(2):
        with pytest.raises(AgentLoadError, match="no such agent"):
            handle.agent()
    assert len(specs) == 1
    agent = Agent("step", act=acts("5", "submit"), name="another")
    assert handle.record(agent, handle.environment()).solved


def test_the_executor_asks_for_more_when_a_thread_is_free() -> None:
    submitted: list[Handle] = []
    events = Events()

    def refill() -> None:
        if len(submitted) < 5:
            submitted.append(executor.submit(SPEC))

    def fresh(spec: RolloutSpec) -> Counter:
        return Counter()

    executor = ThreadsExecutor(
        replace(services(Counter()), make_environment=fresh), events, 2, refill
    )
    executor.wake()
    deadline = time.monotonic() + 20
    while sum(handle.result is not None for handle in list(submitted)) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    executor.stop()
    assert executor.join(20)
    assert all(handle.result is not None and handle.result.solved for handle in submitted)
