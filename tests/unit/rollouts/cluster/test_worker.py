"""A node's worker without Ray: what it plays comes in bytes, and leaves in bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.format import from_line
from pytest_intercode.rollouts.cluster.files import FileCache, FileIndex, with_paths
from pytest_intercode.rollouts.cluster.messages import decode, encode
from pytest_intercode.rollouts.cluster.node import differences, versions
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.cluster.worker import NodeWorker
from pytest_intercode.rollouts.spec import Parameters, RolloutSpec, SandboxSettings
from pytest_intercode.suites.catalogue import bundled_tasks

AGENT = """\
class Agent:
    def act(self, observation):
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


class Node:
    """A worker, and what it has sent."""

    def __init__(self, folder: Path) -> None:
        self.cache = FileCache(folder)
        self.index = FileIndex()
        self.said: list[dict[str, Any]] = []

    def set_up(self, **more: Any) -> None:
        settings = NodeSettings(
            **{"agent": "oracle", "sandbox": SandboxSettings("bubblewrap"), **more}
        )
        self.worker = NodeWorker(NodeSettings.from_json(settings.to_json()), self.cache)

    def play(self, job: int, **more: Any) -> None:
        task = next(task for task in bundled_tasks("sql", "a test") if len(task.gold) > 1)
        spec = RolloutSpec(task, agent="oracle", **more)
        paths: set[Path] = set()
        with_paths((spec.task, spec.parameters), None, paths)
        files = [[str(path), self.index.ref(path)] for path in sorted(paths)]
        message = {"what": "play", "job": job, "attempt": 1, "files": files}
        self.worker.handle(encode(message, spec=spec.to_json()))

    def until(self, what: str) -> dict[str, Any]:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for message in decode(self.worker.poll(0.1)):
                self.said.append(message)
                if message["what"] == "need":
                    digest = message["digest"]
                    self.worker.receive(digest, self.index.pieces(digest))
            found = [message for message in self.said if message["what"] == what]
            if found:
                return found[-1]
        pytest.fail(f"it said {self.said}")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "store")
    yield made
    if hasattr(made, "worker"):
        made.worker.close()


def test_a_rollout_comes_as_bytes_and_leaves_as_a_line(node: Node) -> None:
    node.set_up()
    assert node.worker.backend == "bubblewrap"
    node.play(7)
    ended = node.until("ended")
    record = from_line(ended["line"])
    assert (ended["job"], ended["attempt"], record.outcome) == (7, 1, "solved")
    assert {"prepare", "run"} <= ended["phases"].keys()
    order = [message["what"] for message in node.said]
    assert order.index("prepared") < order.index("turns") < order.index("ended")
    assert not {"begin_turn", "charge"} & set(order), "nothing is limited"


def test_a_limited_run_takes_no_turn_that_it_was_not_given(node: Node) -> None:
    node.set_up(limited=True)
    node.play(1)
    asked = node.until("begin_turn")
    exhausted = "the run's 1 turns are used up"
    answer = {"what": "answer", "call": asked["call"], "refused": "", "exhausted": exhausted}
    node.worker.handle(encode(answer))
    record = from_line(node.until("ended")["line"])
    assert len(record.turns) == 1
    assert [m["taken"] for m in node.said if m["what"] == "end_turn"] == [True]
    assert record.outcome == "out-of-budget"
    assert record.reason.startswith(f"{exhausted}; ")


def test_what_differs_on_a_node_is_said() -> None:
    own = versions()
    assert own.keys() == {"pytest-intercode", "its files", "Python", "Ray"}
    assert differences(json.dumps(own).encode(), own) == ""
    other = {**own, "Python": "3.9.1", "Ray": "2.0.0"}
    said = differences(json.dumps(other).encode(), own)
    assert said == f"Python 3.9.1, here {own['Python']}, Ray 2.0.0, here {own['Ray']}"
    files = differences(json.dumps({**own, "its files": "x" * 1000}).encode(), own)
    assert files == f"its files {'x' * 40}, here {own['its files']}"
    assert differences(b"{}", own).startswith("pytest-intercode unknown, here ")
    for nonsense in (b"", b"[]", b"\xff", b"null", b"[" * 100_000):
        assert differences(nonsense, own) == "it does not report its versions"


