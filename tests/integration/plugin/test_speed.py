"""Collection must not be what a large suite waits for."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

TASKS = 10_000
ROUNDS = 3


def collect(name: str) -> float:
    """Collect a file in a process of its own; return the processor time that it took.

    Collection waits for nothing, so this is how long it takes on a machine with nothing else to do.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--co", "-q", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert f"{TASKS} tests collected" in done.stdout, done.stdout[-500:] + done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_collection_takes_not_much_longer_than_that_of_empty_tests(
    pytester: pytest.Pytester,
) -> None:
    rows = (
        {
            "query": f"Print the number {n}.",
            "gold": f"echo {n}",
            "hardness": ("easy", "medium", "hard")[n % 3],
            "tags": ["text", "numbers"],
        }
        for n in range(TASKS)
    )
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("suite.yaml").write_text("env: bash\nrows: {path: rows.jsonl}\n")
    pytester.makepyfile(
        test_empty=f"""
        import pytest

        @pytest.mark.parametrize("n", range({TASKS}))
        def test_empty(n):
            pass
        """
    )
    ours, empty = [], []
    for _ in range(ROUNDS):
        ours.append(collect("suite.yaml"))
        empty.append(collect("test_empty.py"))
    # benchmarks/ hold it to twice as long, on a machine that does nothing else.
    assert min(ours) <= 3 * min(empty), (ours, empty)
