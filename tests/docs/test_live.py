"""docs/live.md: its commands run next to a run of real sandboxes, and it shows what they print."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.core.status import EpisodeStatus, RunStatus
from tests.conftest import ADDOPTS
from tests.docs.shell import run
from tests.docs.test_commands import COMMAND, ROOT
from tests.support.backends import remove_watched
from tests.support.gated_run import GatedRun

PAGE = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
COMMANDS = [command.partition("   #")[0].strip() for command in COMMAND.findall(PAGE)]


@pytest.fixture
def temporary() -> Iterator[str]:
    """Return a temporary directory in which no other run is found."""
    folder = tempfile.mkdtemp(dir="/tmp")
    yield folder
    remove_watched(folder)


@pytest.fixture(params=["bubblewrap", "docker"])
def playing(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    temporary: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[GatedRun]:
    """Return a run whose two episodes have acted once in their sandboxes."""
    request.getfixturevalue({"bubblewrap": "bubblewrap", "docker": "needs_docker"}[request.param])
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setenv("TMPDIR", temporary)
    monkeypatch.setenv("MY_API_KEY", "my-own-secret-key-0123456789")
    monkeypatch.setenv("PYTEST_ADDOPTS", ADDOPTS)
    gated = GatedRun(
        tmp_path,
        "--intercode-run-name=nightly",
        "--intercode-results=r.jsonl",
        "--intercode-concurrency=2",
        f"--intercode-sandbox={request.param}",
    )
    gated.wait_for_turns(2)
    yield gated
    gated.close()


def test_the_commands_of_the_page(playing: GatedRun, tmp_path: Path, temporary: str) -> None:
    assert len(COMMANDS) == 7
    for command in COMMANDS:
        if "--page" in command:
            _check_page(command, tmp_path)
            continue
        command = command.replace("tools-executable", "one")
        done = run(command, tmp_path, "", TMPDIR=temporary)
        assert done.returncode == 0, done.stderr
        if "--json" in command:
            for name in re.findall(r'"(\w+)":', done.stdout):
                assert f"`{name}`" in PAGE
        elif "--stop" not in command:
            assert _shape(done.stdout) == _shape(PAGE.split("```")[1].strip())
    playing.let_go()
    output = playing.finish()
    assert playing.process.returncode == pytest.ExitCode.INTERRUPTED, output
    rows = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    outcomes = {row["task_id"]: row["outcome"] for row in rows}
    assert outcomes.get("one", "stopped") == "stopped", outcomes
    assert "Interrupt" in output


def test_the_line_of_a_log() -> None:
    episodes = (EpisodeStatus(item="a", task="a"),) * 4
    status = RunStatus(
        pid=1,
        seconds=60 * 12 / 3.1,
        total=40,
        done=12,
        solved=10,
        tokens=1_200_000,
        cost=0.84,
        episodes=episodes,
    )
    assert f"\nintercode: {status.describe()}\n" in PAGE


def _check_page(command: str, folder: Path) -> None:
    """Have a command serve its page; what it would open is opened by the test alone."""
    environment = {**os.environ, "BROWSER": "true"}
    words = [sys.executable, "-m", *command.replace("-", "_", 1).split()]
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{address}status", timeout=60) as response:
            (status,) = json.load(response)["runs"]
        assert status["title"].startswith("nightly (run ")
        assert len(status["episodes"]) == 2
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


def _shape(table: str) -> list[str]:
    """Return what tables have in common: the words of their first three lines, without values."""
    name, heading, titles, *_ = table.splitlines()
    words = re.sub(r"[\d.]+[MGk]?", "N", heading).replace(", N/min, N min remaining", "")
    return [name.partition(" ")[0], words.replace("N,N", "N"), " ".join(titles.split())]
