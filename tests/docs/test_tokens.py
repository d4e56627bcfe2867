"""What docs/tokens.md shows runs as it is shown, against a server that answers as vLLM does."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode import SandboxProvider, SandboxSettings
from pytest_intercode.rollouts import stream
from tests.conftest import ADDOPTS
from tests.docs.shell import run
from tests.integration.gateway.test_programs import AGENT
from tests.support.model_server import Command, ModelServer

TEXT = (Path(__file__).parents[2] / "docs" / "tokens.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
[COMMAND] = re.findall(r"^    (pytest (?:.*\\\n)*.*)$", TEXT, re.MULTILINE)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModelServer]:
    (tmp_path / "my_agent.py").write_text(AGENT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    with ModelServer([Command("ls"), Command("echo DONE"), "done"], tokens="vllm") as running:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{running.url}/v1")
        yield running


def printed(block: str) -> list[str]:
    """Run a block of the page; return the lines that it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(block, "tokens.md", "exec"), {})
    return output.getvalue().splitlines()


@pytest.mark.slow
def test_the_command_and_what_is_read_of_its_records(
    server: ModelServer, tmp_path: Path, quick_sandbox: str
) -> None:
    done = run(COMMAND, tmp_path, f"{ADDOPTS} --intercode-limit=1 {quick_sandbox}")
    assert done.returncode == 1, done.stdout + done.stderr  # what it does solves nothing
    lines = [line.split() for line in printed(PYTHON[1])]
    assert [line[0] for line in lines] == ["ls", "echo", "submit", "1"]
    assert [line[-1] for line in lines] == ["tool_calls", "tool_calls", "stop", "2"]


def test_rollouts(server: ModelServer, quick_sandbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sandboxes = SandboxProvider(SandboxSettings(quick_sandbox.partition("=")[2]))
    monkeypatch.setattr(stream, "shared_provider", lambda: sandboxes)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    try:
        lines = printed(PYTHON[0])
    finally:
        sandboxes.close()
    causes = [line.partition("the prompt of call 2 begins with ")[2] for line in lines]
    assert len(lines) == 16
    assert len([cause for cause in causes if cause.endswith("of call 1, and not with all")]) == 8
    assert len(PYTHON) == 2
