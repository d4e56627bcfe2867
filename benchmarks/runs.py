"""Whole pytest runs in their own processes, as users start them, timed from the inside.

A run is split into pytest's own start before the first item, the loop over the items, and the
cleanup afterwards, so that none of them hides in another.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    *("Folder", "Run", "numbers_suite", "plain_pytest", "temporary_folder"),
    *("thinking", "warm_up"),
]

ROOT = Path(__file__).parents[1]
TURNS = 5
"""Turns of an episode; the last one submits."""


@dataclass(frozen=True)
class Run:
    """One run, in seconds and bytes.

    Attributes:
        whole: the process, from its start to its end.
        start: until the first item: the interpreter, pytest, plugins, collection.
        loop: from the first item's setup to the last one's teardown.
        closing: from then until everything is released.
        processor: CPU time of the pytest process in the loop, without its children.
        peak: the peak resident memory of the pytest process, without its children.
        passed: how many items passed.
        failed: the node ids of those that did not.
        samples: items done, resident memory, and open descriptors, at intervals.
    """

    whole: float
    start: float
    loop: float
    closing: float
    processor: float
    peak: int
    passed: int
    failed: tuple[str, ...]
    samples: tuple[tuple[int, int, int], ...]


class Folder:
    """A folder in which pytest is run, with its own settings or with none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / "pyproject.toml").exists():
            (path / "pytest.ini").write_text("[pytest]\n")

    def pytest(self, *arguments: str, failures: bool = False) -> Run:
        """Run pytest here.

        Args:
            arguments: further arguments of its command line.
            failures: whether items may fail.

        Raises:
            RuntimeError: something failed; the message has the end of pytest's output.
        """
        clock = self.path / "clock.json"
        clock.unlink(missing_ok=True)
        variables = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        paths = [str(ROOT), *filter(None, [variables.get("PYTHONPATH")])]
        variables |= {"BENCHMARK_CLOCK": str(clock), "PYTHONPATH": os.pathsep.join(paths)}
        variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command = [*plain_pytest(), "-p", "benchmarks.clock", *arguments]
        began = time.monotonic()
        finished = subprocess.run(
            command, cwd=self.path, env=variables, capture_output=True, text=True
        )
        end = time.monotonic()
        if not clock.exists() or finished.returncode not in ((0, 1) if failures else (0,)):
            last_lines = (finished.stdout + finished.stderr).strip().splitlines()[-15:]
            raise RuntimeError("\n".join([f"{' '.join(command)} failed:", *last_lines]))
        measurements = json.loads(clock.read_text())
        return Run(
            whole=end - began,
            start=measurements["loop_began"] - began,
            loop=measurements["loop_ended"] - measurements["loop_began"],
            closing=measurements["closed"] - measurements["loop_ended"],
            processor=measurements["processor"],
            peak=measurements["peak"],
            passed=measurements["passed"],
            failed=tuple(measurements["failed"]),
            samples=tuple(
                (seconds, memory, open_) for seconds, memory, open_ in measurements["samples"]
            ),
        )


def plain_pytest() -> list[str]:
    """Return the command that starts pytest with our plugin, and no other installed plugin."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return [*command, "-p", "pytest_intercode.plugin"]


@contextlib.contextmanager
def temporary_folder() -> Iterator[Folder]:
    """Yield an empty project."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        yield Folder(Path(name))


def numbers_suite(folder: Folder, tasks: int) -> str:
    """Write a suite of tasks that ask to print a number; return its name."""
    name = f"numbers-{tasks}"
    with (folder.path / f"{name}.jsonl").open("w") as rows:
        for number in range(tasks):
            row = {"query": f"Print the number {number}", "gold": f"echo {number}"}
            rows.write(json.dumps(row) + "\n")
    (folder.path / f"{name}.yaml").write_text(f"env: bash\nrows: {{path: {name}.jsonl}}\n")
    return f"{name}.yaml"


def warm_up(folder: Folder, backend: str) -> None:
    """Run one episode, so that no image is built in a measured run."""
    thinking(folder, backend, episodes=1, concurrency=1, ms=0)


def thinking(
    folder: Folder, backend: str, *more: str, episodes: int, ms: int, concurrency: int = 1
) -> Run:
    """Run episodes of ``TURNS`` turns with an agent that thinks before each.

    Args:
        folder: where to run.
        backend: the backend of the sandboxes.
        more: further arguments of the command line.
        episodes: how many episodes.
        ms: milliseconds of thought for each turn.
        concurrency: how many episodes at a time.
    """
    run = folder.pytest(
        numbers_suite(folder, episodes),
        f"--intercode-agent={Path(__file__).with_name('thinker.py')}:Thinker",
        *("--intercode-agent-arg", f"ms={ms}", "--intercode-agent-arg", f"turns={TURNS}"),
        f"--intercode-sandbox={backend}",
        f"--intercode-concurrency={concurrency}",
        *more,
    )
    if run.passed != episodes:
        raise RuntimeError(f"{run.passed} of {episodes} episodes passed")
    return run
