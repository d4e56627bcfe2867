"""Scoring again is what playing again would have given: real runs, replayed and rescored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from tests.conftest import results

# Agents that know gold, and do with it what agents do: solve, half solve, fail, give up.
PLAYS = """\
import os
import zlib
from pytest_intercode.agents.protocol import Agent


def ways(task):
    *before, last = (text.strip().rstrip(";") for text in task.gold)
    gold = [*before, last]
    if task.env == "sql":
        return [
            gold,
            [*before, f"SELECT * FROM ({last}) ORDER BY 1 DESC"],
            [f"SELECT * FROM ({last}) LIMIT 2"],
            [*gold, "SELECT 1"],
            [*gold, "SELECT 1; SELECT 2"],
            [f"submit {last}"],
            [],
            ["SELECT nonsense FROM nowhere"] * 10,
            [*gold, ".tables", ""],
            ["skip"],
            [*gold, "skip"],
            [f"SELECT * FROM ({last}) LIMIT 2", last + ";", "submit;"],
        ]
    if task.env == "bash":
        return [
            gold,
            ["echo unasked > /tmp/new; echo hello", "submit"],
            [*gold, "echo more"],
            ["submit an answer"],
            ["exit 3"] * 10,
        ]
    if task.env == "python":
        wrong = ["def wrong(): pass", "submit wrong"]
        return [[*gold, "submit"], ["x = 1", "submit"], [*gold, *wrong]]
    flag = task.gold[0]
    return [
        [f"submit {flag}"],
        ["submit wrong", f"submit '{flag}'", "ls"],
        [f"submit {flag.swapcase()}", "ls"],
        [f"submit {flag} or so", "skip"],
        ["submit", "ls"],
    ]


def pytest_intercode_make_agent(config, task):
    if "WAY" not in os.environ:
        return None
    mine = ways(task)
    actions = mine[(zlib.crc32(task.id.encode()) + int(os.environ["WAY"])) % len(mine)]

    def run(view, env):
        for action in actions:
            env.think(f"how about {len(action)} characters?")
            *_, terminated, truncated, _info = env.step(action)
            if terminated or truncated:
                return

    return Agent("loop", run=run)
"""

GIVEN = ("reward", "reward_parts", "outcome", "reason")


@pytest.fixture
def play(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Play bundled tasks and return the rows, by task."""
    (pytester.path / "conftest.py").write_text(PLAYS)

    def run(env: str, profile: str, file: str, *more: str, way: int | None = None) -> Any:
        monkeypatch.delenv("WAY", raising=False)
        agent = more[0] if way is None else "oracle"
        if way is not None:
            monkeypatch.setenv("WAY", str(way))
        pytester.runpytest_inprocess(
            f"--intercode-env={env}",
            f"--intercode-profile={profile}",
            f"--intercode-results={file}",
            f"--intercode-agent={agent}",
            *(more[1:] if way is None else more),
        )
        return by_task(Path(file))

    return run


def by_task(path: Path) -> dict[str, dict[str, Any]]:
    return {row["task_id"]: row for row in results(path)}


def given(rows: dict[str, dict[str, Any]], names: tuple[str, ...] = GIVEN) -> dict[str, Any]:
    return {task_id: [row[name] for name in names] for task_id, row in rows.items()}


def rescored(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    Path("again.jsonl").unlink(missing_ok=True)  # else it would be kept
    status = main(["rescore", *arguments, "--output", "again.jsonl"])
    return status, by_task(Path("again.jsonl"))


@pytest.mark.parametrize(
    ("profile", "other"),
    [("strict", "paper"), pytest.param("paper", "strict", marks=pytest.mark.slow)],
)
def test_sql(play: Any, profile: str, other: str, capsys: pytest.CaptureFixture[str]) -> None:
    some = "--intercode-limit=50"
    first = play("sql", profile, "first.jsonl", some, way=4)
    assert len({row["reward"] for row in first.values()}) > 3
    same = play("sql", profile, "same.jsonl", "replay:first.jsonl", some)
    assert given(same, (*GIVEN, "turn_history")) == given(first, (*GIVEN, "turn_history"))
    status, again = rescored("first.jsonl")
    assert status == 0
    assert given(again) == given(first)

    played = play("sql", other, "other.jsonl", "replay:first.jsonl", some)
    capsys.readouterr()
    status, again = rescored("first.jsonl", "--profile", other)
    told = capsys.readouterr().err
    assert status == 1
    assert given(again) == given({task_id: played[task_id] for task_id in again})
    assert len(again) >= (35 if other == "paper" else 15)
    assert len({row["reward"] for row in again.values()}) > 3
    # What is missing is said once for all tasks that miss it.
    assert 0 < len(told.splitlines()) <= 5
    assert "is not run alike by both profiles" in told
    for task_id, row in again.items():
        assert row["rescored_from"]["reward"] == first[task_id]["reward"]
        assert row["summary"]["max_reward"] == played[task_id]["summary"]["max_reward"]
        assert row["turn_history"]["rewards"] == played[task_id]["turn_history"]["rewards"]


@pytest.mark.usefixtures("needs_sandboxes")
@pytest.mark.parametrize("profile", ["strict", pytest.param("paper", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("env", "limit"), [("bash", 5), ("python", 3), ("ctf", 5)])
def test_sandboxes(
    play: Any, env: str, limit: int, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = f"--intercode-limit={limit}"
    first = play(env, profile, "first.jsonl", chosen, way=1)
    assert len(first) == limit
    assert len({row["reward"] for row in first.values()}) > 1
    same = play(env, profile, "same.jsonl", "replay:first.jsonl", chosen)
    assert given(same, (*GIVEN, "turn_history")) == given(first, (*GIVEN, "turn_history"))
    status, again = rescored("first.jsonl")
    assert status == 0
    assert given(again) == given(first)

    other = "paper" if profile == "strict" else "strict"
    capsys.readouterr()
    status, again = rescored("first.jsonl", "--profile", other)
    told = capsys.readouterr().err
    if env == "ctf":
        played = play(env, other, "other.jsonl", "replay:first.jsonl", chosen)
        assert status == 0
        assert given(again) == given(played)
        return
    assert (status, again) == (1, {})
    assert told.count("\n") == 1
    assert f"not scored: {limit} episodes (" in told
    assert f"--intercode-profile={other}" in told
