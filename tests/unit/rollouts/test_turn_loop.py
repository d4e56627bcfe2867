"""The turn loop, with an environment that lives in memory."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any, NoReturn, cast

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.loader import adapt
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.core.turn import Observation, Profile
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import AgentError, BudgetExhausted, SandboxError, TaskError
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.turn_loop import run_episode
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.digest import digest

TASK = Task("t", "Say five.", ("s3cret",), "bash", "suite", "suite", max_turns=4)


def near(value: float) -> Any:
    """Return what equals all numbers next to ``value``."""
    return pytest.approx(value)


class Counter(Environment):
    """Adds up numbers; gold's sum is 5, and the reward is how near the last sum comes to it."""

    name = "bash"
    profile: Profile = "strict"

    def __init__(self, **options: Any) -> None:
        super().__init__(cast("SandboxProvider", None), **options)
        self.total = 0.0
        self.ran: list[str] = []
        self.stops = 0
        self.broken = ""
        self.interrupted = threading.Event()

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        return []

    def start(self, task: Task) -> None:
        self.total = 0.0

    def execute(self, action: str) -> Observation:
        self.ran.append(action)
        if action == "break":
            self.broken = "the sandbox is gone"
        if self.broken:
            raise SandboxError(self.broken)
        if action == "hang":
            self.interrupted.wait(20)
            return Observation("interrupted", executed=False)
        try:
            self.total += float(action)
        except ValueError:
            return Observation("no number", executed=False, status=1)
        return Observation(f"sum {self.total:g}", status=0)

    def grade(self, answer: str | None) -> Reward:
        if self.broken:
            raise SandboxError(self.broken)
        found = self.total if answer is None else float(answer)
        value = max(0.0, 1 - abs(5 - found) / 5)
        return Reward(value, {"sum": value}, "" if value == 1 else f"{found:g} is not it")

    def stop(self) -> None:
        self.stops += 1

    def interrupt(self) -> None:
        self.interrupted.set()

    def end_state(self) -> dict[str, Any]:
        return {"total": self.total}


def play(
    agent: Any,
    environment: Environment | None = None,
    *,
    task: Task = TASK,
    timeout: float | None = 20,
    run_budget: RunBudget | None = None,
) -> EpisodeRecord:
    environment = environment or Counter()
    first, _ = environment.reset(task=task)
    return run_episode(adapt(agent), environment, first, timeout=timeout, run_budget=run_budget)


def acts(*actions: str) -> Callable[[str], str]:
    """Return a step-style agent that plays the actions."""
    left = iter(actions)
    return lambda observation: next(left)


def steps(*actions: str) -> Callable[[TaskView, Any], None]:
    """Return a loop-style agent that plays the actions and returns."""

    def run(task: TaskView, env: Any) -> None:
        for action in actions:
            env.step(action)

    return run


# -- outcomes


def test_solved() -> None:
    episode = play(acts("2", "3", "submit"))
    assert (episode.outcome, episode.solved, episode.reward) == ("solved", True, 1.0)
    assert episode.parts == {"sum": 1.0}
    assert (episode.reason, episode.detail) == ("", "")
    assert [(t.action, t.observation, t.executed, t.reward) for t in episode.turns] == [
        ("2", "sum 2", True, 0.0),
        ("3", "sum 5", True, 0.0),
        ("submit", "", True, 1.0),
    ]
    assert episode.headline == "reward 1.00 after 3/4 turns"
    assert episode.state == {"total": 5.0}
    assert (episode.task, episode.max_turns) == (TaskRecord.of(TASK, digest(TASK)), 4)
    assert episode.profile == "strict"


def test_failed() -> None:
    episode = play(acts("2", "what", "submit"))
    assert (episode.outcome, episode.reward) == ("failed", near(0.4))
    assert [turn.executed for turn in episode.turns] == [True, False, True]
    assert episode.headline == "reward 0.40 < 1.00 after 3/4 turns: 2 is not it"


