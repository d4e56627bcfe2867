"""A run of a task's tests: what is kept of what it printed."""

from __future__ import annotations

import pytest

from pytest_intercode.rewards.verification import TestRun


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
