"""The checks environment, with the suite of docs/agentbench.md: gold, idling, and tricks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from tests.conftest import results

PAGE = (Path(__file__).parents[3] / "docs" / "agentbench.md").read_text(encoding="utf-8")
[SUITE] = re.findall(r"^```yaml checks.yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
AGENTS = """
import shlex

class Idle:
    def run(self, task, env):
        return None

class Submits:
    def run(self, task, env):
        env.step("submit " + {"size": "12", "word": "love", "count": ""}[task.id])

class Tricks:
    tricks = {
        "size": "wc() { echo 3; }; export -f wc; seq 3 >log; wc -l <log",
        "word": "echo 'echo hate' >say; bash say",
        "count": "echo 'exit 0' | tee ~/.bashrc ~/.profile; export BASH_ENV=~/.profile",
    }
    def run(self, task, env):
        print(env.step(self.tricks[task.id])[0])

class Caches:
    # Does what is asked for, and apt writes a cache of its own meanwhile.
    def run(self, task, env):
        script = 'ls -A "$1" | wc -l'
        env.step(f"echo {shlex.quote(script)} >count.sh")
        env.step("mkdir -p /var/cache/apt; echo new >/var/cache/apt/srcpkgcache.bin")

class Later:
    # Leaves a program that would do what is asked for once the script has begun.
    def run(self, task, env):
        env.step("{ until [ -d /tmp/a ]; do :; done; echo 'echo 2' >count.sh; } >/dev/null 2>&1 &")
"""

Play = Callable[[str], dict[str, float]]


@pytest.fixture
def play(pytester: pytest.Pytester, needs_sandboxes: None) -> Play:
    """Play the suite; return the rewards by task."""
    (pytester.path / "checks.yaml").write_text(SUITE)
    (pytester.path / "agents.py").write_text(AGENTS)

    def run(agent: str) -> dict[str, float]:
        pytester.runpytest(
            "checks.yaml", f"--intercode-agent={agent}", "--intercode-results=r.jsonl"
        )
        return {row["task_id"]: row["reward"] for row in results(pytester.path / "r.jsonl")}

    return run


def test_gold_and_the_right_answers(play: Play, pytester: pytest.Pytester) -> None:
    assert play("oracle") == {"size": 1.0, "word": 1.0, "count": 1.0}
    path = pytester.path / "r.jsonl"
    assert main(["rescore", str(path), "--output", str(pytester.path / "again.jsonl")]) == 0
    assert [row["reward"] for row in results(pytester.path / "again.jsonl")] == [1.0] * 3
    assert play("agents.py:Submits") == {"size": 1.0, "word": 1.0, "count": 0.0}


def test_idling_and_tricks_are_worth_nothing(play: Play) -> None:
    nothing = {"size": 0.0, "word": 0.0, "count": 0.0}
    assert play("agents.py:Idle") == nothing
    assert play("agents.py:Tricks") == nothing


def test_caches_that_programs_write_are_not_what_scripts_run(play: Play) -> None:
    assert play("agents.py:Caches")["count"] == 1.0


def test_scripts_are_not_run_next_to_the_agent(pytester: pytest.Pytester, play: Play) -> None:
    """It could read them: with rewards as feedback, they would run after each action."""
    result = pytester.runpytest(
        "checks.yaml", "--intercode-agent=oracle", "--intercode-feedback=reward"
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["task error: *task 'count': scripts check its machine after *"])


def test_nothing_goes_on_while_scripts_run(play: Play) -> None:
    assert play("agents.py:Later")["count"] == 0.0
