"""``--intercode-plan``: what would be run, and what it would take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.gateway.prices import PRICES_DATE

SPENDING = """
import pytest_intercode

class Spending:
    def __init__(self, model=""):
        pass

    def act(self, observation):
        pytest_intercode.spend(input_tokens=900, output_tokens=100)
        return "submit"
"""


@pytest.fixture
def earlier(pytester: pytest.Pytester, pretend: object) -> str:
    """An earlier run of an agent that takes 1,000 tokens for each of three tasks."""
    with (pytester.path / "agents.py").open("a") as file:
        file.write(SPENDING)
    pytester.runpytest(
        *("suite.yaml", "--intercode-agent=agents.py:Spending", "--intercode-results=old.jsonl"),
        "--intercode-agent-arg=model=claude-opus-5-5",
    )
    return "--intercode-plan-from=old.jsonl"


def _plan(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest(
        *("suite.yaml", "--intercode-agent=agents.py:Spending", "--intercode-plan"), *options
    )


def _change(pytester: pytest.Pytester, **usage: Any) -> None:
    path = pytester.path / "old.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["usage"].update(usage)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_by_an_earlier_run(pytester: pytest.Pytester, earlier: str) -> None:
    model = "--intercode-agent-arg=model=claude-opus-5-5"
    result = _plan(
        pytester, earlier, model, "--intercode-repeat=4", "--intercode-results=old.jsonl"
    )
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes() == {}
    # 12 times 900 tokens at 4 and 100 at 20 dollars the million
    result.stdout.fnmatch_lines(
        [
            "*= intercode plan =*",
            "agent *model *treatment *tests *tries *tokens *cost",
            "agents.py:Spending  claude-opus-5-5  - * 3 * 12 * 12,000 * 0.07",
            "tokens and cost: means of *old.jsonl",
            f"cost: at the shipped list prices of {PRICES_DATE}, in US dollars",
            "nothing was run",
        ]
    )
    assert len((pytester.path / "old.jsonl").read_text().splitlines()) == 3


def test_what_the_user_knows_comes_first(pytester: pytest.Pytester, earlier: str) -> None:
    model = "--intercode-agent-arg=model=claude-opus-5-5"
    own = _plan(pytester, earlier, model, "--intercode-gateway-price", "claude-opus-5-5=1000/1000")
    own.stdout.fnmatch_lines(["agents.py:Spending *3,000 *3.00"])
    own.stdout.no_fnmatch_line("*shipped*")
    _change(pytester, cost=2.0)
    recorded = _plan(pytester, earlier, model)
    recorded.stdout.fnmatch_lines(["agents.py:Spending *3,000 *6.00"])


def test_of_other_tasks_the_mean_is_taken(pytester: pytest.Pytester, earlier: str) -> None:
    path = pytester.path / "old.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    model = "--intercode-agent-arg=model=claude-opus-5-5"
    result = _plan(pytester, earlier, model)
    result.stdout.fnmatch_lines(
        [
            "agents.py:Spending *3 *3 *3,000 *",
            "*; for 2 tries at tasks that are not in it, the mean of their agent's other tries",
        ]
    )


JUDGED = """\
env: bash
defaults:
  judge: {rubric: It is short., model: claude-opus-5-5, weight: 0.3}
tasks:
  - {id: one, query: Print it., gold: echo 1}
  - {id: two, query: Ask for it., gold: echo 1, user: {goal: You want it., model: small}}
"""


def _judged_run(folder: Path) -> None:
    """Write earlier results, in which judges and users have used something up."""
    rows = [json.loads(line) for line in (folder / "old.jsonl").read_text().splitlines()]
    row = {**rows[0], "judge": {"model": "claude-opus-5-5", "digest": "x", "share": 0.3}}
    row["judge"] |= {"reward": 1.0, "scores": [1.0], "reasons": [""]}
    row["judge"]["usage"] = {**row["usage"], "input_tokens": 2000, "output_tokens": 0}
    row["user_usage"] = {**row["usage"], "input_tokens": 500, "output_tokens": 0}
    (folder / "old.jsonl").write_text(f"{json.dumps(row)}\n")


def test_judges_and_users_have_a_table_of_their_own(
    pytester: pytest.Pytester, earlier: str
) -> None:
    (pytester.path / "judged.yaml").write_text(JUDGED)
    plan = ("judged.yaml", "--intercode-plan", "--intercode-repeat=2")
    agent = "--intercode-agent=agents.py:Spending"
    pytester.runpytest(*plan, agent).stdout.fnmatch_lines(
        [
            "agents.py:Spending *2 *4 *unknown *unknown",
            "part   model            tests  tries   tokens     cost",
            "judge  claude-opus-5-5      2      4  unknown  unknown",
            "user   small                1      2  unknown  unknown",
            "all                         2      6  unknown  unknown",
            "nothing is known about the judge claude-opus-5-5, the user small: no earlier results "
            "*",
        ]
    )
    _judged_run(pytester.path)
    pytester.runpytest(*plan, agent, earlier).stdout.fnmatch_lines(
        [
            "judge  claude-opus-5-5 *2 *4 *8,000 *0.03",
            "user   small *1 *2 *1,000 *unknown",
        ]
    )
    priced = ("--intercode-gateway-price=small=10/10", "--intercode-user-model=small")
    result = pytester.runpytest(*plan, "--intercode-agent=oracle", earlier, *priced)
    result.stdout.fnmatch_lines(["judge  claude-opus-5-5 *2 *4 *8,000 *0.03"])
    result.stdout.no_fnmatch_line("user *")  # gold talks to nobody
    result = pytester.runpytest(*plan, agent, earlier, *priced)
    result.stdout.fnmatch_lines(["user   small *1 *2 *1,000 *0.01"])


def test_marks_name_judges_and_users_of_project_tests(
    pytester: pytest.Pytester, pretend: object
) -> None:
    pytester.makepyfile("""\
