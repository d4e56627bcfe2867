"""``--intercode-baseline`` and ``--intercode-fail-under``: what the exit code says of an agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

import pytest

from pytest_intercode.cli import main
from tests.conftest import PRETEND, results
from tests.support.page_rows import index_of

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, pretend: object) -> Run:
    """Run the small suite with an agent, and with options."""

    def run(agent: str, *options: str) -> pytest.RunResult:
        return pytester.runpytest("suite.yaml", f"--intercode-agent=agents.py:{agent}", *options)

    return run


@pytest.fixture
def baseline(pytester: pytest.Pytester, run: Run) -> Callable[..., str]:
    """Make a baseline with an agent; return the option."""

    def baseline(agent: str, *options: str) -> str:
        run(agent, "--intercode-results=base.jsonl", *options)
        return "--intercode-baseline=base.jsonl"

    return baseline


def _exit(result: pytest.RunResult) -> pytest.ExitCode:
    return pytest.ExitCode(result.ret)


# -- the baseline


def test_nothing_got_worse(run: Run, baseline: Callable[..., str]) -> None:
    result = run("OnlyPrints", baseline("OnlyPrints"))
    result.assert_outcomes(passed=1, xfailed=2)
    assert _exit(result) is pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["gate: compared with base.jsonl: *"])


def test_a_regression_fails(run: Run, baseline: Callable[..., str]) -> None:
    result = run("Idle", baseline("OnlyPrints"))
    result.assert_outcomes(failed=1, xfailed=2)
    assert _exit(result) is pytest.ExitCode.TESTS_FAILED


def test_one_agent_of_two_is_compared_with_itself(
    pytester: pytest.Pytester, run: Run, baseline: Callable[..., str]
) -> None:
    """What the other one never solved may not fail for that; of a third agent it may."""
    option = baseline("OnlyPrints", "--intercode-agent=agents.py:Idle")
    run("Idle", option).assert_outcomes(xfailed=3)
    run("OnlyPrints", option).assert_outcomes(passed=1, xfailed=2)
    agents = pytester.path / "agents.py"
    agents.write_text(f"{agents.read_text()}\n\nclass Third(Idle):\n    pass\n")
    run("Third", option).assert_outcomes(xfailed=3)
    agents.write_text(f"{agents.read_text()}\n\nclass OnlyPrints(Idle):\n    pass\n")
    worse = run("OnlyPrints", option, "--intercode-results=r.jsonl")
    worse.assert_outcomes(failed=1, xfailed=2)
    assert main(["gate", "r.jsonl", "--baseline=base.jsonl"]) == worse.ret == 1


def test_an_improvement_is_an_unexpected_pass(run: Run, baseline: Callable[..., str]) -> None:
    result = run("Solver", baseline("OnlyPrints"))
    result.assert_outcomes(passed=1, xpassed=2)
    assert _exit(result) is pytest.ExitCode.OK


@pytest.mark.parametrize("options", [("-n", "2"), ("--intercode-concurrency=3",)])
def test_side_by_side(
    pytester: pytest.Pytester, baseline: Callable[..., str], options: tuple[str, ...]
) -> None:
    result = pytester.runpytest_subprocess(
        *("suite.yaml", "--intercode-agent=agents.py:Idle", baseline("OnlyPrints"), *options)
    )
    result.assert_outcomes(failed=1, xfailed=2)
    assert _exit(result) is pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["gate: compared with base.jsonl: *"])


def test_a_task_that_is_new_must_be_solved(
    pytester: pytest.Pytester, run: Run, baseline: Callable[..., str]
) -> None:
    option = baseline("OnlyPrints", "--intercode-limit=1")
    result = run("OnlyPrints", option)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["gate: compared with base.jsonl (2 tasks are not in it): *"])


def test_a_task_that_was_not_always_solved_may_fail(
    pytester: pytest.Pytester, run: Run, baseline: Callable[..., str]
) -> None:
    option = baseline("Solver", "--intercode-repeat=2")
    rows = results(pytester.path / "base.jsonl")
    for row in rows:
        if row["task_id"] == "writes" and row["repeat"] == 2:
            row["outcome"], row["reward"] = "failed", 0.0
    (pytester.path / "base.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run("Idle", option)
    result.assert_outcomes(failed=2, xfailed=1)
    shown = run("Idle", option, "-rx")
    shown.stdout.fnmatch_lines(["XFAIL *writes* - 1 of 2 tries solved in base.jsonl*"])


def test_a_drop_within_what_may_fail_fails_all_the_same(pytester: pytest.Pytester) -> None:
    """Of forty tasks that were solved most of the time, none is solved any more."""
    pytester.makeconftest(PRETEND)
    tasks = [{"query": f"Print {n}.", "gold": f"echo {n}"} for n in range(40)]
    (pytester.path / "rows.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    pytester.makefile(".yaml", many="env: bash\nrows: {path: rows.jsonl}\n")
    pytester.makepyfile(agents="class Idle:\n    def act(self, observation): return 'submit'\n")
    oracle = ("many.yaml", "--intercode-agent=oracle", "--intercode-repeat=3")
    pytester.runpytest(*oracle, "--intercode-results=base.jsonl")
    rows = results(pytester.path / "base.jsonl")
    for row in rows:
        if row["repeat"] == 3:
            row["outcome"], row["reward"] = "failed", 0.0
    (pytester.path / "base.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--intercode-repeat=3", "--intercode-baseline=base.jsonl")
    result = pytester.runpytest("many.yaml", "--intercode-agent=agents.py:Idle", *options)
    result.assert_outcomes(xfailed=120)
    assert _exit(result) is pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["gate: compared with base.jsonl: regressed*"])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--intercode-repeat=3",), pytest.ExitCode.OK),
        (("--intercode-repeat=3", "--intercode-gate=tasks"), pytest.ExitCode.TESTS_FAILED),
        ((), pytest.ExitCode.TESTS_FAILED),
        (("--intercode-gate=verdict",), pytest.ExitCode.OK),
    ],
)
def test_one_task_may_be_luck(
    run: Run, baseline: Callable[..., str], options: tuple[str, ...], code: pytest.ExitCode
) -> None:
    """One of three tasks is not solved any more: that is a task, and no verdict."""
    option = baseline("OnlyPrints", *options[:1])
    result = run("Idle", option, *options)
    assert result.parseoutcomes()["failed"] > 0
    assert _exit(result) is code
    result.stdout.fnmatch_lines(["gate: compared with base.jsonl: too few samples*"])


def test_no_gate(run: Run) -> None:
    result = run("Idle", "--intercode-gate=verdicts")
    assert _exit(result) is pytest.ExitCode.USAGE_ERROR
    said = "*--intercode-gate=verdicts: allowed are tasks, verdict. Did you mean 'verdict'?"
    result.stderr.fnmatch_lines([said])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no such results file"),
        ("", "contains no graded episodes"),
        ("nonsense\n", ":1: not JSON"),
        (
            '{"task_id": "1", "query": "q", "turn_history": {"actions": []}}\n',
            "has rows without an outcome*",
        ),
    ],
)
def test_no_baseline(pytester: pytest.Pytester, run: Run, content: str | None, said: str) -> None:
    if content is not None:
        (pytester.path / "base.jsonl").write_text(content)
    result = run("Idle", "--intercode-baseline=base.jsonl")
    assert _exit(result) is pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *base.jsonl*{said}*"])


def test_the_baseline_is_not_written_over(
    pytester: pytest.Pytester, run: Run, baseline: Callable[..., str]
) -> None:
    option = baseline("Solver")
    before = (pytester.path / "base.jsonl").read_bytes()
    result = run("Idle", option, "--intercode-results=base.jsonl")
    assert _exit(result) is pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--intercode-results=*base.jsonl: this is the baseline, and it*"])
    assert (pytester.path / "base.jsonl").read_bytes() == before


def test_a_baseline_of_other_tasks(
    pytester: pytest.Pytester, run: Run, baseline: Callable[..., str]
) -> None:
    option = baseline("Solver")
    text = (pytester.path / "suite.yaml").read_text()
    (pytester.path / "suite.yaml").write_text(text.replace("- id: ", "- id: new-"))
    result = run("Idle", option)
    assert _exit(result) is pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["gate: inconclusive: no task of this run has its result in*"])


# -- the rate


@pytest.mark.parametrize(
    ("rate", "code"),
    [
        ("0.3", pytest.ExitCode.OK),
        ("33%", pytest.ExitCode.OK),
        ("0.34", pytest.ExitCode.TESTS_FAILED),
        ("lower:0.06", pytest.ExitCode.OK),  # Wilson, 1 of 3: 0.0615 to 0.7923
        ("lower:0.07", pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_the_exit_code_goes_by_the_rate(run: Run, rate: str, code: pytest.ExitCode) -> None:
    result = run("OnlyPrints", f"--intercode-fail-under={rate}")
    result.assert_outcomes(passed=1, failed=2)
    assert _exit(result) is code
    verb = "reaches" if code is pytest.ExitCode.OK else "is under"
    result.stdout.fnmatch_lines([f"gate: the rate* {verb} *(1 of 3 solved, 95 % interval *"])


@pytest.mark.slow
def test_side_by_side_by_the_rate(pytester: pytest.Pytester, pretend: object) -> None:
    agent = "--intercode-agent=agents.py:OnlyPrints"
    for options in (("-n", "2"), ("--intercode-concurrency=3",)):
        result = pytester.runpytest_subprocess(
            "suite.yaml", agent, "--intercode-fail-under=0.3", *options
        )
        result.assert_outcomes(passed=1, failed=2)
        assert _exit(result) is pytest.ExitCode.OK


@pytest.mark.parametrize(
    "code",
    [
        "def test_other(): assert False",
        "def test_other(nothing): pass",
        "import nothing_of_this_name",
    ],
    ids=["test", "setup", "collection"],
)
def test_other_failures_are_not_made_good(
    pytester: pytest.Pytester, pretend: object, code: str
) -> None:
    pytester.makepyfile(test_other=code)
    options = ("--intercode-agent=agents.py:OnlyPrints", "--intercode-fail-under=0.3")
    result = pytester.runpytest("suite.yaml", "test_other.py", *options)
    assert _exit(result) is not pytest.ExitCode.OK


OWN = """
import pytest

