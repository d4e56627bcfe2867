"""Endurance: long runs, and what their process holds as they go on.

A long run leaves nothing behind, and costs at its end what it cost at its beginning.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from tests.conftest import PIDS

__all__ = ["EVERY", "Slope", "run", "slope", "stream"]

EVERY = 50
"""Episodes between two looks at what the process holds."""

# Counts what the process holds after every fiftieth episode. Memory is what is Python's own and
# the allocator's; a collection first, or garbage would be counted.
METER = (
    PIDS
    + f"EVERY = {EVERY}"
    + """
import gc, json, threading
from pathlib import Path

episodes = 0


def pytest_intercode_log_episode():
    global episodes
    episodes += 1
    if episodes % EVERY:
        return
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    # What is looked at may vanish meanwhile, which os.walk leaves out.
    groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    files = [names for _, folders, names in os.walk(os.environ["TMPDIR"])]
    held = {
        "groups": sum("intercode" in name and str(os.getpid()) in name for name in groups),
        "mounts": Path("/proc/self/mountinfo").read_text().count("\\n"),
        "files": sum(map(len, files)),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "kilobytes": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
    }
    with open("held.jsonl", "a") as file:
        print(json.dumps(held), file=file)
"""
)


def run(folder: Path, backend: str, episodes: int, concurrency: int = 8) -> list[dict[str, int]]:
    """Run so many episodes; return what was held after every fifty.

    Args:
        folder: an empty folder to run in.
        backend: what ``--intercode-sandbox`` has to be.
        episodes: how many.
        concurrency: how many at a time.

    Raises:
        RuntimeError: one of them did not pass.
    """
    (folder / "conftest.py").write_text(METER)
    rows = ({"query": f"Write {n}.", "gold": f"echo {n} > f"} for n in range(episodes))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "suite.yaml").write_text("env: bash\nrows: {path: rows.jsonl}\n")
    (folder / "tmp").mkdir()
    command = [
        *(sys.executable, "-m", "pytest", "suite.yaml", "--intercode-agent=oracle", "-q"),
        *(f"--intercode-sandbox={backend}", f"--intercode-concurrency={concurrency}"),
        *("-p", "no:cacheprovider"),
    ]
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder / "tmp")}
    process = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    if f"{episodes} passed" not in process.stdout:
        raise RuntimeError(process.stdout[-3000:] + process.stderr[-3000:])
    return [json.loads(line) for line in (folder / "held.jsonl").read_text().splitlines()]


# Looks at a stream's process in the same way. What episodes have freed is the allocator's to keep:
# in one arena that is as much after some hundred episodes as it will ever be. In an arena of each
# thread it grows for thousands of them, and nothing else would be seen.
STREAM = (
    f"EVERY = {EVERY}"
    + r"""
import ctypes, gc, itertools, json, os, sys, threading
from dataclasses import replace
from pathlib import Path
import pytest_intercode


def policy(task, env):
    env.step("head -c 20000 /dev/zero | tr '\\0' x")
    env.submit()


backend, episodes, concurrency = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
provider = pytest_intercode.SandboxProvider(pytest_intercode.SandboxSettings(backend))
[task, *_] = pytest_intercode.make("bash", provider=provider).tasks.tasks
tasks = (replace(task, id=str(number)) for number in range(episodes))
with pytest_intercode.run_rollouts(
    tasks, policy, concurrency=concurrency, provider=provider
) as records:
    for number, record in enumerate(records, 1):
        assert len(record.turns[0].observation) > 19_000, record
        del record
        if number % EVERY == 0:
            gc.collect()
            trim(0)
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            held = {
                "objects": len(gc.get_objects()),
                "blocks": sys.getallocatedblocks(),
                "descriptors": len(os.listdir("/proc/self/fd")),
                "threads": threading.active_count(),
                "kilobytes": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
            }
            print(json.dumps(held), flush=True)
provider.close()
"""
)


def stream(backend: str, episodes: int, concurrency: int = 8) -> list[dict[str, int]]:
    """Run so many episodes as a stream; return what was held after every fifty.

    Raises:
        CalledProcessError: it failed.
    """
    command = [sys.executable, "-c", STREAM, backend, str(episodes), str(concurrency)]
    variables = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables)
    return [json.loads(line) for line in process.stdout.splitlines()]


@dataclass(frozen=True)
class Slope:
    """How much something grows with each episode.

    Attributes:
        value: the slope of the line of least squares.
        low: the lower end of its 95 % interval.
        high: the upper end.
    """

    value: float
    low: float
    high: float


def slope(held: list[dict[str, int]], key: str) -> Slope:
    """Return how something grows, by ordinary least squares over all looks but the first fifth.

    Args:
        held: what :func:`run` returned.
        key: ``descriptors``, ``threads``, ``kilobytes``, ``groups``, ``mounts`` or ``files``.
    """
    values = [(index * EVERY, sample[key]) for index, sample in enumerate(held, 1)][
        len(held) // 5 :
    ]
    xs, ys = [float(x) for x, _ in values], [float(y) for _, y in values]
    line = statistics.linear_regression(xs, ys)
    rest = [y - line.slope * x - line.intercept for x, y in zip(xs, ys, strict=True)]
    mean = statistics.fmean(xs)
    spread = sum((x - mean) ** 2 for x in xs)
    error = sqrt(sum(r * r for r in rest) / (len(xs) - 2) / spread)
    return Slope(line.slope, line.slope - 1.96 * error, line.slope + 1.96 * error)
