"""What docs/training.md shows runs as it is shown, and the example that it names learns."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode import SandboxProvider
from pytest_intercode.rollouts import stream

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def sandboxes(quick_sandbox: str) -> Iterator[SandboxProvider]:
    provider = SandboxProvider(sandbox=quick_sandbox.partition("=")[2])
    yield provider
    provider.close()


def run(block: str, sandboxes: SandboxProvider, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a block of the page with sandboxes of the tests; return the lines that it prints."""
    monkeypatch.setattr(stream, "shared_provider", lambda: sandboxes)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block, "training.md", "exec"), {})
    return printed.getvalue().splitlines()


def test_batches_of_an_endless_list(
    sandboxes: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line.split() for line in run(PYTHON[0], sandboxes, monkeypatch)]
    assert [line[0] for line in lines] == ["0"] * 8 + ["1"] * 8
    assert {line[2] for line in lines} == {"1", "2", "3", "4"}
    assert {line[4] for line in lines} == {"94"}
    assert len({line[1] for line in lines}) >= 16 // 4


def test_what_travels_with_a_turn(
    sandboxes: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(PYTHON[1], sandboxes, monkeypatch) == ["[5, 7]"]


def test_async_for(sandboxes: SandboxProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run(PYTHON[2], sandboxes, monkeypatch)
    assert lines
    assert {line.split()[1] for line in lines} == {"1.0"}
    assert len(PYTHON) == 3


@pytest.mark.slow
def test_the_example_learns(quick_sandbox: str, tmp_path: Path) -> None:
    """From what the tasks alone reward; as the page says, and the same with the same seed."""
    [command] = COMMANDS
    backend = quick_sandbox.partition("=")[2]
    command = command.replace("examples/", f"{ROOT}/examples/").replace("bubblewrap", backend)
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=tmp_path,
        env={**os.environ, **path, "PYTHONWARNINGS": "error", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *steps, trained = done.stdout.splitlines()
    rewards = [float(line.rpartition(" ")[2]) for line in steps]
    assert len(rewards) == 12
    assert rewards[0] == 0.062
    assert sum(rewards[-3:]) / 3 >= 0.9
    assert trained == "trained: mean reward 1.000, 8 of 8 solved"
