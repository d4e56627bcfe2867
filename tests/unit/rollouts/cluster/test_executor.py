"""The driver with nodes that only sleep: what it makes of losses, late results and bad messages."""

from __future__ import annotations

import asyncio
import json
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest

from benchmarks.sleeping_nodes import SleepingNodes, SleepingProcess
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.errors import (
    AgentLoadError,
    ConfigurationError,
    EngineUnavailable,
    ImageError,
    InfrastructureError,
    JudgeError,
    RolloutCancelled,
    SandboxError,
    TaskError,
)
from pytest_intercode.rollouts.budgets import Amounts, RunBudget
from pytest_intercode.rollouts.cluster import nodes as nodes_module
from pytest_intercode.rollouts.cluster.executor import ClusterExecutor, Connection
from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.messages import decode, encode
from pytest_intercode.rollouts.cluster.node import versions
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.executor import Handle, Observer
from pytest_intercode.rollouts.spec import RolloutSpec

Result = TypeVar("Result")
Execute = Callable[..., "Run"]


class Run(Observer):
    """A driver over sleeping nodes, and what it was notified of."""

    def __init__(
        self,
        nodes: SleepingNodes,
        tasks: int = 0,
        concurrency: int = 4,
        run_budget: RunBudget | None = None,
        timeout: float = 300.0,
        raises: Mapping[str, BaseException] | None = None,
    ) -> None:
        self.nodes = nodes
        self.raises = dict(raises or {})  # by the method that raises it when it is called for t1
        self.ends: Counter[str] = Counter()
        self.records: dict[str, EpisodeRecord] = {}
        self.errors: dict[str, BaseException] = {}
        self.lines: list[str] = []
        self.handles: list[Handle] = []
        self.lock = threading.Lock()
        self.all_over = threading.Event()
        self._tasks = tasks
        self.executor: ClusterExecutor | None = None
        self.connection = Connection(
            nodes,
            NodeSettings(),
            FileIndex(),
            run_budget or RunBudget(RunLimits()),
            self.lines.append,
            advice="; --intercode-resume continues from here",
            timeout=timeout,
        )
        self.executor = ClusterExecutor(
            self.connection, self, lambda spec: pytest.fail("nobody asks"), concurrency, self._next
        )
        self.executor.wake()

    def _next(self) -> None:
        if self.executor is not None and len(self.handles) < self._tasks:
            if len(self.handles) == 1:
                self._raise("refill")
            self.handles.append(self.executor.submit(spec(len(self.handles))))

    def _raise(self, method: str, handle: Handle | None = None) -> None:
        if method in self.raises and (handle is None or handle.spec.task.id == "t1"):
            raise self.raises[method]

    def printed(self, handle: Handle, pieces: list[Any]) -> None:
        self._raise("printed", handle)

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        self._raise("ended", handle)
        self._note(handle)
        self.records[handle.spec.task.id] = record

    def failed(self, handle: Handle, error: BaseException) -> None:
        self._note(handle)
        self.errors[handle.spec.task.id] = error
        self._raise("failed", handle)

    def _note(self, handle: Handle) -> None:
        self.ends[handle.spec.task.id] += 1
        if sum(self.ends.values()) == self._tasks:
            self.all_over.set()

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
        run.connection.close()


def test_all_are_played_once_and_told_in_their_own_names(execute: Execute) -> None:
    run = execute(SleepingNodes(4), tasks=200)
    assert run.all_over.wait(20)
    assert set(run.ends.values()) == {1}
    assert len(run.records) == 200
    record = run.handles[7].record(run.handles[7].agent(), None)  # type: ignore[arg-type]
    assert (record.task.id, record.node_id, record.agent) == ("t7", "s::7", "sleeper")
    assert run.handles[7].result is record
    assert sum(counts.done for counts in run.connection.counts.values()) == 200


def test_whatever_is_killed_each_has_one_end(
    execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "_MAX_FAULTS", 1_000_000)  # no node is left out
    monkeypatch.setattr("pytest_intercode.rollouts.cluster.executor._FIND_INTERVAL", 0.05)
    chance = random.Random(5)
    nodes = SleepingNodes(12, seconds=lambda: chance.random() * 0.05)
    run = execute(nodes, tasks=400, concurrency=60)
    end = time.monotonic() + 60
    while not run.all_over.wait(0.01):
        assert time.monotonic() < end
        process = nodes.any(chance) if chance.random() < 0.1 else None
        if process is not None:
            nodes.kill(process, node=chance.random() < 0.5)
    assert set(run.ends.values()) == {1}
    assert len(run.ends) == 400
    assert all(isinstance(error, InfrastructureError) for error in run.errors.values())


