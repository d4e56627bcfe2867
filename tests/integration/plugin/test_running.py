"""Episodes as pytest runs and reports them: outcomes, JUnit, xdist, reruns, fixtures, hooks."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import docker
import pytest

from tests.conftest import PIDS, PRETEND, SUITE, pids_of, results, wait_until_gone
from tests.support.junit import properties_of


def table_of(result: pytest.RunResult) -> list[list[str]]:
    """Return the cells of the terminal's table, heading first."""
    lines = result.outlines
    start = next(n for n, line in enumerate(lines) if line.startswith("env "))
    end = next(n for n, line in enumerate(lines) if line.startswith("outcomes: "))
    return [re.split(r"  +", line) for line in lines[start:end]]


# -- with real sandboxes


@pytest.mark.usefixtures("bubblewrap")
def test_pytests_cache_knows_golds(pytester: pytest.Pytester, small_suite: Path) -> None:
    arguments = ("suite.yaml", "--intercode-agent=oracle", "--intercode-sandbox=bubblewrap")
    golds = pytester.path / ".pytest_cache" / "d" / "intercode" / "golds"
    lines = []
    for _ in range(2):
        pytester.runpytest(*arguments).assert_outcomes(passed=3)
        lines.append(golds.read_text().splitlines())
    assert len(set(lines[0])) == 3
    assert lines[0] == lines[1]
    for without in ("-ocache_dir=/proc/none", "-pno:cacheprovider"):
        result = pytester.runpytest(*arguments, without, "-Wignore::pytest.PytestCacheWarning")
        result.assert_outcomes(passed=3)
    assert golds.read_text().splitlines() == lines[0]


@pytest.mark.usefixtures("needs_docker")
def test_the_oracle_solves(pytester: pytest.Pytester, small_suite: Path) -> None:
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", "--intercode-results=out/r.jsonl"
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["outcomes: 3 solved", f"3 episodes in {pytester.path}/out/r.jsonl"]
    )
    rows = results(pytester.path / "out" / "r.jsonl")
    assert [row["task_id"] for row in rows] == ["prints", "writes", "both"]
    assert list(rows[0])[:6] == [
        "environment",
        "dataset",
        "task_id",
        "query",
        "turn_history",
        "summary",
    ]
    assert [row["turn_history"]["actions"] for row in rows] == [
        ["echo hello"],
        ["echo hi > out.txt"],
        ["echo hi > out.txt", "echo done"],
    ]
    assert {(row["outcome"], row["reward"], row["agent"]) for row in rows} == {
        ("solved", 1.0, "oracle")
    }


@pytest.mark.usefixtures("needs_sandboxes")
def test_an_idle_agent_fails_with_one_line(pytester: pytest.Pytester, small_suite: Path) -> None:
    result = pytester.runpytest(
        "suite.yaml",
        "--intercode-agent=agents:OnlyPrints",
        "--junitxml=junit.xml",
        "--intercode-results=r.jsonl",
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*_ test_solves[[]writes[]] _*",
            "reward 0.00 < 1.00 after 1/10 turns: 1 of 1 changes on disk differ from gold's",
            "*- intercode trajectory -*",
            "query: Write the word hi to out.txt.",
            "1 > submit",
            "reward 0.00 (files 0.00)",
            f"the whole trajectory is in {pytester.path}/r.jsonl",
            "*- intercode diff -*",
            "    --- gold: /work/out.txt",
            "    +++ agent: /work/out.txt",
            "    @@ -1 +1 @@",
            "    -hi",
        ],
        consecutive=True,
    )
    result.stdout.no_fnmatch_line("*raceback*")
    heading, *rows = table_of(result)
    assert heading[:6] == ["env", "dataset", "hardness", "tasks", "solved", "rate"]
    assert heading[6:] == ["95% interval", "reward", "turns", "failed actions", "seconds"]
    once, never = ("21-100%", "1.000", "2.0", "0.0%"), ("0-66%", "0.000", "1.0", "0.0%")
    assert rows == [
        ["bash", "suite", "easy", "1", "1", "100.0%", *once, _seconds(rows[0])],
        ["bash", "suite", "hard", "2", "0", "0.0%", *never, _seconds(rows[1])],
        ["all", "3", "1", "33.3%", "6-79%", "0.333", "1.3", "0.0%", _seconds(rows[2])],
    ]
    cases = list(ElementTree.parse(pytester.path / "junit.xml").iter("testcase"))
    assert [properties_of(case)["intercode_outcome"] for case in cases] == [
        "solved",
        "failed",
        "failed",
    ]
    assert [len(list(case.iter("failure"))) for case in cases] == [0, 1, 1]


