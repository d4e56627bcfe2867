"""The recipe of docs/installed.md runs as it is shown, with the command beside it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import ADDOPTS, results
from tests.docs.shell import run
from tests.support.model_server import Command, ModelServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "installed.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_recipe_and_the_command_of_the_page(tmp_path: Path, quick_sandbox: str) -> None:
    recipe = re.search(r"```yaml mine\.yaml\n(.*?)```", PAGE, re.DOTALL)
    commands = re.findall(r"^    (pytest (?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
    assert recipe is not None
    assert len(commands) == 2
    (tmp_path / "mine.yaml").write_text(recipe[1])
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    shutil.copy(ROOT / "tests/support/installed_program.py", tmp_path / "agent.py")
    with ModelServer([Command("cat $MY_SETTINGS; ls"), "done"]) as server:
        done = run(
            commands[1],
            tmp_path,
            f"{ADDOPTS} --intercode-limit=1 {quick_sandbox} --intercode-results=r.jsonl",
            OPENAI_API_KEY="sk-of-the-page",
            OPENAI_BASE_URL=f"{server.url}/v1",
        )
    assert done.returncode == 1, done.stdout + done.stderr  # what it does solves nothing
    [row] = results(tmp_path / "r.jsonl")
    assert row["outcome"] == "failed", row
    assert '"base_url": "http://127.0.0.1:' in row["turn_history"]["observations"][0]
    assert row["usage"]["input_tokens"] == 200
