"""The tools of an episode as plain functions, from which agent frameworks make their own tools.

Frameworks read a tool's name, arguments and descriptions from the function: from its signature, its
annotations and its Google-style docstring.
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

_OVER = "the episode is over: stop now"

_Take: TypeAlias = "Callable[[str], StepResult]"


def make_tools(
    task: TaskView, step: _Take, submission: _Take, raises: bool
) -> tuple[Callable[..., str], Callable[..., str]]:
    """Return the tools ``execute`` and ``submit``; see ``AgentEnvironment.tools``."""

    def execute(code: str) -> str:
        return _carry_out(step, code, raises)

    def submit(answer: str = "") -> str:
        return _carry_out(submission, answer, raises)

    execute.__doc__, submit.__doc__ = _docstrings(task)
    return execute, submit


def make_async_tools(
    task: TaskView, step: _Take, submission: _Take, raises: bool
) -> tuple[Callable[..., Awaitable[str]], Callable[..., Awaitable[str]]]:
    """Return the same tools as coroutine functions; see ``AgentEnvironment.async_tools``."""

    async def execute(code: str) -> str:
        return _carry_out(step, code, raises)  # "step" lets other episodes' asyncio tasks run

    async def submit(answer: str = "") -> str:
        return _carry_out(submission, answer, raises)

    execute.__doc__, submit.__doc__ = _docstrings(task)
    return execute, submit


def _carry_out(take: _Take, text: str, raises: bool) -> str:
    try:
        observation, _, terminated, truncated, _ = take(text)
        if terminated or truncated:
            raise BudgetExhausted(_OVER)
    except BudgetExhausted:
        if raises:
            raise
        return _OVER
    return f"{observation}\n{describe_end(observation)}".lstrip()


def _docstrings(task: TaskView) -> tuple[str, str]:
    return (
        f"{describe_execute(task, task.max_turns)}\n\nArgs:\n    code: {describe_code(task)}\n",
        f"{describe_submit(task)}\n\nArgs:\n    answer: {describe_answer(task)}\n",
    )
