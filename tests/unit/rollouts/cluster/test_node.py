"""A node without Ray: what it plays comes in bytes, and leaves in bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.usage import RunLimits
from pytest_intercode.results.format import from_line
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.cluster import node as node_module
from pytest_intercode.rollouts.cluster.budget import BudgetActor, budget_message
from pytest_intercode.rollouts.cluster.files import FileCache, FileIndex, with_paths
from pytest_intercode.rollouts.cluster.messages import decode, encode
from pytest_intercode.rollouts.cluster.node import Node, differences, versions
from pytest_intercode.rollouts.cluster.settings import AgentSource, NodeSettings
from pytest_intercode.rollouts.spec import Parameters, RolloutSpec
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.catalogue import bundled_tasks

AGENT = """\
class Agent:
    def act(self, observation):
        return "submit"
"""


NAMED = """\
import pytest_intercode

class Named:
    def __init__(self, name):
        self.name = name
    def act(self, observation):
        pytest_intercode.log(self.name)
        return "submit"
"""


LEARNER = """\
import pytest_intercode

class Learner:
    def __init__(self, name, weights, bias):
        self.said = f"{name} {bias} {weights.read_text()} {weights.name}"
    def act(self, observation):
        pytest_intercode.log(self.said)
        return "submit"
"""


class Played:
    """A node, and what it has answered; it runs on an event loop of the test's."""

    def __init__(self, folder: Path) -> None:
        self.cache = FileCache(folder)
        self.index = FileIndex()
        self.node = Node(self.cache)
        self.needed: list[str] = []
        self.turns: dict[int, int] = {}  # by attempt
        self._loop = asyncio.new_event_loop()

    def call(self, method: str, *arguments: object) -> dict[str, Any]:
        answer = self._loop.run_until_complete(getattr(self.node, method)(*arguments))
        return {} if answer is None else decode(answer)

    async def _play(self, data: bytes) -> dict[str, Any]:
        """Have it play, and ask for news meanwhile, as the driver does."""
        answer = asyncio.ensure_future(self.node.play(data))
        while not answer.done():
            self.turns |= decode(await self.node.news(0.02))["turns"]
        return decode(answer.result())

    def set_up(self, **more: Any) -> dict[str, Any]:
        agents, sandbox = (AgentSource("oracle"),), SandboxSettings("bubblewrap")
        fields = {"agents": agents, "sandbox": sandbox, **more}
        return self.call("set_up", NodeSettings(**fields).to_json())

    def play(self, number: int, **more: Any) -> dict[str, Any]:
        """Have a rollout played; send what is needed."""
        data = self.message(number, **more)
        answer = self._loop.run_until_complete(self._play(data))
        for digest, kind, name in answer.get("needs", ()):
            self.needed.append(digest)
            pieces = [Future[bytes]() for _ in self.index.pieces(digest)]
            for future, piece in zip(pieces, self.index.pieces(digest), strict=True):
                future.set_result(piece)
            sent = self.call("receive", [digest, kind, name], [_Reference(p) for p in pieces])
            if sent:
                return sent
        if "needs" in answer:
            answer = self._loop.run_until_complete(self._play(data))
        self.turns |= self.call("news", 0.0)["turns"]
        return answer

    def message(self, number: int, **more: Any) -> bytes:
        task = next(task for task in bundled_tasks("sql", "a test") if len(task.gold) > 1)
        spec = RolloutSpec(task, **{"agent": "oracle", **more})
        paths: set[Path] = set()
        with_paths((spec.task, spec.parameters), None, paths)
        files = list(self.index.refs(paths).items())
        return encode({"attempt": number, "files": files, "spec": spec.to_json().decode()})

    def close(self) -> None:
        if hasattr(self.node, "_executor"):
            self.call("close")
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class _Reference:
    """What stands for a reference of Ray's."""

    def __init__(self, content: Future[bytes]) -> None:
        self.future = lambda: content


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Played]:
    made = Played(tmp_path / "store")
    yield made
    made.close()


def test_a_rollout_comes_as_bytes_and_leaves_as_a_line(node: Played) -> None:
    assert node.set_up() == {"backend": "bubblewrap"}
    ended = node.play(7)
    record = from_line(ended["line"])
    assert record.outcome == "solved"
    assert {"prepare", "run"} <= ended["phases"].keys()
    assert node.turns == {7: len(record.turns)}


def test_an_agent_begins_when_the_driver_knows(node: Played) -> None:
    """One that ends its process at once would take along what is not reported."""
    node.set_up()
    node.play(1)  # the files are there afterwards

    async def play() -> None:
        answer = asyncio.ensure_future(node.node.play(node.message(7)))
        assert decode(await node.node.news(60.0))["turns"] == [[7, 0]]
        await asyncio.sleep(0.5)
        assert node.node._turns == {}, "it acts, and the news may have got lost"
        await node.node.news(0.0)
        assert "line" in decode(await answer)

    node._loop.run_until_complete(play())


