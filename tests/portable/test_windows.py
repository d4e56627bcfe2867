"""With the Python of Windows: commands that read work as here, and sandboxes are refused in a line.

What is simulated, and what is not, is at the top of ``tests/support/portable/windows.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from tests.conftest import ADDOPTS, results

ROOT = Path(__file__).parents[2]
REFUSAL = "sandboxes need Linux or macOS; on Windows use WSL 2 (docs/platforms.md)"

SUITE = """\
env: bash
defaults:
  workdir: /work
tasks:
  - id: writes
    query: Write the word hi to out.txt.
    gold: echo hi > out.txt
  - id: prints
    query: Print how long it took.
    gold: echo it took 5 s
    reward: {normalise: [{pattern: "[0-9]+", replace: N}]}
  - id: fails
    query: Print the word hello.
    gold: echo hello
"""
AGENT = """\
COMMANDS = {"writes": "echo hi > out.txt", "prints": "echo it took 7 s", "fails": "echo 1 \u2192 2"}


def agent(task, env):
    if task.env == "bash":
        env.step(COMMANDS[task.id])
    else:
        env.step(f"select '{task.id}'")
"""
REWARD = """\
def reward(task, agent, gold):
    return agent["reward"] / len(agent["actions"])
"""


def run(folder: Path, *words: str, windows: bool = True) -> tuple[int, str, str]:
    """Run a module of Python in a folder; return its status, its output and its errors."""
    launcher = ["-m", "tests.support.portable.windows"] if windows else ["-m"]
    result = subprocess.run(
        [sys.executable, *launcher, *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTEST_ADDOPTS": ADDOPTS,
            "TMPDIR": str(folder),  # its locks are not those of Linux
            # Those of others are not made for half a Windows.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1" if windows else "",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    return result.returncode, result.stdout, result.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, quick_sandbox: str) -> Path:
    """Return a folder with the results of real runs, of a shell and of SQLite."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "player.py").write_text(AGENT, encoding="utf-8")
    (folder / "own.py").write_text(REWARD)
    for name, options in {
        "bash.jsonl": ("suite.yaml", quick_sandbox),
        "sql.jsonl": ("--intercode-env=sql", "-k", "library-copies or library-brought"),
    }.items():
        for agent, prefix in (("player:agent", ""), ("oracle", "gold-")):
            status, output, errors = run(
                folder,
                *("pytest", "-q", *options, f"--intercode-agent={agent}"),
                f"--intercode-results={prefix}{name}",
                windows=False,
            )
            assert status in (0, 1), output + errors
    (folder / "all.jsonl").write_bytes(
        (folder / "bash.jsonl").read_bytes() + (folder / "sql.jsonl").read_bytes()
    )
    assert {row["outcome"] for row in results(folder / "all.jsonl")} == {"solved", "failed"}
    return folder


EVERY_DAY = [
    ("view all.jsonl gold-bash.jsonl -o page.html", ["page.html"]),
    ("compare gold-bash.jsonl bash.jsonl --all --output=c.json", ["c.json"]),
    ("merge merged.jsonl bash.jsonl sql.jsonl", ["merged.jsonl"]),
    ("export all.jsonl --format=jsonl -o chats.jsonl", ["chats.jsonl"]),
    ("rescore all.jsonl --output=again.jsonl", ["again.jsonl"]),
]
FURTHER = [
    ("--version", []),
    ("--help", []),
    ("view bash.jsonl -o page.html --title=T", ["page.html"]),
    ("compare sql.jsonl gold-sql.jsonl", []),
    ("export all.jsonl --format=inspect -o log.json", ["log.json"]),
    ("export bash.jsonl --format=atif -o atif", ["atif"]),
    ("rescore sql.jsonl --profile=paper", []),
    ("rescore bash.jsonl --suite suite.yaml", []),
    ("rescore all.jsonl --reward=own.py:reward --suite suite.yaml", []),
]


