"""Model answers that vcrpy and pytest-recording keep: recorded once, played without a model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.suites.catalogue import bundled_tasks
from tests.conftest import results
from tests.support.chat_server import ChatServer, Reply, Request, calls

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="vcrpy that knows openai's client needs Python 3.11"
)

DOCS = Path(__file__).parents[3] / "docs/rescoring.md"
SECRET = "sk-that-nobody-may-see"

MINE = """
import pytest


@pytest.mark.intercode(env="sql", ids=["library-copies-out", "shop-never-sold"])
def test_mine(intercode_episode):
    assert intercode_episode.reward == 1.0
"""

AGENT = """
import os

import openai


class Agent:
    def reset(self, task):
        self.client = openai.OpenAI(base_url=os.environ["OPENAI_BASE_URL"])
        self.messages = []

    def act(self, observation):
        self.messages.append({"role": "user", "content": str(observation)})
        answer = self.client.chat.completions.create(model="m", messages=self.messages)
        said = answer.choices[0].message.content
        self.messages.append({"role": "assistant", "content": said})
        return said

    def close(self):
        self.client.close()
"""


def blocks() -> tuple[str, str]:
    """Return the conftest of the docs, and the fixture that moves cassettes."""
    text = DOCS.read_text(encoding="utf-8").partition("## Record the model's answers")[2]
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(found) == 2
    assert len(found[0].splitlines()) < 20
    return found[0], found[1]


def _answer(request: Request) -> str | Reply:
    """Answer as a model would that knows gold, in words or, where there are some, with tools."""
    messages = request.body["messages"]
    asked = " ".join(str(messages[:2]).replace("\\n", " ").split())
    known = [task for env in ("sql", "bash") for task in bundled_tasks(env, "")]
    gold = next(task.gold for task in known if " ".join(task.query.split()) in asked)
    moves = [*gold, "submit"]
    move: str = moves[sum(message["role"] == "assistant" for message in messages)]
    if not request.body.get("tools"):
        return move
    return calls(("submit", {}) if move == "submit" else ("execute", {"code": move}))


@pytest.fixture
def model() -> Iterator[ChatServer]:
    with ChatServer(_answer) as server:
        yield server


def run(
    folder: Path,
    url: str,
    file: str,
    *more: str,
    agent: str = "agent.py:Agent",
    key: str = SECRET,
) -> str:
    """Run pytest with the real plugin in a process of its own."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    environment |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key, "OPENAI_MODEL": "m"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += [f"--intercode-agent={agent}", f"--intercode-results={file}", *more]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.stdout + done.stderr


def rows(folder: Path, file: str) -> list[tuple[Any, ...]]:
    return [
        (row["node_id"], row["reward"], row["outcome"], row["turn_history"]["actions"])
        for row in results(folder / file)
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(blocks()[0])
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "test_mine.py").write_text(MINE)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["agent.py:Agent", "tools"])
def test_answers_are_recorded_once_and_played_without_the_model(
    project: Path, model: ChatServer, agent: str
) -> None:
    few = (
        *("test_mine.py", "--intercode-env=sql"),
        *("-k", "copies-out or never-sold or brought-nobody"),
    )
    said = run(project, model.url, "first.jsonl", *few, "--record-mode=once", agent=agent)
    assert "5 passed" in said, said
    asked = len(model.requests)
    assert asked == 10
    assert model.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    cassettes = sorted(str(p.relative_to(project)) for p in project.rglob("*.yaml"))
    assert cassettes == [
        "cassettes/test_mine/test_mine[library-copies-out].yaml",
        "cassettes/test_mine/test_mine[shop-never-sold].yaml",
        "intercode/cassettes/sql/test_solves[library-brought-nobody].yaml",
        "intercode/cassettes/sql/test_solves[library-copies-out].yaml",
        "intercode/cassettes/sql/test_solves[shop-never-sold].yaml",
    ]
    for path in project.rglob("*.yaml"):
        assert SECRET not in path.read_text()
    # From now on nobody is asked: the address is one where nothing listens.
    nowhere = "http://127.0.0.1:9/v1"
    again = run(project, nowhere, "again.jsonl", *few, agent=agent, key="none")
    assert "5 passed" in again, again
    assert rows(project, "again.jsonl") == rows(project, "first.jsonl")
    assert len(model.requests) == asked


@pytest.mark.slow
def test_another_prompt_is_an_error_that_says_so(project: Path, model: ChatServer) -> None:
    assert "2 passed" in run(project, model.url, "a.jsonl", "test_mine.py", "--record-mode=once")
    asked = len(model.requests)
    changed = AGENT.replace('"content": str(observation)', '"content": "Now: " + str(observation)')
    (project / "agent.py").write_text(changed)
    run(project, model.url, "b.jsonl", "test_mine.py")
    for row in results(project / "b.jsonl"):
        assert (row["outcome"], row["turn_history"]["actions"]) == ("agent-error", [])
        assert "no recorded interaction matches" in row["reason"] + row["detail"]
    assert len(model.requests) == asked


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
def test_sandboxes_are_none_of_vcrs_business(project: Path, model: ChatServer) -> None:
    (project / "conftest.py").write_text("\n\n".join(blocks()))
    few = ("--intercode-env=bash", "--intercode-limit=3")
    said = run(project, model.url, "first.jsonl", *few, "--record-mode=once")
    assert "3 passed" in said, said
    cassettes = sorted(str(p.relative_to(project)) for p in project.rglob("*.yaml"))
    assert len(cassettes) == 3
    assert {str(Path(name).parent) for name in cassettes} == {"tests/cassettes/bash"}
    for path in project.rglob("*.yaml"):
        assert "docker" not in path.read_text()
    blocked = (*few, "--block-network", "--allowed-hosts=/.*")
    again = run(project, model.url, "again.jsonl", *blocked)
    assert "3 passed" in again, again
    assert rows(project, "again.jsonl") == rows(project, "first.jsonl")


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker", "small_suite")
def test_a_recorder_in_the_way_of_docker_is_told(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lines of the docs; it would wait for the engine's answer for ever."""
    monkeypatch.delenv("PYTEST_ADDOPTS")
    conftest = blocks()[0].replace('"skip_patchers"', '"unknown_to_vcr"')
    pytester.makeconftest(re.sub(r".*unknown_to_vcr.*\n", "", conftest))
    done = pytester.runpytest_subprocess(
        "suite.yaml", "--intercode-agent=agents:Solver", "--record-mode=once", timeout=60
    )
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["infrastructure error: vcrpy records the Docker engine's own*"])
