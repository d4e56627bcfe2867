"""Collecting 10,000 tasks, against pytest collecting 10,000 parametrized empty tests."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import seconds, show

TASKS = 10_000
ROUNDS = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_plain.py").write_text(
            f"import pytest\n@pytest.mark.parametrize('n', range({TASKS}))\n"
            "def test_nothing(n):\n    pass\n"
        )
        with (folder / "rows.jsonl").open("w") as rows:
            for n in range(TASKS):
                row = {"query": f"Print {n}.", "gold": f"echo {n}", "tags": ["print"]}
                rows.write(json.dumps(row) + "\n")
        (folder / "suite.yaml").write_text("env: bash\nrows: {path: rows.jsonl}\n")

        def collect(path: str) -> None:
            command = [sys.executable, "-m", "pytest", "--co", "-q", "-c", "/dev/null", path]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)

        plain, ours = [], []
        for _ in range(ROUNDS):
            plain.append(seconds(lambda: collect("test_plain.py")))
            ours.append(seconds(lambda: collect("suite.yaml")))
    reference = statistics.median(plain)
    show(f"{TASKS} parametrized empty tests (reference)", reference)
    show(f"{TASKS} tasks", statistics.median(ours), reference)
