"""Replay of whole runs: thoughts, turns without an action, rewards as feedback, several suites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from tests.conftest import results

SUITE = """
env: sql
suite: {name}
tasks:
  - id: count
    query: How many are there in {name}?
    gold: SELECT {number}
    database: {{engine: sqlite, name: shop, script: shop.sql}}
"""

AGENT = '''
class Thinker:
    """Thinks, says something that is no action, and ends the episode."""

    def run(self, task, env):
        env.think("What is asked?")
        env.step("execute[SELECT 1]")
        env.pass_turn("submit I would rather not", "There is no action in this.")
        env.think("One of them is right.")
        env.step(f"SELECT {3 if task.suite == 'left' else 4}")
        env.submit()


class Guesser:
    """Comes near, and moves away again."""

    def run(self, task, env):
        for text in ("SELECT 1 UNION ALL SELECT 3", "SELECT 9", "SELECT 8"):
            env.step(text)
'''


@pytest.fixture
def suites(pytester: pytest.Pytester) -> tuple[str, str]:
    """Two suites with a task of the same id."""
    (pytester.path / "shop.sql").write_text("CREATE TABLE item (id INTEGER);")
    for name, number in (("left", 3), ("right", 4)):
        text = SUITE.format(name=name, number=number)
        (pytester.path / f"{name}.yaml").write_text(text)
    (pytester.path / "agents.py").write_text(AGENT)
    return "left.yaml", "right.yaml"


def play(pytester: pytest.Pytester, agent: str, file: str, *more: str) -> list[dict[str, Any]]:
    pytester.runpytest_inprocess(f"--intercode-agent={agent}", f"--intercode-results={file}", *more)
    return results(Path(file))


def told(rows: list[dict[str, Any]]) -> list[Any]:
    names = ("suite", "task_id", "turn_history", "summary", "outcome", "reward", "end_state")
    return [[*(row[name] for name in names), row.get("turn_passed")] for row in rows]


def test_thoughts_and_passed_turns_come_back(
    pytester: pytest.Pytester, suites: tuple[str, str]
) -> None:
    first = play(pytester, "agents:Thinker", "first.jsonl", *suites)
    assert [row["outcome"] for row in first] == ["solved", "solved"]
    assert first[0]["turn_history"]["thoughts"] == [
        "What is asked?",
        "",
        "One of them is right.",
        "",
    ]
    assert first[0]["turn_passed"] == [False, True, False, False]
    assert first[0]["turn_history"]["actions"][:2] == [
        "execute[SELECT 1]",  # of ours, it is not what InterCode wraps an action in
        "submit I would rather not",
    ]
    again = play(pytester, "replay:first.jsonl", "again.jsonl", *suites)
    assert told(again) == told(first)
    # In the other order too: the suite tells two tasks of one id apart.
    assert told(play(pytester, "replay:again.jsonl", "third.jsonl", *suites[::-1])) == told(
        first[::-1]
    )


def test_a_run_with_rewards_is_played_with_rewards(
    pytester: pytest.Pytester, suites: tuple[str, str]
) -> None:
    chosen = ("left.yaml", "--intercode-max-turns=3")
    reward = "--intercode-feedback=reward"
    (first,) = play(pytester, "agents:Guesser", "first.jsonl", *chosen, reward)
    assert first["turn_history"]["rewards"] == [0.5, 0.0, 0.0]
    assert (first["reward"], first["outcome"]) == (0.5, "out-of-budget")
    (again,) = play(pytester, "replay:first.jsonl", "again.jsonl", *chosen)
    assert told([again]) == told([first])
    # Unless the user wants it otherwise.
    (plain,) = play(
        pytester, "replay:first.jsonl", "b.jsonl", *chosen, "--intercode-feedback=observation"
    )
    assert plain["reward"] == 0.0


def test_the_best_of_several_tries_is_scored_again(
    pytester: pytest.Pytester, suites: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for profile in ("strict", "paper"):
        options = ("left.yaml", "--intercode-feedback=reward", f"--intercode-profile={profile}")
        (first,) = play(pytester, "agents:Guesser", "first.jsonl", *options)
        assert (first["reward"], first["end_state"]["turn"]) == (0.5, 1)
        assert main(["rescore", "first.jsonl", "--output", "again.jsonl"]) == 0
        (again,) = results(Path("again.jsonl"))
        assert {**again, "rescored_from": None} == {**first, "rescored_from": None}
    capsys.readouterr()
    assert main(["rescore", "first.jsonl", "--profile", "strict"]) == 1
    assert "of all its tries only the best is recorded" in capsys.readouterr().err


@pytest.mark.usefixtures("needs_sandboxes")
def test_an_answer_comes_back_with_its_white_space(
    pytester: pytest.Pytester, suites: tuple[str, str]
) -> None:
    (pytester.path / "words.yaml").write_text(
        "env: bash\ntasks:\n  - {id: t, query: Count., gold: 'printf \"  3 notes\\n\"'}\n"
    )
    code = "def agent(task, env):\n    env.submit('  3 notes\\n')\n"
    (pytester.path / "exact.py").write_text(code)
    (first,) = play(pytester, "exact:agent", "first.jsonl", "words.yaml")
    assert (first["outcome"], first["turn_answers"]) == ("solved", ["  3 notes\n"])
    (again,) = play(pytester, "replay:first.jsonl", "again.jsonl", "words.yaml")
    assert told([again]) == told([first])


@pytest.mark.usefixtures("needs_sandboxes")
def test_what_a_tool_of_the_agents_own_did_is_not_played(pytester: pytest.Pytester) -> None:
    """In the sandbox's shell its call would be a syntax error, and the agent's work be missing."""
    task = "{id: t, query: Write., workdir: /w, gold: echo hi >x}"
    (pytester.path / "edits.yaml").write_text(f"env: bash\ntasks: [{task}]\n")
    pytester.makepyfile(
        editor="""
        def agent(task, env):
            env.exec("echo hi >x")
            env.record_turn("cat x", "hi\\n", tool="bash")
            env.record_turn('edit({"path": "x"})', "done", tool="edit")
        """
    )
    (first,) = play(pytester, "editor:agent", "first.jsonl", "edits.yaml")
    assert first["outcome"] == "solved"
    result = pytester.runpytest_inprocess(
        "edits.yaml", "--intercode-agent=replay:first.jsonl", "-rs"
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["*first.jsonl: turn 2 of task t is a call of the agent's own*edit*"]
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "*missing.jsonl: there is no such results file"),
        ("", "*missing.jsonl: contains no recorded episodes"),
        ("hello\n", "*missing.jsonl:1: not JSON: *"),
        (
            '{"task_id": 1, "turn_history": {"actions": []}}\n{"task_id": 2, "turn_hi',
            "*missing.jsonl:2: not JSON: * (the last line is truncated: its run was killed; *)",
        ),
        ("[" * 100_000, "*missing.jsonl: not JSON: nested too deeply"),
        ('{"a": {"b": 1}}', "*missing.jsonl, row 0: not a recorded episode: it has no task_id"),
    ],
)
def test_what_cannot_be_replayed(
    pytester: pytest.Pytester, suites: tuple[str, str], content: str | None, said: str
) -> None:
    if content is not None:
        (pytester.path / "missing.jsonl").write_text(content)
    result = pytester.runpytest_inprocess("left.yaml", "--intercode-agent=replay:missing.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --intercode-agent=replay: {said}"])
    assert len(result.errlines) <= 2


def test_a_run_is_not_replayed_into_its_own_file(
    pytester: pytest.Pytester, suites: tuple[str, str]
) -> None:
    path = pytester.path / "run.jsonl"
    path.write_text('{"task_id": 1, "turn_history": {"actions": []}}\n')
    result = pytester.runpytest_inprocess(
        "left.yaml", "--intercode-agent=replay:run.jsonl", "--intercode-results=./run.jsonl"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --intercode-results=*: this is the run that is replayed*"])
    assert path.read_text()


def test_a_folder_cannot_be_replayed(pytester: pytest.Pytester, suites: tuple[str, str]) -> None:
    result = pytester.runpytest_inprocess("left.yaml", "--intercode-agent=replay:.")
    result.stderr.fnmatch_lines(["*: cannot be read: it is a folder, a file is needed"])


def test_an_argument_is_refused(pytester: pytest.Pytester, suites: tuple[str, str]) -> None:
    result = pytester.runpytest_inprocess(
        "left.yaml", "--intercode-agent=replay:x", "--intercode-agent-arg", "speed=2"
    )
    result.stderr.fnmatch_lines(["*speed=...: the agent 'replay:x' takes no arguments"])


def test_thoughts_of_a_file_of_intercodes(
    pytester: pytest.Pytester, suites: tuple[str, str]
) -> None:
    history = {
        "actions": ["execute[SELECT 3]", "submit"],
        "thoughts": ["Three of them.", "Done."],
        "observations": ["[(3,)]", None],
        "rewards": [None, 1.0],
        "valid_action": [True, True],
    }
    row = {
        "environment": "ic_sql",
        "dataset": "some.json",
        "task_id": 0,
        "query": "How many are there in left?",
        "turn_history": history,
        "summary": {"max_reward": 1.0},
    }
    (pytester.path / "run.json").write_text(json.dumps({"0": row}))
    (again,) = play(pytester, "replay:run.json", "again.jsonl", "left.yaml")
    assert again["turn_history"]["actions"] == ["SELECT 3", "submit"]
    assert again["turn_history"]["thoughts"] == ["Three of them.", "Done."]
    assert again["outcome"] == "solved"
