"""A run of a task's tests: what is kept of what it printed."""

from __future__ import annotations

import contextlib
import time

import pytest

from pytest_intercode.core.task import Verification
from pytest_intercode.rewards.verification import NothingRan, TestRun, reward_of_run

_NEVER_RAN = "^pytest never ran; the test script printed last: ends$"


@pytest.mark.parametrize(
    ("log", "tail"),
    [
        ("", ""),
        ("one\n", "one"),
        ("\n\none\n\n", "\n\none"),
        ("\n".join(map(str, range(60))), "\n".join(map(str, range(60)))),
        ("x\n" * 61, "[... 2 characters before this]\n" + "\n".join("x" * 60)),
        ("x" * 4001, "[... 1 character before this]\n" + "x" * 4000),
    ],
)
def test_the_end_of_what_was_printed(log: str, tail: str) -> None:
    assert TestRun(1, "itself", log).tail == tail


def test_tests_of_ours_are_named_and_the_seal_is_not_there() -> None:
    log = "START-ab12\ntest_depth_abcde PASSED\ntest_range_fghij FAILED\nEND-ab12\n"
    run = TestRun(1, "itself", log, {}, "depth_abcde", "range_fghij", "-ab12")
    assert run.tail == (
        "START\ntest_depth_abcde PASSED\ntest_range_fghij FAILED\nEND\n"
        "[pytest-intercode's sentinels: depth_abcde has to pass, range_fghij has to fail]"
    )
    assert TestRun(1, "itself", "3 passed", {}, "depth_abcde", "range_fghij").tail == "3 passed"


@pytest.mark.parametrize(
    ("line", "ran"),
    [
        ("=== 1 failed, 2 passed in 0.01s ===", True),
        ("= no tests ran in 0.00s =\r", True),
        ("====== 2 errors in 0.01s ======  ", True),
        (" === 1 passed in 0.01s ===", False),
        ("=== 1 passed in 0.01s", False),
        ("===1 passed===", False),
        ("=== surpassed ===", False),
        ("1 passed in 0.01s", False),
        ("= " + "passed " * 50_000, False),  # code under test may print it
    ],
)
def test_a_script_whose_pytest_never_ran_says_nothing(line: str, ran: bool) -> None:
    verification = Verification("sh test.sh", "reward", report="/logs", kit=("pytest==8.4.1",))
    run = TestRun(0, "itself", f"begins\n{line}\nends\n", {"/logs/reward.txt": b"0"})
    begin_time = time.process_time()
    with contextlib.nullcontext() if ran else pytest.raises(NothingRan, match=_NEVER_RAN):
        assert reward_of_run(verification, run)[0].value == 0.0
    assert time.process_time() - begin_time < 1
