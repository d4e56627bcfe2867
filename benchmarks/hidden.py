"""Container work behind an agent that thinks, at concurrency 1: what of it still shows?

The run loop is compared with the thinking alone. How much work there is to hide is told by the
same episodes with an agent that does not think.
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
        run = thinking(folder, "docker", episodes=episodes, concurrency=1, ms=ms)
    thought = episodes * TURNS * ms / 1000
    part.rows.append(
        against(
            f"{episodes} episodes of {TURNS} turns, the run loop",
            run.loop,
            "thinking alone",
            thought,
            Bound("at most", 1.02),
        )
    )
    part.rows.append(
        against(
            "what still shows of the work",
            run.loop - thought,
            "the same episodes without thought",
            plain.loop,
        )
    )
    part.notes.append(
        f"The whole process took {duration(run.whole)}, of which {duration(run.start)} are the "
        "start of pytest. The first sandbox is started before anybody thinks, and cannot be hidden."
    )
    return part
