"""The driver with nodes that only sleep: what it makes of losses, late results and bad messages."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import pytest

from benchmarks.sleeping_nodes import SleepingNodes
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.errors import (
    AgentLoadError,
    ConfigurationError,
    EngineUnavailable,
    ImageError,
    InfrastructureError,
    RolloutCancelled,
    SandboxError,
    TaskError,
)
from pytest_intercode.rollouts.budgets import Amounts, RunBudget
from pytest_intercode.rollouts.cluster.budget import RemoteBudget
from pytest_intercode.rollouts.cluster.executor import ClusterExecutor
from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.messages import Message, decode, encode
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.cluster.transport import Event, Joined, Received, Refused
from pytest_intercode.rollouts.executor import Handle, Observer
from pytest_intercode.rollouts.spec import RolloutSpec

Result = TypeVar("Result")
Execute = Callable[..., "Run"]


class Run(Observer):
    """A driver over sleeping nodes, and what it was notified of."""

    def __init__(self, nodes: SleepingNodes, tasks: int = 0, **more: Any) -> None:
        self.nodes = nodes
        self.ends: Counter[str] = Counter()
        self.records: dict[str, EpisodeRecord] = {}
        self.errors: dict[str, BaseException] = {}
        self.lines: list[str] = []
        self.handles: list[Handle] = []
        self.lock = threading.Lock()
        self.all_over = threading.Event()
        self._tasks = tasks
        self.executor: ClusterExecutor | None = None
        more = {"concurrency": 4, "run_budget": RunBudget(RunLimits()), **more}
        self.executor = ClusterExecutor(
            nodes,
            NodeSettings(),
            self,
            self._next,
            files=FileIndex(),
            substitute=lambda spec: pytest.fail("nobody asks"),
            **more,
        )

    def _next(self) -> None:
        if self.executor is not None and len(self.handles) < self._tasks:
            self.handles.append(self.executor.submit(spec(len(self.handles))))

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        self._note(handle)
        self.records[handle.spec.task.id] = record

    def failed(self, handle: Handle, error: BaseException) -> None:
        self._note(handle)
        self.errors[handle.spec.task.id] = error

    def _note(self, handle: Handle) -> None:
        self.ends[handle.spec.task.id] += 1
        if sum(self.ends.values()) == self._tasks:
            self.all_over.set()

    def report(self, line: str) -> None:
        self.lines.append(line)

    def wait(self, handle: Handle, future: Future[Result]) -> Result:
        return future.result(20)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)


def spec(number: int, max_turns: int = 10) -> RolloutSpec:
    task = Task(f"t{number}", "Do something.", ("true",), "bash", "s", "d", max_turns=max_turns)
    return RolloutSpec(task, agent="sleeper", node_id=f"s::{number}")


@pytest.fixture
def execute() -> Iterator[Execute]:
    made: list[Run] = []

    def start(nodes: SleepingNodes, **more: Any) -> Run:
        made.append(Run(nodes, **more))
        return made[-1]

    yield start
    for run in made:
        assert run.executor is not None
        run.executor.close()


def test_all_are_played_once_and_told_in_their_own_names(execute: Execute) -> None:
    run = execute(SleepingNodes(4), tasks=200)
    assert run.all_over.wait(20)
    assert set(run.ends.values()) == {1}
    assert len(run.records) == 200
    record = run.handles[7].record(run.handles[7].agent(), None)  # type: ignore[arg-type]
    assert (record.task.id, record.node_id, record.agent) == ("t7", "s::7", "sleeper")
    assert run.handles[7].result is record
    assert run.executor is not None
    assert sum(counts.done for counts in run.executor.counts.values()) == 200


def test_whatever_is_killed_each_has_one_end(execute: Execute) -> None:
    chance = random.Random(5)
    nodes = SleepingNodes(12, seconds=lambda: chance.random() * 0.05)
    run = execute(nodes, tasks=400, concurrency=60)
    end = time.monotonic() + 60
    while not run.all_over.wait(0.01):
        assert time.monotonic() < end
        if chance.random() < 0.1:
            nodes.kill(nodes.any(chance), process=chance.random() < 0.5)
    assert set(run.ends.values()) == {1}
    assert len(run.ends) == 400
    assert all(isinstance(error, InfrastructureError) for error in run.errors.values())


def test_a_rollout_whose_node_goes_is_run_again_with_all_its_turns(execute: Execute) -> None:
    nodes = SleepingNodes(2, seconds=lambda: 0.3)
    run = execute(nodes, tasks=1)
    run.until(lambda: nodes.begun)
    (first,) = _busy(run)
    nodes.kill(first, process=False)
    assert run.all_over.wait(20)
    assert nodes.begun == 2
    record = run.records["t0"]
    assert (record.outcome, len(record.attempts)) == ("solved", 1)
    assert "it was killed" in record.attempts[0]
    assert first.partition("#")[0] in record.attempts[0]


def test_an_agent_whose_process_dies_gains_no_turns_and_no_excuse(execute: Execute) -> None:
    given: list[int] = []

    class Deadly(SleepingNodes):
        def send(self, node: str, data: bytes) -> None:
            message = json.loads(data[4:])
            if message["what"] != "play":
                return super().send(node, data)
            given.append(message["spec"]["max_turns"])
            named = {"job": message["job"], "attempt": message["attempt"]}
            self._report(Received(node, encode({"what": "prepared", **named})))
            self._report(Received(node, encode({"what": "turns", "turns": 3, **named})))
            self.kill(node)

    run = execute(Deadly(5), tasks=1)
    assert run.all_over.wait(20)
    assert given == [None, 7, 4]
    record = run.records["t0"]
    assert (record.outcome, record.reward) == ("agent-error", 0.0)
    assert "ended under it 3 times" in record.reason


class Broken(SleepingNodes):
    """Nodes of which the first cannot run anything."""

    declined = False

    def send(self, node: str, data: bytes) -> None:
        message = json.loads(data[4:])
        if message["what"] != "play" or not node.startswith("node-0"):
            return super().send(node, data)
        self.begun += 1
        error = {"kind": "SandboxError", "text": "no room"}
        named = {"job": message["job"], "attempt": message["attempt"]}
        failed = {"what": "failed", "stage": "prepare", "declined": self.declined, "error": error}
        self._report(Received(node, encode({**failed, **named})))


def test_what_rollout_has_run_twice_on_a_node_is_not_run_again(execute: Execute) -> None:
    """One that a sandbox broke under is over: Rollout has tried it again where it was."""
    nodes = Broken(3)
    run = execute(nodes, tasks=30, concurrency=3)
    assert run.all_over.wait(20)
    assert (len(run.records), len(run.errors), nodes.begun) == (27, 3, 30)
    assert not [record for record in run.records.values() if record.attempts]
    assert {str(error) for error in run.errors.values()} == {"node node-0: no room"}
    assert {type(error) for error in run.errors.values()} == {SandboxError}
    run.until(lambda: run.lines)
    assert run.lines == ["node node-0 gets no more work: 3 faults in a row, the last: no room"]


def test_what_a_node_cannot_begin_is_begun_elsewhere(execute: Execute) -> None:
    nodes = Broken(3)
    nodes.declined = True
    run = execute(nodes, tasks=30, concurrency=3)
    assert run.all_over.wait(20)
    assert len(run.records) == 30
    again = [record for record in run.records.values() if record.attempts]
    assert len(again) == 3, "then it got no more work"
    run.until(lambda: run.lines)
    assert run.lines == ["node node-0 gets no more work: 3 faults in a row, the last: no room"]


def test_one_nodes_engine_is_not_everybodys(execute: Execute) -> None:
    class Failing(SleepingNodes):
        def send(self, node: str, data: bytes) -> None:
            message = json.loads(data[4:])
            named = {"job": message["job"], "attempt": message["attempt"]}
            error = {"kind": "EngineUnavailable", "text": "no engine"}
            failed = {"what": "failed", "stage": "run", "declined": False, "error": error}
            self._report(Received(node, encode({**failed, **named})))

    run = execute(Failing(1), tasks=1)
    assert run.all_over.wait(20)
    assert type(run.errors["t0"]) is InfrastructureError


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("AgentLoadError", "no module named 'mine'", AgentLoadError),
        ("ConfigurationError", "x.sql: there is no such file", ConfigurationError),
        ("ImageError", "x.Dockerfile: cannot be read", ImageError),
    ],
)
def test_an_error_says_on_which_node_something_is_missing(
    execute: Execute, kind: str, text: str, found: type[Exception]
) -> None:
    class Lacking(SleepingNodes):
        def send(self, node: str, data: bytes) -> None:
            message = json.loads(data[4:])
            if message["what"] != "play":
                return super().send(node, data)
            named = {"job": message["job"], "attempt": message["attempt"]}
            error = {"kind": kind, "text": text}
            failed = {"what": "failed", "stage": "agent", "error": error, **named}
            self._report(Received(node, encode(failed)))

    run = execute(Lacking(1), tasks=1)
    assert run.all_over.wait(20)
    assert type(run.errors["t0"]) is found
    assert str(run.errors["t0"]) == f"node node-0: {text}"


def test_what_a_node_ends_by_itself_is_run_elsewhere(execute: Execute) -> None:
    class Ending(SleepingNodes):
        def send(self, node: str, data: bytes) -> None:
            message = json.loads(data[4:])
            if message["what"] != "play" or message["attempt"] > 1:
                return super().send(node, data)
            error = {"kind": "RolloutCancelled", "text": "the run is over"}
            named = {"job": message["job"], "attempt": message["attempt"]}
            failed = {"what": "failed", "stage": "run", "error": error, **named}
            self._report(Received(node, encode(failed)))

    run = execute(Ending(2), tasks=1)
    assert run.all_over.wait(20)
    assert run.records["t0"].outcome == "solved"
    assert "it was ended there: the run is over" in run.records["t0"].attempts[0]


def test_a_node_that_comes_late_and_differs_is_named_and_left_out(execute: Execute) -> None:
    nodes = SleepingNodes(1, seconds=lambda: 0.05)
    run = execute(nodes, tasks=20, concurrency=1)
    nodes._report(Refused("late", "Python 3.9.1, here 3.11.2"))
    assert run.all_over.wait(20)
    run.until(lambda: run.lines)
    assert run.lines == ["node late gets no more work: Python 3.9.1, here 3.11.2"]
    assert run.executor is not None
    assert run.executor.counts["late"].left_out == "Python 3.9.1, here 3.11.2"


def test_a_task_error_is_no_fault_of_a_node(execute: Execute) -> None:
    class Gold(SleepingNodes):
        def send(self, node: str, data: bytes) -> None:
            message = json.loads(data[4:])
            if message["what"] != "play":
                return super().send(node, data)
            named = {"job": message["job"], "attempt": message["attempt"]}
            error = {"kind": "GoldError", "text": "gold fails"}
            failed = {"what": "failed", "stage": "run", "error": error, **named}
            self._report(Received(node, encode(failed)))

    run = execute(Gold(1), tasks=5)
    assert run.all_over.wait(20)
    assert all(isinstance(error, TaskError) for error in run.errors.values())
    with pytest.raises(TaskError, match="gold fails"):
        run.handles[0].record(None, None)  # type: ignore[arg-type]
    assert run.handles[0].agent().name == "sleeper"


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x03{}x",
        encode({"what": "__class__"}),
        encode({"what": "ended"}),
        encode({"what": "turns", "job": [], "attempt": 1}),
        encode({"what": "charge", "call": 1, "turns": 0, "tokens": -1, "cost": 0.0}),
        encode({"what": "end_turn", "taken": False}),
        b"\x00\x00\x30\x00" + b"[" * 0x3000,
        encode({"what": "turns", "job": math.inf, "attempt": 1}),
        encode({"what": "turns", "job": 1, "attempt": 1, "turns": -(10**6)}),
        encode({"what": "ended", "job": 1, "attempt": 10**400}),
        encode({"what": "charge", "call": 1, "turns": 0, "tokens": 0, "cost": 10**400}),
        encode({"what": "begin_turn", "call": math.inf}),
    ],
)
def test_a_node_that_says_what_is_no_message_is_replaced(execute: Execute, said: bytes) -> None:
    nodes = SleepingNodes(2, seconds=lambda: 0.05)
    run = execute(nodes, tasks=8)
    run.until(lambda: nodes.begun)
    (*_, first) = _busy(run)
    nodes._report(Received(first, said))
    assert run.all_over.wait(20)
    assert len(run.records) == 8
    run.until(lambda: len(nodes._nodes) == 3)


class _Forging(SleepingNodes):
    """Nodes whose first result has something else in one of its fields."""

    def __init__(self, nodes: int, **fields: object) -> None:
        super().__init__(nodes)
        self._fields = fields

    def _answer(self, node: str, seconds: float, message: Message) -> None:
        if message["what"] == "ended" and self._fields:
            message, self._fields = {**message, **self._fields}, {}
        super()._answer(node, seconds, message)


@pytest.mark.parametrize(
    "phases", [{"run": [1.0]}, {"run": [1.0, math.inf]}, {"run": 3}, ["run"], {"run": ["x", "y"]}]
)
@pytest.mark.parametrize("what", ["ended", "failed"])
def test_a_result_that_is_half_a_message_loses_no_rollout(
    execute: Execute, what: str, phases: object
) -> None:
    error = {"kind": "AgentError", "text": "x"}
    nodes = _Forging(2, phases=phases, **({} if what == "ended" else _failing(what, error)))
    run = execute(nodes, tasks=4)
    assert run.all_over.wait(20)
    assert len(run.records) == 4
    lost = [reason for record in run.records.values() for reason in record.attempts]
    assert lost
    assert all("it sends what is not a message" in reason for reason in lost)


def _failing(what: str, error: Message) -> dict[str, object]:
    return {"what": what, "stage": "run", "error": error}


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", "null", '{"task_id": 1, "turn_history": {"actions": [1]}}']
)
def test_a_record_that_is_none_is_its_agents_fault(execute: Execute, line: str) -> None:
    nodes = SleepingNodes(1)
    nodes._line = line
    run = execute(nodes, tasks=1)
    assert run.all_over.wait(20)
    record = run.records["t0"]
    assert (record.outcome, record.reward, record.node_id) == ("agent-error", 0.0, "s::0")
    assert "sent what is not a record of it" in record.reason


def test_a_record_cannot_pass_for_another_tasks(execute: Execute) -> None:
    nodes = SleepingNodes(1)
    forged = json.loads(nodes._line)
    forged |= {"node_id": "s::99", "task_id": "t99", "item": 99, "agent": "x", "profile": "paper"}
    nodes._line = json.dumps(forged)
    run = execute(nodes, tasks=1)
    assert run.all_over.wait(20)
    record = run.records["t0"]
    assert (record.task.id, record.node_id, record.item) == ("t0", "s::0", None)
    assert (record.agent, record.profile) == ("sleeper", "strict")


def test_cancelling_ends_at_once_and_its_result_counts_for_nothing(execute: Execute) -> None:
    nodes = SleepingNodes(1, seconds=lambda: 0.2)
    run = execute(nodes, tasks=2, concurrency=1)
    run.until(lambda: nodes.begun)
    run.handles[0].cancel("not wanted")
    with pytest.raises(RolloutCancelled, match="not wanted"):
        run.handles[0].record(None, None)  # type: ignore[arg-type]
    run.until(lambda: "t1" in run.records)
    assert list(run.ends) == ["t1"]


def test_a_cluster_that_shrinks_to_nothing_is_waited_for_and_given_up(execute: Execute) -> None:
    class Gone(SleepingNodes):
        def replace(self, node: str) -> None:
            pass

    nodes = Gone(1, seconds=lambda: 60)
    run = execute(nodes, tasks=3, timeout=0.5)
    run.until(lambda: nodes.begun)
    began = time.monotonic()
    nodes.kill(next(iter(nodes._nodes)), process=False)
    assert run.all_over.wait(20)
    assert time.monotonic() - began > 0.4
    assert all(isinstance(error, EngineUnavailable) for error in run.errors.values())
    assert "no node takes work" in str(run.errors["t0"])
    assert "--intercode-resume" in str(run.errors["t0"])


class DrawingNodes(SleepingNodes):
    """Nodes that draw on the run's budget.

    Attributes:
        budgets: what their rollouts would call, by node.
    """

    def start(self, report: Callable[[Event], None], settings: Callable[[], bytes]) -> list[Joined]:
        self.budgets: dict[str, RemoteBudget] = {}
        joined = super().start(report, settings)
        for node in self._nodes:
            send = partial(self._say, node)
            self.budgets[node] = RemoteBudget(True, None, send, lambda turns: None)
        return joined

    def _say(self, node: str, message: Message) -> None:
        self._report(Received(node, encode(message)))

    def send(self, node: str, data: bytes) -> None:
        for message in decode(data):
            if message["what"] == "answer":
                self.budgets[node].take_answer(message)
            else:
                super().send(node, encode(message))


def test_the_runs_budget_is_kept_by_the_driver_alone(execute: Execute) -> None:
    budget = RunBudget(RunLimits(turns=5))
    nodes = DrawingNodes(2)
    execute(nodes, run_budget=budget)
    first, second = nodes.budgets.values()
    for draw in (first, second, budget, first):
        assert draw.begin_turn() == ""
        draw.end_turn(True)
    assert first.begin_turn() == ""
    exhausted = "the run's 5 turns are used up"
    assert budget.begin_turn() == second.begin_turn() == exhausted, "the last one is under way"
    first.end_turn(False)  # it came to nothing
    assert second.begin_turn() == ""
    second.end_turn(True)
    assert first.charge() == first.begin_turn() == exhausted
    assert budget.used == Amounts(turns=5)


def test_what_a_lost_node_has_begun_is_used_up(execute: Execute) -> None:
    budget = RunBudget(RunLimits(turns=3))
    nodes = DrawingNodes(2)
    run = execute(nodes, run_budget=budget)
    assert run.executor is not None
    first, second = nodes.budgets.values()
    assert first.begin_turn() == first.begin_turn() == ""
    first.end_turn(True)
    nodes.kill(next(iter(nodes._nodes)))
    run.until(lambda: len(nodes._nodes) == 2)
    assert second.begin_turn() == ""
    assert second.begin_turn() == "the run's 3 turns are used up"
    assert budget.used == Amounts(turns=3)


def test_a_node_gains_no_turns_by_giving_back_what_it_never_had(execute: Execute) -> None:
    budget = RunBudget(RunLimits(turns=1))
    nodes = DrawingNodes(1)
    run = execute(nodes, run_budget=budget)
    (draw,) = nodes.budgets.values()
    assert draw.begin_turn() == ""
    draw.end_turn(True)
    draw.end_turn(False)
    run.until(lambda: len(nodes._nodes) == 2)  # its process was replaced
    assert budget.used == Amounts(turns=1)


def _busy(run: Run) -> list[str]:
    """Return the nodes that something runs on."""
    assert run.executor is not None
    with run.executor.lock:
        return [node for node, state in run.executor._table.nodes.items() if state.jobs]
