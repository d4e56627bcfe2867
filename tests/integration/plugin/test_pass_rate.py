"""``pass_rate``: tries at a test that are judged together, and those that are left out."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from tests.conftest import PRETEND, results

SUITE = """\
env: bash
tasks:
  - {id: prints, query: Print hello., gold: echo hello}
  - {id: writes, query: Write., gold: echo hi > out.txt}
"""

# The agent of a try: it misses what MISSES says, and errs where ERRORS does.
CONFTEST = f"""
{PRETEND}
from pytest_intercode.errors import InfrastructureError

MISSES = {{MISSES}}
ERRORS = {{ERRORS}}


class Scripted:
    def __init__(self, action):
        self.actions = [action, "submit"]

    def act(self, observation):
        return self.actions.pop(0)


def pytest_intercode_make_agent(config, task):
    if task.repeat in ERRORS.get(task.id, ()):
        raise InfrastructureError("the machine is gone")
    missed = task.repeat in MISSES.get(task.id, ())
    return Scripted("echo other" if missed else task.gold[0])
"""
OWN_TEST = """
import pytest

@pytest.mark.intercode(suite="suite.yaml", {mark})
def test_own(intercode_episode):
    assert intercode_episode.reward == 1.0
"""
Play = Callable[..., pytest.RunResult]


@pytest.fixture
def play(pytester: pytest.Pytester) -> Play:
    """Return what runs two tasks five times each; the tries that miss are given by task."""

    def play(
        *options: str,
        errors: dict[str, list[int]] | None = None,
        rate: str = "--intercode-pass-rate=0.8",
        **misses: list[int],
    ) -> pytest.RunResult:
        conftest = CONFTEST.replace("{MISSES}", repr(misses))
        pytester.makeconftest(conftest.replace("{ERRORS}", repr(errors or {})))
        (pytester.path / "suite.yaml").write_text(SUITE)
        arguments = ("suite.yaml", "--intercode-agent=oracle", "--intercode-repeat=5", rate)
        run = pytester.runpytest_subprocess if "-n" in options else pytester.runpytest
        return run(*arguments, "--intercode-results=r.jsonl", "-p", "no:randomly", *options)

    return play


def _tries(pytester: pytest.Pytester) -> list[tuple[str, int]]:
    rows = results(pytester.path / "r.jsonl")
    return sorted((row["task_id"], row["repeat"]) for row in rows)


def test_misses_that_are_allowed(pytester: pytest.Pytester, play: Play) -> None:
    result = play("-rxs", prints=[2], writes=[5])
    # Four of the first five are solved before its last try; the other has four when the last runs.
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=8, xfailed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "XFAIL suite.yaml::test_solves[[]prints-2] - 1 of 1 misses that pass_rate=0.8 allows*",
            "SKIPPED *: not run: pass_rate=0.8 is reached (4 of 5 tries solved)",
        ]
    )
    assert _tries(pytester) == [
        *(("prints", n) for n in range(1, 6)),
        *(("writes", n) for n in range(1, 5)),
    ]
    row = results(pytester.path / "r.jsonl")[0]
    assert (row["tries"], row["pass_rate"]) == (5, 0.8)


def test_too_many_misses(pytester: pytest.Pytester, play: Play) -> None:
    result = play("-rs", prints=[1, 3])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1 + 4, xfailed=1, failed=1, skipped=2 + 1)
    result.stdout.fnmatch_lines(
        [
            "*- intercode pass rate -*",
            "2 of 3 tries missed, and pass_rate=0.8 allows 1 of 5",
            "SKIPPED *not run: pass_rate=0.8 is missed (2 of 3 tries missed, *",
        ]
    )


def test_all_tries_run_where_that_is_asked_for(pytester: pytest.Pytester, play: Play) -> None:
    result = play("--intercode-stop-early=false", prints=[1, 2, 3], writes=[5])
    result.assert_outcomes(passed=2 + 4, xfailed=1 + 1, failed=2)
    assert len(_tries(pytester)) == 10


@pytest.mark.parametrize(
    ("options", "misses", "code"),
    [
        pytest.param(*(("-n", "2"), [1, 5], pytest.ExitCode.TESTS_FAILED), marks=pytest.mark.slow),
        (("--intercode-concurrency=4",), [1, 5], pytest.ExitCode.TESTS_FAILED),
        (("--intercode-concurrency=4",), [2, 3], pytest.ExitCode.TESTS_FAILED),
        (("--intercode-concurrency=4",), [4], pytest.ExitCode.OK),
    ],
)
def test_the_verdict_is_the_same_side_by_side(
    play: Play, options: tuple[str, ...], misses: list[int], code: pytest.ExitCode
) -> None:
    """Under xdist each of the two workers has one miss, which it would allow by itself."""
    result = play(*options, "--intercode-stop-early=false", prints=misses)
    assert result.ret == code
    failed = len(misses) - 1
    result.assert_outcomes(passed=10 - len(misses), xfailed=1, failed=failed)
    early = play(*options, prints=misses)
    assert early.ret == code
    assert early.parseoutcomes().get("failed", 0) == failed


def test_errors_are_no_misses(play: Play) -> None:
    result = play(errors={"prints": [1]}, prints=[2])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    outcomes = result.parseoutcomes()
    assert outcomes["errors"] == 1
    assert outcomes["xfailed"] == 1


def test_a_suite_and_a_mark_say_it(pytester: pytest.Pytester, play: Play) -> None:
    play()
    suite = SUITE.replace("tasks:", "defaults: {repeat: 2, pass_rate: 0.5}\ntasks:")
    (pytester.path / "other.yaml").write_text(suite)
    pytester.makepyfile(OWN_TEST.format(mark="repeat=3, pass_rate=0.6, ids='prints'"))
    shown = pytester.runpytest("other.yaml", "--intercode-agent=oracle", "--co", "-q")
    shown.stdout.fnmatch_lines(["*writes-1]", "*writes-2]"])
    own = pytester.runpytest("--intercode-agent=oracle", "-v")
    own.assert_outcomes(passed=2, skipped=1)
    once = pytester.runpytest("--intercode-agent=oracle", "--intercode-repeat=1")
    once.assert_outcomes(passed=1)


def test_tests_of_ones_own_are_judged_by_their_asserts(
    pytester: pytest.Pytester, play: Play
) -> None:
    play(prints=[1])
    pytester.makepyfile(OWN_TEST.format(mark="repeat=5, pass_rate=0.8, ids='prints'"))
    result = pytester.runpytest("--intercode-agent=oracle")
    result.assert_outcomes(passed=4, xfailed=1)
    assert result.ret == pytest.ExitCode.OK


PROJECT_TEST = """
import pytest

