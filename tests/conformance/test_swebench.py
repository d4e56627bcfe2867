"""SWE-bench: our parsers, verdicts and scripts against those of its own code, on published logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.patches import read_patch
from pytest_intercode.core.task import Task, Verification
from pytest_intercode.errors import UngradableState
from pytest_intercode.rewards.eval_scripts import END, START, with_exit_status
from pytest_intercode.rewards.swe import read_results, swe_report, swe_reward
from pytest_intercode.rewards.test_logs import parse
from pytest_intercode.rewards.test_logs.registry import plain_parser
from pytest_intercode.suites.catalogue import data_folder, dataset_tasks


def _read(samples: Path, name: str) -> Any:
    return json.loads((samples / "swebench" / name).read_text(encoding="utf-8"))


def test_parsers(samples: Path) -> None:
    cases = _read(samples, "parsers-expected.json")
    assert len(cases) >= 13
    for case in cases:
        assert parse(case["parser"], case["log"]) == case["expected"], case["case"]


def test_parsers_on_real_logs(samples: Path) -> None:
    cases = _read(samples, "real-logs-expected.json")
    assert len(cases) >= 5
    for path, case in cases.items():
        log = (samples / "swebench" / path).read_text(encoding="utf-8")
        if case["scope"] == "between markers":
            log = log.split(START)[1].split(END)[0]
        # SWE-smith's parser has no name of its own: it is pytest's output while it runs.
        name = case["parser"] if case["parser"].startswith("parse_") else "pytest_verbose"
        assert parse(name, log) == case["statuses"], path


def _verification(case: dict[str, Any]) -> Verification:
    return Verification(
        command=f": '{START}'\ntests\n: '{END}'\n",
        parser=case["log_parser"],
        fail_to_pass=tuple(case["FAIL_TO_PASS"]),
        pass_to_pass=tuple(case["PASS_TO_PASS"]),
        absent="passed" if case["eval_type"] == "fail_only" else "failed",
    )


def test_verdicts(samples: Path) -> None:
    cases = _read(samples, "grading-expected.json")
    assert len(cases) >= 25
    for case in cases:
        verification, expected = _verification(case), case["expected"]
        if not expected["patch_exists"]:
            continue  # no patch is no run
        try:
            statuses = read_results(verification, case["log"])
        except UngradableState:
            assert not expected["patch_successfully_applied"], case["case"]
            continue
        report = swe_report(verification, statuses)
        assert expected["patch_successfully_applied"], case["case"]
        assert report.resolved is expected["resolved"], case["case"]
        assert (swe_reward(report).value == 1.0) is expected["resolved"], case["case"]
        status = expected["tests_status"]
        fixed, kept = status["FAIL_TO_PASS"], status["PASS_TO_PASS"]
        assert [list(report.fixed), list(report.unfixed)] == [fixed["success"], fixed["failure"]]
        assert [list(report.kept), list(report.broken)] == [kept["success"], kept["failure"]]
        partly = expected["resolution"] == "RESOLVED_PARTIAL"
        assert (0 < swe_reward(report).value < 1) is partly, case["case"]


@pytest.mark.parametrize(
    "task",
    ["getmoto__moto.694ce1f4.pr_7331", "pandas-dev__pandas.95280573.pr_53652"],
)
def test_verdicts_of_swe_smith(samples: Path, task: str) -> None:
    folder = samples / "swebench/logs" / task
    status = json.loads((folder / "report.json").read_text())["tests_status"]
    names = {
        key: tuple(status[key]["success"] + status[key]["failure"])
        for key in ("FAIL_TO_PASS", "PASS_TO_PASS")
    }
    verification = Verification(
        command=START,
        parser="pytest_verbose",
        fail_to_pass=names["FAIL_TO_PASS"],
        pass_to_pass=names["PASS_TO_PASS"],
        absent="passed",
    )
    log = (folder / "test_output.txt").read_text(encoding="utf-8")
    report = swe_report(verification, read_results(verification, log))
    assert report.resolved
    assert set(report.fixed) == set(status["FAIL_TO_PASS"]["success"])


def test_a_bug_of_swe_smith_is_found(samples: Path) -> None:
    folder = samples / "swebench/logs/run_validation"
    lists = json.loads((folder / "report.json").read_text())
    verification = Verification(
        command=START,
        parser="pytest_verbose",
        fail_to_pass=tuple(lists["FAIL_TO_PASS"]),
        pass_to_pass=tuple(lists["PASS_TO_PASS"]),
        absent="passed",
    )
    with_bug, before = (
        swe_report(verification, read_results(verification, (folder / name).read_text()))
        for name in ("test_output.txt", "test_output_pre_gold.txt")
    )
    assert before.resolved
    assert set(with_bug.unfixed) == set(lists["FAIL_TO_PASS"])
    assert not with_bug.broken


# -- rows


def _rows_of(samples: Path, name: str, folder: Path, dataset: str) -> dict[str, Task]:
    """Return the tasks of rows that lie where a dataset looks for them."""
    text = (samples / "swebench" / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        rows = json.loads(text)
        rows = rows if isinstance(rows, list) else [rows]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / f"{dataset}.jsonl").write_text(text, encoding="utf-8")
    data = data_folder(folder, "test")
    return {task.id: task for task in dataset_tasks(dataset, data, "test")}


def test_scripts_of_verified(samples: Path, tmp_path: Path) -> None:
    tasks = _rows_of(samples, "verified-classic.jsonl", tmp_path, "swe-bench-verified")
    expected = _read(samples, "verified-eval-scripts-swebench-4.1.json")
    assert tasks.keys() == expected.keys()
    for name, theirs in expected.items():
        task = tasks[name]
        assert task.image is not None
        assert task.verification is not None
        assert task.image.image == theirs["image"]
        assert task.verification.parser == plain_parser(theirs["log_parser"])
        # Ours prints the status of the tests and ends with it; otherwise the two are the same.
        assert task.verification.command == with_exit_status(theirs["eval_script"]), name
        lines = task.verification.command.split("\n")
        more = [
            "SWEBENCH_TEST_EXIT_CODE=$?",
            'echo ">>>>> Test Exit Code: $SWEBENCH_TEST_EXIT_CODE"',
            "exit $SWEBENCH_TEST_EXIT_CODE",
        ]
        rest = [line for line in lines if line not in more]
        assert "\n".join(rest) == theirs["eval_script"], name
        assert read_patch(task.gold[0])
        assert task.verification.fail_to_pass


def test_rows_of_lite(samples: Path, tmp_path: Path) -> None:
    name = "lite-classic-swe-agent-fixture.json"
    tasks = _rows_of(samples, name, tmp_path, "swe-bench-lite")
    rows = {row["instance_id"]: row for row in _read(samples, name)}
    assert tasks.keys() == rows.keys()
    for task in tasks.values():
        row, verification = rows[task.id], task.verification
        assert verification is not None
        assert verification.fail_to_pass == tuple(row["FAIL_TO_PASS"])
        assert verification.pass_to_pass == tuple(row["PASS_TO_PASS"])
        assert task.query == row["problem_statement"].replace("\r\n", "\n").strip()
        assert task.gold == (row["patch"],) or task.gold == (row["patch"] + "\n",)


def test_rows_that_say_how_to_test(samples: Path, tmp_path: Path) -> None:
    name = "swebench5-multimodal-rows.jsonl"
    tasks = _rows_of(samples, name, tmp_path, "swe-bench-5")
    lines = (samples / "swebench" / name).read_text(encoding="utf-8").split("\n")
    rows = {row["instance_id"]: row for row in map(json.loads, filter(None, lines))}
    assert tasks.keys() == rows.keys()
    for task in tasks.values():
        row, verification = rows[task.id], task.verification
        assert task.image is not None
        assert verification is not None
        assert task.image.image == row["image"]
        assert verification.command == with_exit_status(row["eval_script"])
        assert verification.parser == plain_parser(row["log_parser"])
        wanted = "passed" if row["eval_type"] == "fail_only" else "failed"
        assert verification.absent == wanted
        needs_files = row["instance_id"] == "chartjs__Chart.js-11352"  # a picture to compare with
        assert (task.skip is not None) is needs_files


def test_a_row_whose_patch_is_the_bug(samples: Path, tmp_path: Path) -> None:
    name = "swesmith-row-pandas_pr_53652.json"
    (task,) = _rows_of(samples, name, tmp_path, "swe-smith").values()
    row = _read(samples, name)
    assert task.image is not None
    assert task.verification is not None
    wanted = "jyangballin/swesmith.x86_64.pandas-dev_1776_pandas.95280573"
    assert task.image.image == wanted
    assert "if keyarr.dtype.kind" in row["patch"]
    assert '-        if keyarr.dtype.kind in "mM":' in task.gold[0]
    assert row["patch"] in task.setup[0]
    assert task.verification.absent == "passed"
    assert "--verbose pandas/tests/indexing/test_datetime.py\n" in task.verification.command