@pytest.mark.parametrize(
    ("command", "files"),
    [*EVERY_DAY, *(pytest.param(*case, marks=pytest.mark.slow) for case in FURTHER)],
)
def test_commands_that_read_do_as_on_linux(
    runs: Path,
    tmp_path: Path,
    command: str,
    files: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("linux", "windows"):
        folder = tmp_path / name
        folder.mkdir()
        for path in runs.iterdir():
            if path.is_file():
                (folder / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path / "linux")
    monkeypatch.setattr(sys, "argv", ["pytest-intercode"])
    status = _status_of(command)
    captured = capsys.readouterr()
    assert run(tmp_path / "windows", "pytest_intercode", *command.split()) == (
        status,
        captured.out,
        captured.err,
    )
    assert status in (0, 1)
    contents = [_contents(tmp_path / name, files) for name in ("linux", "windows")]
    assert len(contents[0]) >= len(files)
    assert contents[0] == contents[1]


def _status_of(command: str) -> int:
    try:
        return main(command.split())
    except SystemExit as error:
        return int(error.code or 0)


def _contents(folder: Path, names: list[str]) -> dict[str, str]:
    """Return what files hold, and those in folders."""
    return {
        str(path.relative_to(folder)): _without_times(path.read_text(encoding="utf-8"))
        for name in names
        for path in sorted([folder / name, *(folder / name).rglob("*")])
        if path.is_file()
    }


def _without_times(text: str) -> str:
    """Leave out when a file was written, and the random ids of its parts."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)?", "TIME", text)
    return re.sub(r"\b[0-9a-zA-Z]{22}\b", "ID", text)


def test_a_file_that_is_written_to_is_locked(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes((runs / "bash.jsonl").read_bytes())
    (tmp_path / "holder.py").write_text(
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from pytest_intercode.system.files import locked, write_file\n"
        "from pytest_intercode.errors import ConfigurationError\n"
        "file = os.open('run.jsonl', os.O_RDWR)\n"
        "assert locked(file)\n"
        "other = os.open('run.jsonl', os.O_RDONLY)\n"
        "assert not locked(other)\n"
        "assert os.lseek(other, 0, os.SEEK_CUR) == 0\n"
        "try:\n"
        "    write_file(Path('run.jsonl'), 'other')\n"
        "except ConfigurationError as error:\n"
        "    print(error)\n"
        "os.close(file)\n"
        "assert locked(other)\n"
    )
    status, output, errors = run(tmp_path, "holder.py")
    assert (status, errors) == (0, "")
    assert "run.jsonl: a run writes to this file" in output


def test_other_tests_of_a_project_run(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nintercode_run_max_turns = 9\n")
    (tmp_path / "test_own.py").write_text("def test_it():\n    pass\n")
    status, output, errors = run(tmp_path, "pytest", "-p", "pytest_intercode.plugin")
    assert status == 0, output + errors
    assert "1 passed" in output


@pytest.mark.parametrize("selection", ["--intercode-env=sql", "suite.yaml"])
def test_our_items_are_refused_in_one_line(tmp_path: Path, selection: str) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    words = ("pytest", "-p", "pytest_intercode.plugin", "--intercode-agent=oracle", selection)
    status, output, errors = run(tmp_path, *words)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert errors == f"ERROR: {REFUSAL}\n\n"
    assert "Traceback" not in output


def test_items_are_listed(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    words = ("pytest", "-p", "pytest_intercode.plugin", "--collect-only", "-q", "suite.yaml")
    status, output, errors = run(tmp_path, *words)
    assert status == 0, output + errors
    assert "suite.yaml::test_solves[writes]" in output


def test_tests_of_a_project_that_play_are_refused_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "test_own.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.intercode(suite='suite.yaml', ids='writes')\n"
        "def test_agent(intercode_environment):\n    pass\n\n"
        "def test_other():\n    pass\n"
    )
    words = ("pytest", "-p", "pytest_intercode.plugin", "-q", "test_own.py")
    status, output, _ = run(tmp_path, *words)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert REFUSAL in output
    assert "1 passed, 1 error" in output


@pytest.mark.parametrize(
    "command",
    [
        "audit suite.yaml",
        "grade gold --dataset=suite.yaml",
    ],
)
def test_commands_that_play_are_refused_in_one_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    status, _, errors = run(tmp_path, "pytest_intercode", *command.split())
    assert status == 2
    assert errors == f"pytest-intercode: {REFUSAL}\n"
