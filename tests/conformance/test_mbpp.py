"""MBPP: gold passes every hidden test, and InterCode's recorded runs get the rewards they got."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.results.files import read_results
from tests.support.thinning import every, thinned

LAZY = "def act(observation):\n    return 'submit'\n"


def run(folder: Path, data: Path, one_in: int, *options: str) -> dict[str, dict[str, Any]]:
    """Run one task in so many in a project of its own; return its rows by task."""
    (folder / "lazy.py").write_text(LAZY)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider"),
        *thinned(folder, one_in),
        *("--intercode-dataset=mbpp", f"--intercode-data={data}"),
        "--intercode-results=results.jsonl",
        *options,
    ]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
    print(done.stdout[-5000:], done.stderr)  # shown where the test fails
    path = folder / "results.jsonl"
    assert path.exists()
    return {row["task_id"]: row for row in read_results(path)}


def test_strict_oracle(tmp_path: Path, data: Path, quick_sandbox: str) -> None:
    """Golds pass all of their tests."""
    one_in = every(100)
    rows = run(tmp_path, data, one_in, "--intercode-agent=oracle", quick_sandbox)
    assert len(rows) == len(range(0, 974, one_in))
    assert {name: row["reason"] for name, row in rows.items() if row["outcome"] != "solved"} == {}
    assert {row["reward"] for row in rows.values()} == {1.0}


@pytest.mark.slow
def test_strict_noop(tmp_path: Path, data: Path, quick_sandbox: str) -> None:
    rows = run(tmp_path, data, 200, "--intercode-agent=lazy.py:act", quick_sandbox)
    assert len(rows) == 5
    assert {row["reward"] for row in rows.values()} == {0.0}


@pytest.mark.parametrize(
    ("model", "episodes"), [pytest.param("gpt-3.5", 117, marks=pytest.mark.slow), ("gpt-4", 119)]
)
def test_paper(model: str, episodes: int, tmp_path: Path, data: Path, recordings: Path) -> None:
    """Every reward that InterCode recorded, after every action; and GPT-4's observations."""
    recording = recordings / f"python_mbpp_{model}.json.gz"
    one_in = every(36)
    rows = run(
        *(tmp_path, data, one_in, "--intercode-profile=paper", "--intercode-feedback=reward"),
        f"--intercode-agent=replay:{recording}",
    )
    with gzip.open(recording, "rt", encoding="utf-8") as file:
        recorded = list(json.load(file).values())
    assert len(recorded) == episodes
    recorded = [theirs for theirs in recorded if theirs["task_id"] % one_in == 0]
    assert len(recorded) >= episodes / one_in / 2
    steps = different = 0
    successes = []
    for theirs in recorded:
        ours = rows[f"mbpp-{theirs['task_id']:05d}"]["turn_history"]
        history = theirs["turn_history"]
        assert ours["actions"] == history["actions"]
        rewards = [float(reward) for reward in ours["rewards"]]
        for reward, wanted in zip(rewards, history["rewards"], strict=True):
            steps += 1
            different += abs(reward - wanted) > 0.005
        successes.append((max(rewards) >= 1.0) == (max(history["rewards"]) >= 1.0))
        if model == "gpt-4":  # GPT-3.5's runs were worded by earlier versions
            assert ours["observations"] == history["observations"]
    assert steps > 400 / one_in / 2
    # All of them agree, on Python 3.11; the room is for versions that word their errors otherwise.
    assert different <= 0.02 * steps
    assert sum(successes) >= 0.98 * len(successes)
