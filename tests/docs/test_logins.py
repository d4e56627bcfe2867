"""The command of docs/logins.md runs as it is shown, with the real Claude Code."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import ADDOPTS, results
from tests.docs.shell import run
from tests.support.model_server import Command, ModelServer
from tests.support.token_server import claude_login

PAGE = (Path(__file__).parents[2] / "docs" / "logins.md").read_text("utf-8")
[COMMAND] = re.findall(r"^    (pytest .*)$", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_the_command_of_the_page(tmp_path: Path, bubblewrap: object) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    claude_login(tmp_path / "home")
    with ModelServer([Command("ls"), "done"]) as server:
        result = run(
            COMMAND,
            tmp_path,
            f"{ADDOPTS} --intercode-limit=1 --intercode-sandbox=bubblewrap "
            "--intercode-results=r.jsonl",
            CLAUDE_CONFIG_DIR=str(tmp_path / "home"),
            ANTHROPIC_BASE_URL=server.url,
        )
    assert result.returncode == 1, result.stdout + result.stderr  # what it does solves nothing
    assert "your login of claude (tokens have no price)" in result.stdout
    [row] = results(tmp_path / "r.jsonl")
    assert row["outcome"] == "failed"
    assert row["usage"]["input_tokens"] == 100 * len(server.requests)


def test_a_missing_login_is_one_line_before_the_first_task(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    result = run(
        COMMAND.replace("claude:model=claude-sonnet-5-5", "command:true --intercode-gateway"),
        tmp_path,
        f"{ADDOPTS} --intercode-limit=1 --intercode-sandbox=bubblewrap",
        CLAUDE_CONFIG_DIR=str(tmp_path / "home"),
    )
    assert result.returncode == 4, result.stdout + result.stderr
    line = f"the login of Claude Code, {tmp_path}/home/.credentials.json: there is no such file"
    assert f"--intercode-gateway-login=claude: {line}" in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
