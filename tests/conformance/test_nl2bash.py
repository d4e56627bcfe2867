"""NL2Bash against runs of InterCode's own code.

The tables in docs/conformance.md say what the remaining differences are.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.reporting.results import read_results

PARTS = (1, 2, 3, 4)
# Two parts at a time, as most of part 1 is waiting for commands that never end; but part 2 by
# itself: one of its tasks prints the container's address, and two digits there change a reward.
LANES = ((1, 2), (3, 4))

NOOP = "def run(task, env):\n    env.step('true')\n"


@dataclass(frozen=True)
class Run:
    """A finished pytest run: its rows by task, and what it printed."""

    rows: dict[str, dict[str, Any]]
    printed: str
    status: int


def run(folder: Path, data: Path, part: int, *options: str) -> Run:
    results = folder / "results.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "noop.py").write_text(NOOP)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider"),
        f"--intercode-dataset=nl2bash-fs{part}",
        f"--intercode-data={data}",
        f"--intercode-results={results}",
        *options,
    ]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
    rows = {row["task_id"]: row for row in read_results(results)}
    return Run(rows, done.stdout + done.stderr, done.returncode)


def run_all(folder: Path, data: Path, options: Mapping[int, tuple[str, ...]]) -> dict[int, Run]:
    def run_lane(lane: tuple[int, ...]) -> dict[int, Run]:
        return {
            part: run(folder / str(part), data, part, *options[part])
            for part in lane
            if part in options
        }

    with ThreadPoolExecutor(len(LANES)) as pool:
        return {part: made for runs in pool.map(run_lane, LANES) for part, made in runs.items()}


NOT_THE_SAME_TWICE = {
    f"nl2bash-{at}" for at in ("fs1-00030", "fs1-00055", "fs2-00036", "fs2-00042")
}


@dataclass
class Agreement:
    """How often our rewards and successes are the reference's."""

    steps: int = 0
    equal_steps: int = 0
    episodes: int = 0
    equal_episodes: int = 0

    def add(self, ours: dict[str, dict[str, Any]], theirs: Iterable[dict[str, Any]]) -> None:
        for row in theirs:
            mine = ours[f"nl2bash-fs{row['fs']}-{row['task_id']:05d}"]
            expected = [(step["action"], step.get("reward", 0.0)) for step in row["steps"]]
            history = mine["turn_history"]
            rewards = [float(reward) for reward in history["rewards"]]
            for action, reward, (wanted_action, wanted) in zip(
                history["actions"], rewards, expected, strict=False
            ):
                assert action == wanted_action
                self.steps += 1
                self.equal_steps += abs(reward - wanted) <= 0.005
            self.episodes += 1
            solved = max(rewards, default=0.0) >= 1.0
            self.equal_episodes += solved == (max(r for _, r in expected) >= 1.0)

    def __str__(self) -> str:
        return (
            f"{self.equal_steps}/{self.steps} steps, "
            f"{self.equal_episodes}/{self.episodes} episodes equal"
        )


def compare(runs: dict[int, Run], reference: Path, kind: str) -> Agreement:
    agreement = Agreement()
    for part, made in runs.items():
        file = reference / f"bash_fs{part}_{kind}.jsonl.gz"
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            agreement.add(made.rows, map(json.loads, lines))
    return agreement


def test_strict_oracle(tmp_path: Path, data: Path) -> None:
    """Gold reaches 1.0 on all tasks but those that are not the same twice."""
    options = ("--intercode-agent=oracle",)
    runs = run_all(tmp_path, data, dict.fromkeys(PARTS, options))
    rows = [row for made in runs.values() for row in made.rows.values()]
    assert len(rows) == 200
    unsolved = {row["task_id"]: row["reason"] for row in rows if row["outcome"] != "solved"}
    assert len(unsolved) <= 6, unsolved
    # The four that are not the same twice are xfailed, with the reason. Two more are let go by:
    # these golds read a busy machine (its disks, its load, its processes).
    assert len(unsolved.keys() - NOT_THE_SAME_TWICE) <= 2, unsolved


def test_strict_noop(tmp_path: Path, data: Path) -> None:
    """Whoever does nothing gets nothing where gold prints or changes something."""
    runs = run_all(tmp_path, data, dict.fromkeys((2, 3, 4), ("--intercode-agent=noop.py:run",)))
    for made in runs.values():
        for row in made.rows.values():
            gold = row["end_state"].get("gold", {})
            if gold.get("output") or gold.get("touched"):
                assert row["reward"] == 0.0, row["task_id"]


@pytest.mark.parametrize(
    ("kind", "least_steps", "least_episodes"),
    [
        # 198 or 199 of 200 episodes agree in most runs. The room below is for golds that print
        # the time or the host, on six of which the reference disagrees with itself.
        ("gpt-4", 0.97, 0.98),
        ("gold", 0.97, 0.98),
        ("noop", 0.97, 0.99),
    ],
)
def test_paper(
    kind: str,
    least_steps: float,
    least_episodes: float,
    tmp_path: Path,
    data: Path,
    reference: Path,
    recordings: Path,
) -> None:
    """Rewards after every step, and success, are those of InterCode's own code.

    The reference was recorded on containers with a network.
    """
    paper = ("--intercode-profile=paper", "--intercode-feedback=reward", "--intercode-network")
    options: dict[int, tuple[str, ...]] = {}
    for part in PARTS:
        recording = recordings / f"bash_fs{part}_gpt-4.json.gz"
        agent = {"gpt-4": f"replay:{recording}", "gold": "oracle", "noop": "noop.py:run"}[kind]
        options[part] = (f"--intercode-agent={agent}", *paper)
    agreement = compare(run_all(tmp_path, data, options), reference, kind)
    assert agreement.episodes == 200
    assert agreement.equal_steps >= least_steps * agreement.steps, str(agreement)
    assert agreement.equal_episodes >= least_episodes * agreement.episodes, str(agreement)
    print(agreement)
