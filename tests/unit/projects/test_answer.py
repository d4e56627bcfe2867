"""What pytest shows of an assertion that an answer decided."""

from __future__ import annotations

import json

import pytest

from pytest_intercode.projects.answer import Answer, explain

CONFTEST = """
import json
import pytest
from pytest_intercode.core.turn import Turn
from pytest_intercode.projects.answer import explain
from pytest_intercode.projects.commands import Commands

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    explain(call.excinfo and call.excinfo.value)

def pytest_runtest_logreport(report):
    if report.failed:
        with open("messages.jsonl", "a") as file:
            message = report.longrepr.reprcrash.message
            print(json.dumps([report.nodeid.rpartition("::")[2], message]), file=file)

def act(action, seconds):
    return Turn(action, "", True, seconds=seconds, status=0)

@pytest.fixture
def run():
    actions = ("ls", 0.1), ("pip install requests", 2.0), ("cat pyproject.toml", 0.1)
    return Commands.of(act(*action) for action in actions)
"""
TESTS = """
import unittest
from pytest_intercode.projects.answer import Answer

def test_ran(run):
    assert run.ran("uv add")

def test_next_line(run):
    assert run.ran("uv add")
    assert not run.ran("pip install")

def test_later_line(run):
    assert run.ran("uv add")

    assert not run.ran("ls", ok=True)
    assert not run.ran(re="cat")

def test_not(run):
    assert not run.ran("pip install")

def test_and(run):
    assert run.ran("ls") and run.ran("uv add")

def test_or(run):
    assert run.ran("a") or run.ran("b")

def test_any(run):
    assert any(
        run.ran(words)
        for words in ("a", "uv add")
    )

def test_not_any(run):
    assert not any(run.ran(words) for words in ("a", "ls", "b"))

def test_comprehension(run):
    assert [words for words in ("a", "b") if run.ran(words)]

def test_message(run):
    assert run.ran("uv add"), "it says so\\nin AGENTS.md"

def test_variable(run):
    ran = run.ran("uv add")
    assert ran

def test_equal(run):
    assert run.ran("uv add") == True

def helper(run):
    assert run.ran("uv add")

def test_helper(run):
    helper(run)

def test_given_text():
    assert Answer(False, 'changed("a")', "nothing was changed:\\n  \\x1b[2J")

def test_asked_before(run):
    assert run.ran("ls")
    assert 1 == 2, "two"

def test_not_an_assertion(run):
    assert run.ran("ls")
    raise ValueError("other")

def test_passes(run):
    assert run.ran("ls") and run.ran("pip install requests")
    assert not (run.ran("uv") or run.order("cat", "ls"))
    assert run.ran("ls") == True != run.ran("uv")

class TestCase(unittest.TestCase):
    def test_unittest(self):
        self.assertTrue(Answer(False, "a()", "no"))
"""
LIST = """
    1  ls                              (0, 0.1 s)
    2  pip install requests            (0, 2.0 s)
    3  cat pyproject.toml              (0, 0.1 s)"""
RAN = f'assert run.ran("uv add")\n  the agent ran 3 commands:{LIST}'


ASKED = {
    "test_and": ('run.ran("ls") and run.ran("uv add")', 'ran("uv add"): false'),
    "test_or": ('run.ran("a") or run.ran("b")', 'ran("b"): false'),
    "test_any": ("any( run.ran(words) for", 'ran("uv add"): false'),
    "test_not_any": ("not any(run.ran(words) for", 'ran("ls"): true'),
    "test_comprehension": ("[words for words in", 'ran("b"): false'),
    "test_variable": ("ran", 'ran("uv add"): false'),
    "test_equal": ('run.ran("uv add") == True', 'ran("uv add"): false'),
}


@pytest.mark.parametrize("mode", ["rewrite", "plain"])
def test_the_message_of_an_assertion(mode: str, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest(f"--assert={mode}", "-p", "no:intercode")
    result.assert_outcomes(failed=17, passed=1)
    result.stdout.fnmatch_lines(['E*assert run.ran("uv add")', "E         the agent ran 3 com*"])
    lines = (pytester.path / "messages.jsonl").read_text().splitlines()
    messages = {
        name: text.removeprefix("AssertionError: ") for name, text in map(json.loads, lines)
    }
    assert messages["test_ran"] == RAN
    assert messages["test_helper"] == RAN
    assert messages["test_next_line"] == RAN.replace(
        "(0, 2.0 s)", "(0, 2.0 s)    <- not allowed by the next line"
    )
    assert messages["test_later_line"].splitlines()[-1].endswith("<- not allowed by line 15")
    assert messages["test_not"] == (
        'assert not run.ran("pip install")\n'
        "  the agent ran it in turn 2, with status 0:"
        + LIST.replace("(0, 2.0 s)", "(0, 2.0 s)    <- this one")
    )
    # pytest indents the lines of a message that it rewrites.
    assert messages["test_message"].replace("  in", "in") == f"it says so\nin AGENTS.md\n{RAN}"
    assert messages["test_given_text"].endswith("\n  nothing was changed:\n    \\x1b[2J")
    for test, (head, asked) in ASKED.items():
        first, second, third, *_ = messages[test].splitlines()
        assert first.startswith(f"assert {head}")
        assert second == f"  <{asked}>"
        assert third.startswith("  the agent ran")
    assert messages["test_asked_before"].startswith("two")
    assert messages["test_not_an_assertion"] == "ValueError: other"
    assert "is not true" in messages["test_unittest"]


def test_an_answer_is_a_truth_value() -> None:
    yes, no = Answer(True, "a()", "because"), Answer(False, "b()", lambda refusals: "so")
    assert (bool(yes), bool(no)) == (True, False)
    assert (yes == no, yes == Answer(True, "c()", ""), no == 0) == (False, True, False)
    assert yes.__eq__(True) is True
    assert (repr(yes), no.explanation) == ("<a(): true>", "so")
    assert {yes: 1}[Answer(True, "c()", "")] == 1


def test_an_error_without_a_trace_is_left_alone() -> None:
    assert not Answer(False, "a()", "")
    for error in (None, AssertionError("x"), ValueError("x")):
        explain(error)
        assert error is None or error.args == ("x",)