def test_a_rollout_whose_node_goes_is_run_again_with_all_its_turns(execute: Execute) -> None:
    nodes = SleepingNodes(2, seconds=lambda: 0.3)
    run = execute(nodes, tasks=1)
    run.until(lambda: nodes.begun)
    run.until(lambda: _busy(nodes))
    (first,) = _busy(nodes)
    nodes.kill(first, node=True)
    assert run.all_over.wait(20)
    assert nodes.begun == 2
    record = run.records["t0"]
    assert (record.outcome, len(record.attempts)) == ("solved", 1)
    assert "it was killed" in record.attempts[0]
    assert first.node in record.attempts[0]


class Answering(SleepingNodes):
    """Nodes whose first answers, or all of them, are others.

    Args:
        nodes: how many there are.
        answer: what a process answers to an attempt.
        count: how many of them are answered so; None for all.
        name: the node that answers so; by default all.
    """

    def __init__(
        self,
        nodes: int,
        answer: Mapping[str, Any] | bytes,
        count: int | None = None,
        name: str = "",
        **more: Any,
    ) -> None:
        super().__init__(nodes, **more)
        self._answer = answer if isinstance(answer, bytes) else encode(answer)
        self._count = math.inf if count is None else count
        self._name = name

    async def play(self, process: SleepingProcess, message: Mapping[str, Any]) -> object:
        if self._count <= 0 or self._name not in process.node:
            return await super().play(process, message)
        self._count -= 1
        self.played.append(message)
        return self._answer


def _failure(kind: str, text: str, **more: object) -> dict[str, object]:
    return {"stage": "run", "error": {"kind": kind, "text": text}, **more}


def test_an_agent_whose_process_dies_gains_no_turns_and_no_excuse(execute: Execute) -> None:
    class Deadly(SleepingNodes):
        async def play(self, process: SleepingProcess, message: Mapping[str, Any]) -> object:
            self.played.append(message)
            process.tell(message["attempt"], 3)
            threading.Timer(0.05, self.kill, [process]).start()
            return await asyncio.sleep(60, None)

    nodes = Deadly(5)
    run = execute(nodes, tasks=1)
    assert run.all_over.wait(20)
    specs = [json.loads(message["spec"]) for message in nodes.played]
    assert [spec["max_turns"] for spec in specs] == [None, 7, 4]
    record = run.records["t0"]
    assert (record.outcome, record.reward) == ("agent-error", 0.0)
    assert "ended under it 3 times" in record.reason


def test_what_rollout_has_run_twice_on_a_node_is_not_run_again(execute: Execute) -> None:
    """One that a sandbox broke under is over: Rollout has tried it again where it was."""
    broken = _failure("SandboxError", "no room", stage="prepare")
    nodes = Answering(3, broken, name="node-0", seconds=lambda: 0.01)
    run = execute(nodes, tasks=30, concurrency=3)
    assert run.all_over.wait(20)
    assert (len(run.records), len(run.errors), nodes.begun) == (27, 3, 30)
    assert not [record for record in run.records.values() if record.attempts]
    assert {str(error) for error in run.errors.values()} == {"node node-0: no room"}
    assert {type(error) for error in run.errors.values()} == {SandboxError}
    run.until(lambda: run.lines)
    assert run.lines == ["node node-0 gets no more work: 3 faults in a row, the last: no room"]


def test_what_a_node_cannot_begin_is_begun_elsewhere(execute: Execute) -> None:
    declined = _failure("SandboxError", "no room", stage="prepare", declined=True)
    nodes = Answering(3, declined, name="node-0", seconds=lambda: 0.01)
    run = execute(nodes, tasks=30, concurrency=3)
    assert run.all_over.wait(20)
    assert len(run.records) == 30
    again = [record for record in run.records.values() if record.attempts]
    assert len(again) == 3, "then it got no more work"
    run.until(lambda: run.lines)
    assert run.lines == ["node node-0 gets no more work: 3 faults in a row, the last: no room"]


def test_one_nodes_engine_is_not_everybodys(execute: Execute) -> None:
    run = execute(Answering(1, _failure("EngineUnavailable", "no engine")), tasks=1)
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
    run = execute(Answering(1, _failure(kind, text, stage="agent")), tasks=1)
    assert run.all_over.wait(20)
    assert type(run.errors["t0"]) is found
    assert str(run.errors["t0"]) == f"node node-0: {text}"