def test_a_limited_run_takes_no_turn_that_it_was_not_given(
    node: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = RunBudget(RunLimits(turns=1))
    with budget.shared() as path:
        actor = BudgetActor(budget_message(budget, path))

        def call(method: str, *arguments: object) -> Callable[[], object]:
            answer = getattr(actor, method)(*arguments)
            return lambda: answer

        monkeypatch.setattr(node_module, "_budget_call", lambda name: call)
        node.set_up(budget="the budget", process="node-1#1")
        record = from_line(node.play(1)["line"])
    assert len(record.turns) == 1
    assert record.outcome == "out-of-budget"
    assert record.reason.startswith("the run's 1 turns are used up; ")
    assert budget.used.turns == 1


def test_what_differs_on_a_node_is_said() -> None:
    own = versions()
    assert own.keys() == {"pytest-intercode", "its files", "Python", "Ray"}
    assert differences(own, own) == ""
    other = {**own, "Python": "3.9.1", "Ray": "2.0.0"}
    said = differences(other, own)
    assert said == f"Python 3.9.1, here {own['Python']}, Ray 2.0.0, here {own['Ray']}"
    files = differences({**own, "its files": "x" * 1000}, own)
    assert files == f"its files {'x' * 40}, here {own['its files']}"
    assert differences({}, own).startswith("pytest-intercode unknown, here ")


def test_an_agent_travels_with_its_folder(node: Played, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/agent.py").write_text(AGENT)
    ref = node.index.agent(tmp_path / "mine", "a test")
    agent = AgentSource("mine/agent.py:Agent", archive=ref, subfolder="mine")
    node.set_up(agents=(agent,), agent_folder=Path("/nonexistent"))
    assert from_line(node.play(1)["line"]).outcome == "failed"
    assert node.needed.count(ref.digest) == 1


def test_a_node_makes_the_agent_that_a_rollout_names(node: Played, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/agent.py").write_text(NAMED)
    ref = node.index.agent(tmp_path / "mine", "a test")
    agents = [AgentSource("agent.py:Named", {"name": name}, archive=ref) for name in "ab"]
    node.set_up(agents=(AgentSource("oracle"), *agents))
    assert from_line(node.play(1)["line"]).outcome == "solved"
    assert not node.needed  # the first agent needs no file
    for number, name in ((2, "b"), (3, "a")):
        arguments = {"name": name}
        line = node.play(number, agent="agent.py:Named", agent_arguments=arguments)["line"]
        assert from_line(line).turns[0].log == name
    assert node.needed == [ref.digest]


def test_parameters_change_between_rollouts_and_their_files_are_forgotten(
    node: Played, tmp_path: Path
) -> None:
    """A file is sent by its content, and removed again from where this process has put it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/agent.py").write_text(LEARNER)
    ref = node.index.agent(tmp_path / "mine", "a test")
    node.set_up(agents=(AgentSource("agent.py:Learner", {"name": "n"}, archive=ref),))
    for job in (1, 2):
        weights = tmp_path / f"{job}/weights"
        weights.parent.mkdir()
        weights.write_text(f"w{job}")
        found = node.index.ref(weights)
        assert found is not None
        weights.unlink()  # a node on another machine does not see it
        node.index._sources[found.digest] = f"w{job}".encode()
        parameters = Parameters(job, {"bias": [job]}, (("weights", weights),))
        record = from_line(node.play(job, parameters=parameters)["line"])
        assert record.turns[0].log == f"n [{job}] w{job} weights"
        assert record.parameters_version == job
        kept = tmp_path / "store" / found.digest
        assert kept.is_dir()
        node.call("forget", found.digest)
        assert not kept.exists()
    node.call("forget", "0" * 64)  # never sent: nothing of ours
    assert (tmp_path / "store" / ref.digest).is_dir()


def test_an_agent_that_cannot_be_loaded_is_told(node: Played) -> None:
    node.set_up(agents=(AgentSource("not_there:Agent"),))
    failed = node.play(1)
    assert (failed["stage"], failed["error"]["kind"]) == ("agent", "AgentLoadError")


def test_the_hosts_network_is_refused(node: Played) -> None:
    assert "would share the node's network" in node.set_up(network=True)["problem"]


def test_a_file_that_cannot_be_kept_is_a_fault_of_the_node_and_asked_for_again(
    node: Played, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/agent.py").write_text(AGENT)
    ref = node.index.agent(tmp_path / "mine", "a test")
    node.set_up(agents=(AgentSource("agent.py:Agent", archive=ref),))
    store = node.cache.folder
    store.rename(tmp_path / "gone")
    error = node.play(1)["error"]
    assert error["kind"] == "InfrastructureError"
    assert "what the driver sends cannot be kept: " in error["text"]
    (tmp_path / "gone").rename(store)
    assert from_line(node.play(2)["line"]).outcome == "failed"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SandboxSettings("bubblewrap"), "bubblewrap is not installed: "),
        (SandboxSettings("docker"), "no Docker engine answers at unix:///nowhere/docker.sock"),
        (
            SandboxSettings("bubblewrap", rootfs=Path("/nowhere")),
            "--intercode-rootfs=/nowhere: there is no such folder",
        ),
        (
            SandboxSettings("docker", registry="127.0.0.1:1"),
            "--intercode-registry=127.0.0.1:1: the registry 127.0.0.1:1 does not answer: ",
        ),
    ],
)
def test_a_node_that_lacks_something_says_what(
    node: Played,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    settings: SandboxSettings,
    message: str,
) -> None:
    if settings.registry:
        request.getfixturevalue("docker_api")
    elif settings.rootfs is None:  # it is another machine
        monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    problem = node.set_up(sandbox=settings)["problem"]
    assert problem.startswith(message)
    assert "\n" not in problem


def test_what_is_cancelled_before_it_begins_does_not_begin(
    node: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.set_up()
    make_spec = node.node._make_spec

    def cancel_meanwhile(message: Any) -> Any:
        asyncio.run(node.node.cancel(1, "enough"))
        return make_spec(message)

    assert "line" in node.play(2), "all that it needs is there"
    monkeypatch.setattr(node.node, "_make_spec", cancel_meanwhile)
    failed = node.play(1)
    assert (failed["error"]["kind"], failed["error"]["text"]) == ("RolloutCancelled", "enough")
    assert node.turns.keys() == {2}
