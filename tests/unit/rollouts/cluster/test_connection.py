"""Streams on a cluster whose nodes only sleep: back-pressure, losses, the end, refusals."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pytest_intercode
from benchmarks.sleeping_nodes import SleepingNodes, SleepingProcess
from pytest_intercode import Cluster, Task, run_rollouts
from pytest_intercode.environments import registry
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.rollouts.cluster import connection
from pytest_intercode.rollouts.cluster.messages import encode
from pytest_intercode.rollouts.cluster.nodes import Machines
from tests.unit.rollouts.test_stream import Adding

POLICY = """\
class Policy:
    def __init__(self, weights=None, bias=0):
        pass
    def act(self, observation):
        return "submit"

class Other(Policy):
    pass

def function(observation):
    return "submit"
"""
TASK = Task("t", "Do something.", ("true",), "bash", "s", "d", max_turns=10)


class Pretended(Cluster):
    """A cluster of such nodes."""

    def __init__(self, nodes: SleepingNodes, **more: Any) -> None:
        super().__init__("pretended", **more)
        self.nodes = nodes
        self.connected = 0

    def machines(self) -> Machines:
        self.connected += 1
        return self.nodes


Start = Callable[..., Pretended]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Pretended] = []

    def begin(nodes: int = 2, wait: float = 300.0, **more: Any) -> Pretended:
        made.append(Pretended(SleepingNodes(nodes, **more), wait=wait))
        return made[-1]

    yield begin
    for each in made:
        each.close()


@pytest.fixture(autouse=True)
def _policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policy.py").write_text(POLICY)
    monkeypatch.chdir(tmp_path)


def tasks(count: int | None = None) -> Iterator[Task]:
    numbers = itertools.count() if count is None else range(count)
    return (replace(TASK, id=f"t{number}") for number in numbers)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_each_try_comes_once_and_the_connection_stays(start: Start) -> None:
    cluster = start(2, weight=2.0)
    for _ in range(2):
        with run_rollouts(tasks(5), "policy.py:Policy", n=2, ordered=True, cluster=cluster) as got:
            records = list(got)
        assert [(r.item, r.task.id, r.task.repeat) for r in records] == [
            (number, f"t{number // 2}", number % 2 + 1) for number in range(10)
        ]
        assert {r.host for r in records} == {"node-0", "node-1"}
        assert {(r.agent, r.parameters_version) for r in records} == {("policy.py:Policy", 0)}
    assert cluster.connected == 1
    assert sum(counts.done for counts in cluster.counts.values()) == 20
    assert not cluster.in_use


def test_no_more_begin_than_there_is_room_for(start: Start) -> None:
    """As many as nodes have CPUs, and none while records wait to be taken."""
    cluster = start(3)
    with run_rollouts(tasks(), "policy.py:Policy", buffer=2, cluster=cluster) as records:
        next(records)
        time.sleep(0.2)
        assert 3 <= cluster.nodes.begun <= 1 + 2 + 3 - 1
    begun = cluster.nodes.begun
    with run_rollouts(
        tasks(), "policy.py:Policy", concurrency=7, buffer=0, cluster=cluster
    ) as records:
        for taken in range(1, 30):
            next(records)
            assert cluster.nodes.begun - begun <= taken + 7


def test_leaving_cancels_what_runs_and_waits_for_the_nodes(start: Start) -> None:
    seconds = itertools.chain([0.0], itertools.repeat(60.0))
    cluster = start(1, seconds=lambda: next(seconds))
    with run_rollouts(tasks(), "policy.py:Policy", concurrency=4, cluster=cluster) as records:
        next(records)
        until(lambda: cluster.nodes.begun == 5)
    until(lambda: cluster.nodes.cancelled == 4)
    assert not cluster.in_use
    assert next(iter(cluster.counts.values())).done == 5, "the nodes said that they are over"
    with pytest.raises(StopIteration):
        next(records)


def test_a_lost_node_costs_nothing_but_time(start: Start) -> None:
    killed, times = threading.Event(), iter([0.0])
    cluster = start(2, seconds=lambda: 0.02 if killed.is_set() else next(times, 1.0))
    with run_rollouts(
        tasks(60), "policy.py:Policy", concurrency=8, buffer=60, cluster=cluster
    ) as records:
        first = next(records)
        until(lambda: cluster.nodes.begun == 9)
        killed.set()
        cluster.nodes.kill(cluster.nodes.processes[0], node=True)
        found = [first, *records]
    assert sorted(int(r.task.id[1:]) for r in found) == list(range(60))
    again = [r for r in found if r.attempts]
    assert again, "something ran on it"
    assert {r.host for r in again} <= {"node-0", "node-1"}
    assert {r.outcome for r in found} == {"solved"}


def test_without_nodes_the_stream_raises_and_the_next_one_connects_again(start: Start) -> None:
    cluster = start(1, wait=0.2, seconds=lambda: 60.0)
    with run_rollouts(tasks(), "policy.py:Policy", concurrency=2, cluster=cluster) as records:
        cluster.nodes.nodes.clear()
        threading.Timer(
            0.2, cluster.nodes.kill, [cluster.nodes.processes[0]], {"node": True}
        ).start()
        with pytest.raises(EngineUnavailable, match=r"no node takes work for 0 s now$"):
            next(records)
    cluster.nodes = SleepingNodes(1)
    with run_rollouts(tasks(3), "policy.py:Policy", cluster=cluster) as records:
        assert len(list(records)) == 3
    assert cluster.connected == 2


def test_closing_the_cluster_ends_a_stream_that_waits(start: Start) -> None:
    cluster = start(1, seconds=lambda: 60.0)
    with run_rollouts(tasks(), "policy.py:Policy", cluster=cluster) as records:
        threading.Timer(0.1, cluster.close).start()
        with pytest.raises(EngineUnavailable, match="the cluster was closed"):
            next(records)


def test_async_for(start: Start) -> None:
    async def main() -> list[str]:
        async with run_rollouts(
            tasks(9), "policy.py:Policy", concurrency=3, cluster=start(2)
        ) as records:
            return [record.task.id async for record in records]

    assert sorted(asyncio.run(main())) == [f"t{number}" for number in range(9)]


def test_two_streams_share_the_nodes(start: Start) -> None:
    cluster = start(2, seconds=lambda: 0.005)
    asked: dict[str, Any] = {"agent": "policy.py:Policy", "cluster": cluster}
    with (
        run_rollouts(tasks(30), concurrency=3, **asked) as one,
        run_rollouts(tasks(30), concurrency=2, **asked) as two,
    ):
        assert next(one).task.id
        with pytest.raises(ConfigurationError, match="another stream uses this cluster for"):
            run_rollouts(tasks(1), "policy.py:Other", cluster=cluster)
        assert len([record for pair in zip(one, two, strict=False) for record in pair]) == 58
    assert cluster.connected == 1


# -- parameters


def test_files_are_sent_by_content_and_forgotten(start: Start, tmp_path: Path) -> None:
    cluster = start(2)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"1")
    with run_rollouts(
        tasks(),
        "policy.py:Policy",
        concurrency=2,
        buffer=0,
        parameters={"weights": weights, "bias": [1, None]},
        cluster=cluster,
    ) as records:
        assert next(records).parameters_version == 1
        weights.write_bytes(b"2")
        records.set_parameters({"weights": weights, "bias": 2}, version=20)
        while next(records).parameters_version != 20:
            pass
        until(lambda: cluster.nodes.forgotten)
    played = cluster.nodes.played
    assert json.loads(played[0]["spec"])["parameters"]["values"] == {"bias": [1, None]}
    first, last = (
        next(tuple(parcel) for path, parcel in each["files"] if "weights.bin" in path)
        for each in (played[0], played[-1])
    )
    assert (first[1:], last[1:]) == (("file", "weights.bin"),) * 2
    assert first[0] != last[0]
    forgotten = [first[0]] * 2 + [last[0]] * 2
    until(lambda: cluster.nodes.forgotten == forgotten)  # on both nodes, when no episode has it
    assert not [path for path, _ in played[-1]["files"] if os.path.lexists(path)]


def test_what_a_node_prints_is_printed_here(
    start: Start, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Talking(SleepingNodes):
        async def play(self, process: SleepingProcess, message: Mapping[str, Any]) -> object:
            pieces = [
                ["call", "stdout", "hello\n"],
                ["call", "stderr", "\x1b[31mred\n"],
                ["call", "log", "careful", 30, "policy", 1.0, "policy.py", 3],
            ]
            return encode({"line": self.line, "phases": {}, "output": pieces})

    cluster = start(1)
    cluster.nodes = Talking(1)
    with run_rollouts(tasks(1), "policy.py:Policy", cluster=cluster) as records:
        next(records)
    printed = capsys.readouterr()
    assert printed.out == "hello\n"
    assert "\x1b" not in printed.err
    assert "red" in printed.err
    assert [(r.name, r.message) for r in caplog.records] == [("policy", "careful")]


# -- what is refused


def _policy_of_this_process(observation: object) -> str:
    return "submit"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"agent": _policy_of_this_process}, r"an object of this process.*name a class or a func"),
        ({"agent": lambda: None}, r"agent='policy\.py:Policy' or 'module:Policy'"),
        ({"agent": "human"}, "uses this terminal; leave cluster out"),
        ({"agent": "codex"}, "installed into sandboxes cannot be run on a cluster yet; leave clus"),
        ({"provider": "any"}, r"provider belongs to this process.*Cluster\(sandbox=\.\.\.\)"),
        ({"agent": "policy.py:Nothing"}, "has no 'Nothing'"),
        ({"agent": "policy.py:function", "parameters": {"a": 1}}, "that is a class"),
        ({"profile": "paper"}, "paper profile depend on those before.*leave cluster out"),
    ],
)
def test_what_nodes_cannot_do(start: Start, asked: dict[str, Any], message: str) -> None:
    cluster = start(1)
    with pytest.raises(ConfigurationError, match=message):
        run_rollouts([TASK], **{"agent": "policy.py:Policy", "cluster": cluster, **asked})
    assert not cluster.in_use


def test_an_environment_of_this_process_is_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_added", {})
    pytest_intercode.register_environment(Adding)
    with pytest.raises(ConfigurationError, match="adding is registered in this process"):
        run_rollouts([replace(TASK, env="adding")], "policy.py:Policy", cluster=start(1))


def test_an_environment_whose_files_are_not_sent_is_refused(start: Start) -> None:
    with pytest.raises(ConfigurationError, match="tau2 has tasks that name files in a mapping"):
        run_rollouts([replace(TASK, env="tau2")], "policy.py:Policy", cluster=start(1))


def test_mistakes_of_the_cluster_are_said_in_pythons_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(connection, "_shared", {})
    with pytest.raises(ConfigurationError, match=r"variables: there is no variable NOT_THERE here"):
        Cluster("auto", variables=["NOT_THERE"])

    with pytest.raises(ConfigurationError, match=r"Cluster\('auto'\): wait='9': a finite number"):
        Cluster("auto", wait="9")  # type: ignore[arg-type]
    for address in ("local:0", "local:x"):  # before Ray is imported, which cannot be undone
        with pytest.raises(ConfigurationError, match=f"cluster={address}: local:N is needed, with"):
            run_rollouts([TASK], "policy.py:Policy", cluster=address)

    def refuse(self: Cluster) -> Machines:
        raise ConfigurationError(
            "--intercode-cluster=host:1: or give --intercode-cluster-insecure if nobody else can"
        )

    monkeypatch.setattr(Cluster, "machines", refuse)
    with pytest.raises(ConfigurationError) as raised:
        run_rollouts([TASK], "policy.py:Policy", cluster="host:1")
    assert str(raised.value) == (
        "run_rollouts(): cluster=host:1: or give Cluster(insecure=True) if nobody else can"
    )
