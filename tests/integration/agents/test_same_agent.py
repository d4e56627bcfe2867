"""One agent, written in every way that there is, gets the same rewards on the bundled suites.

All tasks of the suites with ``scripts/test --all``; else the first few of each.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.oracle import make_oracle
from pytest_intercode.core.task import Task
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.suites.catalogue import bundled_tasks
from tests.conftest import ADDOPTS, results
from tests.support.thinning import ALL

AGENTS = Path(__file__).parents[2] / "support" / "same_agent"
LIMIT = 2  # tasks of each suite
NOTHING = {"bash": "true", "ctf": "ls", "python": "print()", "sql": "SELECT 1", "swe": "git log"}
FORMS = {
    "async step class": f"{AGENTS}/forms.py:AsyncStep",
    "loop class": f"{AGENTS}/forms.py:Loop",
    "coroutine": f"{AGENTS}/forms.py:coroutine",
    "callable": f"{AGENTS}/forms.py:function",
    "command": f"command:{sys.executable} -S {AGENTS}/command.py",
    "command in Perl": f"command:perl {AGENTS}/command.pl",
    "MCP over stdio": f"mcp:{sys.executable} {AGENTS}/client.py {{task_id}} {{config}}",
    "MCP over HTTP": f"mcp:{sys.executable} {AGENTS}/client.py {{task_id}} {{config_http}}",
}

EVERY_DAY = ("loop class",)  # the others, which share their code, are slow


class Recorder:
    """An environment that runs nothing, and remembers what it was asked to run."""

    def __init__(self) -> None:
        self.actions: list[str] = []

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        return "", 0.0, False, False, {}


def plan(at: int, task: Task) -> list[str]:
    """Return what to do: gold for every other task, a part of it or nothing for the rest."""
    recorder = Recorder()
    make_oracle(task).run(task.view(), cast(AgentEnvironment, recorder))
    gold = recorder.actions
    actions = [gold, [NOTHING[task.env], *gold[1:]], gold, gold[:-1]][at % 4]
    if task.env == "ctf" and at % 2:  # only the right flag ends an episode
        return [NOTHING["ctf"], "submit wrong", *["id"] * (task.max_turns - 2)]
    ends = bool(actions) and actions[-1].split()[0] == "submit"
    return actions if ends else [*actions, "submit"]


Row = tuple[str, float, list[str], list[bool]]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory, quick_sandbox: str) -> Any:
    """Return a function that runs the bundled suites with an agent and returns what it got."""
    folder = tmp_path_factory.mktemp("same")
    path = folder / "plan.json"
    path.write_text(
        json.dumps(
            {
                task.id: plan(at, task)
                for env in BUILTIN_ENVIRONMENTS
                for at, task in enumerate(bundled_tasks(env, "here"))
            }
        )
    )

    def run(
        agent: str, environments: Sequence[str] = BUILTIN_ENVIRONMENTS
    ) -> dict[tuple[str, str], Row]:
        import subprocess

        out = folder / "results.jsonl"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *(f"--intercode-env={','.join(environments)}", f"--intercode-agent={agent}"),
                f"--intercode-results={out}",
                *([] if ALL else [f"--intercode-limit={LIMIT}"]),
            ],
            cwd=folder,
            env={**os.environ, "PLAN": str(path), "PYTEST_ADDOPTS": f"{ADDOPTS} {quick_sandbox}"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1, done.stdout[-3000:] + done.stderr
        return {
            (row["environment"], row["task_id"]): (
                row["outcome"],
                row["reward"],
                row["turn_history"]["actions"],
                row["turn_history"]["valid_action"],
            )
            for row in results(out)
        }

    return run


@pytest.fixture(scope="module")
def expected(play: Any) -> dict[tuple[str, str], Row]:
    """Return what the step class gets: something of everything."""
    rows: dict[tuple[str, str], Row] = play(f"{AGENTS}/forms.py:Step")
    outcomes = Counter((env, outcome) for (env, _), (outcome, *_) in rows.items())
    for env in BUILTIN_ENVIRONMENTS:
        assert outcomes[f"ic_{env}", "solved"] >= 1
        assert outcomes[f"ic_{env}", "out-of-budget" if env == "ctf" else "failed"] >= 1
    assert {outcome for outcome, *_ in rows.values()} == {"solved", "failed", "out-of-budget"}
    return rows


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=() if form in EVERY_DAY else pytest.mark.slow) for form in FORMS],
)
def test_the_same_rewards(play: Any, expected: dict[tuple[str, str], Row], form: str) -> None:
    # What every form does alike, and takes longest, is played by one of them every day.
    some = BUILTIN_ENVIRONMENTS if ALL or form == "loop class" else BUILTIN_ENVIRONMENTS[:-1]
    played = play(FORMS[form], some)
    assert len(played) >= LIMIT * len(some)
    assert played == {task: row for task, row in expected.items() if task in played}