@pytest.mark.intercode(project="small", repeat=5, pass_rate=0.8)
def test_rule(intercode_project, request):
    intercode_project.run("Do nothing.")
    assert not request.node.name.endswith(MISSED)
"""


def test_project_tests_have_one_too(
    pytester: pytest.Pytester, needs_sandboxes: object, small_suite: object
) -> None:
    options = ("--intercode-agent=agents.py:Idle", "--intercode-results=r.jsonl")
    (pytester.mkdir("small") / "README.md").write_text("small")
    pytester.makepyfile(PROJECT_TEST.replace("MISSED", "'-2]'"))
    result = pytester.runpytest(*options)
    result.assert_outcomes(passed=4, xfailed=1)
    rows = results(pytester.path / "r.jsonl")
    assert [(row["tries"], row["pass_rate"], row["outcome"]) for row in rows] == [
        (5, 0.8, "failed" if row["repeat"] == 2 else "solved") for row in rows
    ]
    pytester.makepyfile(PROJECT_TEST.replace("MISSED", "('-1]', '-2]')"))
    early = pytester.runpytest(*options)
    early.assert_outcomes(xfailed=1, failed=1, skipped=3)


def test_one_that_is_selected_has_to_pass(pytester: pytest.Pytester, play: Play) -> None:
    result = play("-k", "prints-2", prints=[2])
    result.assert_outcomes(failed=1)
    assert results(pytester.path / "r.jsonl")[0].get("tries") is None
    play(prints=[2, 3])
    again = play("--lf", prints=[2])
    again.assert_outcomes(passed=1)  # the third, which was one miss too many


def test_a_run_goes_on_with_its_verdicts(pytester: pytest.Pytester, play: Play) -> None:
    play(prints=[1, 2], writes=[3])
    tries = len(_tries(pytester))
    result = play("--intercode-resume", prints=[1, 2], writes=[3])
    result.assert_outcomes(passed=4, xfailed=2, failed=1, skipped=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(_tries(pytester)) == tries


def test_maxfail_does_not_count_what_is_allowed(play: Play) -> None:
    result = play("-x", prints=[1], writes=[1, 2])
    result.assert_outcomes(passed=4, xfailed=2, failed=1)


def test_junit_has_what_pytest_shows(pytester: pytest.Pytester, play: Play) -> None:
    play("--junitxml=junit.xml", prints=[1], writes=[1, 2])
    (suite,) = ElementTree.parse(pytester.path / "junit.xml").getroot()
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "10", "failures": "1", "errors": "0", "skipped": "5"}


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("repeat=0", "*(repeat=0): a whole number above 0 is needed"),
        ("repeat=True", "*(repeat=True): a whole number above 0 is needed"),
        ("repeat=5, pass_rate=80", "*(pass_rate=80): a number above 0 and up to 1 is needed*"),
        ("pass_rate=0.8", "*(pass_rate=0.8): a pass rate needs several tries; give their number*"),
    ],
)
def test_marks_that_say_nothing(
    pytester: pytest.Pytester, play: Play, mark: str, message: str
) -> None:
    play("--co")
    pytester.makepyfile(OWN_TEST.format(mark=mark))
    result = pytester.runpytest("--intercode-agent=oracle")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])