@pytest.mark.intercode(suite="suite.yaml")
def test_own(intercode_episode):
    assert {}
"""


@pytest.mark.parametrize(
    ("agent", "asserts", "rate", "passed", "more"),
    [
        ("Idle", "intercode_episode.reward < 1", "100.0%", True, ()),  # it is to fail
        # more than the reward
        ("Solver", "len(intercode_episode.turns) > 5", "0.0%", False, ()),
        ("OnlyPrints", "intercode_episode.outcome != 'timed-out'", "100.0%", True, ()),
        pytest.param(
            *("OnlyPrints", "intercode_episode.reward == 1", "33.3%", False, ("-n", "2")),
            marks=pytest.mark.slow,
        ),
        ("Idle", "intercode_episode.reward < 1", "100.0%", True, ("--intercode-concurrency=2",)),
    ],
)
def test_a_test_of_ones_own_is_solved_where_it_passes(
    pytester: pytest.Pytester,
    pretend: object,
    agent: str,
    asserts: str,
    rate: str,
    passed: bool,
    more: tuple[str, ...],
) -> None:
    pytester.makepyfile(test_own=OWN.format(asserts))
    result = pytester.runpytest_subprocess(
        *("test_own.py", f"--intercode-agent=agents.py:{agent}", "--intercode-repeat=2"),
        *("--intercode-fail-under=0.9", "--intercode-results=r.jsonl", *more),
    )
    assert _exit(result) is (pytest.ExitCode.OK if passed else pytest.ExitCode.TESTS_FAILED)
    verb = "reaches" if passed else "is under"
    result.stdout.fnmatch_lines([f"gate: the rate, {rate}, {verb} 90.0% (*"])
    rows = results(pytester.path / "r.jsonl")
    assert len(rows) == 6
    verdicts = result.parseoutcomes()
    counts = f"{verdicts.get('passed', 0)} passed, {verdicts.get('failed', 0)} failed"
    line = f"solved is what tests of your own say of their episodes: {counts}"
    result.stdout.fnmatch_lines([line])
    assert sum(row["test_passed"] for row in rows) == verdicts.get("passed", 0)
    solved = {row["task_id"] for row in rows if row["outcome"] == "solved"}
    assert len(solved) == {"Idle": 0, "OnlyPrints": 1, "Solver": 3}[agent]


def test_its_verdict_is_compared_with_the_baselines(
    pytester: pytest.Pytester, pretend: object
) -> None:
    pytester.makepyfile(test_own=OWN.format("intercode_episode.reward < 1"))
    pytester.runpytest(
        "test_own.py", "--intercode-agent=agents.py:Idle", "--intercode-results=b.jsonl"
    )
    compared = ("test_own.py", "--intercode-baseline=b.jsonl")
    result = pytester.runpytest(*compared, "--intercode-agent=agents.py:Idle")
    result.assert_outcomes(passed=3)
    result = pytester.runpytest(*compared, "--intercode-agent=agents.py:Solver")
    result.assert_outcomes(failed=3)
    assert _exit(result) is pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("mark", "counts"),
    [
        ("pytest.skip()", None),
        ("pytest.xfail()", False),
        ("pass", True),
        ("raise ValueError", False),
    ],
)
def test_what_is_a_verdict(
    pytester: pytest.Pytester, pretend: object, mark: str, counts: bool | None
) -> None:
    code = f"{OWN.format('intercode_episode.run()')}    {mark}\n"
    pytester.makepyfile(test_own=code)
    agent = "--intercode-agent=agents.py:Solver"
    pytester.runpytest("test_own.py", agent, "--intercode-limit=1", "--intercode-results=r.jsonl")
    [row] = results(pytester.path / "r.jsonl")
    assert row.get("test_passed") is counts


def test_a_task_of_a_suite_has_no_verdict_of_its_own(pytester: pytest.Pytester, run: Run) -> None:
    run("Solver", "--intercode-results=r.jsonl")
    assert not any("test_passed" in row for row in results(pytester.path / "r.jsonl"))


def test_a_run_that_is_stopped_is_not_judged(run: Run) -> None:
    result = run("Idle", "--intercode-fail-under=0.1", "-x")
    assert _exit(result) is pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["gate: incomplete, so the gate was not evaluated"])


@pytest.mark.parametrize("value", ["0", "2", "-1", "most", "upper:0.5", "120%", "lower:"])
def test_no_rate(run: Run, value: str) -> None:
    result = run("Idle", f"--intercode-fail-under={value}")
    assert _exit(result) is pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--intercode-fail-under={value}: a rate above 0 *"])


# -- the infrastructure

BROKEN = """

