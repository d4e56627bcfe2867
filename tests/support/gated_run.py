"""Runs of pytest that wait in the midst of their episodes, so that they can be looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["GatedRun"]

# An agent that says when it has acted once, and goes on when it is let to. Its action has a key,
# and would rename the terminal's window.
GATED = """
import os
import pytest_intercode


class Gated:
    def reset(self, task):
        self.task, self.turn = task, 0

    def act(self, observation):
        self.turn += 1
        if self.turn == 1:
            return f"echo \\x1b]0;mine\\x07 {os.environ['MY_API_KEY']} {self.task.id}"
        if self.turn == 2:
            pytest_intercode.spend(input_tokens=600, output_tokens=0, cost=0.125)
            with open("acted", "w") as file:
                print(self.task.id, file=file)
            gate = os.open("gate", os.O_RDONLY)
            os.read(gate, 1)
            os.close(gate)
            return self.task.query.rpartition("run ")[2]
        return "submit"
"""
TASKS = """\
env: bash
tasks:
  - {id: one, query: run true, gold: "true"}
  - {id: two, query: run true, gold: "true"}
  - {id: three, query: run true, gold: "true"}
"""


class GatedRun:
    """A run of pytest whose episodes wait after their first turn.

    Args:
        folder: where it runs; its agent and its suite are written there.
        options: of pytest.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        (folder / "gated.py").write_text(GATED)
        (folder / "gated.yaml").write_text(TASKS)
        for name in ("acted", "gate"):
            (folder / name).unlink(missing_ok=True)  # of another run, which has them open
            os.mkfifo(folder / name)
        # Open for both, so that neither side waits for the other to open its end.
        self._acted = os.fdopen(os.open(folder / "acted", os.O_RDWR), "rb", buffering=0)
        self._gate = os.open(folder / "gate", os.O_RDWR)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "gated.yaml",
            "--intercode-agent=gated:Gated",
            *options,
        ]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)

    def wait_for_turns(self, count: int) -> list[str]:
        """Return the tasks of so many episodes that have taken a turn, sorted."""
        return sorted(self._acted.readline().decode().strip() for _ in range(count))

    def let_go(self, count: int = 3) -> None:
        """Let so many episodes go on."""
        os.write(self._gate, b"." * count)

    def finish(self) -> str:
        """Return what the run has printed when it has ended."""
        return self.process.communicate(timeout=60)[0]

    def close(self) -> None:
        """End it, however far it is."""
        self.process.kill()
        self.process.communicate()
        self._acted.close()
        os.close(self._gate)
