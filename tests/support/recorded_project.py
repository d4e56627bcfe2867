"""A small repository with a test of agents, whose agent is the program of the tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.integration.agents.test_installed import RECIPE
from tests.support.installed import SUPPORT

__all__ = ["RULES", "SCRIPT_TEXT", "make_project"]

RULES = "Write files with echo.\n"
SCRIPT_TEXT = "I have written x."

_TEST = """\
def test_writes_x(intercode_project):
    run = intercode_project.run("Write hi to x.")
    assert run.created("x")
    assert run.answer == "I have written x."
"""
_SETTINGS = """\
[pytest]
intercode_agent = installed:mine.yaml
intercode_agent_arg = model=m
intercode_sandbox = bubblewrap
"""


def make_project(folder: Path) -> Path:
    """Make the repository in an empty folder; return the file of its test."""
    test = folder / "tests" / "agents" / "test_rules.py"
    test.parent.mkdir(parents=True)
    test.write_text(_TEST)
    (folder / "AGENTS.md").write_text(RULES)
    (folder / "pytest.ini").write_text(_SETTINGS)
    (folder / "mine.yaml").write_text(RECIPE)
    (folder / "program").mkdir()
    shutil.copy(SUPPORT / "installed_program.py", folder / "program")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return test
