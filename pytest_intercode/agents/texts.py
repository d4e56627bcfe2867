"""What models get to know of a task: what actions are, what is graded, and how an action ended."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from pytest_intercode.core.task import TaskView
from pytest_intercode.core.text import pluralize
from pytest_intercode.core.turn import Observation
from pytest_intercode.environments.registered import added_environment

__all__ = [
    "AddedEnvironment",
    "describe_answer",
    "describe_code",
    "describe_end",
    "describe_environment",
    "describe_execute",
    "describe_graded",
    "describe_submit",
    "describe_task",
]

_SHELL = "bash commands. One shell runs them all and remembers its directory and variables"
_CODE = {
    "bash": _SHELL,
    "ctf": _SHELL,
    "swe": _SHELL,
    "python": "Python source. One interpreter runs it all and remembers names; the value of the "
    "last expression is shown",
}
_GRADED = {
    "bash": "The output of the last command and the files are graded.",
    "sql": "The last result, or the changes made in the database, are graded.",
    "python": "The function or class that the task asks for is graded by hidden tests.",
    "ctf": "Only the flag that is submitted is graded.",
    "swe": "The files are graded, by tests that are not shown.",
}
_ANSWERS = {
    "bash": "an answer in words, which is graded in place of the last output; mostly empty",
    "sql": "a last SELECT, which is graded in place of the last result; mostly empty",
    "python": "the name of the function or class, or its source",
    "ctf": "the flag; a wrong one costs a turn",
    "swe": "empty: the files are graded",
}


class AddedEnvironment(NamedTuple):
    """What is known of an environment that a user has registered.

    Attributes:
        language: what its actions are written in.
        label: the same behind a fence of a code block.
        description: what it is, in words.
        example: an action.
    """

    language: str
    label: str
    description: str
    example: str


def describe_environment(name: str) -> AddedEnvironment:
    """Return what a user's environment says of itself, or what its name says."""
    cls = added_environment(name)
    attributes = {
        attribute: str(getattr(cls, attribute, "")).strip()
        for attribute in ("language", "description", "example")
    }
    language = attributes["language"] or name.replace("_", " ").capitalize()
    return AddedEnvironment(
        language,
        "-".join((attributes["language"] or name).lower().split()),
        attributes["description"] or inspect.cleandoc((cls and cls.__doc__) or ""),
        attributes["example"] or "...",
    )


def describe_code(task: TaskView) -> str:
    """Return what ``code`` is made of."""
    if task.env == "sql":
        engine = {"sqlite": " for SQLite", "mysql": " for MySQL"}.get(task.engine, "")
        database = f", run in the database {task.database!r}" if task.database else ""
        return f"SQL statements{engine}{database}"
    if task.env in _CODE:
        return _CODE[task.env]
    description = " ".join(describe_environment(task.env).description.split())
    return f"an action of the environment {task.env}{f' ({description})' if description else ''}"


def describe_execute(task: TaskView, turns_left: int) -> str:
    """Return the description of the tool ``execute``."""
    return (
        f"Run code in the task's sandbox and return its output. The code is {describe_code(task)}. "
        f"Every call is a turn; {pluralize(turns_left, 'turn')} left."
    )


def describe_graded(task: TaskView) -> str:
    """Return a sentence on what is graded; empty for an environment of the user's."""
    return _GRADED.get(task.env, "")


def describe_submit(task: TaskView) -> str:
    """Return the description of the tool ``submit``."""
    return (
        "End the episode when the task is done, and have it graded. "
        f"{_GRADED.get(task.env, '')} Nothing can be done afterwards."
    ).replace("  ", " ")


def describe_answer(task: TaskView) -> str:
    """Return the description of what is submitted."""
    return _ANSWERS.get(task.env, "what is graded in place of the last output")


def describe_task(task: TaskView, introduction: str) -> str:
    """Return a first message for a model that has the two tools.

    Args:
        task: the task.
        introduction: the sentences that say where the tools come from.
    """
    graded = f"{_GRADED[task.env]} " if task.env in _GRADED else ""
    return (
        f"{introduction}\n"
        f"- execute(code) runs {describe_code(task)}. Every call is a turn, and there are "
        f"{pluralize(task.max_turns, 'turn')}.\n"
        f"- submit(answer) ends the episode. {graded}answer: {describe_answer(task)}.\n"
        "Nobody answers questions. Call submit as soon as the task is done.\n\n"
        f"The task:\n{task.query}"
    )


def describe_end(observation: Observation, *, over: bool = False) -> str:
    """Return a note on how an action ended, in brackets.

    Args:
        observation: what the action left.
        over: it ended the episode: it used up the budget, or solved the task.
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
