"""False verdicts: gold that does not solve its task, and doing nothing that does, under load.

What is right is known without a model: gold solves every task that is not marked ``xfail``, and an
agent that does nothing solves none that gold does anything for.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.results.files import read_records

__all__ = ["Verdicts", "busy", "play"]

_IDLE = "def run(task, env):\n    env.step('submit')\n"


@dataclass
class Verdicts:
    """What many episodes came to.

    Attributes:
        episodes: how many ended.
        false_failures: tasks that gold did not solve, each with the reason.
        false_passes: tasks that were solved by doing nothing.
        infrastructure: episodes that failed by the infrastructure, with the reason.
    """

    episodes: int = 0
    false_failures: list[str] = field(default_factory=list)
    false_passes: list[str] = field(default_factory=list)
    infrastructure: list[str] = field(default_factory=list)

    def add(self, agent: str, records: list[EpisodeRecord], xfail: set[str]) -> None:
        """Judge what an agent's episodes came to.

        Args:
            agent: ``oracle`` or ``idle``.
            records: its episodes.
            xfail: the tasks that may fail.
        """
        for record in records:
            self.episodes += 1
            line = f"{record.task.id}: {record.outcome}, {record.reason}"
            if record.outcome == "infrastructure-error":
                self.infrastructure.append(line)
            elif agent == "idle":
                if record.outcome == "solved":
                    self.false_passes.append(line)
            elif record.outcome != "solved" and record.task.id not in xfail:
                self.false_failures.append(line)

    @property
    def wrong(self) -> list[str]:
        """All that is not as it should be."""
        return [*self.false_failures, *self.false_passes, *self.infrastructure]


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep so many endless loops running meanwhile."""
    code = "while True: pass"
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def play(folder: Path, agent: str, times: int, backend: str, *options: str) -> list[EpisodeRecord]:
    """Play tasks so many times, eight at a time, and return the records.

    Args:
        folder: an empty folder to run in.
        agent: ``oracle`` or ``idle``.
        times: tries of each task.
        backend: what ``--intercode-sandbox`` has to be.
        options: which tasks.

    Raises:
        RuntimeError: the run did not end as runs end.
    """
    (folder / "idle.py").write_text(_IDLE)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider"),
        f"--intercode-agent={'idle.py:run' if agent == 'idle' else agent}",
        *(f"--intercode-sandbox={backend}", "--tb=no", f"--intercode-repeat={times}"),
        *("--intercode-concurrency=8", "--intercode-results=r.jsonl", *options),
    ]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command}: {process.stdout[-3000:]}{process.stderr[-3000:]}")
    return read_records(folder / "r.jsonl")
