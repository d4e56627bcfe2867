"""Plays the bundled bash tasks at random, and shows that nothing is left behind.

    pip install 'pytest-intercode[gym]'
    python examples/random_policy.py --steps 1000 --seed 1

Every step is a harmless command or `submit`, drawn at random. Afterwards it prints the mean reward,
and how many more threads, open files, processes and temporary files there are than after the first
20 steps.
"""

import argparse
import os
import random
import tempfile
import threading
import time
from pathlib import Path

import gymnasium

import pytest_intercode.gym  # noqa: F401  registers the environments

ACTIONS = ("ls", "pwd", "cat *", "wc -l *", "sort -u *", "touch made", "echo hello", "submit")


def left_behind() -> dict[str, int]:
    """Count the resources of this process, and the files in the folder for temporary files."""
    processes = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return {
        "threads": threading.active_count(),
        "open files": len(list(Path("/proc/self/fd").iterdir())),
        "processes": sum(_parent(pid) == os.getpid() for pid in processes),
        "temporary files": len(list(Path(tempfile.gettempdir()).iterdir())),
    }


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def play(env: gymnasium.Env[str, str], steps: int, seed: int) -> list[float]:
    """Take a number of steps, and return the reward of each episode that ended."""
    policy = random.Random(seed)
    rewards = []
    env.reset(seed=seed)
    for _ in range(steps):
        _, reward, terminated, truncated, _ = env.step(policy.choice(ACTIONS))
        if terminated or truncated:
            rewards.append(float(reward))
            env.reset()
    return rewards


def main() -> None:
    parser = argparse.ArgumentParser(description="Plays bash tasks at random.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    env = gymnasium.make("InterCode/Bash-v0", max_turns=8)
    play(env, steps=20, seed=options.seed)
    before, began = left_behind(), time.monotonic()
    rewards = play(env, options.steps, options.seed)
    seconds, after = time.monotonic() - began, left_behind()
    env.close()
    mean = sum(rewards) / len(rewards)
    print(
        f"{options.steps} steps, {len(rewards)} episodes, {seconds:.1f} s, mean reward {mean:.3f}"
    )
    print("more than before:", {name: after[name] - before[name] for name in after})


if __name__ == "__main__":
    main()