def test_an_agent_travels_with_its_folder(node: Node, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/agent.py").write_text(AGENT)
    ref = node.index.agent(tmp_path / "mine", "a test")
    node.set_up(
        agent="mine/agent.py:Agent",
        agent_folder=Path("/nonexistent"),
        agent_archive=ref,
        agent_subfolder="mine",
    )
    node.play(1)
    assert from_line(node.until("ended")["line"]).outcome == "failed"
    assert [m["digest"] for m in node.said if m["what"] == "need"] == [ref.digest]


def test_parameters_change_between_rollouts_and_their_files_are_forgotten(
    node: Node, tmp_path: Path
) -> None:
    """A file is sent by its content, and removed again from where this process has put it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/agent.py").write_text(LEARNER)
    ref = node.index.agent(tmp_path / "mine", "a test")
    node.set_up(agent="agent.py:Learner", agent_archive=ref, agent_arguments={"name": "n"})
    for job in (1, 2):
        weights = tmp_path / f"{job}/weights"
        weights.parent.mkdir()
        weights.write_text(f"w{job}")
        found = node.index.ref(weights)
        assert found is not None
        weights.unlink()  # a node on another machine does not see it
        node.index._sources[found.digest] = f"w{job}".encode()
        node.play(job, parameters=Parameters(job, {"bias": [job]}, (("weights", weights),)))
        record = from_line(node.until("ended")["line"])
        assert record.turns[0].log == f"n [{job}] w{job} weights"
        assert record.parameters_version == job
        kept = tmp_path / "store" / found.digest
        assert kept.is_dir()
        node.worker.handle(encode({"what": "forget", "digest": found.digest}))
        assert not kept.exists()
        node.said.clear()
    node.worker.handle(
        encode({"what": "forget", "digest": "0" * 64})
    )  # never sent: nothing of ours
    assert (tmp_path / "store" / ref.digest).is_dir()


def test_an_agent_that_cannot_be_loaded_is_told(node: Node) -> None:
    node.set_up(agent="not_there:Agent")
    node.play(1)
    failed = node.until("failed")
    assert (failed["stage"], failed["error"]["kind"]) == ("agent", "AgentLoadError")


def test_the_hosts_network_is_refused(node: Node) -> None:
    with pytest.raises(ConfigurationError, match="would share the node's network"):
        node.set_up(network=True)


def test_a_file_that_cannot_be_kept_is_a_fault_of_the_node_and_asked_for_again(
    node: Node, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/agent.py").write_text(AGENT)
    ref = node.index.agent(tmp_path / "mine", "a test")
    node.set_up(agent="agent.py:Agent", agent_archive=ref)
    node.play(1)
    node.cache.folder.rename(tmp_path / "gone")
    failed = node.until("failed")
    assert (failed["error"]["kind"], failed["declined"]) == ("InfrastructureError", True)
    assert "what the driver sends cannot be kept: " in failed["error"]["text"]
    (tmp_path / "gone").rename(node.cache.folder)
    node.said.clear()
    node.play(2)
    assert from_line(node.until("ended")["line"]).outcome == "failed"
    assert [m["digest"] for m in node.said if m["what"] == "need"] == [ref.digest]


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
    node: Node,
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
    with pytest.raises(ConfigurationError) as raised:
        node.set_up(sandbox=settings)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_what_is_cancelled_while_its_files_come_does_not_begin(node: Node, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/agent.py").write_text(AGENT)
    node.set_up(agent="agent.py:Agent", agent_archive=node.index.agent(tmp_path / "mine", "a test"))
    node.play(1)
    node.worker.handle(encode({"what": "cancel", "job": 1, "attempt": 1, "reason": "enough"}))
    assert node.until("failed")["job"] == 1
    assert not any(message["what"] == "prepared" for message in node.said)
