"""Each hook does what docs/hooks.md says, in the very words of its example."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.plugin import hookspecs
from pytest_intercode.plugin.composition import Composition
from pytest_intercode.rollouts.spec import RolloutSpec
from tests.conftest import results

TEXT = (Path(__file__).parents[3] / "docs" / "hooks.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))

SUITE = """\
env: bash
defaults: {workdir: /work, files: {tmp/a: x}}
tasks:
  - {id: quick, query: Print the word hello., gold: echo hello}
  - {id: slow, query: Print the word hello late., gold: sleep 1; echo hello, tags: [slow]}
  - {id: clean, query: Delete the folder tmp., gold: rm -r tmp, tags: [delete]}
"""

pytestmark = pytest.mark.usefixtures("needs_sandboxes")


def example(section: str) -> str:
    found = re.search(r"^```python conftest.py\n(.*?)^```$", SECTIONS[section], re.M | re.S)
    assert found
    return found[1]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite, and an agent that prints hello and no more."""
    (pytester.path / "suite.yaml").write_text(SUITE)
    pytester.makepyfile(
        agent="""
        class Agent:
            def reset(self, task):
                self.plan = ["echo hello", "submit"]

            def act(self, observation):
                return self.plan.pop(0)
        """
    )
    return pytester


def run(project: pytest.Pytester, section: str, *options: str) -> dict[str, dict[str, Any]]:
    """Run the suite with a section's example; return the rows of its episodes by task."""
    project.makeconftest(example(section))
    options = ("--intercode-agent=agent.py:Agent", "--intercode-results=r.jsonl", *options)
    project.runpytest("suite.yaml", *options)
    return {row["task_id"]: row for row in results(project.path / "r.jsonl")}


def test_each_hook_has_its_example() -> None:
    hooks = [name for name in vars(hookspecs) if name.startswith("pytest_intercode_")]
    examples = [example(name) for name in SECTIONS]
    assert len(hooks) == len(examples) == 4
    for hook in hooks:
        assert sum(f"def {hook}(" in text for text in examples) == 1


def test_which_tasks(project: pytest.Pytester) -> None:
    assert set(run(project, "Which tasks")) == {"quick", "clean"}


def test_another_agent(project: pytest.Pytester) -> None:
    rows = run(project, "Another agent", "-m", "not slow")
    assert {name: row["outcome"] for name, row in rows.items()} == dict.fromkeys(rows, "solved")
    assert rows["clean"]["turn_history"]["actions"] == ["ls -a", "rm -rf /work/tmp", "submit"]
    assert rows["quick"]["turn_history"]["actions"] == ["echo hello", "submit"]


def test_another_environment(project: pytest.Pytester) -> None:
    rows = run(project, "Another environment", "--dry")
    assert [row["outcome"] for row in rows.values()] == ["solved"] * 3
    assert rows["clean"]["turn_history"]["observations"][0] == "[not run: echo hello]\n"
    rows = run(project, "Another environment", "-m", "not slow")
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "quick": "solved",
        "clean": "failed",
    }


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What is sent to a server of our own."""
    sent: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        monkeypatch.setenv("TRACKER_URL", f"http://127.0.0.1:{server.server_port}/runs")
        yield sent
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("ahead", ["1", "3"])
def test_every_episode_to_a_tracker(
    project: pytest.Pytester, tracker: list[dict[str, Any]], ahead: str
) -> None:
    run(project, "Every episode, to a tracker", f"--intercode-concurrency={ahead}")
    assert [(row["task"], row["outcome"]) for row in tracker] == [
        ("quick", "solved"),
        ("slow", "solved"),
        ("clean", "failed"),
    ]
    assert {(row["agent"], row["turns"], row["tokens"]) for row in tracker} == {
        ("agent.py:Agent", 2, 0)
    }
    assert all(row["seconds"] > 0 for row in tracker)


def test_what_an_item_is_to_do_is_written_down_once(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook that surrounds ours has the environment of the item's own rollout."""
    specs: list[str] = []
    spec = Composition.spec

    def counted(self: Composition, task: Task, *arguments: Any) -> RolloutSpec:
        specs.append(task.id)
        return spec(self, task, *arguments)

    monkeypatch.setattr(Composition, "spec", counted)
    project.makeconftest(
        """
        import pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_intercode_make_environment(config, task):
            environment = yield
            print("surrounded", task.id, environment.max_turns)
            return environment
        """
    )
    options = ("-k", "quick or clean", "--intercode-agent=agent.py:Agent", "-s")
    result = project.runpytest_inprocess("suite.yaml", *options, "--intercode-max-turns=3")
    result.stdout.fnmatch_lines(["*surrounded quick 3*", "*surrounded clean 3*"])
    assert specs == ["quick", "clean"]
