"""Environments of the user's that raise: a task-error in one line, which loses no episode."""

from __future__ import annotations

import pytest

from tests.conftest import results

CONFTEST = """\
from pytest_intercode import Environment, Observation, Reward, register_environment


class Base(Environment):
    name = "guess"

    @classmethod
    def sandboxes(cls, task, provider):
        return []

    def start(self, task):
        self.number = 0

    def execute(self, action):
        self.number = int(action)
        return Observation("")

    def grade(self, answer):
        return Reward(float(self.number == 7))

    def stop(self):
        pass

    def interrupt(self):
        pass


"""

SUITE = """\
env: guess
tasks:
  - {id: a, query: q, gold: "7"}
  - {id: b, query: q, gold: "7"}
"""

RAISES = "{}(self, *_):\n        raise KeyError('x')"


def play(pytester: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    """Play two tasks in an environment with this method."""
    pytester.makeconftest(
        CONFTEST + "@register_environment\nclass Guess(Base):\n    " + body + "\n"
    )
    (pytester.path / "guess.yaml").write_text(SUITE)
    (pytester.path / "agents.py").write_text(
        "class Guesser:\n    def act(self, observation):\n        return 'seven'\n"
    )
    return pytester.runpytest_subprocess("guess.yaml", "--intercode-results=r.jsonl", *options)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def " + RAISES.format("start"), "start() raised KeyError: 'x' (*conftest.py:31)"),
        ("def " + RAISES.format("execute"), "execute() raised KeyError: 'x' (*conftest.py:31)"),
        ("def " + RAISES.format("grade"), "grade() raised KeyError: 'x' (*conftest.py:31)"),
        ("def " + RAISES.format("stop"), "stop() raised KeyError: 'x' (*conftest.py:31)"),
        ("def " + RAISES.format("end_state"), "end_state() raised KeyError: *conftest.py:31)"),
        ("def " + RAISES.format("submission"), "submission() raised KeyError*conftest.py:31)"),
        ("def execute(self):\n        ...", "execute() raised TypeError: *conftest.py:30)"),
        ("def __init__(self):\n        ...", "__init__() raised TypeError: *conftest.py:30)"),
        (
            "@classmethod\n    def sandboxes(cls):\n        ...",
            "sandboxes() raised TypeError: *conftest.py:30)",
        ),
    ],
)
def test_what_raises_is_the_tasks_fault(pytester: pytest.Pytester, body: str, words: str) -> None:
    # Both ways to run episodes, by turns.
    run = play(
        pytester, body, "--intercode-agent=oracle", f"--intercode-concurrency={1 + len(words) % 2}"
    )
    run.assert_outcomes(errors=2)
    rows = results(pytester.path / "r.jsonl")
    assert [row["outcome"] for row in rows] == ["task-error"] * 2
    run.stdout.fnmatch_lines([f"*the environment 'guess': {words}"])
    run.stdout.no_fnmatch_line("*pytest_intercode/*.py*")


def test_an_action_that_it_does_not_expect_is_not_the_agents_error(
    pytester: pytest.Pytester,
) -> None:
    run = play(pytester, "pass", "--intercode-agent=agents:Guesser")
    run.assert_outcomes(errors=2)
    run.stdout.fnmatch_lines(["*execute() raised ValueError: invalid literal*conftest.py:15)"])


def test_a_grade_stays_where_stop_raises_after_it(pytester: pytest.Pytester) -> None:
    body = "def stop(self):\n        if self.final: raise KeyError('x')"
    run = play(pytester, body, "--intercode-agent=oracle")
    run.assert_outcomes(passed=2, errors=2)
    assert [row["outcome"] for row in results(pytester.path / "r.jsonl")] == ["solved"] * 2
    run.stdout.fnmatch_lines(["*stop() raised KeyError: 'x' (*conftest.py:31)"])
    run.stdout.no_fnmatch_line("*pytest_intercode/*.py*")
