"""The driver of a cluster: what it costs by itself, and what it drives.

    python -m benchmarks.cluster simulate --nodes 1000 --episodes 100000
    python -m benchmarks.cluster thinking --nodes 4 --concurrency 64 --episodes 256
    python -m benchmarks.cluster growth --markdown docs/reference/cluster.md --plot docs/cluster.svg

``simulate`` has the real driver and its real schedule, with nodes that only sleep: a tenth of them
are killed on the way. ``thinking`` has a real Ray cluster on this machine, and an agent
that thinks for a second before each of five turns. ``growth`` has the same over 1, 2 and 4 nodes
and 16 to 256 episodes at a time, as a table and a plot; the limit is thinking alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.machine import facts
from benchmarks.measuring import Scale
from benchmarks.plot import Line, Panel, svg
from benchmarks.sleeping_nodes import SleepingNodes
from benchmarks.table import Part, Row, aligned, check_markers, duration, markdown, put_between
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.cluster.executor import ClusterExecutor, Connection
from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.local import LocalCluster
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.executor import Handle, Observer
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["grown", "growth", "simulate", "thinking"]

_TURNS = 5
_THOUGHT = 1.0  # seconds before each turn
_NODES = (1, 2, 4)
_EPISODES = {16: 32, 64: 128, 256: 256}  # by how many run at a time
_THINKER = f"""\
import time

class Thinker:
    def reset(self, task):
        self.left = ["true"] * {_TURNS - 1} + ["submit"]

    def act(self, observation):
        time.sleep({_THOUGHT})
        return self.left.pop(0)
