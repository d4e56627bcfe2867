"""The part of a task that an agent may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["TaskView"]


@dataclass(frozen=True)
class TaskView:
    """The part of a task that an agent may see.

    It never holds the gold or further columns of a row, because these could contain the answer.

    Attributes:
        id: the task's id, unique in its suite.
        query: the instruction in natural language.
        env: the environment's name, which determines the language of actions.
        suite: the suite's name.
        dataset: the dataset's name; the suite's if there is none.
        hardness: the difficulty according to the suite, or the empty string.
        tags: the suite's own labels.
        workdir: the directory in which the first action runs.
        max_turns: how many actions the agent may take.
        engine: the engine of an sql task (``sqlite`` or ``mysql``), else the empty string.
        database: the database that an sql task starts in, else the empty string.
        mcp: MCP servers for the agent to start: command lines for the sandbox's sh, by name.
        skills: a folder of the sandbox with skills for the agent, each a folder with a
            ``SKILL.md``; empty for none.
    """

    id: str
    query: str
    env: str
    suite: str
    dataset: str
    hardness: str
    tags: tuple[str, ...]
    workdir: str
    max_turns: int
    engine: str = ""
    database: str = ""
    mcp: Mapping[str, str] = field(default_factory=dict, hash=False)
    skills: str = ""