from pytest_intercode.errors import SandboxError


class Broken(Pretend):
    def start(self, task):
        super().start(task)
        if task.id == "writes":
            raise SandboxError("the engine is on fire")


def pytest_intercode_make_environment(config, task):
    return Broken(None)
"""


@pytest.mark.parametrize("concurrency", ["1", "3"])
def test_infrastructure_is_never_a_pass(
    pytester: pytest.Pytester, run: Run, baseline: Callable[..., str], concurrency: str
) -> None:
    """Not even where the agent may fail."""
    option = baseline("OnlyPrints")
    with (pytester.path / "conftest.py").open("a") as file:
        file.write(BROKEN)
    ahead = f"--intercode-concurrency={concurrency}"
    result = run("OnlyPrints", option, ahead)
    result.assert_outcomes(passed=1, errors=1, xfailed=1)
    assert _exit(result) is pytest.ExitCode.TESTS_FAILED
    said = "gate: inconclusive: 1 episode was lost to infrastructure errors"
    result.stdout.fnmatch_lines([said])
    by_rate = run("OnlyPrints", "--intercode-fail-under=0.1", ahead)
    assert _exit(by_rate) is pytest.ExitCode.TESTS_FAILED
    by_rate.stdout.fnmatch_lines([said])


def test_a_fault_of_a_task_is_named_and_does_not_count(
    pytester: pytest.Pytester, run: Run, baseline: Callable[..., str]
) -> None:
    option = baseline("OnlyPrints")
    with (pytester.path / "conftest.py").open("a") as file:
        file.write(
            BROKEN.replace("SandboxError", "GoldError").replace('== "writes"', '== "prints"')
        )
    by_rate = run("Solver", "--intercode-fail-under=0.1")
    by_rate.assert_outcomes(passed=2, errors=1)
    assert _exit(by_rate) is pytest.ExitCode.OK
    said = "gate: not counted: 1 task has an error of its own (suite/prints)"
    by_rate.stdout.fnmatch_lines([said, "gate: the rate, 100.0%, reaches 10.0% (2 of 2 solved*"])
    by_tasks = run("Solver", option)
    assert _exit(by_tasks) is pytest.ExitCode.TESTS_FAILED  # an item that was solved has an ERROR
    by_tasks.stdout.fnmatch_lines([said])
    assert "inconclusive" not in by_tasks.stdout.str()


# -- the page


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_the_page_compares_with_the_baseline(
    pytester: pytest.Pytester, baseline: Callable[..., str], options: tuple[str, ...]
) -> None:
    option = baseline("OnlyPrints")
    page = pytester.path / "page.html"
    run = pytester.runpytest_subprocess if options else pytester.runpytest
    run("suite.yaml", "--intercode-agent=agents.py:Idle", option, f"--intercode-html={page}",
        "--intercode-fail-under=0.5", *options)  # fmt: skip
    index = index_of(page)
    assert index["runs"] == ["base.jsonl", "agents.py:Idle on suite"]
    assert [task[0] for task in index["tasks"]] == ["prints", "writes", "both"]
    assert [index["changes"][task[8]] for task in index["tasks"]] == ["failed now", "same", "same"]
    reasons = [index["reasons"][task[7][0][5]] for task in index["tasks"]]
    assert reasons == ["not what gold does"] * 3
    text = page.read_text("utf-8")
    assert "<h1>agents.py:Idle on suite</h1>" in text
    assert "too few samples</strong>" in text
    assert "<li>the rate, 0.0%, is under 50.0%" in text
    assert "<li>compared with" not in text  # it is the verdict


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        (("Solver",), "passed</strong> no task failed that has to be solved"),
        (("OnlyPrints",), "failed</strong> 2 tasks were not solved (suite/writes, suite/both)"),
        (("OnlyPrints", "--intercode-fail-under=0.3"), "passed</strong> the rate, 33.3%, reaches"),
        (("OnlyPrints", "--intercode-fail-under=0.5"), "failed</strong> the rate, 33.3%, is under"),
    ],
)
def test_the_page_says_what_the_exit_code_says(
    pytester: pytest.Pytester, run: Run, options: tuple[str, ...], verdict: str
) -> None:
    result = run(*options, "--intercode-html=page.html")
    assert verdict in (pytester.path / "page.html").read_text("utf-8")
    assert verdict.startswith("passed") == (_exit(result) is pytest.ExitCode.OK)


@pytest.mark.parametrize("options", [(), ("--intercode-fail-under=0.3",)])
@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("def test_own(): assert 0", "1 test failed for another reason * (test_own.py::test_own)"),
        (
            "import pytest\n@pytest.fixture\ndef broken(): 1 / 0\ndef test_own(broken): pass",
            "1 test failed for another reason * (test_own.py::test_own)",
        ),
    ],
)
def test_the_page_does_not_pass_what_pytest_fails(
    pytester: pytest.Pytester, run: Run, options: tuple[str, ...], test: str, reason: str
) -> None:
    pytester.makepyfile(test_own=test)
    result = run("Solver", "test_own.py", "--intercode-html=page.html", *options)
    assert _exit(result) is pytest.ExitCode.TESTS_FAILED
    text = (pytester.path / "page.html").read_text("utf-8")
    assert fnmatch(text, f'*class="verdict failed"><strong>failed</strong> {reason}*')


@pytest.mark.parametrize(
    ("agent", "status", "verdict"),
    [
        ("OnlyPrints", 0, "passed</strong> pytest passed the run; of its tasks: 2 tasks were not"),
        ("Solver", 1, "failed</strong> pytest ended with exit status 1"),
    ],
)
def test_the_page_says_what_another_plugin_decided(
    pytester: pytest.Pytester, run: Run, agent: str, status: int, verdict: str
) -> None:
    pytester.makeconftest(
        f"""{PRETEND}