def test_episodes_that_run_at_a_time_take_no_turn_of_the_run_too_many() -> None:
    budget = RunBudget(RunLimits(turns=7))
    all_act = threading.Barrier(5)

    class Together(Counter):
        def execute(self, action: str) -> Observation:
            with contextlib.suppress(threading.BrokenBarrierError):
                all_act.wait(0.2)
            return super().execute(action)

    with ThreadPoolExecutor(5) as pool:
        played = [
            pool.submit(play, acts("1", "1", "1"), Together(), run_budget=budget) for _ in range(5)
        ]
    records = [each.result() for each in played]
    assert sum(len(record.turns) for record in records) == 7
    assert {record.outcome for record in records} == {"out-of-budget"}
    assert all("the run's 7 turns are used up" in record.reason for record in records)


def test_a_turn_that_breaks_with_its_sandbox_is_not_counted() -> None:
    budget = RunBudget(RunLimits(turns=2))
    with pytest.raises(SandboxError):
        play(acts("1", "break"), run_budget=budget)
    assert budget.charge() == ""
    record = play(steps("1", "2"), run_budget=budget)
    assert [turn.action for turn in record.turns] == ["1"]


def test_out_of_budget() -> None:
    asked: list[str] = []

    def agent(observation: str) -> str:
        asked.append(observation)
        return "1"

    episode = play(agent)
    assert (episode.outcome, episode.reward) == ("out-of-budget", near(0.8))
    assert asked == ["Say five.", "sum 1", "sum 2", "sum 3"]
    assert len(episode.turns) == 4
    assert episode.headline == ("reward 0.80 < 1.00 after 4/4 turns, budget exhausted: 4 is not it")


def test_what_solves_with_the_last_action_is_solved() -> None:
    assert play(acts("1", "1", "1", "2")).outcome == "solved"


def test_timed_out_agent_that_never_answers() -> None:
    left = threading.Event()

    def agent(observation: str) -> str:
        left.wait(20)
        return "5"

    began = time.monotonic()
    environment = Counter()
    try:
        # The grace that an agent has to notice is long; it is not what is tested here.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pytest_intercode.rollouts.turn_loop._ACTION_STOP_TIMEOUT", 0.05)
            episode = play(agent, environment, timeout=0.1)
    finally:
        left.set()
    assert time.monotonic() - began < 15
    assert (episode.outcome, episode.reward, episode.turns) == ("timed-out", 0.0, ())
    assert episode.headline == (
        "reward 0.00 < 1.00 after 0/4 turns, timed out after 0 s: 0 is not it"
    )
    time.sleep(0.05)
    assert environment.ran == []  # what it answers too late is not run


def test_timed_out_in_an_action() -> None:
    environment = Counter()
    episode = play(acts("1", "hang", "4"), environment, timeout=0.2)
    assert episode.outcome == "timed-out"
    assert environment.interrupted.is_set()
    assert [turn.action for turn in episode.turns] == ["1", "hang"]
    assert episode.seconds < 15


def test_time_that_is_up_while_a_submission_is_graded() -> None:
    class Slow(Counter):
        def grade(self, answer: str | None) -> Reward:
            if self.interrupted.wait(0.5):
                return Reward(0.0, {}, "the tests took too long")
            return super().grade(answer)

    episode = play(acts("5", "submit"), Slow(), timeout=0.2)
    assert (episode.outcome, episode.reason) == ("solved", "")


def test_time_that_is_up_gets_past_an_agents_own_except() -> None:
    tries: list[int] = []

    def agent(task: TaskView, env: Any) -> None:
        while True:
            try:
                env.step("hang")
            except Exception:
                tries.append(1)

    episode = play(agent, timeout=0.2)
    assert episode.outcome == "timed-out"
    assert not tries
    assert not [t for t in threading.enumerate() if t.name == "intercode-agent-t"]


def test_solved_when_the_time_is_up_is_solved() -> None:
    assert play(acts("5", "hang"), timeout=0.2).outcome == "solved"