def _seconds(row: list[str]) -> str:
    """Return a row's seconds, which cannot be known."""
    assert 0 <= float(row[-1]) < 60
    return row[-1]


@pytest.mark.usefixtures("small_suite")
def test_xdist(pytester: pytest.Pytester, docker_api: docker.APIClient) -> None:
    pytester.makeconftest(PIDS)
    result = pytester.run(
        sys.executable,
        "-m",
        "pytest",
        "-n2",
        "suite.yaml",
        "--intercode-agent=agents:OnlyPrints",
        "--intercode-results=r.jsonl",
        "--junitxml=junit.xml",
    )
    result.assert_outcomes(passed=1, failed=2)
    assert table_of(result)[-1][:3] == ["all", "3", "1"]
    rows = {row["task_id"]: row["outcome"] for row in results(pytester.path / "r.jsonl")}
    assert rows == {"prints": "solved", "writes": "failed", "both": "failed"}
    cases = ElementTree.parse(pytester.path / "junit.xml").iter("testcase")
    assert all(len(properties_of(case)) == 4 for case in cases)
    assert len(pids_of(pytester.path)) == 3
    assert wait_until_gone(docker_api, pids_of(pytester.path)) == []


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize("method", ["signal", pytest.param("thread", marks=pytest.mark.slow)])
def test_pytest_timeout(
    pytester: pytest.Pytester, docker_api: docker.APIClient, method: str
) -> None:
    pytester.makeconftest(PIDS)
    pytester.makepyfile(
        sleepy="""
        import time
        from agents import Solver

        class Sleepy(Solver):
            def act(self, observation):
                if self.left == ["echo hello", "submit"]:
                    time.sleep(60)
                return super().act(observation)
        """
    )
    result = pytester.run(
        sys.executable,
        "-m",
        "pytest",
        "suite.yaml",
        "--intercode-agent=sleepy:Sleepy",
        "--timeout=5",
        f"--timeout-method={method}",
        "-k",
        "prints or writes",
        timeout=120,
    )
    result.assert_outcomes(failed=1, passed=1, deselected=1)
    result.stdout.fnmatch_lines(["*Timeout (>5.0s) from pytest-timeout*"])
    assert wait_until_gone(docker_api, pids_of(pytester.path)) == []


@pytest.mark.usefixtures("needs_sandboxes", "small_suite")
def test_tests_of_the_users_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.intercode(suite="suite.yaml", ids=["prints", "both"])
        def test_episode(intercode_episode):
            assert intercode_episode.reward == 1.0
            assert intercode_episode.outcome == "solved"
            assert intercode_episode.turns[-1].action == "submit"
            assert intercode_episode.run() is intercode_episode.run()

        class TestSuite:
            @pytest.mark.intercode(suite="suite.yaml", tags="files", hardness="hard", ids="both")
            def test_environment(self, intercode_environment, intercode_task):
                assert str(intercode_environment.first) == intercode_task.query
                *step, info = intercode_environment.step("pwd")
                assert step == ["/work\\n", 0.0, False, False]
                assert info == {"executed": True, "turns_left": 9}
                intercode_environment.step("echo hi > out.txt; echo done")
                assert intercode_environment.submit()[1] == 1.0

        @pytest.mark.intercode(env="bash", tags=["logs", "report"], hardness="easy")
        def test_bundled(intercode_task):
            assert intercode_task.env == "bash" and "logs" in intercode_task.tags
        """
    )
    result = pytester.runpytest("--intercode-agent=agents:Solver", "-v")
    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed"}
    assert outcomes["passed"] >= 4
    result.stdout.fnmatch_lines(["*::test_episode[[]prints[]] PASSED*", "outcomes: 2 solved"])


# -- where a sandbox has no part in it


def test_junit_tells_errors_from_failures(pytester: pytest.Pytester, small_suite: Path) -> None:
    pytester.makeconftest(
        PRETEND
        + """
from pytest_intercode.errors import SandboxError


def reset(self, *, task):
    if task.id == "both":
        raise SandboxError("the machine broke")
    return Environment.reset(self, task=task)


