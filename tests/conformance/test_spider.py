"""Spider: the oracle, and the paper profile against runs of InterCode's own code.

docs/conformance.md says what the remaining differences are.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.results.files import read_results
from tests.support.ray_cluster import PYTHON, linked_packages, needs_ray
from tests.support.thinning import every, thinned

TASKS = 1034

PAPER = ("--intercode-profile=paper", "--intercode-feedback=reward")


@dataclass(frozen=True)
class Run:
    """A finished pytest run: its rows by the number of the task, and what it printed."""

    rows: dict[int, dict[str, Any]]
    printed: str


def run(folder: Path, data: Path, *options: str, python: str = sys.executable) -> Run:
    results = folder / "results.jsonl"
    command = [
        *(python, "-m", "pytest", "-q", "-rx", "-c", "/dev/null", "-p", "no:cacheprovider"),
        "--intercode-dataset=spider",
        f"--intercode-data={data}",
        f"--intercode-results={results}",
        *options,
    ]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
    rows = {int(row["task_id"].rpartition("-")[2]): row for row in read_results(results)}
    return Run(rows, done.stdout + done.stderr)


def references(folder: Path, kind: str) -> list[dict[str, Any]]:
    with gzip.open(folder / f"sql_spider_{kind}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_strict_oracle(tmp_path: Path, data: Path, reference: Path) -> None:
    """Every gold is solved but those that the server refuses, which are xfailed in its words."""
    tasks = range(0, TASKS, every(32))
    made = run(tmp_path, data, "--intercode-agent=oracle", *thinned(tmp_path, tasks.step))
    refused = {
        row["task_id"]
        for row in references(reference, "gold")
        if row["steps"][0]["reward"] < 1 and row["task_id"] in tasks
    }
    assert refused
    unsolved = {at: row["reason"] for at, row in made.rows.items() if row["outcome"] != "solved"}
    assert not unsolved
    assert set(tasks) - set(made.rows) == refused, made.printed[-3000:]
    assert f"{len(tasks) - len(refused)} passed, {len(refused)} xfailed" in made.printed
    said = [line for line in made.printed.splitlines() if line.startswith("XFAIL")]
    assert len(said) == len(refused)
    assert all("the engine refuses gold: " in line for line in said)
    assert {row["dataset"] for row in made.rows.values()} == {"spider"}
    assert {row["hardness"] for row in made.rows.values()} == {"easy", "medium", "hard", "extra"}


@pytest.mark.parametrize(
    ("kind", "agent"),
    [("gold", "oracle"), ("gpt-4", "replay:{recordings}/sql_spider_gpt-4.json.gz")],
)
def test_paper(
    kind: str, agent: str, tmp_path: Path, data: Path, reference: Path, recordings: Path
) -> None:
    """Rewards after every step, and success, are those of InterCode's own code."""
    one_in = every(40)
    play = f"--intercode-agent={agent.format(recordings=recordings)}"
    made = run(tmp_path, data, play, *PAPER, *thinned(tmp_path, one_in))
    theirs = references(reference, kind)
    assert len(theirs) == TASKS
    theirs = [row for row in theirs if row["task_id"] % one_in == 0]
    assert len(made.rows) == len(theirs) == len(range(0, TASKS, one_in)), made.printed[-3000:]
    steps = equal_steps = equal_episodes = 0
    for row in theirs:
        history = made.rows[row["task_id"]]["turn_history"]
        expected = [(step["action"], step["reward"]) for step in row["steps"]]
        for action, reward, (wanted_action, wanted) in zip(
            history["actions"], history["rewards"], expected, strict=False
        ):
            assert action == wanted_action
            steps += 1
            equal_steps += abs(reward - wanted) <= 1e-9
        solved = max(history["rewards"]) >= 1.0
        equal_episodes += solved == (max(reward for _, reward in expected) >= 1.0)
    said = f"{equal_steps}/{steps} steps, {equal_episodes}/{len(theirs)} episodes equal"
    print(said)
    assert equal_steps >= steps - max(1, 0.005 * steps), said
    assert equal_episodes >= len(theirs) - max(1, 0.005 * len(theirs)), said


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("profile", ["strict", "paper"])
def test_a_cluster_has_the_rows_that_one_process_has(
    profile: str, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_ray()
    (tmp_path / "packages").mkdir()
    packages = linked_packages(tmp_path / "packages", "pymysql")
    monkeypatch.setenv("PYTHONPATH", str(packages))  # nodes have it, too
    options = ("--intercode-agent=oracle", *(PAPER if profile == "paper" else ()))
    made: list[dict[int, dict[str, Any]]] = []
    for name, where in (("inline", ()), ("cluster", ("--intercode-cluster=local:2",))):
        folder = tmp_path / name
        folder.mkdir()
        found = run(folder, data, *options, *where, *thinned(folder, every(40)), python=str(PYTHON))
        assert len(found.rows) > 20, found.printed
        outcomes = {row["outcome"] for row in found.rows.values()}
        assert "infrastructure-error" not in outcomes, found.printed
        if where:
            assert len({row["host"] for row in found.rows.values()}) == 2, found.printed
        when = {"seconds", "turn_seconds", "turn_agent_seconds", "phases", "host"}
        made.append(
            {
                task: {key: value for key, value in row.items() if key not in when}
                for task, row in found.rows.items()
            }
        )
    inline, on_nodes = made
    assert on_nodes == inline
