"""NL2Bash against runs of InterCode's own code.

The tables in docs/conformance.md say what the remaining differences are.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.results.files import read_results
from tests.support.thinning import ALL, every, thinned

PARTS = (1, 2, 3, 4)
STRICT, PAPER = ("oracle", "idle"), ("gpt-4", "gold", "noop")
SIZES = {1: 60, 2: 53, 3: 60, 4: 27}
# One task in so many of strict, and the first ones of the paper profile, whose rewards depend on
# what was played before. All of it takes minutes, most of them waiting. Every day it is played on
# bubblewrap, where no image has to be built: of 280 episodes of parts 2 to 4, golds and recorded
# runs, eight ended otherwise than on Docker, all of them later ones.
EVERY = every(40)
FIRST = {} if ALL else {("gpt-4", 3): 20, ("gold", 2): 20}
ALL_PARTS = 0
PLAYED = [(kind, part) for kind in PAPER for part in PARTS if ALL or (kind, part) in FIRST]

NOOP = "def run(task, env):\n    env.step('true')\n"


Rows = dict[str, dict[str, Any]]


def run(folder: Path, data: Path, part: int, *options: str) -> Rows:
    results = folder / "results.jsonl"
    (folder / "noop.py").write_text(NOOP)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider"),
        f"--intercode-dataset=nl2bash{f'-fs{part}' if part else ''}",
        f"--intercode-data={data}",
        f"--intercode-results={results}",
        *options,
    ]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
    assert results.is_file(), done.stdout + done.stderr
    return {row["task_id"]: row for row in read_results(results)}


Runs = dict[tuple[str, int], Rows]


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory,
    data: Path,
    reference: Path,
    recordings: Path,
    quick_sandbox: str,
) -> Runs:
    """Run everything once, in the order that takes the least time.

    Recorded part 1 is 100 s of waiting for commands that never end, so other runs go on beside it.
    Part 2 of the paper profile comes last and by itself: one of its tasks prints the container's
    address, and two digits there change a reward.
    """

    def run_one(job: tuple[str, int]) -> tuple[tuple[str, int], Rows]:
        kind, part = job
        options = [f"--intercode-agent={'noop.py:run' if kind in ('idle', 'noop') else 'oracle'}"]
        if kind == "gpt-4":
            options = [f"--intercode-agent=replay:{recordings}/bash_fs{part}_gpt-4.json.gz"]
        if kind in PAPER:
            # The references were made on containers with a network.
            options += ["--intercode-profile=paper", "--intercode-feedback=reward"]
            options += ["--intercode-network"]
        folder = tmp_path_factory.mktemp(f"{kind}{part}")
        if kind in STRICT:
            options += ["--intercode-concurrency=3", *thinned(folder, EVERY)]
        elif (kind, part) in FIRST:
            options += [f"--intercode-limit={FIRST[kind, part]}"]
        options += () if ALL else (quick_sandbox,)
        return job, run(folder, data, part, *options)

    beside = [(kind, ALL_PARTS) for kind in STRICT] + [job for job in PLAYED if job[1] != 2]
    last = [job for job in PLAYED if job[1] == 2]
    tmp_path_factory.getbasetemp()  # made now, by one thread
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(run_one, sorted(beside, key=lambda job: job != ("gpt-4", 1))))
    return dict(done + [run_one(job) for job in last])


NOT_THE_SAME_TWICE = {
    f"nl2bash-{at}" for at in ("fs1-00030", "fs1-00055", "fs2-00036", "fs2-00042")
}


# What prints or counts something of the moment or the machine. docs/conformance.md has a line for
# each that was seen to differ.
READ_THE_MOMENT = {
    *("fs1-00030", "fs1-00045", "fs1-00055", "fs2-00036", "fs2-00037", "fs2-00042", "fs2-00048"),
    *("fs2-00052", "fs3-00016", "fs3-00022", "fs3-00033", "fs3-00044", "fs4-00002", "fs4-00005"),
    *("fs4-00021", "fs4-00025"),
}


@dataclass
class Agreement:
    """How often our rewards and successes are the reference's, and which tasks' are not."""

    steps: int = 0
    equal_steps: int = 0
    episodes: int = 0
    equal_episodes: int = 0
    different: dict[str, int] = field(default_factory=dict)

    def add(self, ours: dict[str, dict[str, Any]], theirs: Iterable[dict[str, Any]]) -> None:
        for row in theirs:
            name = f"fs{row['fs']}-{row['task_id']:05d}"
            history = ours[f"nl2bash-{name}"]["turn_history"]
            expected = [(step["action"], step.get("reward", 0.0)) for step in row["steps"]]
            rewards = [float(reward) for reward in history["rewards"]]
            equal = 0
            for action, reward, (wanted_action, wanted) in zip(
                history["actions"], rewards, expected, strict=False
            ):
                assert action == wanted_action
                self.steps += 1
                equal += abs(reward - wanted) <= 0.005
            self.equal_steps += equal
            self.episodes += 1
            solved = max(rewards, default=0.0) >= 1.0
            same = solved == (max(r for _, r in expected) >= 1.0)
            self.equal_episodes += same
            if not same or equal < len(rewards):
                self.different[name] = len(rewards) - equal

    def __str__(self) -> str:
        return (
            f"{self.equal_steps}/{self.steps} steps, "
            f"{self.equal_episodes}/{self.episodes} episodes equal; different: {self.different}"
        )


def test_strict_oracle(runs: Runs) -> None:
    """Gold reaches 1.0 on all tasks but those that are not the same twice."""
    ids = [f"nl2bash-fs{part}-{n:05d}" for part in PARTS for n in range(SIZES[part])][::EVERY]
    rows = runs["oracle", ALL_PARTS]
    assert rows.keys() <= set(ids)
    assert len(rows) >= len(ids) - 4
    # A gold that did not end in time has no row.
    unsolved = {name for name in ids if rows.get(name, {}).get("outcome") != "solved"}
    assert len(unsolved) <= 6, unsolved
    # The four that are not the same twice are xfailed, with the reason. Two more are let go by:
    # these golds read a busy machine (its disks, its load, its processes).
    assert len(unsolved - NOT_THE_SAME_TWICE) <= 2, unsolved


def test_strict_noop(runs: Runs) -> None:
    """Doing nothing earns nothing where gold prints or changes something."""
    rows = runs["idle", ALL_PARTS]
    assert len(rows) >= sum(SIZES.values()) // EVERY - 4  # a gold that never ends has no grade
    for row in rows.values():
        gold = row["end_state"].get("gold", {})
        if gold.get("output") or gold.get("touched"):
            assert row["reward"] == 0.0, row["task_id"]


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in PLAYED}))
def test_paper(kind: str, runs: Runs, reference: Path) -> None:
    """Rewards after every step, and success, are those of InterCode's own code."""
    agreement = Agreement()
    parts = [part for each, part in PLAYED if each == kind]
    for part in parts:
        file = reference / "exact" / f"bash_fs{part}_{kind}.jsonl.gz"
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            theirs = [json.loads(line) for line in lines]
        agreement.add(runs[kind, part], theirs[: FIRST.get((kind, part))])
    print(agreement)
    assert agreement.episodes == sum(FIRST.get((kind, part), SIZES[part]) for part in parts)
    assert agreement.different.keys() <= READ_THE_MOMENT, str(agreement)
    if ALL:
        assert agreement.equal_steps >= 0.98 * agreement.steps, str(agreement)
        assert agreement.equal_episodes >= 0.98 * agreement.episodes, str(agreement)