Pretend.reset = reset
"""
    )
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=agents:OnlyPrints", "--junitxml=junit.xml"
    )
    result.assert_outcomes(passed=1, failed=1, errors=1)
    cases = list(ElementTree.parse(pytester.path / "junit.xml").iter("testcase"))
    kinds = [sorted(child.tag for child in case if child.tag != "properties") for case in cases]
    assert kinds == [[], ["failure", "system-out"], ["error"]] or kinds == [
        [],
        ["failure"],
        ["error"],
    ]
    assert [properties_of(case) for case in cases] == [
        _properties("1.0000", 2, "solved", cases[0]),
        _properties("0.0000", 1, "failed", cases[1]),
        _properties("0.0000", 0, "infrastructure-error", cases[2]),
    ]
    error = cases[2].find("error")
    assert error is not None
    assert error.text == "infrastructure error: the machine broke"


def _properties(reward: str, turns: int, outcome: str, case: ElementTree.Element) -> dict[str, str]:
    seconds = properties_of(case)["intercode_seconds"]
    assert 0 <= float(seconds) < 60
    return {
        "intercode_reward": reward,
        "intercode_turns": str(turns),
        "intercode_seconds": seconds,
        "intercode_outcome": outcome,
    }


@pytest.mark.usefixtures("pretend")
def test_durations_tell_the_agent_from_the_sandbox(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        slow="""
        import time

        def slow(observation):
            time.sleep(0.3)
            return "submit"
        """
    )
    result = pytester.runpytest("suite.yaml", "--intercode-agent=slow:slow", "--durations=0", "-vv")
    calls = [line for line in result.outlines if re.match(r"\S+s call ", line)]
    assert len(calls) == 3
    assert all(0.3 <= float(line.split("s ")[0]) < 5 for line in calls)
    assert sum(bool(re.match(r"\S+s setup ", line)) for line in result.outlines) == 3


@pytest.fixture
def rerunfailures(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs have the plugin."""
    monkeypatch.delenv("PYTEST_ADDOPTS")


@pytest.mark.usefixtures("pretend", "rerunfailures")
def test_reruns(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(
        "suite.yaml",
        "--intercode-agent=agents:OnlyPrints",
        "--reruns=1",
        "--intercode-results=r.jsonl",
        "--junitxml=junit.xml",
    )
    assert result.parseoutcomes() == {"passed": 1, "failed": 2, "rerun": 2}
    rows = [(r["task_id"], r.get("superseded", False)) for r in results(Path("r.jsonl"))]
    assert rows == [
        ("prints", False),
        ("writes", True),
        ("writes", False),
        ("both", True),
        ("both", False),
    ]
    assert table_of(result)[-1][:3] == ["all", "3", "1"]
    result.stdout.fnmatch_lines(["outcomes: 2 failed, 1 solved"])
    for case in ElementTree.parse(pytester.path / "junit.xml").iter("testcase"):
        assert len(list(case.iter("property"))) == 4


@pytest.mark.usefixtures("pretend", "rerunfailures")
def test_a_rerun_that_solves_counts_as_solved(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        flaky="""
        from agents import Solver

        seen = set()

        class Flaky(Solver):
            def reset(self, task):
                super().reset(task)
                if task.id not in seen:
                    seen.add(task.id)
                    self.left = ["submit"]
        """
    )
    result = pytester.runpytest("suite.yaml", "--intercode-agent=flaky:Flaky", "--reruns=1")
    assert result.parseoutcomes() == {"passed": 3, "rerun": 3}
    result.stdout.fnmatch_lines(["outcomes: 3 solved"])


@pytest.mark.usefixtures("pretend")
def test_what_the_agent_prints_is_shown_under_its_item(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        talking="""
        def talking(task, env):
            print("thinking about", task.id)
            env.submit()
        """
    )
    result = pytester.runpytest("suite.yaml", "--intercode-agent=talking:talking")
    for name in ("prints", "writes", "both"):
        result.stdout.fnmatch_lines(
            [
                f"*_ test_solves[[]{name}[]] _*",
                "*Captured stdout call*",
                f"    thinking about {name}",
            ]
        )


@pytest.mark.usefixtures("pretend")
def test_a_long_trajectory_is_cut(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        long="""
        def long(task, env):
            for turn in range(8):
                env.step(f"echo {turn} " + "x" * 5000)
        """
    )
    result = pytester.runpytest("suite.yaml", "--intercode-agent=long:long", "-k", "prints")
    result.stdout.fnmatch_lines(
        [
            "[[]3 earlier turns[]]",
            "4 > echo 3 xxx*",
            "    [[]... * characters ...[]]",
            "8 > echo 7 x*",
        ]
    )
    result.stdout.no_fnmatch_line("3 > *")


@pytest.mark.usefixtures("pretend")
def test_a_known_failure(pytester: pytest.Pytester, small_suite: Path) -> None:
    small_suite.write_text(SUITE.replace("    tags: [files]", "    xfail: gold is odd"))
    pytester.makeini("[pytest]\nxfail_strict = true\n")
    run = ("suite.yaml", "--intercode-results=r.jsonl")
    failing = pytester.runpytest(*run, "--intercode-agent=agents:OnlyPrints", "-rx")
    failing.assert_outcomes(passed=1, failed=1, xfailed=1)
    failing.stdout.fnmatch_lines(["XFAIL suite.yaml::test_solves[[]writes[]] - gold is odd*"])
    assert len(results(Path("r.jsonl"))) == 3
    pytester.runpytest(*run, "--intercode-agent=agents:Solver").assert_outcomes(passed=2, xpassed=1)


@pytest.mark.usefixtures("pretend")
def test_the_users_own_agent_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        PRETEND
        + """

@pytest.fixture
def intercode_agent(intercode_task):
    from agents import Solver

    class Mine(Solver):
        pass

    return Mine()
"""
    )
    result = pytester.runpytest("suite.yaml", "--intercode-results=r.jsonl")
    result.assert_outcomes(passed=3)
    assert {row["agent"] for row in results(Path("r.jsonl"))} == {"Mine"}


