"""docs/images.md: its commands run as they are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.shell import run
from tests.docs.test_commands import COMMAND, ROOT
from tests.support.task_folders import write_harbor

PAGE = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
COMMANDS = [command.partition("   #")[0].strip() for command in COMMAND.findall(PAGE)]


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    assert len(COMMANDS) == 3
    write_harbor(tmp_path / "tasks/a", tests="true", solution="true")
    for command in COMMANDS:
        result = run(command, tmp_path, "")
        text = f"{command}\n{result.stdout}{result.stderr}"
        assert result.returncode in (0, 1), text
        assert " debian:bookworm-slim" in result.stdout, text
        assert "Traceback" not in result.stderr, text
    assert result.stdout.endswith("2 images: 2 present\n")