def test_what_a_node_ends_by_itself_is_run_elsewhere(execute: Execute) -> None:
    ended = _failure("RolloutCancelled", "the run is over")
    run = execute(Answering(2, ended, count=1), tasks=1)
    assert run.all_over.wait(20)
    assert run.records["t0"].outcome == "solved"
    assert "it was ended there: the run is over" in run.records["t0"].attempts[0]


def test_a_node_that_comes_late_and_differs_is_named_and_left_out(
    execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.rollouts.cluster.executor._FIND_INTERVAL", 0.05)

    class Late(SleepingProcess):
        async def versions(self) -> bytes:
            return encode({**versions(), "Python": "3.9.1"})

    class Mixed(SleepingNodes):
        def start(self, node: str) -> SleepingProcess:
            if node != "late":
                return super().start(node)
            self.processes.append(Late(self, node))
            return self.processes[-1]

    nodes = Mixed(1, seconds=lambda: 0.05)
    run = execute(nodes, tasks=20, concurrency=1)
    nodes.nodes["late"] = ("late", 1.0)
    assert run.all_over.wait(20)
    run.until(lambda: run.lines)
    (line,) = run.lines
    assert line.startswith("node late gets no more work: Python 3.9.1, here 3.")
    assert run.connection.counts["late"].left_out.startswith("Python 3.9.1, here 3.")


def test_a_node_that_joins_takes_part(execute: Execute, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_intercode.rollouts.cluster.executor._FIND_INTERVAL", 0.05)
    nodes = SleepingNodes(1, seconds=lambda: 0.05)
    run = execute(nodes, tasks=40, concurrency=2)
    nodes.nodes["late"] = ("late", 1.0)
    assert run.all_over.wait(20)
    assert {record.host for record in run.records.values()} == {"node-0", "late"}


def test_a_task_error_is_no_fault_of_a_node(execute: Execute) -> None:
    run = execute(Answering(1, _failure("GoldError", "gold fails")), tasks=5)
    assert run.all_over.wait(20)
    assert all(isinstance(error, TaskError) for error in run.errors.values())
    with pytest.raises(TaskError, match="gold fails"):
        run.handles[0].record(None, None)  # type: ignore[arg-type]
    assert run.handles[0].agent().name == "sleeper"


def test_a_judge_without_a_verdict_is_no_fault_of_a_node(execute: Execute) -> None:
    """Its error has the episode, as without a cluster."""
    error = {"kind": "JudgeError", "text": "judge: no verdict", "test_output": "1 failed"}
    answer = {"stage": "run", "error": {**error, "line": SleepingNodes(1).line}}
    run = execute(Answering(1, answer), tasks=5)
    assert run.all_over.wait(20)
    assert {str(error) for error in run.errors.values()} == {"node node-0: judge: no verdict"}
    failure = run.errors["t3"]
    assert isinstance(failure, JudgeError)
    assert (failure.record.task.id, len(failure.record.turns)) == ("t3", 3)
    assert failure.test_output == "1 failed"
    [counts] = run.connection.counts.values()
    assert (counts.done, counts.in_a_row, counts.left_out) == (5, 0, "")


_NO_MESSAGES = [
    b"\xff\xff\xff\xff",
    b"[]",
    b"{}x",
    b"[" * 0x3000,
    encode({}),
    encode({"turns": [[[], 1]], "lines": []}),
    encode({"turns": [[1, -(10**6)]], "lines": []}),
    encode({"turns": [[1, 10**400]], "lines": []}),
    encode({"turns": [[math.inf, 1]], "lines": []}),
    encode({"turns": 1, "lines": []}),
]


@pytest.mark.parametrize("data", _NO_MESSAGES)
def test_a_node_whose_news_are_no_message_is_replaced(execute: Execute, data: bytes) -> None:
    nodes = SleepingNodes(2, seconds=lambda: 0.05)
    run = execute(nodes, tasks=8)
    run.until(lambda: _busy(nodes))
    first = _busy(nodes)[0]

    async def news(timeout: float) -> bytes:
        return data

    first.news = news  # type: ignore[method-assign]
    first.tell(0, 0)  # it is asked again
    assert run.all_over.wait(20)
    assert len(run.records) == 8
    run.until(lambda: first not in nodes.processes and len(nodes.processes) == 2)


@pytest.mark.parametrize(
    "phases", [{"run": [1.0]}, {"run": [1.0, math.inf]}, {"run": 3}, ["run"], {"run": ["x", "y"]}]
)
@pytest.mark.parametrize("failed", [False, True])
def test_a_result_that_is_half_a_message_loses_no_rollout(
    execute: Execute, failed: bool, phases: object
) -> None:
    answer = _failure("AgentError", "x") if failed else {"line": SleepingNodes(1).line}
    run = execute(Answering(2, {**answer, "phases": phases}, count=1), tasks=4)
    assert run.all_over.wait(20)
    assert len(run.records) == 4
    reasons = [reason for record in run.records.values() for reason in record.attempts]
    assert reasons
    assert all("it sends what is not a message" in reason for reason in reasons)


@pytest.mark.parametrize("data", [*_NO_MESSAGES[:4], encode({"needs": [1]}), encode({"line": 1})])
def test_an_answer_that_is_no_message_costs_its_sender_alone(execute: Execute, data: bytes) -> None:
    run = execute(Answering(2, data, count=1), tasks=4)
    assert run.all_over.wait(20)
    assert set(run.ends.values()) == {1}
    assert not run.errors


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", "null", '{"task_id": 1, "turn_history": {"actions": [1]}}']
)
def test_a_record_that_is_none_is_its_agents_fault(execute: Execute, line: str) -> None:
    nodes = SleepingNodes(1)
    nodes.line = line
    run = execute(nodes, tasks=1)
    assert run.all_over.wait(20)
    record = run.records["t0"]
    assert (record.outcome, record.reward, record.node_id) == ("agent-error", 0.0, "s::0")
    assert "sent what is not a record of it" in record.reason


def test_a_record_cannot_pass_for_another_tasks(execute: Execute) -> None:
    nodes = SleepingNodes(1)
    forged = json.loads(nodes.line)
    forged |= {"node_id": "s::99", "task_id": "t99", "item": 99, "agent": "x", "profile": "paper"}
    nodes.line = json.dumps(forged)
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
    nodes = SleepingNodes(1, seconds=lambda: 60)
    run = execute(nodes, tasks=3, timeout=0.5)
    run.until(lambda: nodes.begun)
    began = time.monotonic()
    nodes.nodes.clear()
    nodes.kill(nodes.processes[0], node=True)
    assert run.all_over.wait(20)
    assert time.monotonic() - began > 0.4
    assert all(isinstance(error, EngineUnavailable) for error in run.errors.values())
    assert "no node takes work" in str(run.errors["t0"])
    assert "--intercode-resume" in str(run.errors["t0"])


def test_a_process_that_does_not_answer_is_given_up_and_its_late_answer_dropped(
    execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "_SILENCE_INTERVAL", 0.05)

    class Stopped(SleepingProcess):
        async def news(self, timeout: float) -> object:
            if not self.running:  # it stops once it has work, however late that comes
                return await super().news(timeout)
            return await asyncio.sleep(60, None)

    class Stopping(SleepingNodes):
        def start(self, node: str) -> SleepingProcess:
            if self.processes:
                return super().start(node)
            self.processes.append(Stopped(self, self.nodes[node][0]))
            return self.processes[0]

    nodes = Stopping(2, seconds=lambda: 0.6)
    run = execute(nodes, tasks=4)
    assert run.all_over.wait(20)
    assert set(run.ends.values()) == {1}
    reasons = [reason for record in run.records.values() for reason in record.attempts]
    assert {"it has not answered for 0 s" in reason for reason in reasons} == {True}


def test_the_runs_budget_is_shared_with_what_counts_for_nodes(execute: Execute) -> None:
    budget = RunBudget(RunLimits(turns=5))
    nodes = SleepingNodes(2)
    run = execute(nodes, run_budget=budget)
    counter = nodes.budget
    assert counter is not None
    for node in ("first", "second", "first"):
        assert decode(counter.begin_turn(node)) == {"refused": "", "exhausted": ""}
        counter.end_turn(node, True)
    assert budget.begin_turn() == ""
    exhausted = "the run's 5 turns are used up"
    assert decode(counter.begin_turn("first")) == {"refused": "", "exhausted": exhausted}
    refused = {"refused": exhausted, "exhausted": exhausted}
    assert budget.begin_turn() == exhausted, "the last one is under way"
    assert decode(counter.begin_turn("second")) == refused
    counter.end_turn("first", False)  # it came to nothing
    assert decode(counter.begin_turn("second"))["refused"] == ""
    run.connection.close()
    assert budget.charge() == exhausted
    assert budget.used == Amounts(turns=5)


@pytest.mark.parametrize("error", [OSError("disk full"), ValueError("x"), pytest.skip.Exception()])
def test_what_an_observer_raises_at_a_record_fails_that_rollout_alone(
    execute: Execute, error: BaseException
) -> None:
    """Also where reading what is not a message raises the same: no node is at fault."""
    nodes = SleepingNodes(2)
    run = execute(nodes, tasks=6, raises={"ended": error})
    assert run.all_over.wait(20)
    assert sorted(run.records) == ["t0", "t2", "t3", "t4", "t5"]
    assert run.errors == {"t1": error}
    with pytest.raises(type(error)):
        run.handles[1].record(None, None)  # type: ignore[arg-type]
    assert nodes.begun == 6
    counts = run.connection.counts.values()
    assert (sum(c.done for c in counts), sum(c.lost + c.in_a_row for c in counts)) == (6, 0)


def _results(run: Run) -> list[EpisodeRecord | BaseException]:
    """Return what the rollouts came to that were submitted."""
    results: list[EpisodeRecord | BaseException] = []
    for handle in run.handles:
        error = handle.recorded.exception(20)
        results.append(error if error is not None else handle.recorded.result())
    return results


@pytest.mark.parametrize("method", ["failed", "printed", "refill"])
def test_what_its_owner_raises_elsewhere_ends_the_run_and_loses_no_result(
    execute: Execute, method: str
) -> None:
    error = ValueError("of the owner")
    failure = {**_failure("AgentError", "x"), "output": [["setup", "stdout", "x"]]}
    nodes = Answering(1, failure) if method != "refill" else SleepingNodes(1, seconds=lambda: 60)
    run = execute(nodes, tasks=6, concurrency=2, raises={method: error})
    assert run.executor is not None
    executor = run.executor
    run.until(lambda: executor._error is not None)
    with pytest.raises(ValueError, match="of the owner"), executor.lock:
        executor.wait_for(lambda: False)
    with pytest.raises(ValueError, match="of the owner"):
        executor.submit(spec(9))
    results = _results(run)
    if method == "refill":
        assert results == [error]
    else:
        assert [type(result).__name__ for result in results[:2]] == ["AgentError"] * 2
        assert set(map(str, results[2:])) <= {"x", "of the owner"}
    assert all(run.ends[handle.spec.task.id] == 1 for handle in run.handles)
    assert executor.join(20)


def test_a_file_that_the_object_store_does_not_take_fails_what_needs_it(
    execute: Execute, tmp_path: Path
) -> None:
    class Full(Answering):
        def put(self, content: bytes) -> object:
            raise InfrastructureError("no room")

    (tmp_path / "data").write_text("x")
    nodes = Full(1, {"needs": [["0" * 64, "file", "data"]]}, count=1)
    run = execute(nodes)
    assert run.executor is not None
    run.executor.put(tmp_path / "data", "0" * 64)
    handles = [run.executor.submit(spec(number)) for number in range(2)]
    error = handles[0].recorded.exception(20)
    assert (type(error), str(error)) == (InfrastructureError, "no room")
    assert handles[1].recorded.result(20).solved


def test_a_node_whose_process_cannot_be_started_again_is_left_out(execute: Execute) -> None:
    class Unstartable(SleepingNodes):
        def start(self, node: str) -> SleepingProcess:
            if self.processes or self.begun:
                raise RuntimeError("no actor")
            return super().start(node)

    nodes = Unstartable(1, seconds=lambda: 60)
    run = execute(nodes, tasks=1, timeout=0.5)
    run.until(lambda: nodes.begun)
    nodes.kill(nodes.processes[0])
    assert run.all_over.wait(20)
    assert "its process cannot be started: RuntimeError('no actor')" in str(run.errors["t0"])


def test_what_is_left_without_a_result_has_an_error(execute: Execute) -> None:
    nodes = SleepingNodes(1, seconds=lambda: 60)
    run = execute(nodes, tasks=1)
    run.until(lambda: nodes.begun)
    run.connection.close()
    with pytest.raises(EngineUnavailable, match="the cluster was left"):
        run.handles[0].record(None, None)  # type: ignore[arg-type]


def _busy(nodes: SleepingNodes) -> list[SleepingProcess]:
    """Return the processes in which something runs."""
    return [process for process in nodes.processes if process.running]


@pytest.mark.parametrize("change", ["write", "remove"])
def test_a_file_that_changes_under_the_run_is_no_fault_of_a_node(
    execute: Execute, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "data"
    path.write_text("x")
    ref = FileIndex().ref(path)
    assert ref is not None
    nodes = Answering(1, {"needs": [list(ref)]}, count=4)
    run = execute(nodes)
    assert run.executor is not None
    run.connection.files.ref(path)
    path.write_text("y") if change == "write" else path.unlink()
    handles = [run.executor.submit(spec(number)) for number in range(5)]
    for handle in handles[:4]:
        error = handle.recorded.exception(20)
        assert type(error) is ConfigurationError
        assert str(error).startswith(f"{path}: it was changed or removed before it was sent")
    assert handles[4].recorded.result(20).solved
