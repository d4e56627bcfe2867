"""What docs/coming-from.md shows of this project works, with agents that do as its prompts ask."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ADDOPTS, results
from tests.docs.shell import run
from tests.support.git import git
from tests.support.judge_model import evidence_of, verdict
from tests.support.model_server import ModelServer

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
AGENTS = """\
class Script:
    def run(self, task, env):
        for action in self.actions:
            env.step(action)


class Counter(Script):
    actions = ["wc -l < notes.txt"]


class Adder(Script):
    actions = [
        "mkdir /tmp/bin && printf '#!/bin/sh\\n' > /tmp/bin/uv && chmod +x /tmp/bin/uv",
        "PATH=/tmp/bin:$PATH",
        "uv add requests",
        "echo requests >> pyproject.toml",
    ]


class Undertaker(Script):
    actions = ["gh repo view acme/deadproj"]


class Refactorer(Script):
    actions = ["sed -i s/md5/bcrypt/ users.py"]


class Greeter(Script):
    actions = ["echo hello > hello.txt"]
"""
FILES = {
    "agents.py": AGENTS,
    "pyproject.toml": "",
    "legacy/old.py": "",
    "src/app.py": "",
    "users/users.py": "import md5\n",
}


def files(tool: str) -> dict[str, str]:
    """Return the files that a section shows, by their names."""
    return dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", SECTIONS[tool], re.DOTALL | re.MULTILINE))


def commands(tool: str) -> list[str]:
    return re.findall(r"^    (pytest(?:.*\\\n)*.*)$", SECTIONS[tool], re.MULTILINE)


def write(folder: Path, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_each_tool_has_what_a_reader_looks_for() -> None:
    rows = re.findall(r"^\| \[(\S+)\]\(#(\S+)\)", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == list(SECTIONS)
    assert all(name.lower() == anchor for name, anchor in rows)
    for text in SECTIONS.values():
        assert "**Better there**:" in text
        assert "**Better here**:" in text
        assert re.search(r"^\*\*Their (task|test|YAML)\*\*", text, re.MULTILINE)
        assert "\n    pytest" in text


def play(tool: str, folder: Path, sandbox: str) -> None:
    write(folder, {**files(tool), "agents.py": AGENTS, "pytest.ini": "[pytest]\n"})
    for command in commands(tool):
        shown = command.replace("my_agent.py:Agent", "agents.py:Counter")
        done = run(shown, folder, f"{ADDOPTS} {sandbox}")
        assert done.returncode == 0, done.stdout + done.stderr
    assert {row["reward"] for row in results(folder / "run.jsonl")} == {1.0}


def test_a_sample_of_inspect_is_a_task(tmp_path: Path, quick_sandbox: str) -> None:
    play("inspect_ai", tmp_path, quick_sandbox)
    assert (tmp_path / "run.eval").is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
def test_a_task_of_harbor_is_played(tmp_path: Path) -> None:
    play("Harbor", tmp_path, "--intercode-sandbox=docker")
    assert len([*(tmp_path / "run.atif").iterdir()]) == 2


@pytest.mark.usefixtures("needs_sandboxes")
@pytest.mark.parametrize(
    ("tool", "agent", "passed"),
    [
        ("pytest-codex", "Adder", 4),
        ("pytest-skillcheck", "Undertaker", 1),
        ("promptfoo", "Refactorer", 3),
        ("deepeval", "Greeter", 1),
    ],
)
def test_their_test_is_one_of_ours(
    tool: str,
    agent: str,
    passed: int,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(pytester.path, {**FILES, **files(tool)})
    git(pytester.path, "init", "-q")
    (command,) = commands(tool)
    words = re.sub(r"agent=\w+:model=\w+", f"agent=agents.py:{agent}", command).split()
    with ModelServer(lambda _: verdict(1, "It says so.")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        result = pytester.runpytest(*words[1:])
        assert ["hello.txt" in evidence_of(request) for request in server.requests] == (
            [True] * 3 if tool == "deepeval" else []
        )
    assert result.parseoutcomes().get("passed", 0) == passed, result.stdout.str()