@pytest.mark.usefixtures("pretend")
def test_bundled_suites_have_the_fixtures_of_the_root(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        PRETEND
        + """

@pytest.fixture
def intercode_agent():
    from agents import Idle

    return Idle()


@pytest.fixture(autouse=True)
def seen(request):
    print("seen by", request.node.nodeid)
"""
    )
    pytester.makepyfile("def test_own(seen): pass")
    words = ("--intercode-env=bash", "--intercode-limit=1", "--intercode-results=r.jsonl", "-s")
    result = pytester.runpytest(*words, str(pytester.path))
    result.assert_outcomes(passed=1, failed=1)
    assert result.stdout.str().count("seen by") == 2
    assert [row["agent"] for row in results(Path("r.jsonl"))] == ["Idle"]


@pytest.mark.usefixtures("pretend")
def test_the_users_own_task_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        PRETEND
        + """
from dataclasses import replace


@pytest.fixture
def intercode_task(intercode_task):
    return replace(intercode_task, max_turns=1, query="Changed.")
"""
    )
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=agents:Solver", "--intercode-results=r.jsonl"
    )
    result.assert_outcomes(passed=2, failed=1)
    assert {row["query"] for row in results(Path("r.jsonl"))} == {"Changed."}


@pytest.mark.usefixtures("pretend")
def test_a_task_that_a_test_makes_itself(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_intercode import Task

        @pytest.fixture
        def intercode_task():
            return Task("mine", "Print 1.", ("echo 1",), "bash", "mine", "mine")

        def test_mine(intercode_episode):
            assert intercode_episode.outcome == "failed"

        @pytest.mark.parametrize(
            "intercode_task", [Task("a", "q", ("g",), "bash", "s", "d")], ids=["a"]
        )
        def test_parametrized(intercode_task, intercode_environment):
            assert intercode_environment.task is intercode_task
        """
    )
    result = pytester.runpytest("--intercode-agent=agents:Idle")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["outcomes: 1 failed"])


# -- hooks


@pytest.mark.usefixtures("pretend")
def test_hook_modify_tasks(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        from dataclasses import replace

        def pytest_intercode_modify_tasks(config, tasks):
            tasks[:] = [replace(t, id=t.id + "-new") for t in tasks if t.hardness == "hard"]
            tasks.reverse()
        """
    )
    result = pytester.runpytest("suite.yaml", "--intercode-limit=1", "--co", "-q")
    result.stdout.fnmatch_lines(["suite.yaml::test_solves[[]both-new[]]", "", "1 test collected*"])


@pytest.mark.usefixtures("pretend")
def test_hook_make_agent(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        PRETEND
        + """

def pytest_intercode_make_agent(config, task):
    from agents import Solver

    return Solver() if task.id == "both" else None
"""
    )
    result = pytester.runpytest("suite.yaml", "--intercode-agent=agents:Idle")
    result.assert_outcomes(passed=1, failed=2)


@pytest.mark.usefixtures("small_suite")
def test_hook_make_environment(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")  # it needs no engine, so none is asked
    pytester.makeconftest(PRETEND)
    result = pytester.runpytest("suite.yaml", "--intercode-agent=oracle")
    result.assert_outcomes(passed=3)


@pytest.mark.usefixtures("pretend")
def test_hook_log_episode(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        PRETEND
        + """

def pytest_intercode_log_episode(config, episode):
    with open("told", "a") as file:
        print(episode.task.id, episode.outcome, len(episode.turns), file=file)
"""
    )
    pytester.runpytest("suite.yaml", "--intercode-agent=agents:OnlyPrints")
    told = (pytester.path / "told").read_text().splitlines()
    assert told == ["prints solved 2", "writes failed 1", "both failed 1"]
