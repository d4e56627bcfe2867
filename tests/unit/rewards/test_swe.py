"""The reward for swe: what counts as resolved, and which logs are of no whole run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_intercode.core.task import Verification
from pytest_intercode.errors import UngradableState
from pytest_intercode.rewards.eval_scripts import sealed_script, with_exit_status
from pytest_intercode.rewards.swe import (
    excused_tests,
    read_results,
    swe_report,
    swe_reward,
    swe_reward_again,
    swe_state,
)
from pytest_intercode.rewards.test_logs import Status

_SCRIPT = ": '>>>>> Start Test Output'\npytest -rA\n: '>>>>> End Test Output'\n"
_RUN = Verification(_SCRIPT, fail_to_pass=("a", "b"), pass_to_pass=("c", "d"))


def _log(results: str, after: str = "") -> str:
    return f"+ : '>>>>> Start Test Output'\n{results}\n+ : '>>>>> End Test Output'\n{after}"


def _statuses(**words: str) -> dict[str, Status]:
    return {name: Status(word) for name, word in words.items()}


@pytest.mark.parametrize(
    ("words", "value", "parts", "reason"),
    [
        ({"a": "PASSED", "b": "XFAIL", "c": "PASSED", "d": "SKIPPED"}, 1.0, (1.0, 1.0), ""),
        (
            {"a": "PASSED", "b": "SKIPPED", "c": "PASSED", "d": "PASSED"},
            0.5,
            (0.5, 1.0),
            "1 of 2 tests of fail_to_pass pass, not b",
        ),
        ({"c": "PASSED", "d": "PASSED"}, 0.0, (0.0, 1.0), "0 of 2 tests"),
        (
            {"a": "PASSED", "b": "PASSED", "c": "ERROR", "d": "PASSED"},
            0.0,
            (1.0, 0.0),
            "1 test that passed before does not: c",
        ),
        ({}, 0.0, (0.0, 0.0), "2 tests that passed before do not: c"),
    ],
)
def test_reward(
    words: dict[str, str], value: float, parts: tuple[float, float], reason: str
) -> None:
    reward = swe_reward(swe_report(_RUN, _statuses(**words)))
    assert reward.value == value
    assert tuple(reward.parts.values()) == parts
    assert reason in reward.reason
    assert (reward.reason == "") is (value == 1.0)


def test_a_tolerance_keeps_some_credit_and_never_all() -> None:
    words = _statuses(a="PASSED", b="PASSED", c="FAILED", d="PASSED")
    report = swe_report(_RUN, words)
    assert swe_reward(report, tolerance=1).value == 0.5
    assert swe_reward(report, tolerance=0).value == 0.0
    state = json.loads(json.dumps(swe_state(report, 1)))
    assert swe_reward_again(state) == swe_reward(report, 1)


def test_absent_tests_may_pass() -> None:
    lenient = replace(_RUN, absent="passed")
    assert swe_report(lenient, {}).resolved
    assert swe_report(lenient, _statuses(b="ERROR")).unfixed == ("b",)


def test_names_that_are_cut() -> None:
    run = replace(_RUN, fail_to_pass=("t[log(",), pass_to_pass=("t", "t[x]"))
    statuses = {"t[log(a)]": Status.PASSED, "t[log(b)]": Status.XFAIL, "t[x]y": Status.PASSED}
    assert swe_report(run, statuses).fixed == ("t[log(",)
    assert swe_report(run, statuses).broken == ("t", "t[x]")  # none of these is cut
    assert swe_report(run, {**statuses, "t[log(c)]": Status.ERROR}).unfixed == ("t[log(",)
    skipped = {"t[log(a)]": Status.SKIPPED, "t[log(b)]": Status.FAILED}
    assert swe_report(replace(run, pass_to_pass=("t[log(",)), skipped).broken == ("t[log(",)


def test_names_of_pytest_in_junit_xml() -> None:
    run = replace(_RUN, parser="junit", fail_to_pass=("a/b.py::C::d",), pass_to_pass=())
    assert swe_report(run, {"a.b.C::d": Status.PASSED}).resolved
    assert not swe_report(replace(run, parser="pytest"), {"a.b.C::d": Status.PASSED}).resolved


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("PASSED a\n", "did not run to their end"),
        (_log("PASSED a").replace("End", "Eend"), "did not run to their end"),
        (_log("PASSED a", ">>>>> Tests Timed Out"), "says 'Tests Timed Out'"),
        (_log("collected 0 items"), "no result of a test is in the log"),
        (_log("Executed 0 of 0"), "no result of a test is in the log"),
        (_log("PASSED a", ">>>>> Test Exit Code: 1"), "ended with an error"),
        (_log("PASSED a\n>>>>> Test Exit Code: 0", ">>>>> Test Exit Code: 1"), "ended with an err"),
    ],
)
def test_logs_that_are_refused(log: str, message: str) -> None:
    with pytest.raises(UngradableState, match=message):
        read_results(_RUN, log)


def test_logs_that_are_read() -> None:
    assert read_results(_RUN, _log("FAILED a", ">>>>> Test Exit Code: 1")) == _statuses(a="FAILED")
    assert read_results(_RUN, "PASSED a\n" + _log("")) == _statuses(a="PASSED")
    assert read_results(_RUN, _log("12 passing")) == {}
    assert read_results(replace(_RUN, command="pytest"), "PASSED a") == _statuses(a="PASSED")
    with pytest.raises(UngradableState, match="ended with an error"):
        read_results(replace(_RUN, command="pytest"), "PASSED a", exit_status=1)


def test_what_tests_print_is_no_marker_of_a_sealed_script() -> None:
    script = sealed_script(with_exit_status(_SCRIPT), "-7f3a")
    assert script.splitlines() == [
        ": '>>>>> Start Test Output-7f3a'",
        "pytest -rA",
        "SWEBENCH_TEST_EXIT_CODE=$?",
        ": '>>>>> End Test Output-7f3a'",
        'echo ">>>>> Test Exit Code-7f3a: $SWEBENCH_TEST_EXIT_CODE"',
        "exit $SWEBENCH_TEST_EXIT_CODE",
    ]
    forged = _log("PASSED a\nPASSED b") + "\n>>>>> Test Exit Code: 0\n"
    real = _log("FAILED a").replace("Output", "Output-7f3a")
    assert read_results(_RUN, forged + real) == _statuses(a="PASSED", b="PASSED")
    assert read_results(_RUN, forged + real, seal="-7f3a") == _statuses(a="FAILED")


def test_a_script_that_tells_its_status_is_left_alone() -> None:
    script = with_exit_status(_SCRIPT)
    assert with_exit_status(script) == script
    assert with_exit_status("pytest") == "pytest"


def test_what_neither_passed_nor_failed_counts_where_it_may() -> None:
    lists = Verification("x", fail_to_pass=("a", "b[1"), pass_to_pass=("c", "d", "e"))
    statuses = {
        **{"a": Status.XFAIL, "b[1 2]": Status.PASSED, "b[1 3]": Status.XFAIL},
        **{"c": Status.SKIPPED, "d": Status.XFAIL, "e": Status.PASSED},
    }
    assert excused_tests(lists, statuses) == {"a", "b[1", "c", "d"}
    assert swe_report(lists, statuses).resolved
    assert swe_report(lists, statuses, {"a", "b[1", "c", "d", "x"}).resolved
    report = swe_report(lists, statuses, {"a", "d"})
    assert (report.unfixed, report.broken) == (("b[1",), ("c",))
    assert swe_report(lists, statuses, ()).kept == ("e",)
