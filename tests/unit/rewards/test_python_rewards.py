"""The rewards of python, and how InterCode's interpreter words what it saw."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_intercode.environments.python.inside import paper
from pytest_intercode.environments.python.strict import read_submission
from pytest_intercode.rewards.python import python_paper_reward, python_strict_reward


def test_strict_is_the_share_of_tests() -> None:
    solved = python_strict_reward(["", "", ""])
    assert (solved.value, dict(solved.parts), solved.reason) == (1.0, {"tests": 1.0}, "")
    some = python_strict_reward(["", "raised KeyError", "failed"])
    assert (some.value, dict(some.parts)) == (1 / 3, {"tests": 1 / 3})
    assert some.reason == "1 of 3 tests passed; test 2 raised KeyError"
    assert python_strict_reward(["failed"]).value == 0.0
    assert python_strict_reward([]).value == 0.0


@pytest.mark.parametrize("count", range(1, 200))
def test_strict_is_one_only_if_all_pass(count: int) -> None:
    assert python_strict_reward([""] * count).value == 1.0
    assert python_strict_reward([*[""] * (count - 1), "failed"]).value < 1.0


def test_paper_is_the_share_of_tests_that_do_what_they_do_to_gold() -> None:
    passed, erred = "{'output': '', 'error': ''}", "{'error': 'Error: x'}"
    assert python_paper_reward({"a": passed, "b": passed}, {"a": passed, "b": passed}).value == 1.0
    assert python_paper_reward({"a": erred}, {"a": erred}).value == 1.0
    half = python_paper_reward({"a": passed, "b": erred}, {"a": passed, "b": passed})
    assert (half.value, half.reason) == (0.5, "1 of 2 tests do what they do to gold")
    assert python_paper_reward({}, {"a": passed}).value == 0.0


@pytest.mark.parametrize(
    ("action", "submitted"),
    [
        ("submit", ""),
        (" submit \n", ""),
        ("submit double", "double"),
        ("submit  Solution.double ", "Solution.double"),
        ("submit def f(n):\n    return n", "def f(n):\n    return n"),
        ("submit\nimport os\n", "import os"),
        ("submit = 3", None),
        ("submit == 3", None),
        ("submit.x", None),
        ("submit(3)", None),
        ("submit += 1", None),
        ("submit, x = 1, 2", None),
        ("submits", None),
        ("x = submit", None),
        ("", None),
    ],
)
def test_what_is_a_submission(action: str, submitted: str | None) -> None:
    assert read_submission(action) == submitted


# -- InterCode's interpreter; its code is run here as it is in the sandbox


@pytest.fixture(autouse=True)
def _empty_namespace() -> Iterator[None]:
    paper.names.clear()
    yield
    paper.names.clear()


@pytest.mark.parametrize(
    ("action", "observation"),
    [
        ("1 + 1", "{'output': '2\\n', 'error': ''}"),
        ("x = 1", "{'output': '', 'error': ''}"),
        ("print(3)", "{'output': '3\\n', 'error': ''}"),
        ("import math", "{'output': '', 'error': ''}"),
        ("def f(): return 1", "{'output': '', 'error': ''}"),
        ("assert 1 == 1", "{'output': '', 'error': ''}"),
        ("assert 1 == 2", "{'error': 'Error: '}"),
        ("1 / 0", "{'error': 'Error: division by zero'}"),
        ("x += 1", "{'error': 'Error: invalid syntax (<string>, line 1)'}"),
        ("from math import pi", "{'error': 'Error: invalid syntax (<string>, line 1)'}"),
        ("for n in (1, 2): n", "{'error': 'Error: invalid syntax (<string>, line 1)'}"),
        ("x = = 1", "Error executing action: invalid syntax (<unknown>, line 1)"),
        ("def f(:", "{'error': 'Error: invalid syntax (<string>, line 1)'}"),
        ("raise SystemExit(3) if (x := 1) else 0", None),
        ("import sys; sys.exit(3)", "{'error': 'Error: 3'}"),
    ],
)
def test_paper_observations(action: str, observation: str | None) -> None:
    text, executed = paper.step(action)
    if observation is not None:
        assert text == observation
    assert executed == ("Error" not in text)


def test_paper_names_last() -> None:
    paper.step("x = 20")
    assert paper.step("x + 1") == ("{'output': '21\\n', 'error': ''}", True)


def test_paper_grading_binds_the_name_and_leaves_gold() -> None:
    passed = {"output": "", "error": ""}
    paper.step("def mine(n): return 2 * n")
    tests = ["assert double(2) == 4", "assert double(3) == 7"]
    gold = ["def double(n): return n + n"]
    mine, theirs = paper.grade("mine", "double", "", tests, gold)
    assert mine == theirs == [passed, {"error": "Error: "}]
    # A submission that does not exist leaves gold from the time before in its place.
    mine, _ = paper.grade("broken", "double", "", tests, gold)
    assert mine == [passed, {"error": "Error: "}]