import pytest

@pytest.mark.intercode(judge_model="judge-1", user="You are in a hurry.", repeat=3)
def test_it(intercode_project):
    raise AssertionError("it runs")
""")
    result = pytester.runpytest(
        *("--intercode-plan", "--intercode-agent=agents.py:Spending"),
        *("--intercode-agent-arg=model=m-1", f"{pytester._name}.py"),
    )
    result.stdout.fnmatch_lines(["judge  judge-1 *1 *3 *unknown*", "user   m-1 *1 *3 *unknown*"])


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ((), ["agents.py:Spending *unknown *unknown", "unknown for 3 tries: *"]),
        (
            ("--intercode-max-tokens=5000", "--intercode-max-cost=0.5"),
            ["agents.py:Spending *<= 15,000 *<= 1.50", "for 3 tries, only the limits *"],
        ),
        (("--intercode-max-tokens=5000",), ["agents.py:Spending *<= 15,000 *unknown"]),
        (("-k", "prints or writes"), ["agents.py:Spending *2 *2 *"]),
        (("-n", "2"), ["agents.py:Spending *3 *3 *", "nothing was run"]),
        (
            ("--intercode-repeat=2", "--intercode-pass-rate=0.5"),
            ["agents.py:Spending *3 *6 *", "tries with a pass rate: these are upper bounds, *"],
        ),
    ],
)
def test_without_one(
    pytester: pytest.Pytester, pretend: object, options: tuple[str, ...], lines: list[str]
) -> None:
    result = _plan(pytester, *options)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--intercode-plan --intercode-plan-from=none.jsonl", "*none.jsonl: there is no such file"),
        ("--intercode-plan-from=none.jsonl", "*: needs --intercode-plan, which uses it"),
        ("--intercode-gateway-price=gpt-1=shipped", "*has no model 'gpt-1'; give its price, or *"),
    ],
)
def test_what_is_wrong(
    pytester: pytest.Pytester, pretend: object, options: str, message: str
) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-agent=oracle", *options.split())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_other_tests_and_errors(pytester: pytest.Pytester, pretend: object) -> None:
    pytester.makepyfile("def test_own(): assert False")
    result = _plan(pytester, "test_other_tests_and_errors.py")
    result.stdout.fnmatch_lines(["1 other test without an agent would run as always"])
    assert result.ret == pytest.ExitCode.OK
    pytester.makepyfile("import nothing_there")
    broken = _plan(pytester, "test_other_tests_and_errors.py")
    assert broken.ret == pytest.ExitCode.INTERRUPTED


def test_project_tests(pytester: pytest.Pytester, pretend: object) -> None:
    pytester.makepyfile(
        test_rule="""
        import pytest

        @pytest.mark.intercode(repeat=2, pass_rate=0.5)
        @pytest.mark.parametrize("tool", ["uv", "pip"])
        def test_tool(intercode_project, tool):
            assert False
        """
    )
    row = {
        **{"environment": "ic_project", "suite": "test_rule.py", "agent": "agents.py:Spending"},
        **{"query": "", "outcome": "failed", "reward": 0, "turn_history": {"actions": []}},
        **{"node_id": "test_rule.py::test_tool[uv-agents.py:Spending-1]", "format_version": 2},
        "usage": {"requests": 1, "input_tokens": 40, "output_tokens": 2, "cost": 0.5},
    }
    runs = [row | {"task_id": f"test_tool[uv]{number}"} for number in ("", " #2")]
    (pytester.path / "old.jsonl").write_text("".join(f"{json.dumps(run)}\n" for run in runs))
    plan = ("--intercode-plan", "--intercode-plan-from=old.jsonl")
    result = pytester.runpytest("test_rule.py", "--intercode-agent=agents.py:Spending", *plan)
    result.stdout.fnmatch_lines(
        [
            "agents.py:Spending *2 *4 *336 *4.00",
            "*; for 2 tries at tasks that are not in it, *",
        ]
    )
