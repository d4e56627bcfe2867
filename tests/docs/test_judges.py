"""What docs/judges.md shows works as it is shown, with a scripted judge."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_intercode.suites.loader import load_suite
from tests.conftest import ADDOPTS, results
from tests.docs.shell import run
from tests.docs.test_project_tests import AGENT as SCRIPTED_AGENT
from tests.support.git import git
from tests.support.judge_model import evidence_of, verdict
from tests.support.model_server import ModelServer, Request

PAGE = (Path(__file__).parents[2] / "docs" / "judges.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```([^\n]*)\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
FILES = {name.split()[1]: f"{body}\n" for name, body in BLOCKS if " " in name}
SHOWN = [body for name, body in BLOCKS if not name]
COMMANDS = re.findall(r"^    ((?:pytest|pytest-intercode) .*)$", PAGE, re.MULTILINE)
AGENT = """\
class Agent:
    def reset(self, task):
        self.actions = ["echo 'Welcome, good to have you here!' | tee hello.txt", "submit"]

    def act(self, observation):
        return self.actions.pop(0)
"""


def test_the_suite_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "tasks.yaml"
    path.write_text(FILES["tasks.yaml"])
    [task] = load_suite(path).tasks
    judge = task.judge
    assert judge is not None
    assert (judge.model, judge.share, judge.votes) == ("judge-model-2026-01-15", 0.3, 3)
    assert judge.rubric.startswith("1 if the greeting")


def test_it_is_named_in_the_docs() -> None:
    for name in ("README.md", "CHANGELOG.md"):
        assert "docs/judges.md" in (Path(__file__).parents[2] / name).read_text("utf-8")


def judge(request: Request) -> str:
    """Judge as the report of the page says."""
    evidence = evidence_of(request)
    if "author of this benchmark" in evidence:
        return verdict(1, "The author says so.")
    if "Episode 21" in evidence:
        return verdict(1, "As the others.")
    return verdict(float("Welcome!" in evidence or "Hello!" in evidence), "It is a greeting.")


@pytest.mark.usefixtures("needs_sandboxes")
def test_the_project_test_of_the_page(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("test_tone.py", "agent.sh"):
        (pytester.path / name).write_text(FILES[name])
    (pytester.path / "agents.py").write_text(SCRIPTED_AGENT)
    git(pytester.path, "init", "-q")
    answer = verdict(0, "It says what was added, and not why.")
    with ModelServer(lambda _: answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        result = pytester.runpytest("--intercode-agent=agents.py:Agent")
        assert len(server.requests) == 3
        assert "Add hello.txt" in evidence_of(server.requests[0])
    result.assert_outcomes(failed=1)
    [report] = [body for name, body in BLOCKS if name == "text"]
    assert report in result.stdout.str()


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path, quick_sandbox: str) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tasks.yaml").write_text(FILES["tasks.yaml"])
    (tmp_path / "labels.jsonl").write_text(FILES["labels.jsonl"])
    first, record, replay, rescore, recorded_audit, audit = COMMANDS

    def play(command: str, **environment: str) -> str:
        done = run(command, tmp_path, f"{ADDOPTS} {quick_sandbox}", COLUMNS="200", **environment)
        output = done.stdout + done.stderr
        assert done.returncode == (command != recorded_audit), output
        return output

    answer = verdict(0.5, "It is friendly, and names nobody to ask.")
    with ModelServer(lambda _: answer) as server:
        model = {"OPENAI_API_KEY": "sk-of-the-page", "OPENAI_BASE_URL": f"{server.url}/v1"}
        output = play(first, **model)
        assert SHOWN[0] in output
        assert "spent by judges: 3 requests, 321 tokens" in output
        assert results(tmp_path / "run.jsonl")[0]["judge"]["scores"] == [0.5, 0.5, 0.5]
        play(record, **model)
        assert len(server.requests) == 6
    assert "tasks.yaml: 1 task audited, 0 faults" in play(recorded_audit)
    with ModelServer(judge) as server:
        url = f"{server.url}/v1"
        output = play(audit, OPENAI_API_KEY="sk-of-the-page", OPENAI_BASE_URL=url)
    assert SHOWN[2] in output
    votes = SHOWN[0].partition(" turns: ")[2]
    assert votes in play(replay, OPENAI_API_KEY="", OPENAI_BASE_URL="")
    (tmp_path / "tasks.yaml").write_text(FILES["tasks.yaml"].replace("friendly", "kind"))
    assert SHOWN[1] in play(rescore, OPENAI_API_KEY="", OPENAI_BASE_URL="")