def test_agent_that_swallows_the_end_of_its_budget() -> None:
    tries: list[float] = []

    def agent(task: TaskView, env: Any) -> None:
        while True:
            try:
                env.step("1")
            except BudgetExhausted:
                tries.append(time.monotonic())

    episode = play(agent, timeout=30.0)
    assert episode.outcome == "out-of-budget"
    assert len(episode.turns) == 4
    assert 1 <= len(tries) < 20  # then it is taken out of its loop
    assert episode.seconds < 15
    assert episode.reward == near(0.8)


def test_agent_that_swallows_everything_is_held_and_named() -> None:
    tries: list[str] = []

    def agent(task: TaskView, env: Any) -> None:
        while True:
            try:
                tries.append("")
                env.step("1")
            except BaseException:
                pass

    episode = play(agent, timeout=30.0)
    assert (episode.outcome, len(episode.turns)) == ("out-of-budget", 4)
    assert episode.seconds < 15
    assert episode.left_behind == ("the agent's own thread, which still runs",)
    before = len(tries)
    time.sleep(0.1)
    assert len(tries) == before  # it takes no time from the episodes that follow


def test_the_end_of_a_budget_in_a_task_that_swallows_it() -> None:
    """As where a framework has a server of the tools, and its model asks on and on."""

    async def agent(task: TaskView, env: Any) -> None:
        async def serve() -> None:
            while True:
                with contextlib.suppress(BaseException):
                    env.step("1")
                await asyncio.sleep(0.01)  # the model answers

        serving = asyncio.create_task(serve())
        await asyncio.Event().wait()
        serving.cancel()

    began = time.monotonic()
    episode = play(agent, timeout=20)
    assert (episode.outcome, episode.detail) == ("out-of-budget", "")
    assert time.monotonic() - began < 15


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no task groups")
def test_the_end_of_a_budget_in_a_task_group() -> None:
    async def agent(task: TaskView, env: Any) -> None:
        async def work() -> None:
            for _ in range(9):
                env.step("1")

        group: Any = asyncio.TaskGroup()  # type: ignore[attr-defined, unused-ignore]
        async with group:
            group.create_task(work())

    episode = play(agent)
    assert (episode.outcome, episode.detail) == ("out-of-budget", "")


class Wrapped(Exception):
    """What a framework makes of an exception of a tool."""


@pytest.mark.parametrize("depth", [1, 3])
def test_the_end_of_a_budget_in_a_frameworks_own_exception(depth: int) -> None:
    def agent(task: TaskView, env: Any) -> None:
        try:
            steps("1", "1", "1", "1", "1")(task, env)
        except BudgetExhausted as error:
            wrapped: Exception = error
            for _ in range(depth):
                above = Wrapped("the tool failed")
                above.__cause__ = wrapped
                wrapped = above
            raise wrapped from wrapped.__cause__

    episode = play(agent)
    assert (episode.outcome, episode.detail) == ("out-of-budget", "")


def test_what_goes_wrong_after_the_end_is_told() -> None:
    def agent(task: TaskView, env: Any) -> None:
        try:
            steps("1", "1", "1", "1", "1")(task, env)
        except BudgetExhausted:
            circle = Wrapped("not because of it")
            circle.__cause__ = Wrapped("around")
            circle.__cause__.__cause__ = circle
            raise circle  # noqa: B904 - it has a cause

    episode = play(agent)
    assert (episode.outcome, episode.reason) == ("agent-error", "Wrapped: not because of it")


def test_agent_that_lets_the_end_of_its_budget_through() -> None:
    episode = play(steps("1", "1", "1", "1", "1"))
    assert (episode.outcome, episode.detail) == ("out-of-budget", "")


def test_loop_agent_that_returns_is_graded_as_it_is() -> None:
    assert play(steps("5")).outcome == "solved"
    episode = play(steps("3"))
    assert (episode.outcome, episode.reward) == ("failed", near(0.6))
    assert episode.turns[-1].reward == near(0.6)
    assert (play(steps()).outcome, play(steps()).turns) == ("failed", ())


def test_infrastructure_is_nobodys_fault_and_raises() -> None:
    for agent in (acts("1", "break"), steps("break")):
        with pytest.raises(SandboxError, match="the sandbox is gone"):
            play(agent)


