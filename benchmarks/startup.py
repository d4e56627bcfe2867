"""What the plugin costs a pytest run that does not use it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import seconds, show

ROUNDS = 15


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_empty.py").write_text("def test_nothing():\n    pass\n")

        def run(*arguments: str) -> None:
            command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", *arguments]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)

        without, with_plugin = [], []
        for _ in range(ROUNDS):
            without.append(seconds(lambda: run("-p", "no:intercode")))
            with_plugin.append(seconds(lambda: run()))
    reference = statistics.median(without)
    difference = statistics.median(a - b for a, b in zip(with_plugin, without, strict=True))
    show("an empty run without the plugin (reference)", reference)
    show("an empty run with it", statistics.median(with_plugin), reference)
    show("difference, pair by pair", difference)
