"""The commands of docs/gateway.md run as they are shown, against a scripted server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ADDOPTS, results
from tests.docs.shell import run
from tests.integration.gateway.test_programs import AGENT
from tests.support.model_server import Command, ModelServer

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"
COMMAND = re.compile(r"^    (pytest (?:.*\\\n)*.*)$", re.MULTILINE)


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path, quick_sandbox: str) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    commands = COMMAND.findall(PAGE.read_text(encoding="utf-8"))
    assert len(commands) == 4
    rows = []
    with ModelServer([Command("ls"), "done"]) as server:
        for command in commands:
            if "replay" in command:
                asked = len(server.requests)
            done = run(
                command,
                tmp_path,
                f"{ADDOPTS} --intercode-limit=1 {quick_sandbox} --intercode-results=r.jsonl",
                OPENAI_API_KEY="sk-of-the-page",
                OPENAI_BASE_URL=f"{server.url}/v1",
            )
            assert done.returncode == 1, done.stdout + done.stderr  # what it does solves nothing
            assert "models " in done.stdout
            [row] = results(tmp_path / "r.jsonl")
            rows.append(row)
            assert row["outcome"] == "failed"
            assert row["usage"]["input_tokens"] == 200
        assert len(server.requests) == asked == 6
    assert rows[1]["usage"]["cost"] == pytest.approx(2 * (100 * 3 + 7 * 15) / 1e6)
    assert rows[3]["turn_history"] == rows[2]["turn_history"]
