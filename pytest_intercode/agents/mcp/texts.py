"""The texts that an agent gets over MCP: instructions, prompt, results."""

from __future__ import annotations

from pytest_intercode.agents.mcp.calls import Reply
from pytest_intercode.agents.texts import (
    describe_code,
    describe_end,
    describe_graded,
    describe_task,
)
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.text import pluralize
from pytest_intercode.core.turn import Observation

__all__ = [
    "OVER",
    "SUBMITTED",
    "instructions",
    "prompt",
    "result",
]

SUBMITTED = Reply(("submitted: the episode is over, stop now",), facts={"over": True})
"""The result of a submission that ended the episode."""

OVER = Reply(
    ("The episode is over, and nothing is run any more: stop now.",),
    error=True,
    facts={"over": True},
)
"""The result of every call after the end of the episode."""


def instructions(task: TaskView) -> str:
    """Return the server's instructions, which suffice for an agent that gets no prompt."""
    return (
        "This server is the only way into the sandbox of one task. Solve the task with the tool "
        "execute, then call submit once.\n"
        f"execute runs {describe_code(task)}. {describe_graded(task)} "
        f"There are {pluralize(task.max_turns, 'turn')}.\n\n"
        f"The task:\n{task.query}"
    )


def prompt(task: TaskView, *, workspace: bool = False) -> str:
    """Return a first message for an agent.

    Args:
        task: the task.
        workspace: whether the agent runs in a copy of the task's directory.
    """
    advice = (
        f"The present folder is a copy of its {task.workdir}: files that you edit here are changed "
        "there before each call of a tool, and the other way round. Run commands with the tools."
        if workspace
        else "Use its tools only: files and commands of this machine have nothing to do with the "
        "task."
    )
    return describe_task(
        task,
        f"Solve the task below in the sandbox that the MCP server 'intercode' gives you. {advice}",
    )


def result(observation: Observation, *, over: bool = False) -> Reply:
    """Return the result of an action.

    Args:
        observation: the result of the action.
        over: whether the action ended the episode, as it used up the budget or solved the task.
    """
    facts = {
        "observation": str(observation),
        "executed": observation.executed,
        "status": observation.status,
        "reward": observation.reward,
        "turns_left": observation.turns_left,
        "over": over,
    }
    # Model servers refuse blank text blocks.
    blocks = (str(observation),) if observation.strip() else ()
    return Reply((*blocks, describe_end(observation, over=over)), facts=facts)
