"""The prompt for a program that has its own tools, and the answer file that it writes."""

from __future__ import annotations

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.core.task import TaskView
from pytest_intercode.environments.registry import kind_of

__all__ = ["ANSWER_FILE", "ANSWER_FOLDER", "describe_program_task", "read_answer"]

ANSWER_FOLDER = "/opt/intercode/home"
"""A folder in memory, in sandboxes whose agent may write an answer file; it is not graded."""

ANSWER_FILE = f"{ANSWER_FOLDER}/answer"
"""The file to which the agent writes its answer."""


def describe_program_task(task: TaskView, has_user: bool) -> str:
    """Return a first message for a program that has its own tools and exits when it is done.

    Args:
        task: the task.
        has_user: whether a user may answer its questions.
    """
    kind = kind_of(task.env)
    if kind.prompts_alone:
        return task.query
    instructions = kind.answer_file_instruction.replace("{answer}", ANSWER_FILE) or kind.graded
    answered = "Nobody answers questions."
    if has_user:
        answered = "A user reads what you say when you stop, and may answer."
    words = [answered, f"You have {task.max_turns} calls of tools."]
    return f"{task.query}\n\n{' '.join([instructions, *words])}"


def read_answer(env: AgentEnvironment) -> str | None:
    """Return the answer that a program has written to its file, or None if there is none.

    Raises:
        BudgetExhausted: the episode is over.
    """
    if not kind_of(env.task.env).reads_answer:
        return None
    # "command -p", as a shim of cat may be first on PATH.
    status, output = env.exec(f"command -p cat {ANSWER_FILE} 2>/dev/null")
    return output if status == 0 else None
