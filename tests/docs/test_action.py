"""action.yml: its form, and its scripts, which run in bash with a GitHub of this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.github import FakeGitHub, serve_github

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "action.yml").read_text(encoding="utf-8")
ACTION: dict[str, Any] = yaml.safe_load(TEXT)
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")  # GitHub's `shell: bash`
# pytest's place: it writes the file that its last argument names, and fails as some task does.
TESTS = """\
printf '%s\\n' "$@" >arguments
last=${*: -1}
[ ! -e ran.jsonl ] || cp ran.jsonl "${last#*=}"
exit "$(cat status)"
"""


def test_it_is_an_action() -> None:
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS:
        assert set(step) <= {"name", "id", "if", "uses", "with", "env", "shell", "run"}
        assert ("run" in step) != ("uses" in step)
        assert ("run" in step) == ("shell" in step)
    for description in (*ACTION["inputs"].values(), *ACTION["outputs"].values()):
        assert description["description"]
    used = set(re.findall(r"inputs\.([\w-]+)", TEXT))
    assert used == set(ACTION["inputs"])


def test_it_is_one_by_the_schema_of_github(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    checked = subprocess.run(
        [*command, "vendor.github-actions", ROOT / "action.yml"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
    workflows = [*(ROOT / "docs" / "workflows").glob("*.yml")]
    assert len(workflows) == 3
    checked = subprocess.run(
        [*command, "vendor.github-workflows", *workflows], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


def test_the_docs_have_its_inputs() -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml action\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (step,) = yaml.safe_load(block)
    assert set(step["with"]) <= set(ACTION["inputs"])
    table = text.partition("| input |")[2].partition("\n\n")[0]
    named = {word for row in table.splitlines() for word in row.split(" | ")[0].split("`")}
    assert set(ACTION["inputs"]) <= named
    defaults = [value.get("default") for value in ACTION["inputs"].values()]
    for default in filter(None, defaults):
        assert f"`{default}`" in table or default in ("true", "${{ github.token }}"), default


def test_no_script_holds_an_expression() -> None:
    for step in STEPS:
        assert "${{" not in step.get("run", "")


def test_what_it_uses_is_named_by_its_commit() -> None:
    uses = re.findall(r"uses: (\S+)(.*)", TEXT)
    assert len(uses) == 2
    for action, comment in uses:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action)
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment)


class Steps:
    """Runs the scripts of the action in a folder, with a stand-in for pytest."""

    def __init__(self, folder: Path, github: FakeGitHub) -> None:
        self._folder, self._github = folder, github
        self.output = ""

    def run(self, **inputs: str) -> dict[str, int]:
        """Return the exit status of each script that ran; a failure skips none of those here."""
        values = {name: value.get("default", "") for name, value in ACTION["inputs"].items()}
        values |= {name.replace("_", "-"): value for name, value in inputs.items()}
        values["token"] = self._github.token
        statuses = {}
        outputs: dict[str, str] = {}
        for step in STEPS:
            if "run" not in step or not self._is_wanted(step, values):
                continue
            environment = {
                name: self._fill(text, values, outputs)
                for name, text in step.get("env", {}).items()
            }
            result = subprocess.run(
                [*BASH, step["run"]],
                cwd=self._folder,
                env={**os.environ, **self._variables(), **environment},
                capture_output=True,
                text=True,
            )
            statuses[step["name"]] = result.returncode
            self.output += result.stdout + result.stderr
            written = (self._folder / "output").read_text()
            outputs = dict(line.split("=", 1) for line in written.splitlines())
        return statuses

    def _variables(self) -> dict[str, str]:
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": "output",
            "GITHUB_STEP_SUMMARY": "summary.md",
            "GITHUB_REPOSITORY": "octo/cat",
            "GITHUB_EVENT_PATH": "event.json",
            "GITHUB_API_URL": self._github.url,
            "no_proxy": "127.0.0.1",
        }

    @staticmethod
    def _is_wanted(step: Mapping[str, Any], values: Mapping[str, str]) -> bool:
        conditions = re.findall(r"inputs\.([\w-]+) (==|!=) '(\w*)'", step.get("if", ""))
        return all((values[name] == word) == (sign == "==") for name, sign, word in conditions)

    @staticmethod
    def _fill(text: str, values: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        match = re.fullmatch(r"\$\{\{ (?:inputs\.([\w-]+)|steps\.tests\.outputs\.(\w+)) \}\}", text)
        assert match, text
        return values[match[1]] if match[1] else outputs[match[2]]


def _write(path: Path, **outcomes: str) -> None:
    rows = [
        {
            "environment": "ic_bash",
            "suite": "notes",
            "task_id": task,
            "query": task,
            "turn_history": {"actions": [], "observations": []},
            "summary": {"turns_max": 10},
            "outcome": outcome,
            "reward": float(outcome == "solved"),
            "agent": "mine",
            "agent_arguments": {},
            "format_version": 2,
        }
        for task, outcome in outcomes.items()
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with serve_github() as github:
        yield github


@pytest.fixture
def steps(tmp_path: Path, github: FakeGitHub) -> Iterator[Steps]:
    """A repository whose tests have one that fails."""
    (tmp_path / "tests.sh").write_text(TESTS)
    (tmp_path / "status").write_text("1")
    (tmp_path / "event.json").write_text('{"pull_request": {"number": 7}}')
    (tmp_path / "output").touch()
    _write(tmp_path / "ran.jsonl", one="failed", two="solved")
    _write(tmp_path / "main.jsonl", one="solved", two="solved")
    steps = Steps(tmp_path, github)
    yield steps
    print(steps.output)  # shown where the test fails


def test_the_comment_and_the_status(steps: Steps, github: FakeGitHub, tmp_path: Path) -> None:
    command = "bash tests.sh -k 'a b' *.json\n"
    assert steps.run(command=command, baseline="main.jsonl") == {
        "Tests": 0,
        "Page": 0,
        "Comment": 0,
        "Status": 1,
    }
    results = "--intercode-results=intercode-results.jsonl"
    assert (tmp_path / "arguments").read_text().splitlines() == ["-k", "a b", "event.json", results]
    (comment,) = github.comments
    assert "### Too few tasks to tell: 1 broke; 1 of 2 solved" in comment["body"]
    assert (tmp_path / "intercode-page.html").is_file()


def test_a_fork_and_a_first_run(steps: Steps, github: FakeGitHub, tmp_path: Path) -> None:
    """The token may not write, there is no baseline yet, and the step is not to fail."""
    github.answers["POST"] = [(403, {}, {"message": "Resource not accessible by integration"})]
    statuses = steps.run(command="bash tests.sh", baseline="main2.jsonl", fail="false", page="")
    assert statuses == {"Tests": 0, "Comment": 0}
    assert "There is no baseline yet: commit intercode-results.jsonl" in steps.output
    assert "the API answers 403 to POST" in steps.output
    assert "### 1 of 2 solved (50.0%)" in (tmp_path / "summary.md").read_text()
    assert github.comments == []


def test_pytest_that_records_nothing(steps: Steps, github: FakeGitHub, tmp_path: Path) -> None:
    (tmp_path / "ran.jsonl").unlink()
    (tmp_path / "status").write_text("4")
    github.add("<!-- pytest-intercode:agent-tests -->\nAll is well.", "Bot")
    statuses = steps.run(command="bash tests.sh", baseline="main.jsonl")
    assert statuses == {"Tests": 0, "Page": 0, "Comment": 0, "Status": 4}
    (comment,) = github.comments
    assert "### Pytest ended with status 4: wrong usage" in comment["body"]


def test_inputs_are_no_part_of_a_script(steps: Steps, github: FakeGitHub, tmp_path: Path) -> None:
    attack = "x'\"$(touch pwned)`touch pwned`;touch pwned\n#"
    statuses = steps.run(
        command="bash tests.sh", results=f"r{attack}", baseline=attack, comment=attack, page=attack
    )
    assert statuses["Comment"] == 1
    assert "letters and digits are allowed" in steps.output
    steps.run(command="bash tests.sh", baseline=attack, comment="a", page_url=attack)
    assert not (tmp_path / "pwned").exists()
    assert github.comments == []
