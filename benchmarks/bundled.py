"""The bundled bash suite with the oracle, on bubblewrap against Docker, as whole pytest runs.

Tasks whose gold uses a program that this machine lacks cannot run on bubblewrap; they are left out
of both. It also compares several tries at some of the tasks, which share their golds, with as many
runs of one try.
"""

from __future__ import annotations

from functools import partial

from benchmarks.machine import needs
from benchmarks.measuring import Scale, in_turn
from benchmarks.runs import temporary_folder
from benchmarks.table import Bound, Part, against, duration

WHAT = ("--intercode-env=bash", "--intercode-agent=oracle")
TRIES = 4
SOME = 16  # tasks


def measure(scale: Scale) -> Part:
    """Measure the suite on both."""
    needs("docker", "bubblewrap")
    part = Part("the bundled bash suite with the oracle")
    limit = scale.pick((), ("--intercode-limit=4",))
    wholes: dict[str, list[float]] = {"docker": [], "bubblewrap": []}
    with temporary_folder() as folder:
        first = folder.pytest(*WHAT, *limit, "--intercode-sandbox=bubblewrap", failures=True)
        left_out = [f"--deselect={name}" for name in first.failed]

        def tries(backend: str, count: int) -> float:
            options = (f"--intercode-limit={scale.pick(SOME, 2)}", f"--intercode-repeat={count}")
            return folder.pytest(*WHAT, *options, f"--intercode-sandbox={backend}", *left_out).loop

        def run(backend: str) -> float:
            finished = folder.pytest(*WHAT, *limit, f"--intercode-sandbox={backend}", *left_out)
            assert finished.passed == first.passed, (backend, finished.passed, first.passed)
            wholes[backend].append(finished.whole)
            return finished.loop

        times = in_turn(
            {"docker": lambda: run("docker"), "bubblewrap": lambda: run("bubblewrap")},
            scale.pick(3, 1),
        )
        repeated = {
            backend: in_turn(
                {"once": partial(tries, backend, 1), "more": partial(tries, backend, TRIES)},
                scale.pick(3, 1),
            )
            for backend in wholes
        }
    part.rows.append(
        against(
            f"{first.passed} tasks on bubblewrap, the run loop",
            times["bubblewrap"],
            "on docker",
            times["docker"],
            Bound("at most", 1 / 5),
        )
    )
    whole = {
        backend: sorted(durations)[len(durations) // 2] for backend, durations in wholes.items()
    }
    part.rows.append(
        against(
            "the whole process, with pytest's start and end",
            whole["bubblewrap"],
            "on docker",
            whole["docker"],
        )
    )
    part.rows += [
        against(
            f"{TRIES} tries at each of {scale.pick(SOME, 2)} tasks on {backend}, the run loop",
            durations["more"],
            f"{TRIES} times one try",
            TRIES * durations["once"],
        )
        for backend, durations in repeated.items()
    ]
    if first.failed:
        part.notes.append(
            f"{len(first.failed)} of {first.passed + len(first.failed)} tasks are left out: this "
            "machine lacks a program that their gold uses."
        )
    scale.say(f"the suite took {duration(times['docker'])} on docker")
    return part
