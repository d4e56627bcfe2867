"""What is kept of runs, how it is read again, and how runs and agents compare."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.usage import Usage
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.export import FORMATS
from pytest_intercode.results.files import to_text
from pytest_intercode.results.history import KeptCell, keep, read_history
from pytest_intercode.results.history_series import (
    make_leaderboard,
    make_series,
    numbers_of,
    warnings_of,
)
from pytest_intercode.results.history_text import describe_leaderboard, series_table
from pytest_intercode.results.summary import summarise
from tests.support.cell_records import episode, tries_of

TASKS = [f"t{number}" for number in range(20)]


def results(path: Path, records: Iterable[EpisodeRecord], day: int = 1) -> Path:
    """Write a results file of a day of January 1970."""
    path.write_text(to_text(list(records)), encoding="utf-8")
    os.utime(path, (day * 86400,) * 2)
    return path


def priced(records: Iterable[EpisodeRecord], cost: float) -> list[EpisodeRecord]:
    return [replace(record, usage=Usage(1, 10, 10, cost)) for record in records]


def test_what_is_kept_has_the_statistics_of_the_run(tmp_path: Path) -> None:
    records = [
        *priced([episode("a"), episode("b", "failed")], 0.5),
        *priced([episode("a", "failed", repeat=2), episode("b", "failed", repeat=2)], 1.0),
        episode("c", "infrastructure-error"),
    ]
    (kept,) = read_history([results(tmp_path / "run.jsonl", records)])
    numbers, summary = numbers_of(kept.tasks), summarise(records)
    assert (kept.name, kept.ungraded, kept.agent) == ("run", 1, "codex")
    assert (numbers.tasks, numbers.tries, numbers.solved) == (2, 4, 1)
    assert (numbers.rate, numbers.rate_interval) == (summary.rate, summary.rate_interval)
    assert numbers.turns is not None
    assert numbers.turns.value == summary.turns
    assert numbers.total_cost == summary.cost == 3.0
    assert numbers.cost is not None
    assert numbers.cost.value == 0.75
    assert numbers.cost.interval == (0.75, 0.75)


def test_a_run_is_kept_once_and_read_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    records = [*tries_of(TASKS), *tries_of(TASKS[:3], TASKS[3:], agent="claude")]
    path = results(tmp_path / "run.jsonl", records)
    history = read_history([path])
    (file,) = keep(folder, history, "1234abc")
    assert keep(folder, read_history([path]), "another") == []
    assert [*folder.iterdir()] == [file]
    again = read_history([folder])
    assert [kept.commit for kept in again] == ["1234abc"] * 2
    assert [kept.model_copy(update={"commit": ""}) for kept in again] == history
    # The same run as a results file is not a second one, and what was kept says more of it.
    assert read_history([path, folder]) == read_history([folder, path]) == again


def test_a_run_begins_with_its_first_episode(tmp_path: Path) -> None:
    records = [
        replace(record, phases={"agent": (1_700_000_000.7 + number, 1.0)})
        for number, record in enumerate(tries_of(TASKS))
    ]
    (kept,) = read_history([results(tmp_path / "run.jsonl", reversed(records))])
    assert kept.date.isoformat() == "2023-11-14T22:13:20+00:00"
    endless = [replace(records[0], phases={"agent": (1e30, 1.0)})]
    (kept,) = read_history([results(tmp_path / "run.jsonl", endless, day=2)])
    assert kept.date.isoformat() == "1970-01-03T00:00:00+00:00"


def test_keys_are_not_kept(tmp_path: Path) -> None:
    records = [episode("a", api_key="sk-1234", model="m")]
    (file,) = keep(tmp_path / "kept", read_history([results(tmp_path / "run.jsonl", records)]))
    assert "sk-1234" not in file.read_text(encoding="utf-8")


def test_runs_are_in_order_and_compared_task_by_task(tmp_path: Path) -> None:
    paths = [
        results(tmp_path / "c.jsonl", tries_of(TASKS[:4], TASKS[4:]), day=3),
        results(tmp_path / "a.jsonl", tries_of(TASKS), day=1),
        results(tmp_path / "b.jsonl.tmp", tries_of(TASKS[::-1]), day=2),
    ]
    (series,) = make_series(read_history(paths))
    assert [step.entry.name for step in series.steps] == ["a", "b.jsonl.tmp", "c"]
    first, second, third = (step.verdict for step in series.steps)
    assert first is None
    assert second is not None
    assert second.kind == "too few samples"
    assert third is not None
    assert (third.kind, third.lost, third.tasks) == ("regressed", 16, 20)
    table = series_table(series)
    assert [row[table.heading.index("points")] for row in table.rows] == ["", "+0.0", "-80.0"]
    assert "cost of a try" not in table.heading  # nobody reported any
    # Of the last run alone, the one before is still what it is compared with.
    (short,) = make_series(read_history(paths), max_runs=1)
    assert [step.verdict for step in short.steps] == [third]


def test_a_newer_model_follows_the_one_that_it_replaces(tmp_path: Path) -> None:
    for day, model in enumerate("ab", 1):
        records = [episode(task, model=model) for task in TASKS]
        results(tmp_path / f"run-{model}.jsonl", records, day)
    (series,) = make_series(read_history([tmp_path]))
    assert series.name == "codex"
    table = series_table(series)
    assert [row[table.heading.index("arguments")] for row in table.rows] == ["model=a", "model=b"]
    # A run of both tells them apart from the beginning.
    both = [episode(task, model=model) for model in "ab" for task in TASKS]
    results(tmp_path / "run-both.jsonl", both, day=3)
    all_series = make_series(read_history([tmp_path]))
    assert [(series.name, len(series.steps)) for series in all_series] == [
        ("codex:model=a", 2),
        ("codex:model=b", 2),
    ]
    last = all_series[0].steps[-1].verdict
    assert last is not None
    assert last.comparisons == 2


def test_no_common_task_is_no_comparison(tmp_path: Path) -> None:
    for day, name in enumerate("ab", 1):
        results(tmp_path / f"{name}.jsonl", tries_of([name]), day)
    (series,) = make_series(read_history([tmp_path]))
    table = series_table(series)
    index = table.heading.index("since the run before")
    assert [row[index] for row in table.rows] == ["", "no common task"]


def test_a_leaderboard_is_over_the_tasks_that_all_have(tmp_path: Path) -> None:
    # Alone, the second would be the best: it has played nothing but what it solves.
    first = priced(tries_of(TASKS[:18], TASKS[18:], agent="first"), 0.5)
    second = priced(tries_of(TASKS[:2], TASKS[2:4], agent="second"), 0.1)
    old = tries_of(TASKS[:4], agent="second")
    results(tmp_path / "old.jsonl", old, day=1)
    results(tmp_path / "first.jsonl", first, day=2)
    results(tmp_path / "second.jsonl", second, day=3)
    leaderboard = make_leaderboard(read_history([tmp_path]))
    assert leaderboard.common == 4
    best, other = leaderboard.standings
    assert (best.name, best.numbers.rate, best.verdict) == ("first", 1.0, None)
    assert (other.name, other.numbers.rate, other.entry.name) == ("second", 0.5, "second")
    assert other.verdict is not None
    assert other.verdict.kind == "too few samples"
    assert describe_leaderboard(leaderboard) == "2 agents, over the 4 tasks that all have in common"


def test_equal_rates_are_ordered_by_cost(tmp_path: Path) -> None:
    records = [
        *priced(tries_of(TASKS, agent="dear"), 2.0),
        *tries_of(TASKS, agent="unpriced"),
        *priced(tries_of(TASKS, agent="cheap"), 1.0),
    ]
    leaderboard = make_leaderboard(read_history([results(tmp_path / "run.jsonl", records)]))
    names = [standing.name for standing in leaderboard.standings]
    assert names == ["cheap", "dear", "unpriced"]


def test_without_a_common_task_nobody_is_better(tmp_path: Path) -> None:
    records = [*tries_of(["a"], agent="one"), *tries_of(["b"], agent="two")]
    history = read_history([results(tmp_path / "run.jsonl", records)])
    leaderboard = make_leaderboard(history)
    assert [standing.verdict for standing in leaderboard.standings] == [None, None]
    assert "do not show which is better" in describe_leaderboard(leaderboard)


def test_nothing_was_graded(tmp_path: Path) -> None:
    records = [episode("a", "infrastructure-error")]
    history = read_history([results(tmp_path / "run.jsonl", records)])
    (series,) = make_series(history)
    assert series.steps[0].numbers.rate is None
    assert series_table(series).rows[0][-1] == "-"
    assert describe_leaderboard(make_leaderboard(history)) == "no run has a graded try"


def test_other_profiles_are_told(tmp_path: Path) -> None:
    for day, profile in enumerate(("paper", "strict"), 1):
        records = [replace(record, profile=profile) for record in tries_of(TASKS)]
        results(tmp_path / f"{profile}.jsonl", records, day)
    (line,) = warnings_of(read_history([tmp_path]))
    assert line.startswith("the runs differ in profile (paper, strict)")


# -- what is wrong


def kept_line(tmp_path: Path) -> str:
    (kept,) = read_history([results(tmp_path / "run.jsonl", tries_of(["a"]))])
    return kept.model_dump_json()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"history_version":1', '"history_version":2', "it was written by a newer version"),
        ('["bash","suite","a",1,1', '["bash","suite","a",2,1', "task a: 2 of 1 tries"),
        ('["bash","suite","a",1,1', '["bash","suite","a",1,0', "tasks.0.4: Input should be"),
        ('"run":"', '"run":"../', "run: "),
        ("+00:00", "", "date: "),
        ("]}", "", "Invalid JSON"),
    ],
)
def test_a_damaged_kept_run_is_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    line = kept_line(tmp_path).replace("Z", "+00:00")
    assert old in line
    path = tmp_path / "kept.jsonl"
    path.write_text(line.replace(old, new) + "\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as error:
        read_history([path])
    assert str(error.value).startswith(f"{path}:1: not a kept run: ")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_lines_of_two_runs_are_not_one_kept_run(tmp_path: Path) -> None:
    line = kept_line(tmp_path)
    other = KeptCell.model_validate_json(line).model_copy(update={"run": "0" * 16})
    path = tmp_path / "kept.jsonl"
    path.write_text(f"{line}\n{other.model_dump_json()}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="lines belong to several runs"):
        read_history([path])


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("text")
    with pytest.raises(
        ConfigurationError, match="folder: contains no runs: no file in this folder"
    ):
        read_history([folder])
    (folder / "empty.jsonl").write_text("")
    with pytest.raises(ConfigurationError, match="contains no recorded episodes"):
        read_history([folder])
    with pytest.raises(ConfigurationError, match="there is no such results file"):
        read_history([tmp_path / "missing.jsonl"])
    (folder / "empty.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ConfigurationError, match=r"empty\.jsonl:1: not a recorded episode"):
        read_history([folder])


def test_a_packed_results_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(to_text(list(tries_of(TASKS))).encode()))
    (kept,) = read_history([tmp_path])
    assert (kept.name, len(kept.tasks)) == ("run", 20)
    (tmp_path / "run.jsonl").write_bytes(gzip.decompress(path.read_bytes()))
    assert [cell.run for cell in read_history([tmp_path])] == [kept.run]  # it is one run


def test_what_is_exported_next_to_a_run_is_not_a_run(tmp_path: Path) -> None:
    results = tmp_path / "run.jsonl"
    results.write_text(to_text(list(tries_of(TASKS))), encoding="utf-8")
    runs = read_history([tmp_path])
    for name in FORMATS:
        assert main(["export", str(results), f"--format={name}"]) == 0
    assert read_history([tmp_path]) == runs


def test_a_packed_kept_run_is_read(tmp_path: Path) -> None:
    results = tmp_path / "run.jsonl"
    results.write_text(to_text(list(tries_of(TASKS))), encoding="utf-8")
    (file,) = keep(tmp_path / "kept", read_history([results]))
    packed = file.with_name(f"{file.name}.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert read_history([packed]) == read_history([file])
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ConfigurationError, match=r"\.jsonl\.gz: cannot be read: Compressed file"):
        read_history([packed])


@pytest.mark.parametrize(
    ("cost", "problem"),
    [
        (-1.0, "Input should be greater than or equal to 0"),
        (float("inf"), "Input should be a finite number"),
        (float("nan"), "Input should be a finite number"),
    ],
)
def test_a_cost_that_cannot_be_is_one_line(tmp_path: Path, cost: float, problem: str) -> None:
    path = results(tmp_path / "run.jsonl", priced([episode("a")], cost))
    with pytest.raises(ConfigurationError) as caught:
        read_history([path])
    assert str(caught.value) == f"{path}: not a run that can be kept: tasks.0.cost: {problem}"


def test_what_is_not_utf_8_is_kept_as_an_escape(tmp_path: Path) -> None:
    path = results(tmp_path / os.fsdecode(b"caf\xe9.jsonl"), [episode("\ud800", agent="\udc80")])
    keep(tmp_path / "kept", read_history([path]), "\udcff")
    (kept_run,) = read_history([tmp_path / "kept"])
    names = kept_run.name, kept_run.agent, kept_run.tasks[0].task, kept_run.commit
    assert names == (r"caf\udce9", r"\udc80", r"\ud800", r"\udcff")
    assert [kept_run.model_copy(update={"commit": ""})] == read_history([path])