"""


class _Owner(Observer):
    """Counts episodes that end, without keeping their records."""

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


def simulate(
    nodes: int, episodes: int, *, seconds: float = 1.0, faults: bool = True
) -> dict[str, float]:
    """Run episodes that only sleep, on simulated nodes.

    Args:
        nodes: how many nodes, of 16 slots each.
        episodes: how many episodes.
        seconds: the mean duration of an episode.
        faults: whether to kill a tenth of the nodes during the run.

    Returns:
        Wall-clock and CPU seconds, CPU milliseconds per episode, and by how many mebibytes the
        process grew.
    """
    chance = random.Random(7)
    machines = SleepingNodes(
        nodes,
        weight=16,
        seconds=lambda: chance.uniform(0.5, 1.5) * seconds,
        turns=_TURNS,
        keep=0,
    )
    owner = _Owner(episodes)
    before, began, processor = _memory(), time.monotonic(), time.process_time()
    connection = Connection(
        machines, NodeSettings(), FileIndex(), RunBudget(RunLimits()), lambda line: None
    )
    owner.executor = ClusterExecutor(connection, owner, _no_environment, None, owner.refill)
    owner.executor.wake()
    left = nodes // 10 if faults else 0
    while not owner.over.wait(0.02):
        if left and len(owner.ends) > episodes * (1 - left / max(1, nodes // 10)) / 2:
            process = machines.any(chance)
            if process is not None:
                left -= 1
                machines.kill(process, node=chance.random() < 0.5)
    wall, used = time.monotonic() - began, time.process_time() - processor
    after = _memory()
    connection.close(1.0)
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


def thinking(
    nodes: int, concurrency: int, episodes: int, cluster: LocalCluster | None = None
) -> dict[str, float]:
    """Run thinking episodes on a Ray cluster of this machine.

    Args:
        nodes: how many nodes it has; 0 to run without a cluster.
        concurrency: how many episodes run at a time.
        episodes: how many episodes there are.
        cluster: the cluster; by default one that is started for the run.

    Returns:
        Seconds of the whole run, seconds from the first episode's start to the last one's end, the
        ideal of these, and their ratio.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "thinker.py").write_text(_THINKER)
        (path / "suite.yaml").write_text(
            "env: bash\ntasks:\n  - {id: one, query: Do nothing., gold: 'true'}\n"
        )
        address = f"local:{nodes}" if cluster is None else cluster.address
        where = [f"--intercode-cluster={address}"] if nodes else []
        began = time.time()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "suite.yaml"),
                *("--intercode-agent=thinker.py:Thinker", f"--intercode-repeat={episodes}"),
                *("--intercode-results=run.jsonl", "--intercode-sandbox=bubblewrap"),
                *(f"--intercode-concurrency={concurrency}", *where),
            ],
            cwd=path,
            env={**os.environ, **(cluster.variables if cluster is not None else {})},
            capture_output=True,
            text=True,
            check=False,
        )
        whole = time.time() - began
        results = path / "run.jsonl"
        assert results.exists(), done.stdout + done.stderr
        rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert [row["outcome"] for row in rows] == ["solved"] * episodes, done.stdout
    phases = [row["phases"] for row in rows]
    began = min(begin for each in phases for begin, _ in each.values())
    inside = max(map(_end_of, phases)) - began
    ideal = -(-episodes // concurrency) * _TURNS * _THOUGHT
    return {"whole run": whole, "seconds": inside, "ideal": ideal, "ratio": inside / ideal}


def _end_of(phases: dict[str, tuple[float, float]]) -> float:
    """Return when an episode ended; its phases do not overlap."""
    began, _ = phases["agent"]
    return began + sum(seconds for begin, seconds in phases.values() if begin >= began)


def growth(scale: Scale) -> Part:
    """Run thinking episodes on 1, 2 and 4 nodes, 16 to 256 at a time."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    episodes = scale.pick(_EPISODES, {2: 4})
    for nodes in scale.pick(_NODES, (1,)):
        cluster = LocalCluster(nodes)
        try:
            for concurrency, count in episodes.items():
                measured = thinking(nodes, concurrency, count, cluster)
                found[nodes, concurrency] = {**measured, "episodes": count}
                scale.say(f"{nodes} nodes, {concurrency} at a time: {measured['seconds']:.1f} s")
        finally:
            cluster.close()
    return grown(found)


def grown(found: Mapping[tuple[int, int], Mapping[str, float]]) -> Part:
    """Return the table and the plots of the measurements.

    Args:
        found: the results of :func:`thinking` with the number of ``episodes``, by the numbers of
            nodes and of episodes at a time.
    """
    rows = [
        Row(
            f"{nodes} {'node' if nodes == 1 else 'nodes'}, {concurrency} at a time",
            f"{cell['episodes']:.0f} in {duration(cell['seconds'])}, "
            f"{cell['episodes'] / cell['seconds']:.3g}/s (whole: {duration(cell['whole run'])})",
            f"thinking alone: {duration(cell['ideal'])}",
            cell["ratio"],
        )
        for (nodes, concurrency), cell in sorted(found.items())
    ]
    speed = Panel(
        "Episodes per second, and the limit",
        "episodes at a time",
        "episodes per second",
        x_log=True,
        y_log=True,
    )
    over = Panel(
        "Time over thinking alone (1 is the limit)",
        "episodes at a time",
        "run time / thinking alone",
        x_log=True,
        y_log=True,
    )
    at_a_time = sorted({concurrency for _, concurrency in found})
    for colour, nodes in enumerate(sorted({nodes for nodes, _ in found})):
        cells = [(each, found[nodes, each]) for each in at_a_time if (nodes, each) in found]
        name = f"{nodes} {'node' if nodes == 1 else 'nodes'}"
        points = tuple((float(each), cell["episodes"] / cell["seconds"]) for each, cell in cells)
        speed.lines.append(Line(name, points, colour))
        over.lines.append(
            Line(name, tuple((float(each), cell["ratio"]) for each, cell in cells), colour)
        )
    limit = tuple((float(each), each / (_TURNS * _THOUGHT)) for each in at_a_time)
    speed.lines.append(Line("limit: thinking alone", limit, dashed=True))
    over.lines.append(Line("limit", tuple((float(each), 1.0) for each in at_a_time), dashed=True))
    notes = [
        f"{_TURNS} turns of {_THOUGHT:g} s of thought. All nodes are on one machine, so more of "
        "them give no more processors: what grows is what they cost. Times are from the first "
        "preparation to the last end; whole: pytest's start, the processes on the nodes and the "
        "end besides."
    ]
    return Part("thinking episodes on a cluster of this machine", rows, [speed, over], notes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the measurements, as JSON or as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("simulate", "thinking", "growth"))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny counts, for growth")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="of growth")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="of growth")
    given = parser.parse_args(arguments)
    if given.what == "growth":
        if given.markdown:
            check_markers(given.markdown)
        known = [*facts(), *(["quick: the numbers mean nothing"] if given.quick else [])]
        part = growth(Scale(given.quick))
        print("\n".join([*known, "", aligned([part])]))
        if given.markdown:
            put_between(given.markdown, markdown([part], known))
        if given.plot:
            given.plot.write_text(svg(part.panels, f"{known[0]}. {known[2]}."), encoding="utf-8")
        return
    if given.what == "simulate":
        found = simulate(
            given.nodes, given.episodes, seconds=given.seconds, faults=not given.no_faults
        )
    else:
        found = thinking(given.nodes, given.concurrency, given.episodes)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()
