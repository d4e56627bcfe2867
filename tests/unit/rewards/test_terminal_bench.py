"""Terminal-Bench 1's results are read from what a test run printed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.reward import Reward
from pytest_intercode.rewards.terminal_bench import (
    NoResults,
    excused_results,
    pytest_results,
    terminal_bench_reward,
)

_HEAD = "..F.\n=========== short test summary info ============\n"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("PASSED tests/test_outputs.py::test_a", {"test_a": True}),
        ("PASSED ../tests/test_outputs.py::TestA::test_b", {"TestA::test_b": True}),
        ("PASSED t.py::test_a[x - y]", {"test_a[x - y]": True}),
        ("XFAIL t.py::test_a - a reason", {"test_a - a reason": True}),
        ("SKIPPED [1] t.py:3: no gpu", {"[1] t.py:3: no gpu": True}),
        ("FAILED t.py::test_a - AssertionError: 1 - 2", {"test_a - AssertionError: 1": False}),
        ("FAILED t.py::test_a", {"test_a": False}),
        ("XPASS t.py::test_a", {"test_a": False}),
        ("ERROR t.py::test_a - x", {"test_a - x": False}),
        ("ERROR: t.py::test_a", {"test_a": False}),
        ("UNKNOWN t.py::test_a", {}),
        ("passed t.py::test_a", {}),
        ("FAILED", {}),
        ("====== 1 passed in 0.01s ======", {}),
    ],
)
def test_lines_of_the_summary(line: str, found: dict[str, bool]) -> None:
    assert pytest_results(_HEAD + line + "\n") == found


def test_all_tests_have_to_pass() -> None:
    good = _HEAD + "PASSED t.py::a\nSKIPPED [1] t.py:1: x\nXFAIL t.py::b\n"
    assert terminal_bench_reward("terminal-bench", good) == Reward(1.0, {"tests": 1.0})
    bad = terminal_bench_reward("terminal-bench", good + "FAILED t.py::c - no\n")
    assert (bad.value, bad.parts) == (0.0, {"tests": 0.75})
    assert bad.reason == "1 of 4 tests failed: c"


@pytest.mark.parametrize("log", ["", "PASSED t.py::a", "bash: uv: command not found", _HEAD])
def test_a_run_without_results_is_no_failure(log: str) -> None:
    with pytest.raises(NoResults):
        terminal_bench_reward("terminal-bench", log)


@pytest.mark.parametrize(
    ("block", "value"), [("PASSED", 1.0), ("\nPASSED\n", 1.0), ("FAILED", 0.0), ("", 0.0)]
)
def test_the_marks_of_swebench(block: str, value: float) -> None:
    log = f"x\nSWEBench results starts here\n{block}\nSWEBench results ends here\ny"
    assert terminal_bench_reward("terminal-bench-swebench", log).value == value


def test_without_the_marks_of_swebench_there_is_no_result() -> None:
    with pytest.raises(NoResults):
        terminal_bench_reward("terminal-bench-swebench", "PASSED")


@given(st.text())
def test_garbage_is_no_error(text: str) -> None:
    for parser in ("terminal-bench", "terminal-bench-swebench"):
        try:
            assert 0 <= terminal_bench_reward(parser, _HEAD + text).value <= 1
        except NoResults:
            pass


def test_what_neither_passed_nor_failed_counts_where_it_may() -> None:
    log = _HEAD + "PASSED t.py::a\nSKIPPED [1] t.py:1: x\nXFAIL t.py::b\n"
    assert excused_results("terminal-bench", log) == {"[1] t.py:1: x", "b"}
    assert excused_results("terminal-bench-swebench", log) == frozenset()
    assert terminal_bench_reward("terminal-bench", log).value == 1.0
    assert terminal_bench_reward("terminal-bench", log, {"[1] t.py:1: x", "b"}).value == 1.0
    assert terminal_bench_reward("terminal-bench", log, {"b"}).value == 0.0


def test_time_grows_with_the_length() -> None:
    begin_time = time.process_time()
    with pytest.raises(NoResults):
        pytest_results("=" * 200_000)  # code under test may print it
    assert time.process_time() - begin_time < 1
