"""Texts that describe a task to models: its actions, what is graded, and how an action ended."""

from __future__ import annotations

from pytest_intercode.core.task import TaskView
from pytest_intercode.core.text import pluralize
from pytest_intercode.core.turn import Observation
from pytest_intercode.environments.registry import kind_of

__all__ = [
    "describe_answer",
    "describe_code",
    "describe_end",
    "describe_execute",
    "describe_graded",
    "describe_submit",
    "describe_task",
]


def describe_code(task: TaskView) -> str:
    """Return what kind of code the argument ``code`` takes."""
    return kind_of(task.env).describe_code(task)


def describe_execute(task: TaskView, turns_left: int) -> str:
    """Return the description of the tool ``execute``."""
    return (
        f"Run code in the task's sandbox and return its output. The code is {describe_code(task)}. "
        f"Every call is a turn; {pluralize(turns_left, 'turn')} left."
    )


def describe_graded(task: TaskView) -> str:
    """Return a sentence on what is graded; empty if the kind does not have one."""
    return kind_of(task.env).graded


def describe_submit(task: TaskView) -> str:
    """Return the description of the tool ``submit``."""
    return (
        "End the episode when the task is done, and have it graded. "
        f"{kind_of(task.env).graded} Nothing can be done afterwards."
    ).replace("  ", " ")


def describe_answer(task: TaskView) -> str:
    """Return the description of the submitted answer."""
    return kind_of(task.env).answer


def describe_task(task: TaskView, introduction: str, has_user: bool = False) -> str:
    """Return a first message for a model that has the two tools.

    Args:
        task: the task.
        introduction: the sentences that say where the tools come from.
        has_user: whether a user may answer the model.
    """
    answered = "A user may answer what you say" if has_user else "Nobody answers questions"
    graded = f"{describe_graded(task)} ".lstrip()
    return (
        f"{introduction}\n"
        f"- execute(code) runs {describe_code(task)}. Every call is a turn, and there are "
        f"{pluralize(task.max_turns, 'turn')}.\n"
        f"- submit(answer) ends the episode. {graded}answer: {describe_answer(task)}.\n"
        f"{answered}. Call submit as soon as the task is done.\n\n"
        f"The task:\n{task.query}"
    )


def describe_end(observation: Observation, *, over: bool = False) -> str:
    """Return a note on how an action ended, in brackets.

    Args:
        observation: the result of the action.
        over: whether the action ended the episode, as it used up the budget or solved the task.
    """
    status, reward = observation.status, observation.reward
    state = f"status {status}" if status is not None else "failed"
    if status is None and observation.executed:
        state = "done"
    if reward is not None:
        state += f"; reward {reward:.2f}"
    if over:
        reason = "the task is solved" if reward == 1.0 else "no turns left"
        state += f"; {reason}, and the episode is over: stop now"
    else:
        state += f"; {pluralize(observation.turns_left, 'turn')} left"
    return f"[{state}]"
