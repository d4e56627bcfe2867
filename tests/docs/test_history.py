"""docs/history.md: its commands run as they are shown, and print what is shown."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.turn import Turn
from pytest_intercode.core.usage import Usage
from pytest_intercode.results.files import to_text
from tests.docs.shell import run
from tests.docs.test_commands import COMMAND, ROOT
from tests.support.cell_records import tries_of
from tests.support.git import git

PAGE = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
COMMANDS = [command.partition("   #")[0].strip() for command in COMMAND.findall(PAGE)]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
OUTPUTS = [text for language, text in BLOCKS if not language]
SCRIPTS = [text for language, text in BLOCKS if language == "sh"]
TASKS = [f"t{number:02}" for number in range(40)]


def results(path: Path, records: Iterable[EpisodeRecord], day: int) -> None:
    """Write a results file of nine o'clock of a day of November 2026."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(to_text(list(records)), encoding="utf-8")
    seconds = datetime(2026, 11, day, 9, tzinfo=timezone.utc).timestamp()
    os.utime(path, (seconds, seconds))


def played(
    agent: str, solved: Iterable[str], failed: Iterable[str], turns: int, cost: float, **more: str
) -> list[EpisodeRecord]:
    """Return tries of each task; one that fails takes two turns more, and half as much again."""
    return [
        replace(
            record,
            turns=(Turn("ls", "", True),) * (turns if record.solved else turns + 2),
            usage=Usage(turns, 10, 10, cost if record.solved else 1.5 * cost),
            agent_arguments=more,
        )
        for record in tries_of(solved, failed, agent=agent)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The results that the page is about."""
    monday = played("codex", TASKS[:36], TASKS[36:], 3, 0.02, model="a")
    results(tmp_path / "runs/monday.jsonl", monday, 2)
    results(tmp_path / "runs/tuesday.jsonl", monday[::-1], 3)
    wednesday = played("codex", TASKS[:20], TASKS[20:], 2, 0.01, model="b")
    results(tmp_path / "runs/wednesday.jsonl", wednesday, 4)
    results(tmp_path / "run.jsonl", wednesday, 4)
    agents = [
        *played("claude", TASKS[:39], TASKS[39:], 4, 0.05),
        *played("codex", TASKS[:19], TASKS[19:20], 3, 0.02),
        *played("gemini", TASKS[:12], TASKS[12:], 2, 0.01),
    ]
    results(tmp_path / "agents/agents.jsonl", agents, 5)
    return tmp_path


def test_the_commands_of_the_page(folder: Path) -> None:
    outputs = iter(OUTPUTS)
    assert [command.split()[0] for command in COMMANDS] == ["pytest-intercode"] * 4
    for command in COMMANDS:
        finished = run(command, folder, "")
        assert finished.returncode == 0, finished.stderr
        if "--keep" in command:
            assert len([*(folder / "kept").iterdir()]) == 1
            assert finished.stderr.startswith("pytest-intercode: kept: kept/20261104T090000Z-")
        elif "--page" in command:
            assert finished.stderr == "pytest-intercode: written: history.html\n"
            assert (folder / "history.html").is_file()
        else:
            assert finished.stderr == ""
            # Of a leaderboard the page has only what follows the tables of its agents.
            expected_output = next(outputs)
            tables, leaderboard, _ = finished.stdout.partition("leaderboard: ")
            assert expected_output == finished.stdout.removeprefix(tables if leaderboard else "")
    assert next(outputs, None) is None


def test_a_branch_keeps_what_two_jobs_add(folder: Path) -> None:
    begin, add = SCRIPTS
    origin = folder / "origin"
    git(folder, "init", "-q", "--bare", "-b", "main", str(origin))
    for name in ("first", "second"):
        git(folder, "clone", "-q", str(origin), name)
    first, second = folder / "first", folder / "second"
    git(first, "commit", "-q", "--allow-empty", "-m", "Begin")
    git(first, "push", "-q", "origin", "HEAD:main")
    author = {"GIT_CONFIG_GLOBAL": os.devnull}
    for role in ("AUTHOR", "COMMITTER"):
        author |= {f"GIT_{role}_NAME": "a", f"GIT_{role}_EMAIL": "a@b"}

    def play(script: str, job: Path) -> subprocess.CompletedProcess[str]:
        finished = run(script, job, "", **author)
        assert finished.returncode == 0, finished.stderr
        return finished

    play(begin, first)
    git(second, "pull", "-q", "origin", "main")
    for name, job in (("monday", first), ("wednesday", second)):
        (folder / f"runs/{name}.jsonl").rename(job / "run.jsonl")
        printed = play(add, job).stdout
    commit = git(first, "rev-parse", "HEAD")[:10]
    rows = [line.split() for line in printed.splitlines() if commit in line]
    assert [row[:2] for row in rows] == [["run", "2026-11-02"], ["run", "2026-11-04"]]
    assert "regressed" in rows[1]