def test_infrastructure_that_an_agent_swallows_raises_too() -> None:
    def agent(task: TaskView, env: Any) -> None:
        try:
            env.step("break")
        except Exception:
            return

    with pytest.raises(SandboxError):
        play(agent)


@pytest.mark.parametrize("broken", ["in an action", "in grading"])
def test_an_agent_that_goes_on_without_its_sandbox_is_ended(broken: str) -> None:
    end = time.monotonic() + 20
    environment, threads = Counter(), set(threading.enumerate())

    def agent(task: TaskView, env: Any) -> None:
        if broken == "in an action":
            with contextlib.suppress(Exception):
                env.step("break")
        environment.broken = "the sandbox is gone"
        while time.monotonic() < end:
            pass

    with pytest.raises(SandboxError, match="the sandbox is gone"):
        play(agent, environment, timeout=0.2)
    while not set(threading.enumerate()) <= threads:
        assert time.monotonic() < end - 5
        time.sleep(0.01)


def test_infrastructure_that_an_agent_calls_its_own_fault_raises_too() -> None:
    def agent(task: TaskView, env: Any) -> None:
        try:
            env.step("break")
        except Exception as error:
            raise RuntimeError("my tool failed") from error

    class Repaired(Counter):  # as where a lost session is replaced: grading works again
        def grade(self, answer: str | None) -> Reward:
            self.broken = ""
            return super().grade(answer)

    with pytest.raises(SandboxError, match="the sandbox is gone"):
        play(agent, Repaired())


# -- agents that fail


def test_agent_that_raises() -> None:
    def agent(observation: str) -> NoReturn:
        raise ValueError("no  such\nmodel")

    episode = play(agent)
    assert episode.outcome == "agent-error"
    assert episode.reason == "ValueError: no such model"
    assert episode.headline == "agent error after 0/4 turns: ValueError: no such model"
    assert "test_turn_loop.py" in episode.detail
    assert "in agent" in episode.detail
    assert 'episode.py", line' not in episode.detail.replace("test_episode.py", "")


def test_agent_whose_exception_has_no_text() -> None:
    class Odd(BaseException):
        def __str__(self) -> str:
            raise SystemExit(0)

    def agent(observation: str) -> NoReturn:
        raise Odd

    episode = play(agent)
    assert episode.outcome == "agent-error"
    assert episode.reason == "Odd: it raised when asked for its text"


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("leave", "reason"),
    [
        (lambda: sys.exit(3), "SystemExit: 3"),
        (lambda: sys.exit(), "SystemExit"),
        (_interrupt, "KeyboardInterrupt"),
    ],
)
def test_agent_that_leaves(leave: Callable[[], NoReturn], reason: str) -> None:
    episode = play(lambda observation: leave())
    assert (episode.outcome, episode.reason) == ("agent-error", reason)


def test_reasons_are_one_line() -> None:
    def agent(observation: str) -> str:
        raise AgentError("first\nsecond")

    assert play(agent).reason == "first second"


def test_agent_that_solves_and_then_raises_is_an_error() -> None:
    def agent(task: TaskView, env: Any) -> None:
        env.step("5")
        raise RuntimeError("late")

    episode = play(agent)
    assert (episode.outcome, episode.reward, episode.solved) == ("agent-error", 1.0, False)


def test_agent_whose_own_budget_error_is_not_ours() -> None:
    def agent(observation: str) -> NoReturn:
        raise BudgetExhausted("of tokens")

    assert play(agent).outcome == "agent-error"


@pytest.mark.parametrize(
    ("action", "named"),
    [(None, "None"), (5, "5 (int)"), (b"ls", "b'ls' (bytes)"), (["ls"], "['ls'] (list)")],
)
def test_actions_that_are_no_strings(action: Any, named: str) -> None:
    episode = play(lambda observation: action)
    assert episode.outcome == "agent-error"
    assert episode.reason == (
        f"act() returned {named} on turn 1; an action is a str, and 'submit' ends the episode"
    )
    assert play(steps(action)).reason == (f"env.step() was called with {named}; an action is a str")

    def submits(task: TaskView, env: Any) -> None:
        env.submit(action)

    assert play(submits).reason == f"env.submit() was called with {named}; an answer is a str"