def pytest_sessionfinish(session):
    session.exitstatus = {status}
"""
    )
    run(agent, "--intercode-html=page.html")
    assert verdict in (pytester.path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("options", [(), ("--intercode-fail-under=0.3",)])
def test_the_page_of_a_run_that_was_ended(
    pytester: pytest.Pytester, pretend: object, options: tuple[str, ...]
) -> None:
    pytester.makeconftest(
        f"""{PRETEND}
def pytest_runtest_teardown(item):
    raise KeyboardInterrupt
"""
    )
    result = pytester.runpytest_inprocess(
        *("suite.yaml", "--intercode-agent=agents.py:Solver", "--intercode-html=page.html"),
        *options,
        no_reraise_ctrlc=True,
    )
    assert _exit(result) is pytest.ExitCode.INTERRUPTED
    text = (pytester.path / "page.html").read_text("utf-8")
    assert "incomplete</strong> the run was ended" in text


def test_a_page_without_the_baseline_that_went_away(
    pytester: pytest.Pytester, run: Run, baseline: Callable[..., str]
) -> None:
    option = baseline("OnlyPrints")
    pytester.makeconftest(
        f"""{PRETEND}
def pytest_sessionfinish():
    import pathlib
    pathlib.Path("base.jsonl").unlink()
"""
    )
    result = run("Idle", option, "--intercode-html=page.html", "--intercode-run-name=Mine <b>")
    said = ["*base.jsonl: there is no such results file", "a page to look at: *page.html"]
    result.stdout.fnmatch_lines(said)
    assert len(index_of(pytester.path / "page.html")["runs"]) == 1
    text = (pytester.path / "page.html").read_text("utf-8")
    assert "<h1>Mine &lt;b&gt;</h1>" in text
    assert "<li>compared with base.jsonl: too few samples" in text


# -- the summary of a job


def test_the_step_summary(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = pytester.path / "summary.md"
    target.write_text("what an earlier step said\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    run("OnlyPrints", "--intercode-fail-under=0.5")
    lines = target.read_text().splitlines()
    assert lines[0] == "what an earlier step said"
    assert lines[1] == "### agents.py:OnlyPrints on suite"
    cells: list[list[Any]] = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line
    ]
    assert cells[0][:7] == ["env", "dataset", "hardness", "tasks", "solved", "rate", "95% interval"]
    assert [row[:6] for row in cells[2:]] == [
        ["bash", "suite", "easy", "1", "1", "100.0%"],
        ["bash", "suite", "hard", "2", "0", "0.0%"],
        ["all", "", "", "3", "1", "33.3%"],
    ]
    assert len({len(row) for row in cells}) == 1
    assert any(line.startswith("- the rate, 33.3%, is under 50.0%") for line in lines)


def test_a_step_summary_that_cannot_be_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/nowhere/summary.md")
    result = run("Solver")
    assert _exit(result) is pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["$GITHUB_STEP_SUMMARY=/nowhere/summary.md: cannot be written*"])
