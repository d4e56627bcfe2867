"""docs/linting.md: its commands run as they are shown, and its table is that of the rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_intercode.linting.rules import RULES
from tests.docs.shell import run
from tests.docs.test_commands import COMMAND, ROOT
from tests.support.task_folders import BASE, write_harbor

PAGE = (ROOT / "docs" / "linting.md").read_text(encoding="utf-8")
COMMANDS = [command.partition("   #")[0].strip() for command in COMMAND.findall(PAGE)]


def test_the_table_is_that_of_the_rules() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [(rule.name, rule.level, rule.summary) for rule in RULES.values()]


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """Run them on a task that has the mistakes which the page shows."""
    assert len(COMMANDS) == 5
    test_code = "def test_report():\n    assert open('/app/report').read() == 'all is there'\n"
    write_harbor(
        tmp_path / "tasks/report",
        tests="python /tests/test_outputs.py",
        solution="true",
        toml="[agent]\ntimeout_secs = 60\n",
        dockerfile=f"FROM {BASE}\nWORKDIR /app\n\nCOPY . /app\n",
        files={"tests/test_outputs.py": test_code, "environment/checks.py": test_code},
    )
    places = re.findall(r"^tasks/report/.*$", PAGE, re.MULTILINE)
    for command in COMMANDS:
        finished = run(command, tmp_path, "", GITHUB_ACTIONS="")
        assert finished.returncode == 1, f"{command}\n{finished.stdout}{finished.stderr}"
        assert finished.stderr == "", command
        assert "answer-in-image" in finished.stdout, command
    lines = run(COMMANDS[0], tmp_path, "", GITHUB_ACTIONS="").stdout.splitlines()
    assert places[0] in lines
    assert places[1].replace("task.toml:9", "task.toml:2") in lines
