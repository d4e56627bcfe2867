"""docs/recordings.md: its commands and its Python run as they are shown, and its table holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.shell import run
from tests.support.model_server import Command, ModelServer
from tests.support.recorded_project import SCRIPT_TEXT, make_project
from tests.unit.projects.test_recordings import TABLE

PAGE = (Path(__file__).parents[2] / "docs" / "recordings.md").read_text(encoding="utf-8")


def test_the_table_is_what_is_tested() -> None:
    rows = {}
    for line in re.findall(r"^\| (?:current|stale|absent|damaged) .*$", PAGE, re.MULTILINE):
        state, models, *actions = (cell.strip() for cell in line.strip("|").split("|"))
        for mode, action in zip(("", "none", "missing", "all"), actions, strict=True):
            rows[state, mode, models == "within reach"] = action
    assert rows == TABLE


def test_it_is_named_in_the_docs() -> None:
    assert "docs/recordings.md" in (Path(__file__).parents[2] / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.slow
def test_the_commands_and_the_code_of_the_page(tmp_path: Path, bubblewrap: None) -> None:
    make_project(tmp_path)
    record, replay = re.findall(r"^    (pytest .*)$", PAGE, re.MULTILINE)
    with ModelServer([Command("cat AGENTS.md; echo hi >x"), SCRIPT_TEXT]) as server:
        address = f"{server.url}/v1"
        done = run(record, tmp_path, "", OPENAI_API_KEY="sk-of-the-page", OPENAI_BASE_URL=address)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(server.requests) == 2
    done = run(replay, tmp_path, "", OPENAI_API_KEY="", OPENAI_BASE_URL="")
    assert done.returncode == 0, done.stdout + done.stderr
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "show.py").write_text(code)
    done = run("python show.py", tmp_path, "")
    assert done.stdout == (
        "test_rules.py::test_writes_x[installed:mine.yaml] installed:mine.yaml m\n"
        "2 exchanges, failed\n"
    ), done.stderr
