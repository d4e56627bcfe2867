"""Specifications of rollouts: plain data that can be pickled and written as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_intercode.core.status import EpisodeStatus
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Feedback, Profile
from pytest_intercode.core.usage import Budget
from pytest_intercode.environments.task_json import task_from_json, task_to_json
from pytest_intercode.results.cells import make_cell

__all__ = ["DEFAULT_TIMEOUT", "Parameters", "RolloutSpec"]

DEFAULT_TIMEOUT = 600.0
"""Seconds of an episode, if neither the user nor the task sets another number."""


@dataclass(frozen=True)
class Parameters:
    """Further keyword arguments of an agent's class, which may change between episodes.

    Attributes:
        version: the trainer's version number of them; records contain it.
        values: JSON values, by name.
        files: names and files; the files do not change any more.
    """

    version: int
    values: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[tuple[str, Path], ...] = ()

    def keywords(self) -> dict[str, object]:
        """Return the keyword arguments."""
        return {**self.values, **dict(self.files)}


@dataclass(frozen=True)
class RolloutSpec:
    """One agent on one task in one environment.

    Attributes:
        task: the task, including its gold.
        agent: the agent as ``--intercode-agent`` names it; empty for an agent that is an object.
        agent_arguments: its arguments.
        parameters: its further parameters; None for none.
        agent_folder: the folder of its relative paths and modules; None for the current one.
        profile: the profile to grade by.
        feedback: whether the agent sees rewards.
        max_turns: maximum actions in the episode; None for the task's own number.
        action_timeout: seconds for an action; None for the task's own number.
        timeout: seconds for the episode; None for no limit.
        budget: limits of tokens and money for the episode.
        node_id: the node id of the pytest item that it belongs to; empty outside of pytest.
    """

    task: Task
    agent: str = ""
    agent_arguments: Mapping[str, str] = field(default_factory=dict)
    parameters: Parameters | None = None
    agent_folder: Path | None = None
    profile: Profile = "strict"
    feedback: Feedback = "observation"
    max_turns: int | None = None
    action_timeout: float | None = None
    timeout: float | None = None
    budget: Budget = field(default_factory=Budget)
    node_id: str = ""

    @property
    def parameters_version(self) -> int:
        """The version of the parameters; 0 without parameters."""
        return self.parameters.version if self.parameters is not None else 0

    def status(self) -> EpisodeStatus:
        """Return the initial status of its episode."""
        task = self.task
        return EpisodeStatus(
            item=self.node_id,
            task=task.id,
            agent=make_cell(self.agent, self.agent_arguments).agent_label if self.agent else "",
            treatment=task.treatment,
            repeat=task.repeat,
            max_turns=self.max_turns or task.max_turns,
            timeout=self.timeout,
        )

    def to_json(self) -> bytes:
        """Return the spec as JSON."""
        fields = {
            **vars(self),
            "parameters": None if self.parameters is None else vars(self.parameters),
            "budget": vars(self.budget),
        }
        del fields["task"]  # by far the largest field; `task_to_json` writes it directly
        line = json.dumps(fields, default=os.fspath).encode("ascii")
        return b'{"task": %b, %b' % (task_to_json(self.task), line[1:])

    @classmethod
    def from_json(cls, data: bytes | str) -> RolloutSpec:
        """Return the spec from the result of :meth:`to_json`."""
        fields = json.loads(data)
        folder = fields["agent_folder"]
        return cls(
            **{
                **fields,
                "task": task_from_json(json.dumps(fields["task"])),
                "parameters": _parameters(fields["parameters"]),
                "agent_folder": None if folder is None else Path(folder),
                "budget": Budget(**fields["budget"]),
            }
        )


def _parameters(fields: Mapping[str, Any] | None) -> Parameters | None:
    if fields is None:
        return None
    files = tuple((name, Path(path)) for name, path in fields["files"])
    return Parameters(fields["version"], fields["values"], files)
