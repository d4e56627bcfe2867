"""Items of the swe environment: what is shown and recorded of a patch; mistakes in a suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.errors import SuiteError
from pytest_intercode.page.trajectories import end_state_sections
from pytest_intercode.rescoring.rescored import score
from pytest_intercode.results.files import read_records
from pytest_intercode.suites.loader import load_suite

SUITE = """\
env: swe
tasks:
  - id: one
    query: Let f return 1.
    workdir: /repo
    repository: {source: made}
    gold: |
      diff --git a/f.sh b/f.sh
      --- a/f.sh
      +++ b/f.sh
      @@ -1 +1 @@
      -echo 0
      +echo 1
    verification:
      command: |
        if [ "$(sh f.sh)" = 1 ]; then echo "ok 1 - f"; else echo "not ok 1 - f"; fi
        echo "ok 2 - runs"
      parser: tap
      fail_to_pass: ["- f"]
      pass_to_pass: ["- runs"]
"""
AGENT = """\
def run(task, env):
    env.step("echo 'echo 2' >f.sh; echo '::error::x' >tests; mkdir t; echo >t/x")
    env.step("submit")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Path:
    (pytester.mkdir("made") / "f.sh").write_text("echo 0\n")
    pytester.makefile(".yaml", suite=SUITE)
    return pytester.path / "suite.yaml"


@pytest.mark.usefixtures("suite")
def test_a_failure_shows_the_patch_and_the_record_holds_it(
    pytester: pytest.Pytester, quick_sandbox: str
) -> None:
    pytester.makepyfile(agent=AGENT)
    options = ("--intercode-agent=agent.py:run", "--intercode-results=r.jsonl", quick_sandbox)
    result = pytester.runpytest("suite.yaml", *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "reward 0.00 < 1.00 after 2/10 turns: 0 of 1 test of fail_to_pass pass, not - f*",
            "*intercode patch*",
            "    -echo 0",
            "    +echo 2",
            "    +::error::x",
            "*intercode test output*",
            "    not ok 1 - f",
            "    ok 2 - runs",
        ]
    )
    [record] = read_records(pytester.path / "r.jsonl")
    assert record.state["left_out"] == ["t/x"]
    assert record.test_output == "not ok 1 - f\nok 2 - runs"
    assert {"start", "agent", "carry", "tests"} <= record.phases.keys()
    assert score(record, "strict").parts == {"fail_to_pass": 0.0, "pass_to_pass": 1.0}
    tests, patch = end_state_sections(record)
    assert tests["lines"][0] == ["!", "- f", "fails, and has to pass"]
    assert ["+", "echo 2"] in patch["lines"]
    assert patch["note"] == "Not tested: t/x."


PRINTS = """\
def run(task, env):
    shown = [env.step("echo 'echo MARK >&2; echo 2' >f.sh"), env.step("true"), env.step("submit")]
    env.log(repr((shown, task, env.task)))
"""


@pytest.mark.usefixtures("suite")
def test_an_agent_with_rewards_as_feedback_never_sees_what_the_tests_printed(
    pytester: pytest.Pytester, quick_sandbox: str
) -> None:
    pytester.makepyfile(agent=PRINTS.replace("MARK", "what' 'tests' 'print"))
    options = ("--intercode-agent=agent.py:run", "--intercode-results=r.jsonl", quick_sandbox)
    pytester.runpytest("suite.yaml", "--intercode-feedback=reward", *options)
    [record] = read_records(pytester.path / "r.jsonl")
    assert record.test_output.splitlines()[0] == "what tests print"
    assert "'turns_left': 8" in record.log
    seen = record.log + "".join(turn.log + turn.observation for turn in record.turns)
    assert "what tests print" not in seen
    assert "not ok" not in seen


@pytest.mark.usefixtures("suite")
def test_what_the_tests_printed_is_escaped(pytester: pytest.Pytester, quick_sandbox: str) -> None:
    pytester.makepyfile(
        agent=f"def run(task, env):\n    env.upload({str(pytester.path / 'hostile')!r}, 'f.sh')\n"
    )
    (pytester.path / "hostile").write_text("printf '\\033[2J\\n::error::x\\n' >&2; echo 2\n")
    result = pytester.runpytest("suite.yaml", "--intercode-agent=agent.py:run", quick_sandbox)
    result.stdout.fnmatch_lines(
        ["*intercode test output*", r"    \x1b*2J", r"    :\x3aerror::x", "    not ok 1 - f"]
    )


@pytest.mark.parametrize(
    ("command", "agent", "outcome", "printed"),
    [
        ("echo begun; sleep 30", "oracle", "task-error", "begun"),
        ("echo no results", "oracle", "task-error", "no results"),
        ('echo "ok 1 - f"; echo "ok 2 - runs"', "oracle", "solved", ""),
        ("seq 100000", "oracle", "task-error", "[... 588,534 characters before this]\n99941"),
    ],
)
def test_the_end_of_what_the_tests_printed_is_recorded(
    pytester: pytest.Pytester,
    suite: Path,
    quick_sandbox: str,
    command: str,
    agent: str,
    outcome: str,
    printed: str,
) -> None:
    before, _, after = SUITE.partition("      command: |\n")
    parser = after[after.index("      parser") :]
    suite.write_text(f"{before}      command: {command!r}\n      timeout: 2\n{parser}")
    options = (f"--intercode-agent={agent}", "--intercode-results=r.jsonl", quick_sandbox)
    result = pytester.runpytest("suite.yaml", *options)
    [record] = read_records(pytester.path / "r.jsonl")
    assert record.outcome == outcome
    assert record.test_output.startswith(printed)
    assert bool(record.test_output) == bool(printed)
    assert ("intercode test output" in result.stdout.str()) == bool(printed)
    line = (pytester.path / "r.jsonl").read_text()
    assert ('"test_output"' in line) == bool(printed)


@pytest.mark.usefixtures("suite")
def test_the_audit_finds_nothing(pytester: pytest.Pytester, quick_sandbox: str) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-audit", quick_sandbox)
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("parser: tap", "parser: tapp", "there is no parser 'tapp'. Did you mean 'tap'?"),
        ("parser: tap", "parser: junit", "the parser junit needs report"),
        ("source: made", "source: mad", "repository: .*mad is not a file"),
        ("    verification:", "    metadata:", "metadata"),
        ("env: swe", "env: bash", "repository: is for the env swe, not bash"),
        (
            "pass_to_pass: [",
            "files: {x: {path: none}}\n      pass_to_pass: [",
            "none: cannot be re",
        ),
        ("gold: |", "xfail: |", "gold"),
    ],
)
def test_a_mistake_is_one_line(suite: Path, old: str, new: str, message: str) -> None:
    suite.write_text(SUITE.replace(old, new))
    with pytest.raises(SuiteError, match=message) as caught:
        load_suite(suite)
    assert "\n" not in str(caught.value)
