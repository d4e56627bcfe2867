"""Container work behind an agent that thinks, at concurrency 1: how much of it is not hidden?

The first episode of a run always waits for its sandbox, because no agent thinks yet. So each
further episode is compared with thinking alone. The same episodes with an agent that does not think
show how much work there is to hide.
"""

from __future__ import annotations

from benchmarks.machine import needs
from benchmarks.measuring import Scale
from benchmarks.runs import TURNS, temporary_folder, thinking, warm_up
from benchmarks.table import Bound, Part, against, duration


def measure(scale: Scale) -> Part:
    """Measure one run of each kind."""
    needs("docker")
    episodes, ms = scale.pick((6, 500), (2, 20))
    part = Part(f"container work behind an agent that thinks {ms} ms a turn, concurrency 1, docker")
    with temporary_folder() as folder:
        warm_up(folder, "docker")
        plain = thinking(folder, "docker", episodes=episodes, concurrency=1, ms=0)
        first = thinking(folder, "docker", episodes=1, concurrency=1, ms=ms)
        run = thinking(folder, "docker", episodes=episodes, concurrency=1, ms=ms)
    thought = TURNS * ms / 1000
    part.rows.append(
        against(
            f"each episode of {TURNS} turns after the first",
            (run.loop - first.loop) / (episodes - 1),
            "thinking alone",
            thought,
            Bound("at most", 1.02),
        )
    )
    part.rows.append(
        against(f"all {episodes} episodes", run.loop, "thinking alone", episodes * thought)
    )
    part.rows.append(
        against(
            "what still shows of the work",
            run.loop - episodes * thought,
            "the same episodes without thought",
            plain.loop,
        )
    )
    part.notes.append(
        f"The whole process took {duration(run.whole)}, of which {duration(run.start)} are the "
        "start of pytest. The first sandbox is started before anybody thinks, and cannot be hidden."
    )
    return part
