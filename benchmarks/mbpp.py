"""MBPP episodes of the oracle, with two sandboxes each, against bare container cycles.

Needs InterCode's data: ``INTERCODE_DATA`` names the folder. A bare cycle is one container, as in
``benchmarks.episodes``; it is measured with the network mode ``none``, and with networking
disabled.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from benchmarks.episodes import bare_cycles, oracle_episodes
from benchmarks.measuring import seconds, show
from pytest_intercode.environments.python import PythonEnvironment
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.loader import bundled_folder, load_suite

EPISODES = 60
ROUNDS = 3


def main() -> None:
    data = os.environ.get("INTERCODE_DATA")
    if not data:
        print("skipped: INTERCODE_DATA names no folder with InterCode's data")
        return
    provider = SandboxProvider()
    api = connect()
    suite = load_suite(bundled_folder("tasks") / "datasets" / "mbpp.yaml", Path(data))
    tasks = list(suite.tasks[:EPISODES])
    spec = PythonEnvironment.sandboxes(tasks[0], provider)[0]
    bare_cycles(api, spec, 3)
    oracle_episodes(provider, tasks[:3], PythonEnvironment)
    bare, fast, ours = [], [], []
    for _ in range(ROUNDS):
        bare.append(seconds(lambda: bare_cycles(api, spec, EPISODES)) / EPISODES)
        ours.append(seconds(lambda: oracle_episodes(provider, tasks, PythonEnvironment)) / EPISODES)
        fast.append(seconds(lambda: bare_cycles(api, spec, EPISODES, disabled=True)) / EPISODES)
    provider.close()
    reference = statistics.median(bare)
    show("a bare container cycle (reference)", reference)
    show("the same, with networking disabled", statistics.median(fast), reference)
    show("an MBPP episode of the oracle", statistics.median(ours), reference)
    rounds = zip(ours, bare, fast, strict=True)
    print("rounds: " + ", ".join(f"{o / b:.2f} ({o / f:.2f})" for o, b, f in rounds))
