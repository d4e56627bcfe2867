"""The tools of an episode as plain functions, which agent frameworks make tools of theirs from.

Frameworks read a tool's name, arguments and descriptions from the function: its signature, its
annotations and its docstring in Google's style.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from pytest_intercode.agents.texts import (
    describe_answer,
    describe_code,
    describe_end,
    describe_execute,
    describe_submit,
)
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.turn import StepResult
from pytest_intercode.errors import BudgetExhausted

__all__ = ["make_async_tools", "make_tools"]

_Take: TypeAlias = "Callable[[str], StepResult]"


def make_tools(
    task: TaskView, step: _Take, submission: _Take
) -> tuple[Callable[..., str], Callable[..., str]]:
    """Return the tools ``execute`` and ``submit``; see ``AgentEnvironment.tools``."""

    def execute(code: str) -> str:
        return _shown(step(code))

    def submit(answer: str = "") -> str:
        return _shown(submission(answer))

    execute.__doc__, submit.__doc__ = _docstrings(task)
    return execute, submit


def make_async_tools(
    task: TaskView, step: _Take, submission: _Take
) -> tuple[Callable[..., Awaitable[str]], Callable[..., Awaitable[str]]]:
    """Return the same as coroutine functions; see ``AgentEnvironment.async_tools``."""

    async def execute(code: str) -> str:
        return _shown(step(code))  # which lets the tasks of other episodes go on

    async def submit(answer: str = "") -> str:
        return _shown(submission(answer))

    execute.__doc__, submit.__doc__ = _docstrings(task)
    return execute, submit


def _shown(result: StepResult) -> str:
    observation, _, terminated, truncated, _ = result
    if terminated or truncated:
        raise BudgetExhausted("the episode is over: stop now")
    return f"{observation}\n{describe_end(observation)}".lstrip()


def _docstrings(task: TaskView) -> tuple[str, str]:
    return (
        f"{describe_execute(task, task.max_turns)}\n\nArgs:\n    code: {describe_code(task)}\n",
        f"{describe_submit(task)}\n\nArgs:\n    answer: {describe_answer(task)}\n",
    )
