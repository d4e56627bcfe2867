"""The agent, the command and the recipe of docs/agents/acp.md work as they are shown there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_intercode.agents.installed.recipe import load_recipe, recipe_names
from tests.conftest import results
from tests.docs.shell import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agents" / "acp.md").read_text(encoding="utf-8")
[AGENT], [COMMAND], [RECIPE] = (
    re.findall(rf"^```{head}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for head in ("python agent.py", "sh", "yaml mine.yaml")
)


def test_the_recipe_is_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    (tmp_path / "agent.py").write_text(AGENT)
    name, recipe, _ = load_recipe("mine.yaml", tmp_path, "")
    assert (name, recipe.protocol) == ("mine", "acp")
    assert all(f"`installed:{name}`" in PAGE for name in recipe_names() if name.endswith("-acp"))


def test_the_page_is_linked() -> None:
    assert "](agents/acp.md)" in (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    assert "(docs/agents/acp.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_command(tmp_path: Path, quick_sandbox: str) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = f"--intercode-limit=2 {quick_sandbox} --intercode-results=r.jsonl"
    result = run(COMMAND, tmp_path, options)
    assert result.returncode == 1, result.stdout + result.stderr  # it solves nothing
    place = "runs on this machine, with files and terminals of the sandbox"
    assert f"intercode: agent acp:python3 {{here}}/agent.py {place}" in result.stdout
    rows = results(tmp_path / "r.jsonl")
    assert [row["turn_history"]["actions"] for row in rows] == [["ls -a", "submit"]] * 2
