"""Episodes at a concurrency of four, against as many bare container cycles by four threads.

An episode of bash has two sandboxes: the agent's and gold's. The agent does not think, so that only
the engine counts. Our time ends when the last container has been released.
"""

from __future__ import annotations

from benchmarks.bare import bare_containers
from benchmarks.measuring import Scale, in_turn
from benchmarks.runs import TURNS, temporary_folder, thinking
from benchmarks.table import Bound, Part, Row, duration

THREADS = 4


def measure(scale: Scale) -> Part:
    """Measure both."""
    episodes = scale.pick(48, 4)
    containers = 2 * episodes
    part = Part(f"as fast as the engine: {episodes} episodes at concurrency {THREADS} on docker")
    with bare_containers() as bare, temporary_folder() as folder:

        def ours() -> float:
            run = thinking(folder, "docker", episodes=episodes, concurrency=THREADS, ms=0)
            return run.loop + run.closing

        bare.cycles(THREADS, threads=THREADS)
        times = in_turn(
            {"bare": lambda: bare.cycles(containers, threads=THREADS), "ours": ours},
            scale.pick(3, 1),
        )
    speed = {name: f"{containers / took:.1f}/s ({duration(took)})" for name, took in times.items()}
    part.rows.append(
        Row(
            f"the {containers} containers of {episodes} episodes ({TURNS} turns, no thought)",
            speed["ours"],
            f"{containers} bare cycles, {THREADS} threads: {speed['bare']}",
            times["bare"] / times["ours"],
            Bound("at least", 0.85),
        )
    )
    return part
