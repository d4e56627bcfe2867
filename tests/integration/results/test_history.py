"""``pytest-intercode history`` on results files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from pytest_intercode.results.files import to_text
from tests.support.cell_records import tries_of

_TASKS = [f"t{number}" for number in range(20)]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, the newer one worse, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    for day, (name, solved) in enumerate((("monday", 20), ("tuesday", 4)), 1):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(to_text(list(tries_of(_TASKS[:solved], _TASKS[solved:]))), "utf-8")
        os.utime(path, (day * 86400,) * 2)
    return tmp_path


def test_the_lines(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", ".", "--leaderboard"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    series, heading, monday, tuesday, last, blank, board, *_ = printed.out.splitlines()
    assert (series, blank) == ("codex", "")
    assert heading.split()[:3] == ["run", "date", "(UTC)"]
    assert monday.split() == [
        *("monday", "1970-01-02", "00:00", "20", "100.0%", "84-100%", "0.0", "(0.0-0.0)")
    ]
    assert tuesday.split()[3:7] == ["regressed", "-80.0", "20", "20.0%"]
    assert last.startswith("the last run: regressed: -80.0 points (95% interval ")
    assert board == "leaderboard: 1 agent, over its 20 tasks"
    assert main(["history", ".", "--last=1"]) == 0
    assert "1 older run left out; --last shows more" in capsys.readouterr().out


def test_a_folder_of_kept_runs_grows(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "monday.jsonl", "--keep=kept", "--commit=1234abc"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("pytest-intercode: kept: kept/19700102T000000Z-")
    assert main(["history", "tuesday.jsonl", "monday.jsonl", "--keep=kept", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("kept: ") == 1
    ((monday, tuesday),) = [series["runs"] for series in json.loads(printed.out)["series"]]
    assert (monday["name"], monday["commit"], monday["change"]) == ("monday", "1234abc", None)
    assert (tuesday["rate"], tuesday["change"]["kind"]) == (0.2, "regressed")
    assert len([*Path("kept").iterdir()]) == 2
    assert main(["history", "--keep=kept"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "history: name results files, or --keep=FOLDER"),
        (["--keep=missing"], "--keep=missing: there is no such folder"),
        (["monday.jsonl", "--keep=tuesday.jsonl"], "--keep=tuesday.jsonl: is not a folder"),
        (["monday.jsonl", "--commit=1"], "--commit=1: needs --keep=FOLDER"),
        (["nothing.jsonl"], "nothing.jsonl: there is no such results file"),
    ],
)
def test_a_mistake_is_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main(["history", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"pytest-intercode: {problem}")
    assert printed.err.count("\n") == 1


def test_a_run_that_is_being_written_is_shown_and_not_kept(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("tuesday.jsonl").open("a") as file:
        file.write('{"environment": "ic_bash", "task')
    assert main(["history", "tuesday.jsonl"]) == 0
    assert "tuesday.jsonl:21: the last line is truncated" in capsys.readouterr().err
    assert main(["history", "monday.jsonl", "tuesday.jsonl", "--keep=kept"]) == 1
    assert "tuesday.jsonl:21: not JSON" in capsys.readouterr().err
    assert not Path("kept").exists()
