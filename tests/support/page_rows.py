"""Rows to make pages of: as the results file has them, from a seed, without a run."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

FAILURES = (
    "failed",
    "failed",
    "failed",
    "out-of-budget",
    "timed-out",
    "agent-error",
    "infrastructure-error",
)
COMMANDS = {
    "bash": (
        "ls -la",
        "grep -rn TODO .",
        "find . -name '*.txt'",
        "wc -l notes.txt",
        "awk '{s+=$1}'",
    ),
    "sql": ("SELECT * FROM loans", ".tables", "UPDATE loans SET due = 1", "DELETE FROM books"),
    "python": ("def double(x):\n    return 2 * x", "double(21)", "import itertools", "print(1)"),
    "ctf": ("strings flag.bin", "file flag.bin", "submit flag{no}", "xxd flag.bin | head"),
}
HARDNESS = ("easy", "medium", "hard")
TAGS = ("files", "text", "join", "aggregate", "loops", "recursion")


def end_state(env: str, solved: bool, number: int) -> dict[str, Any]:
    """What an environment records, cut to what tells a page."""
    output = f"{number}\n" if solved else "12\nno such file\n"
    if env == "bash":
        file = {"type": "f", "mode": 0o644, "uid": 0, "gid": 0, "content": "ab" * 32}
        changed = {**file, "content": "cd" * 32}
        entries = {"/work/out.txt": file}
        return {
            "agent": {
                "output": output,
                "digest": "",
                "entries": entries if solved else {"/work/out.txt": changed},
                "before": {"/work/out.txt": None},
                "touched": ["/work/out.txt"],
            },
            "gold": {
                "output": f"{number}\n",
                "digest": "",
                "entries": entries,
                "before": {"/work/out.txt": None},
                "touched": ["/work/out.txt"],
            },
            "workdir": "/work",
        }
    if env == "sql":
        gold = {"width": 2, "runs": [[[[1, "Ada"], [2, "Bo"]], []]], "ordered": False}
        agent = gold if solved else {**gold, "runs": [[[[1, "Ada"], [3, None]], []]]}
        return {"agent": {**agent, "problem": ""}, "gold": gold, "digested": False}
    if env == "python":
        return {"tests": ["", "" if solved else "returned 41, not 42", ""]}
    return {
        "agent": {"submitted": ["flag{no}", "flag{yes}"] if solved else ["flag{no}"]},
        "gold": {"exact": "ef" * 32, "lower": "01" * 32},
    }


def episode(
    rng: random.Random, number: int, *, skill: float = 0.6, repeat: int = 1, **more: Any
) -> dict[str, Any]:
    """One row; ``skill`` is how likely an easy task is solved."""
    env = ("bash", "sql", "python", "ctf")[number % 4]
    hard = number % 3
    solved = rng.random() < skill - 0.15 * hard
    turns = rng.randint(2, 4)
    executed = [rng.random() < 0.85 for _ in range(turns)]
    outcome = "solved" if solved else rng.choice(FAILURES)
    reward = 1.0 if solved else rng.choice((0.0, 0.0, 0.25, 0.33, 0.5, 0.67, 0.9))
    usage = {"requests": turns, "input_tokens": 900 * turns, "output_tokens": 40, "cost": 0.002}
    return {
        "environment": f"ic_{env}",
        "dataset": env,
        "task_id": f"{env}-{number:05d}",
        "query": f"Find what number {number} says of the {TAGS[number % 6]} and print no more.",
        "turn_history": {
            "actions": [rng.choice(COMMANDS[env]) for _ in range(turns - 1)] + ["submit"],
            "observations": [f"{rng.random()}\nline two of {number}" for _ in range(turns)],
            "rewards": [0.0] * (turns - 1) + [reward],
            "valid_action": executed,
            "thoughts": ["I should look first." if rng.random() < 0.5 else "" for _ in executed],
        },
        "summary": {
            "max_reward": reward,
            "max_reward_idx": turns - 1,
            "turns_taken": turns,
            "turns_max": 10,
        },
        "outcome": outcome,
        "reward": reward,
        "reward_parts": {"output": reward},
        "reason": "" if solved else "the output is not gold's",
        "detail": "",
        "seconds": round(rng.uniform(0.02, 4), 3),
        "turn_seconds": [0.0101] * turns,
        "turn_parts": [{}] * (turns - 1) + [{"output": reward}],
        "turn_agent_seconds": [0.25] * turns,
        "usage": usage,
        "suite": f"{env}-suite",
        "hardness": HARDNESS[hard],
        "tags": [TAGS[number % 6]],
        "profile": "strict",
        "agent": "my_agent.py:Agent",
        "agent_arguments": {"model": "small", "temperature": "0"},
        "sandbox": "bubblewrap",
        "image": "",
        "repeat": repeat,
        "node_id": f"intercode/{env}::test_solves[{env}-{number:05d}]",
        "attempts": [],
        "left_behind": [],
        "log": "",
        "end_state": end_state(env, solved, number),
        **more,
    }


def run(tasks: int, *, seed: int = 1, skill: float = 0.6, repeats: int = 1) -> list[dict[str, Any]]:
    """All rows of a run."""
    rng = random.Random(seed)
    return [
        episode(rng, number, skill=skill, repeat=repeat)
        for number in range(tasks)
        for repeat in range(1, repeats + 1)
    ]


def placed(rows: list[dict[str, Any]], hosts: int, *, lanes: int = 8) -> list[dict[str, Any]]:
    """The rows as of a cluster whose nodes each ran ``lanes`` episodes at a time."""
    rng = random.Random(9)
    free = [[1_700_000_000.0] * lanes for _ in range(hosts)]
    for number, row in enumerate(rows):
        lanes_free = free[number % hosts]
        lane = lanes_free.index(min(lanes_free))
        prepare = rng.uniform(0.05, 1.0)
        row["host"] = f"node-{number % hosts}"
        began, seconds = lanes_free[lane] + prepare, row["seconds"]
        row["phases"] = {
            "start": [lanes_free[lane], prepare],
            "agent": [began, 0.7 * seconds],
            "carry": [began + 0.7 * seconds, 0.1 * seconds],
            "tests": [began + 0.8 * seconds, 0.2 * seconds],
        }
        lanes_free[lane] += prepare + row["seconds"] + 0.05
    return rows


def index_of(page: Path) -> dict[str, Any]:
    """What the script of a page reads."""
    match = re.search(r'id="index">([^<]+)<', page.read_text("utf-8"))
    assert match is not None
    index: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(match[1])))
    return index


def blocks_of(page: Path) -> list[list[dict[str, Any]]]:
    """Return the trajectories that a page has, in blocks."""
    blocks = re.findall(r'id="block-\d+">([^<]+)<', page.read_text("utf-8"))
    return [json.loads(gzip.decompress(base64.b64decode(block))) for block in blocks]
