"""Every way in docs/agents.md works as it is shown there, and is short."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import results
from tests.docs.shell import run
from tests.support.chat_server import ChatServer, Reply, Request, calls

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
FILES = {name: body for _, name, body in BLOCKS if name}
COMMANDS = [body for language, _, body in BLOCKS if language == "sh"]

LIMITED = "--intercode-limit=3 --intercode-results=results.jsonl"


def test_there_is_something_to_test() -> None:
    assert set(FILES) == {
        *("step.py", "loop.py", "talker.py", "spender.py", "shell.py", "program.py"),
    }
    assert len(COMMANDS) == 10


@pytest.mark.parametrize("name", FILES)
def test_each_is_short(name: str) -> None:
    assert len(FILES[name].splitlines()) < 15


def answer(request: Request) -> str | Reply:
    """Submit at once, in whatever way the agent asks for."""
    if "tools" in request.body:
        return calls(("submit", {}))
    return "Thought: there is nothing to do\nAction: submit"


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command(command: str, tmp_path: Path, quick_sandbox: str) -> None:
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with ChatServer(answer) as server:
        command = command.replace("http://localhost:8000/v1", server.url)
        done = run(
            command, tmp_path, f"{LIMITED} {quick_sandbox}", "sh", OPENAI_BASE_URL=server.url
        )
    rows = results(tmp_path / "results.jsonl")
    assert len(rows) == 3 * command.count("--intercode-agent="), done.stdout + done.stderr
    outcomes = {row["outcome"] for row in rows}
    assert outcomes <= {"solved", "failed"}, json.dumps(rows, indent=1)
    assert done.returncode == (1 if "failed" in outcomes else 0), done.stdout + done.stderr
    assert all(row["turn_history"]["actions"] for row in rows)
