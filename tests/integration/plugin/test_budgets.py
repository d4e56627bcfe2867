"""Budgets of turns, seconds, tokens and money, of an episode and of a whole run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import results

# Solves every task on its third action; each action costs 10 tokens and 0.5 in money.
SPENDER = """
import pytest_intercode
from agents import COMMANDS


class Spender:
    cost = 0.5

    def reset(self, task):
        self.left = ["look", "look again", COMMANDS[task.id][-1], "submit"]

    def act(self, observation):
        pytest_intercode.think(f"{len(self.left)} left")
        pytest_intercode.spend(input_tokens=7, output_tokens=3, cost=self.cost)
        return self.left.pop(0)


class Unpriced(Spender):
    cost = None


class Stubborn(Spender):
    def act(self, observation):
        try:
            return super().act(observation)
        except pytest_intercode.BudgetExhausted:
            return "look"


async def loop(task, env):
    env.log("begin\\n")
    for action in ("look", "look again", COMMANDS[task.id][-1]):
        env.spend(input_tokens=7, output_tokens=3)
        env.step(action)
    env.log("end\\n")
"""


@pytest.fixture
def spend(pytester: pytest.Pytester, pretend: Path) -> Any:
    """Return a function that runs the small suite and returns the result and its rows."""
    pytester.makepyfile(spender=SPENDER)

    def run(*options: str, agent: str = "Spender") -> tuple[pytest.RunResult, dict[str, Any]]:
        result = pytester.runpytest(
            "suite.yaml",
            f"--intercode-agent=spender:{agent}",
            "--intercode-results=r.jsonl",
            *options,
        )
        path = Path("r.jsonl")
        return result, {row["task_id"]: row for row in results(path)} if path.exists() else {}

    return run


def test_what_is_spent_is_shown(spend: Any, pytester: pytest.Pytester) -> None:
    result, rows = spend("--junitxml=junit.xml")
    result.assert_outcomes(passed=3)
    row = rows["prints"]
    assert row["usage"] == {
        "requests": 4,
        "input_tokens": 28,
        "output_tokens": 12,
        "cost": 2.0,
    }
    one = {"requests": 1, "input_tokens": 7, "output_tokens": 3, "cost": 0.5}
    assert row["turn_usage"] == [one] * 4
    assert row["turn_history"]["thoughts"] == ["4 left", "3 left", "2 left", "1 left"]
    assert len(row["turn_agent_seconds"]) == 4
    result.stdout.fnmatch_lines(
        [
            "env * failed actions  seconds  tokens    cost",
            "all * 40  2.0000",
            "spent: 12 requests, 120 tokens, cost 6.0000",
        ]
    )
    xml = Path("junit.xml").read_text()
    for name, value in (("requests", "4"), ("input_tokens", "28"), ("cost", "2.000000")):
        assert f'<property name="intercode_{name}" value="{value}" />' in xml


def test_what_a_loop_says(spend: Any) -> None:
    result, rows = spend(agent="loop")
    result.assert_outcomes(passed=3)
    row = rows["both"]
    assert row["turn_logs"] == ["begin\n", "", ""]
    assert row["log"] == "end\n"
    assert row["usage"]["cost"] is None
    result.stdout.fnmatch_lines(["spent: 9 requests, 90 tokens"])
    result.stdout.no_fnmatch_line("*cost*")


@pytest.mark.parametrize("agent", ["Spender", "Stubborn"])
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--intercode-max-tokens=20", "20 of 20 tokens used"),
        ("--intercode-max-cost=1", "1 of 1 in cost used"),
    ],
)
def test_an_episode_over_its_budget(spend: Any, agent: str, option: str, said: str) -> None:
    result, rows = spend(option, agent=agent)
    result.assert_outcomes(failed=3)
    assert {row["outcome"] for row in rows.values()} == {"out-of-budget"}
    row = rows["prints"]
    assert row["turn_history"]["actions"] == ["look"]  # the answer that went over is not run
    assert row["usage"]["requests"] == 2
    result.stdout.fnmatch_lines(
        [f"reward 0.00 < 1.00 after 1/10 turns, budget exhausted: {said}; not what gold does"]
    )


def test_solved_within_the_budget_is_solved(spend: Any) -> None:
    """The state is graded as it is, however the episode ends."""
    result, rows = spend("--intercode-max-tokens=31")
    result.assert_outcomes(passed=3)
    assert {len(row["turn_history"]["actions"]) for row in rows.values()} == {3}


def test_money_without_prices(spend: Any) -> None:
    result, rows = spend("--intercode-max-cost=1", agent="Unpriced")
    result.assert_outcomes(failed=3)
    assert {row["outcome"] for row in rows.values()} == {"agent-error"}
    result.stdout.fnmatch_lines(["*agent error after 0/10 turns: it reports tokens without*"])


@pytest.mark.parametrize("option", ["max-tokens", "run-max-tokens"])
def test_a_budget_that_nobody_reports_to(
    spend: Any, pytester: pytest.Pytester, option: str
) -> None:
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=agents:Solver", f"--intercode-{option}=5"
    )
    result.stdout.fnmatch_lines(
        [f"--intercode-{option} had no effect: the agent reported no tokens*"]
    )


@pytest.mark.parametrize(
    ("option", "said", "outcomes"),
    [
        ("run-max-turns=6", "the run's 6 turns are used up", ["solved", "out-of-budget"]),
        ("run-max-tokens=50", "the run's 50 tokens are used up", ["solved", "out-of-budget"]),
        ("run-max-cost=2.5", "*2.5 in cost is used up", ["solved", "out-of-budget"]),
        ("run-max-turns=4", "the run's 4 turns are used up", ["solved"]),
    ],
)
def test_a_run_over_its_budget(spend: Any, option: str, said: str, outcomes: list[str]) -> None:
    result, rows = spend(f"--intercode-{option}")
    assert [row["outcome"] for row in rows.values()] == outcomes
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"*! Interrupted: {said}: no further episode is started !*"])


def test_the_time_of_a_run(spend: Any, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        spender="""
        import threading

        def waits(task, env):
            if task.id != "prints":
                threading.Event().wait()
            env.step("echo hello")
        """
    )
    result, rows = spend("--intercode-run-timeout=1.5", agent="waits")
    assert [row["outcome"] for row in rows.values()] == ["solved", "timed-out"]
    assert rows["writes"]["reason"] == "the run's 1.5 seconds are used up; not what gold does"
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_controller_that_is_killed_leaves_no_file_of_its_workers(
    pytester: pytest.Pytester, pretend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = pytester.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))
    kill = (
        "import os\nimport pytest\n\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_configure_node(node):\n    os.kill(os.getpid(), 9)\n"
    )
    conftest = pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + kill)
    options = ["--intercode-agent=agents.py:Idle", "--intercode-run-max-turns=9", "-n2"]
    result = pytester.runpytest_subprocess(str(pretend), *options)
    assert result.ret == -9
    assert [path.name for path in temporary.iterdir() if "intercode" in path.name] == []


def test_workers_draw_on_one_budget(spend: Any, pytester: pytest.Pytester) -> None:
    lines = [f"  - {{id: t{n}, query: Do {n}., gold: echo hello}}" for n in range(30)]
    Path("suite.yaml").write_text("\n".join(["env: bash", "tasks:", *lines, ""]))
    pytester.makepyfile(
        spender="""
        import pytest_intercode

        def agent(task, env):
            pytest_intercode.spend(input_tokens=10)
            env.step("echo hello")
        """
    )
    result = pytester.runpytest_subprocess(
        "suite.yaml",
        "--intercode-agent=spender:agent",
        "--intercode-results=r.jsonl",
        "--intercode-run-max-tokens=100",
        "-n2",
    )
    rows = results(Path("r.jsonl"))
    assert sum(row["usage"]["input_tokens"] for row in rows) in (100, 110)
    # Each worker may be between its spending and its step when the tokens end; either may be first.
    outcomes = Counter(row["outcome"] for row in rows)
    assert set(outcomes) == {"solved", "out-of-budget"}
    assert outcomes["solved"] in (8, 9, 10)
    assert outcomes["out-of-budget"] in (1, 2)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*the run's 100 tokens are used up*"])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("max-tokens=many", "a whole number above 0 is needed, found 'many'"),
        ("max-cost=free", "an amount above 0 is needed, found 'free'"),
        ("run-max-turns=0", "a whole number above 0 is needed, found '0'"),
        ("run-max-cost=-1", "an amount above 0 is needed, found '-1'"),
        ("run-timeout=inf", "a number of seconds above 0 is needed, found 'inf'"),
    ],
)
def test_wrong_values(spend: Any, option: str, said: str) -> None:
    result, _ = spend(f"--intercode-{option}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --intercode-{option}: {said}"])


@pytest.mark.slow
def test_workers_hear_of_a_budget_in_the_ini_file(spend: Any, pytester: pytest.Pytester) -> None:
    """Their controller collects nothing, and yet keeps the sums."""
    pytester.makeini("[pytest]\nintercode_run_max_turns = 6\nintercode_agent = spender:Spender\n")
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.parametrize("n", range(10))
        @pytest.mark.intercode(suite="suite.yaml", ids=["prints"])
        def test_mine(intercode_episode, n):
            assert intercode_episode.reward == 1.0
        """
    )
    result = pytester.runpytest_subprocess("test_mine.py", "-n2", "--intercode-results=r.jsonl")
    assert result.ret != 0
    turns = sum(row["summary"]["turns_taken"] for row in results(Path("r.jsonl")))
    assert turns == 6
    result.stdout.fnmatch_lines(["*the run's 6 turns are used up*"])


def test_a_rerun_that_cannot_be_is_no_pass(
    spend: Any, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    pytester.makepyfile(
        spender="""
        import pytest_intercode

        def wrong(task, env):
            pytest_intercode.spend(input_tokens=10)
            env.step("wrong")
        """
    )
    result = pytester.runpytest_subprocess(
        *("suite.yaml", "--intercode-agent=spender:wrong", "--reruns=1"),
        "--intercode-run-max-tokens=10",
    )
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        ["no second try: the run's 10 tokens are used up", "outcomes: 1 out-of-budget"]
    )
