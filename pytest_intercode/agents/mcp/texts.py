"""The texts that an agent gets over MCP: instructions, tool descriptions, prompt, results."""

from __future__ import annotations

from pytest_intercode.agents.mcp.calls import Reply
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.text import counted
from pytest_intercode.core.turn import Observation

__all__ = [
    "OVER",
    "SUBMITTED",
    "describe_answer",
    "describe_code",
    "describe_execute",
    "describe_submit",
    "instructions",
    "prompt",
    "result",
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

SUBMITTED = Reply(("submitted: the episode is over, stop now",), facts={"over": True})
"""The result of a submission that ended the episode."""

OVER = Reply(
    ("The episode is over, and nothing is run any more: stop now.",),
    error=True,
    facts={"over": True},
)
"""The result of every call after the end of the episode."""


def describe_code(task: TaskView) -> str:
    """Return what ``code`` is made of."""
    if task.env == "sql":
        engine = {"sqlite": " for SQLite", "mysql": " for MySQL"}.get(task.engine, "")
        database = f", run in the database {task.database!r}" if task.database else ""
        return f"SQL statements{engine}{database}"
    return _CODE.get(task.env, f"an action of the environment {task.env}")


def describe_execute(task: TaskView, turns_left: int) -> str:
    """Return the description of the tool ``execute``."""
    return (
        f"Run code in the task's sandbox and return its output. The code is {describe_code(task)}. "
        f"Every call is a turn; {counted(turns_left, 'turn')} left."
    )


def describe_submit(task: TaskView) -> str:
    """Return the description of the tool ``submit``."""
    return (
        "End the episode when the task is done, and have it graded. "
        f"{_GRADED.get(task.env, '')} Nothing can be done afterwards."
    ).replace("  ", " ")


def describe_answer(task: TaskView) -> str:
    """Return the description of what is submitted."""
    return _ANSWERS.get(task.env, "what is graded in place of the last output")


def instructions(task: TaskView) -> str:
    """Return the instructions of the server, enough for an agent that gets nothing else."""
    return (
        "This server is the only way into the sandbox of one task. Solve the task with the tool "
        "execute, then call submit once.\n"
        f"execute runs {describe_code(task)}. {_GRADED.get(task.env, '')} "
        f"There are {counted(task.max_turns, 'turn')}.\n\n"
        f"The task:\n{task.query}"
    )


def prompt(task: TaskView) -> str:
    """Return a first message for an agent."""
    return (
        "Solve the task below in the sandbox that the MCP server 'intercode' gives you. Use its "
        "tools only: files and commands of this machine have nothing to do with the task.\n"
        f"- execute(code) runs {describe_code(task)}. Every call is a turn, and there are "
        f"{counted(task.max_turns, 'turn')}.\n"
        f"- submit(answer) ends the episode. {_GRADED.get(task.env, '')} answer: "
        f"{describe_answer(task)}.\n"
        "Nobody answers questions. Call submit as soon as the task is done.\n\n"
        f"The task:\n{task.query}"
    )


def result(observation: Observation, *, over: bool = False) -> Reply:
    """Return the result of an action.

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
        why = "the task is solved" if reward == 1.0 else "no turns left"
        state += f"; {why}, and the episode is over: stop now"
    else:
        state += f"; {counted(observation.turns_left, 'turn')} left"
    facts = {
        "observation": str(observation),
        "executed": observation.executed,
        "status": status,
        "reward": reward,
        "turns_left": observation.turns_left,
        "over": over,
    }
    # Servers of models refuse blocks of text that are blank.
    shown = (str(observation),) if observation.strip() else ()
    return Reply((*shown, f"[{state}]"), facts=facts)
