"""The driver of a cluster: what it costs by itself, and what it drives.

    python -m benchmarks.cluster simulate --nodes 1000 --episodes 100000
    python -m benchmarks.cluster thinking --nodes 4 --concurrency 64 --episodes 256

``simulate`` has the real driver and its real schedule, with nodes that only sleep: a tenth of them
are killed or stopped on the way. ``thinking`` has a real Ray cluster on this machine, and an agent
that thinks for a second before each of five turns.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.sleeping_nodes import SleepingNodes
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.cluster.executor import ClusterExecutor, ClusterHandle
from pytest_intercode.rollouts.cluster.files import Shelf
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.executors.handle import Handle
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["simulate", "thinking"]

Result = TypeVar("Result")

_TURNS = 5
_THINKER = f"""\
import time

class Thinker:
    def reset(self, task):
        self.left = ["true"] * {_TURNS - 1} + ["submit"]

    def act(self, observation):
        time.sleep(1.0)
        return self.left.pop(0)
"""


class _Owner:
    """Counts what ends, and keeps nothing of it."""

    def __init__(self, episodes: int) -> None:
        self.executor: ClusterExecutor | None = None
        self.ends: Counter[int] = Counter()
        self.over = threading.Event()
        self._episodes = episodes
        self._submitted = 0

    def refill(self) -> None:
        if self.executor is not None and self._submitted < self._episodes:
            name = f"t{self._submitted}"
            task = Task(name, "Write hello to a file.", ("echo hello > a",), "bash", "s", "d")
            self._submitted += 1
            self.executor.submit(RolloutSpec(task, agent="sleeper", node_id=f"suite::{name}"))

    def _end(self, handle: Handle) -> None:
        self.ends[int(handle.spec.task.id[1:])] += 1
        if len(self.ends) == self._episodes:
            self.over.set()

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        self._end(handle)

    def failed(self, handle: Handle, error: BaseException) -> None:
        self._end(handle)

    def printed(self, handle: ClusterHandle, pieces: list[Any]) -> None:
        pass

    def said(self, line: str) -> None:
        pass

    def wait(self, handle: ClusterHandle, future: Future[Result]) -> Result:
        return future.result()


def simulate(
    nodes: int, episodes: int, *, seconds: float = 1.0, faults: bool = True
) -> dict[str, float]:
    """Run episodes that only sleep on nodes that are not there.

    Args:
        nodes: how many nodes, of 16 slots each.
        episodes: how many episodes.
        seconds: what an episode takes on average.
        faults: kill or stop a tenth of the nodes on the way.

    Returns:
        Wall and processor seconds, milliseconds of processor per episode, and mebibytes that the
        process grew by.
    """
    chance = random.Random(7)
    transport = SleepingNodes(
        nodes, weight=16, seconds=lambda: chance.uniform(0.5, 1.5) * seconds, turns=_TURNS
    )
    owner = _Owner(episodes)
    before, began, processor = _memory(), time.monotonic(), time.process_time()
    owner.executor = ClusterExecutor(
        transport,
        NodeSettings(),
        owner,
        owner.refill,
        concurrency=None,
        run_budget=RunBudget(RunLimits()),
        shelf=Shelf(),
        stand_in=_no_environment,
    )
    left = nodes // 10 if faults else 0
    stopped: list[str] = []
    while not owner.over.wait(0.02):
        if left and len(owner.ends) > episodes * (1 - left / max(1, nodes // 10)) / 2:
            left -= 1
            node = transport.any(chance)
            if chance.random() < 0.5:
                transport.kill(node, process=False)
            elif node not in stopped:
                transport.pause(node)
                stopped.append(node)
                if len(stopped) > 5:
                    transport.go_on(stopped.pop(0))
    wall, used = time.monotonic() - began, time.process_time() - processor
    after = _memory()
    owner.executor.close(1.0)
    assert set(owner.ends.values()) == {1}, "each is accounted for once"
    return {
        "episodes": len(owner.ends),
        "seconds": wall,
        "processor seconds": used,
        "processor ms per episode": 1000 * used / episodes,
        "MiB": after - before,
    }


def _no_environment(spec: RolloutSpec) -> Environment:
    raise AssertionError("nobody asks for it")


def _memory() -> float:
    """Return the resident memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024**2


def thinking(nodes: int, concurrency: int, episodes: int) -> dict[str, float]:
    """Run thinking episodes on a Ray cluster of this machine.

    Args:
        nodes: how many nodes it has.
        concurrency: how many episodes run at a time; on no cluster for 0 nodes.
        episodes: how many episodes there are.

    Returns:
        Seconds from the first episode's begin to the last one's end, and the ideal ones.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "thinker.py").write_text(_THINKER)
        (path / "suite.yaml").write_text(
            "env: bash\ntasks:\n  - {id: one, query: Do nothing., gold: 'true'}\n"
        )
        where = [f"--intercode-cluster=local:{nodes}"] if nodes else []
        began = time.time()
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "suite.yaml"),
                *("--intercode-agent=thinker.py:Thinker", f"--intercode-repeat={episodes}"),
                *("--intercode-results=run.jsonl", "--intercode-sandbox=bubblewrap"),
                *(f"--intercode-concurrency={concurrency}", "--durations=1", *where),
                f"--junitxml={path / 'run.xml'}",
            ],
            cwd=path,
            capture_output=True,
            check=False,
        )
        whole = time.time() - began
        rows = [json.loads(line) for line in (path / "run.jsonl").read_text().splitlines()]
        suite = (path / "run.xml").read_text()
    assert len(rows) == episodes
    inside = float(suite.partition('time="')[2].partition('"')[0])
    ideal = -(-episodes // concurrency) * _TURNS * 1.0
    return {"whole run": whole, "seconds": inside, "ideal": ideal, "ratio": inside / ideal}


def main() -> None:
    """Print what was measured, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("simulate", "thinking"))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--no-faults", action="store_true")
    given = parser.parse_args()
    if given.what == "simulate":
        found = simulate(
            given.nodes, given.episodes, seconds=given.seconds, faults=not given.no_faults
        )
    else:
        found = thinking(given.nodes, given.concurrency, given.episodes)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()
