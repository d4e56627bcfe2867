"""The texts that an agent gets over MCP."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_intercode.agents.mcp import texts
from pytest_intercode.agents.texts import describe_submit
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.turn import Observation
from tests.unit.agents.mcp.tasks import view


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (view("bash"), "bash commands"),
        (view("sql", engine="sqlite", database="shop"), "SQL statements for SQLite, run in"),
        (view("sql", engine="mysql", database="shop"), "SQL statements for MySQL, run in"),
        (view("python"), "Python source"),
        (view("ctf"), "Only the flag"),
    ],
)
def test_an_agent_is_told_the_language_and_the_task(task: TaskView, said: str) -> None:
    for text in (texts.instructions(task), texts.prompt(task)):
        assert said in text
        assert text.endswith("\nSay hello.")
        assert "7 turns" in text
    assert not any("  " in text for text in (describe_submit(task), texts.prompt(task)))


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        ({"status": 0}, "[status 0; 3 turns left]"),
        ({"status": 2, "executed": False, "turns_left": 1}, "[status 2; 1 turn left]"),
        ({"executed": False}, "[failed; 3 turns left]"),
        ({"reward": 0.5}, "[done; reward 0.50; 3 turns left]"),
    ],
)
def test_the_note_says_how_things_stand(facts: dict[str, Any], note: str) -> None:
    facts = {"turns_left": 3, **facts}
    assert texts.result(Observation("out\n", **facts)).texts == ("out\n", note)
    assert texts.result(Observation(" \n", **facts)).texts == (note,)


def test_the_last_note_says_stop() -> None:
    last = texts.result(Observation("out", status=0), over=True)
    assert last.texts == ("out", "[status 0; no turns left, and the episode is over: stop now]")
    solved = texts.result(Observation("out", status=0, reward=1.0), over=True)
    assert "the task is solved, and the episode is over" in solved.texts[-1]
    assert last.facts["over"]
    assert not last.error
    assert texts.OVER.error