# -- reset, close, and what is async


class Whole:
    """A step-style agent that records what is done to it."""

    def __init__(self, *actions: str) -> None:
        self.left = list(actions)
        self.calls: list[str] = []
        self.task: TaskView | None = None

    def reset(self, task: TaskView) -> None:
        self.calls.append("reset")
        self.task = task

    def act(self, observation: Observation) -> str:
        self.calls.append(f"act {observation.turns_left} {observation}")
        return self.left.pop(0)

    def close(self) -> None:
        self.calls.append("close")


def test_reset_and_close() -> None:
    agent = Whole("5", "submit")
    assert play(agent).solved
    assert agent.calls == ["reset", "act 4 Say five.", "act 3 sum 5", "close"]


def test_close_is_called_whatever_happens() -> None:
    agent = Whole()
    assert play(agent).reason == "IndexError: pop from empty list"
    assert agent.calls[-1] == "close"
    agent = Whole("hang", "1")
    assert play(agent, timeout=0.1).outcome == "timed-out"
    assert agent.calls[-1] == "close"


@pytest.mark.parametrize("method", ["reset", "close"])
def test_reset_and_close_that_raise(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError("no")

    agent = Whole("5", "submit")
    monkeypatch.setattr(agent, method, fail)
    assert play(agent).reason == "OSError: no"


def test_a_view_without_gold() -> None:
    seen: list[Any] = []

    def agent(task: TaskView, env: Any) -> None:
        seen.extend([task, env.task])

    play(agent)
    assert seen[0] is seen[1]
    assert isinstance(seen[0], TaskView)
    assert seen[0] == TASK.view()
    assert "s3cret" not in repr(seen[0])
    assert "gold" not in {field.name for field in fields(seen[0])}
    whole = Whole("submit")
    play(whole)
    assert whole.task == TASK.view()


def test_the_environment_of_an_agent_is_a_facade() -> None:
    found: list[Any] = []

    def agent(task: TaskView, env: Any) -> None:
        found.append(env)

    play(agent)
    (env,) = found
    assert isinstance(env, AgentEnvironment)
    assert {name for name in dir(env) if not name.startswith("_")} == {
        *("step", "submit", "pass_turn", "task", "sandbox"),
        *("spend", "think", "log"),
        *("exec", "upload", "download", "record_turn", "ask", "has_user", "is_answered"),
        *("over", "prompt", "tools", "async_tools", "functions"),
    }
    assert not hasattr(env, "__dict__")
    with pytest.raises(BudgetExhausted, match=r"the episode is over \(stopped\)"):
        env.step("1")
    with pytest.raises(BudgetExhausted, match="nothing to submit"):
        env.submit()


class Async:
    """Async, step style; remembers the loops that it ran on."""

    def __init__(self) -> None:
        self.loops: list[object] = []
        self.closed = False
        self.background: asyncio.Task[None] | None = None

    async def reset(self, task: TaskView) -> None:
        self.loops.append(asyncio.get_running_loop())
        self.background = asyncio.create_task(asyncio.sleep(100))

    async def act(self, observation: str) -> str:
        await asyncio.sleep(0)
        self.loops.append(asyncio.get_running_loop())
        return "5" if observation == "Say five." else "submit"

    async def close(self) -> None:
        self.loops.append(asyncio.get_running_loop())
        self.closed = True


def test_async_step_style_has_one_loop_for_the_episode() -> None:
    agent = Async()
    assert play(agent).solved
    assert len(agent.loops) == 4
    assert len(set(map(id, agent.loops))) == 1
    assert agent.closed
    assert agent.background is not None
    assert agent.background.cancelled()


def test_async_loop_style_and_callables() -> None:
    async def loop(task: TaskView, env: Any) -> None:
        await asyncio.sleep(0)
        env.step("5")

    async def step(observation: str) -> str:
        await asyncio.sleep(0)
        return "submit" if observation == "sum 5" else "5"

    assert play(loop).solved
    assert play(step).solved


def test_async_agent_that_raises() -> None:
    async def agent(observation: str) -> NoReturn:
        await asyncio.sleep(0)
        raise ValueError("no")

    episode = play(agent)
    assert (episode.outcome, episode.reason) == ("agent-error", "ValueError: no")


def test_the_loop_of_an_episode_ends_where_its_sandbox_breaks() -> None:
    async def agent(task: TaskView, env: Any) -> None:
        await asyncio.sleep(0)
        env.step("break")

    with pytest.raises(SandboxError):
        play(agent)
    assert not [t for t in threading.enumerate() if t.name.startswith("intercode-loop")]


def test_async_agent_that_leaves_and_one_that_is_late() -> None:
    async def leaves(observation: str) -> NoReturn:
        await asyncio.sleep(0)
        sys.exit(3)

    async def late(task: TaskView, env: Any) -> None:
        while True:
            await asyncio.sleep(0.01)
            env.step("hang")

    assert play(leaves).reason == "SystemExit: 3"
    assert play(late, timeout=0.2).outcome == "timed-out"


def test_context_variables_of_the_caller_are_there() -> None:
    from contextvars import ContextVar

    variable: ContextVar[str] = ContextVar("variable")
    token = variable.set("5")
    try:
        assert play(lambda observation: variable.get(), task=TASK).turns[0].action == "5"
    finally:
        variable.reset(token)


# -- submissions, budgets, rewards as feedback


@pytest.mark.parametrize(
    ("action", "reward"),
    [("submit", 0.0), ("submit 5", 1.0), ("  submit\t4 \n", 0.8), ("submit\n5", 1.0)],
)
def test_submitted_answers(action: str, reward: float) -> None:
    episode = play(acts(action))
    assert episode.reward == near(reward)
    assert [turn.action for turn in episode.turns] == [action]


def test_what_only_starts_like_a_submission_is_run() -> None:
    assert play(acts("submitted", "submit 5")).turns[0].observation == "no number"


def test_submit_of_the_facade() -> None:
    results: list[Any] = []

    def agent(task: TaskView, env: AgentEnvironment) -> None:
        results.append(env.step("2"))
        results.append(env.submit("5"))

    episode = play(agent)
    assert episode.solved
    assert [turn.action for turn in episode.turns] == ["2", "submit 5"]
    (observation, *rest), (last, *end) = results
    assert (observation, observation.executed, observation.status) == ("sum 2", True, 0)
    assert (observation.reward, observation.turns_left) == (None, 3)
    assert rest == [0.0, False, False, {"executed": True, "turns_left": 3}]
    assert (last, end) == ("", [1.0, True, False, {}])


def test_budget_of_the_run_goes_before_the_tasks() -> None:
    environment = Counter(max_turns=2)
    episode = play(acts("1", "1", "1"), environment)
    assert (episode.max_turns, len(episode.turns)) == (2, 2)


def test_last_turn_is_truncated_and_graded() -> None:
    environment = Counter(max_turns=1)
    environment.reset(task=TASK)
    _, reward, terminated, truncated, _ = environment.step("4")
    assert (reward, terminated, truncated) == (near(0.8), False, True)
    with pytest.raises(BudgetExhausted, match=r"the episode is over \(budget\); no action is run"):
        environment.step("1")
    assert environment.ran == ["4"]


def test_rewards_as_feedback() -> None:
    seen: list[tuple[float, float | None]] = []

    def agent(task: TaskView, env: Any) -> None:
        for action in ("2", "-1", "4", "9"):
            observation, reward, terminated, truncated, _ = env.step(action)
            seen.append((reward, observation.reward))
            if terminated or truncated:
                return

    episode = play(agent, Counter(feedback="reward"))
    assert seen == [(near(r), near(r)) for r in (0.4, 0.2, 1.0)]
    assert (episode.outcome, len(episode.turns)) == ("solved", 3)
    assert [turn.reward for turn in episode.turns] == [near(r) for r in (0.4, 0.2, 1.0)]
    assert episode.turns[1].parts == {"sum": near(0.2)}


def test_a_passed_turn_is_not_graded_again() -> None:
    environment = Counter(feedback="reward")
    environment.reset(task=TASK)
    environment.step("2")
    environment.total = 5.0  # grading itself may change what is graded, as the paper profile's does
    observation, reward, *_ = environment.pass_turn("I think.", "there is no action")
    assert (observation.reward, reward, environment.over) == (near(0.4), near(0.4), "")
    assert [turn.passed for turn in environment.turns] == [False, True]
    assert environment.step("0")[1] == 1.0


@pytest.mark.parametrize("end", [(), ("submit",), ("submit 1",)])
def test_best_try_counts_with_rewards_as_feedback(end: tuple[str, ...]) -> None:
    episode = play(steps("4", "-3", *end), Counter(feedback="reward"))
    assert (episode.outcome, episode.reward) == ("failed", near(0.8))
    assert episode.reason == "4 is not it"
    assert episode.turns[-1].reward == near(0.2)


def test_best_try_counts_when_the_budget_is_used_up() -> None:
    episode = play(acts("4", "-1", "-1", "-1"), Counter(feedback="reward"))
    assert (episode.outcome, episode.reward) == ("out-of-budget", near(0.8))


def test_last_state_counts_otherwise() -> None:
    assert play(steps("5", "-4")).reward == near(0.2)


# -- the environment alone


def test_an_environment_is_used_again_after_reset() -> None:
    environment = Counter()
    assert play(acts("5", "submit"), environment).solved
    episode = play(acts("1", "submit"), environment)
    assert (episode.reward, len(episode.turns)) == (near(0.2), 2)
    environment.close()
    environment.close()
    assert environment.stops == 4
    with pytest.raises(BudgetExhausted):
        environment.step("1")


def test_reset_returns_the_query_and_a_view() -> None:
    environment = Counter(max_turns=2)
    observation, info = environment.reset(task=TASK)
    assert (observation, observation.turns_left) == ("Say five.", 2)
    assert info == {"task": TASK.view(2)}
    assert environment.first is observation


@pytest.mark.parametrize("action", [None, 5, b"1"])
def test_step_takes_strings(action: Any) -> None:
    environment = Counter()
    environment.reset(task=TASK)
    with pytest.raises(TypeError, match=f"an action must be a str, not {type(action).__name__}"):
        environment.step(action)


def test_agents_of_ours_and_of_users_are_the_same_to_the_loop() -> None:
    assert play(Agent("step", act=acts("submit 5"))).solved


def test_interrupted_while_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Counter()
    first, _ = environment.reset(task=TASK)
    wait = threading.Event.wait

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread() and timeout == 1234:
            while "hang" not in environment.ran:  # before, there is no action to interrupt
                time.sleep(0.01)
            raise KeyboardInterrupt
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_episode(adapt(acts("hang", "1")), environment, first, timeout=1234)
    monkeypatch.undo()
    assert environment.interrupted.is_set()
    assert environment.over == "interrupted"


@pytest.mark.parametrize("state", [{"a": {1}}, {"a": object()}, {(1, 2): 3}, None])
def test_an_end_state_that_no_file_can_hold_is_the_environments_fault(state: Any) -> None:
    class Keeper(Counter):
        name = "keeper"

        def end_state(self) -> dict[str, Any]:
            return cast("dict[str, Any]", state)

    with pytest.raises(TaskError, match=r"'keeper': end_state\(\) returned .*; a dictionary of"):
        play(acts("5", "submit"), Keeper(), task=replace(TASK, env="keeper"))


def test_a_fault_of_the_task_that_an_agent_meets_first_is_not_the_agents() -> None:
    def act(_: str) -> NoReturn:
        raise TaskError("its prompt is wrong")

    with pytest.raises(TaskError, match="its prompt is wrong"):
        play(act)
