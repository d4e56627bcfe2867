"""The tools of an episode as functions, and the prompt that goes with them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.ledger import Ledger
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.turn import Observation, StepResult
from pytest_intercode.core.usage import Budget
from pytest_intercode.errors import BudgetExhausted
from tests.unit.agents.mcp.tasks import view


class Played:
    """An environment that writes down what it was asked for; it is over after three actions."""

    has_user = False

    def __init__(self, task: TaskView | None = None) -> None:
        self.actions: list[str] = []
        episode: Any = self  # the part of it that these tests need
        self.environment = self
        task = task or view("sql", engine="sqlite", database="shop")
        self.env = AgentEnvironment(task, episode, Ledger(Budget(tokens=100)))

    def over(self) -> bool:
        return len(self.actions) >= 3

    def act(self, action: Callable[[], StepResult]) -> StepResult:
        return action()

    def submit(self, answer: str) -> StepResult:
        return self.result(f"submit {answer}", answer != "wrong")

    def step(self, code: str) -> StepResult:
        return self.result(code, False)

    def result(self, code: str, terminated: bool) -> StepResult:
        self.actions.append(code)
        left = 3 - len(self.actions)
        observation = Observation(f"ran {code}" if code else "", status=0, turns_left=left)
        return observation, 0.0, terminated, not left, {}


def called(tool: Callable[..., Any], *arguments: str) -> str:
    """Call a tool of either kind."""
    answer = tool(*arguments)
    text = asyncio.run(answer) if inspect.iscoroutine(answer) else answer
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("kind", ["tools", "async_tools"])
def test_what_a_model_is_shown(kind: str) -> None:
    env = Played().env
    execute, _ = getattr(env, kind)()
    assert called(execute, "a") == "ran a\n[status 0; 2 turns left]"
    assert called(execute, "") == "[status 0; 1 turn left]"
    assert not env.over
    with pytest.raises(BudgetExhausted, match="the episode is over: stop now"):
        called(execute, "c")  # the last turn, and not one request later
    assert env.over


@pytest.mark.parametrize("kind", ["tools", "async_tools"])
def test_a_submission_ends_unless_it_is_refused(kind: str) -> None:
    played = Played()
    _, submit = getattr(played.env, kind)()
    assert "2 turns left" in called(submit, "wrong")  # a flag
    with pytest.raises(BudgetExhausted):
        called(submit)
    assert played.actions == ["submit wrong", "submit "]


@pytest.mark.parametrize("kind", ["tools", "async_tools"])
def test_tools_that_do_not_raise(kind: str) -> None:
    played = Played()
    execute, submit = getattr(played.env, kind)(raises=False)
    assert "2 turns left" in called(execute, "a")
    assert called(submit) == "the episode is over: stop now"
    assert called(execute, "c") == "the episode is over: stop now"


def test_spending_that_does_not_raise() -> None:
    env = Played().env
    env.spend(input_tokens=100, raises=False)
    with pytest.raises(BudgetExhausted):
        env.spend()


@pytest.mark.parametrize("kind", ["tools", "async_tools"])
def test_what_a_framework_reads(kind: str) -> None:
    execute, submit = getattr(Played().env, kind)()
    assert (execute.__name__, submit.__name__) == ("execute", "submit")
    assert get_type_hints(execute) == {"code": str, "return": str}
    assert get_type_hints(submit) == {"answer": str, "return": str}
    assert inspect.signature(submit).parameters["answer"].default == ""
    assert inspect.getdoc(execute) == (
        "Run code in the task's sandbox and return its output. The code is SQL statements for "
        "SQLite, run in the database 'shop'. Every call is a turn; 7 turns left.\n\n"
        "Args:\n    code: SQL statements for SQLite, run in the database 'shop'"
    )
    assert "\n\nArgs:\n    answer: a last SELECT" in str(inspect.getdoc(submit))


def test_calls_at_once_run_in_their_order() -> None:
    played = Played()

    async def main() -> None:
        execute, submit = played.env.async_tools()
        said = await asyncio.gather(execute("a"), execute("b"), submit("c"), return_exceptions=True)
        assert [type(each) for each in said] == [str, str, BudgetExhausted]

    asyncio.run(main())
    assert played.actions == ["a", "b", "submit c"]


@pytest.mark.parametrize("env", ["bash", "sql", "python", "ctf", "swe", "perl"])
def test_the_prompt(env: str) -> None:
    text = Played(view(env)).env.prompt
    assert text.startswith("Solve the task below in its sandbox, with the tools execute and submit")
    assert "there are 7 turns" in text
    assert text.endswith("\nSay hello.")
    assert "  " not in text
