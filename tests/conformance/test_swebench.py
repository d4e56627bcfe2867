"""SWE-bench: our parsers, verdicts and scripts against those of its own code, on published logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Verification
from pytest_intercode.errors import UngradableState
from pytest_intercode.rewards.swe import read_results, swe_report, swe_reward
from pytest_intercode.rewards.test_logs import parse
from pytest_intercode.suites.eval_scripts import END, START


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
