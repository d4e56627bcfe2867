"""Environments of the user's that raise: a task-error in one line, which loses no episode."""

from __future__ import annotations

from fnmatch import fnmatch

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


KIND = """\
from pytest_intercode import EnvironmentKind


class Kind(EnvironmentKind):
    def check(self):
        pass


"""

SHELL = """\
from pytest_intercode import Reward, ShellEnvironment, register_environment


@register_environment
class Text(ShellEnvironment):
    name = "guess"

    def grade(self, answer):
        return Reward(float(self.read_file("text.txt", 100) == b"7"))
"""


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


def test_a_check_of_a_kind_that_raises_is_a_mistake_of_the_suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pytester.path / "kinds.py").write_text(KIND)
    monkeypatch.syspath_prepend(str(pytester.path))
    run = play(pytester, "import kinds; kind = kinds.Kind", "--intercode-agent=oracle")
    run.stdout.fnmatch_lines(
        ["*guess.yaml:3: task 'a': check() of the environment 'guess' raised Ty*kinds.py:5)"]
    )
    run.stdout.no_fnmatch_line("*pytest_intercode/*.py*")


def test_a_mistake_in_a_conftest_shows_no_line_of_ours(pytester: pytest.Pytester) -> None:
    run = play(pytester, "kind = 'guess'")
    run.stderr.fnmatch_lines(["*kind: a subclass of EnvironmentKind is needed, found 'guess'"])
    run.stderr.no_fnmatch_line("*registry.py*")


@pytest.mark.usefixtures("needs_sandboxes")
@pytest.mark.parametrize(
    ("action", "outcome", "reason"),
    [
        ("printf 7 > text.txt", "solved", ""),
        ("printf 8 > text.txt", "failed", ""),
        ("true", "failed", "what was left cannot be graded: /*text.txt is not a file, *"),
    ],
)
def test_a_grade_reads_files(
    pytester: pytest.Pytester, action: str, outcome: str, reason: str, quick_sandbox: str
) -> None:
    pytester.makeconftest(SHELL)
    (pytester.path / "text.yaml").write_text(
        f"env: guess\ntasks:\n  - {{id: a, query: q, workdir: /work, gold: {action!r}}}\n"
    )
    pytester.runpytest_subprocess(
        "text.yaml", "--intercode-agent=oracle", "--intercode-results=r.jsonl", quick_sandbox
    )
    (row,) = results(pytester.path / "r.jsonl")
    assert row["outcome"] == outcome
    assert fnmatch(row["reason"], reason)
