"""All that an agent is told over MCP: instructions, descriptions of the tools, notes in results."""

from __future__ import annotations

from pytest_intercode.agents.mcp.calls import Reply
from pytest_intercode.core.task import TaskView

__all__ = [
    "OVER",
    "describe_execute",
    "describe_submit",
    "instructions",
    "over",
    "prompt",
    "reply",
    "submitted",
]

_LANGUAGES = {
    "bash": "bash commands. One shell runs them all and remembers its directory and variables",
    "python": "Python source. One interpreter runs it all and remembers names; the value of the "
    "last expression is shown",
    "ctf": "bash commands. One shell runs them all and remembers its directory and variables",
}
_GRADED = {
    "bash": "The output of the last command and the files are graded.",
    "sql": "The last result, or the changes made in the database, are graded.",
    "python": "The function or class that the task asks for is graded by hidden tests.",
    "ctf": "Only the flag that is submitted is graded.",
}
_ANSWERS = {
    "bash": "an answer in words, which is graded in place of the last output; mostly empty",
    "sql": "a last SELECT, which is graded in place of the last result; mostly empty",
    "python": "the name of the function or class, or its source",
    "ctf": "the flag; a wrong one costs a turn",
}


def language(task: TaskView) -> str:
    """Say what ``code`` is made of."""
    if task.env == "sql":
        engine = {"sqlite": "SQLite", "mysql": "MySQL"}.get(task.engine, "")
        database = f", run in the database {task.database!r}" if task.database else ""
        return f"SQL statements{' for ' * bool(engine)}{engine}{database}"
    return _LANGUAGES.get(task.env, f"an action of the environment {task.env}")


def describe_execute(task: TaskView, turns_left: int) -> str:
    """Return the description of the tool ``execute``."""
    return (
        f"Run code in the task's sandbox and return its output. The code is {language(task)}. "
        f"Every call is a turn; {_turns(turns_left)} left."
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
    """Return the instructions of the server, enough for an agent that is told nothing else."""
    return (
        "This server is the only way into the sandbox of one task. Solve the task with the tool "
        "execute, then call submit once.\n"
        f"execute runs {language(task)}. {_GRADED.get(task.env, '')} "
        f"There are {_turns(task.max_turns)}.\n\n"
        f"The task:\n{task.query}"
    )


def prompt(task: TaskView) -> str:
    """Return what an agent may be given as its first message."""
    return (
        "Solve the task below in the sandbox that the MCP server 'intercode' gives you. Use its "
        "tools only: files and commands of this machine have nothing to do with the task.\n"
        f"- execute(code) runs {language(task)}. Every call is a turn, and there are "
        f"{_turns(task.max_turns)}.\n"
        f"- submit(answer) ends the episode. {_GRADED.get(task.env, '')} answer: "
        f"{describe_answer(task)}.\n"
        "Nobody answers questions. Call submit as soon as the task is done.\n\n"
        f"The task:\n{task.query}"
    )


# -- results


def reply(
    observation: str, *, status: int | None, executed: bool, reward: float | None, turns_left: int
) -> Reply:
    """Return the result of an action that did not end the episode."""
    return _reply(observation, status, executed, reward, turns_left, f"{_turns(turns_left)} left")


def over(
    observation: str, *, status: int | None, executed: bool, reward: float | None, turns_left: int
) -> Reply:
    """Return the result of the action that used up the budget, or that solved the task."""
    how = "the task is solved" if reward == 1.0 else "no turns left"
    how += ", and the episode is over: stop now"
    return _reply(observation, status, executed, reward, turns_left, how, over=True)


def submitted() -> Reply:
    """Return the result of a submission that ended the episode."""
    return Reply(("submitted: the episode is over, stop now",), facts={"over": True})


OVER = Reply(
    ("The episode is over, and nothing is run any more: stop now.",),
    error=True,
    facts={"over": True},
)


def _reply(
    observation: str,
    status: int | None,
    executed: bool,
    reward: float | None,
    turns_left: int,
    how: str,
    over: bool = False,
) -> Reply:
    said = f"status {status}" if status is not None else ("done" if executed else "failed")
    if reward is not None:
        said += f"; reward {reward:.2f}"
    facts = {
        "observation": observation,
        "executed": executed,
        "status": status,
        "reward": reward,
        "turns_left": turns_left,
        "over": over,
    }
    note = f"[{said}; {how}]"
    # Servers of models refuse blocks of text that are blank.
    texts = (observation, note) if observation.strip() else (note,)
    return Reply(texts, facts=facts)


def _turns(number: int) -> str:
    return f"{number} turn{'' if number == 1 else 's'}"
