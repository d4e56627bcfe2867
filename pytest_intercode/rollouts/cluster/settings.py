"""Settings that all rollouts of a run share on every node: plain data, sent once as JSON."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_intercode.core.presets import PRESETS
from pytest_intercode.results.cells import COMMAND_LINES
from pytest_intercode.rollouts.cluster.files import FileIndex, FileRef
from pytest_intercode.sandboxes.settings import SandboxSettings

__all__ = ["AgentSource", "NodeSettings", "find_agent", "why_not_on_nodes"]

_INSTALLED = ("installed", *PRESETS)
_CHAT = ("single-turn", "try-again", "react", "plan-solve", "tools")


@dataclass(frozen=True)
class AgentSource:
    """The data that a node needs to create one of a run's agents.

    Attributes:
        name: the agent as ``--intercode-agent`` names it.
        arguments: its arguments.
        file: the file that it replays, if it replays one.
        archive: the folder with its code; None for an agent that every node already has.
        subfolder: the path of that folder, below the folder where relative paths start.
    """

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    file: FileRef | None = None
    archive: FileRef | None = None
    subfolder: str = ""

    @property
    def files(self) -> tuple[FileRef, ...]:
        """The files that have to be sent."""
        return tuple(ref for ref in (self.archive, self.file) if ref is not None)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> AgentSource:
        """Return the source from its fields in JSON."""
        refs = {
            name: None if fields[name] is None else FileRef(*fields[name])
            for name in ("file", "archive")
        }
        return cls(**{**fields, **refs})


@dataclass(frozen=True)
class NodeSettings:
    """The settings that a node gets before its first rollout.

    Attributes:
        agents: the run's agents.
        agent_folder: the folder of their relative paths on the driver.
        sandbox: the settings of sandboxes.
        variables: environment variables of the driver for nodes; they are left out of the repr.
        gateway: how programs reach models: the fields of the gateway's settings without keys.
        user_model: the model that plays users; empty for the models that tasks name.
        network: whether sandboxes can reach the network.
        seconds: the remaining seconds of the run; None for no limit.
        budget: the name of the actor that counts the run's usage; empty if nothing except the time
            is limited.
        process: identifies the process that gets these settings.
    """

    agents: tuple[AgentSource, ...] = ()
    agent_folder: Path | None = None
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    gateway: Mapping[str, Any] | None = None
    user_model: str = ""
    network: bool = False
    seconds: float | None = None
    budget: str = ""
    process: str = ""

    def to_json(self) -> bytes:
        """Return the settings as JSON."""
        agents = [vars(agent) for agent in self.agents]
        fields = {**vars(self), "agents": agents, "sandbox": self.sandbox.to_fields()}
        return json.dumps(fields, default=str).encode("ascii")

    @classmethod
    def from_json(cls, data: bytes) -> NodeSettings:
        """Return the settings from the result of :meth:`to_json`."""
        fields = json.loads(data)
        folder = fields["agent_folder"]
        return cls(
            **{
                **fields,
                "agents": tuple(map(AgentSource.from_fields, fields["agents"])),
                "agent_folder": None if folder is None else Path(folder),
                "sandbox": SandboxSettings(**fields["sandbox"]),
            }
        )


def why_not_on_nodes(name: str) -> str:
    """Return why nodes cannot create an agent of this name; empty if they can."""
    head = name.partition(":")[0]
    if head == "human":
        return "the agent human uses this terminal"
    if head in _INSTALLED:
        return "an agent that is installed into sandboxes cannot be run on a cluster yet"
    return ""


def find_agent(
    name: str, arguments: Mapping[str, str], folder: Path | None, files: FileIndex, source: str
) -> AgentSource:
    """Return the data that nodes need to create an agent, and let them ask for its files.

    Args:
        name: the agent.
        arguments: its arguments.
        folder: the folder of its relative paths.
        files: the files that nodes may ask for.
        source: how the user asked for the agent, for messages.

    Raises:
        ConfigurationError: the agent's folder cannot be sent.
    """
    agent, folder = AgentSource(name, dict(arguments)), folder or Path()
    head, _, argument = name.partition(":")
    if head == "replay":
        path = (folder / Path(argument.strip()).expanduser()).resolve()
        return replace(agent, file=files.ref(path))
    if head in COMMAND_LINES:
        words = shlex.split(argument)
        names = [word for word in words if not Path(word).is_absolute()]
        if any(os.path.isfile(folder / name) for name in names):  # noqa: PTH113 - takes any text
            return replace(agent, archive=files.agent(folder, source))
    elif name and head not in (*_CHAT, "oracle"):
        module = name.rpartition(":")[0]
        if module.endswith(".py"):
            parent = (folder / Path(module).expanduser()).parent
            return replace(agent, archive=files.agent(parent, source), subfolder=str(parent))
        file = folder.joinpath(*module.split("."))
        if file.with_suffix(".py").is_file() or (file / "__init__.py").is_file():
            return replace(agent, archive=files.agent(folder, source))
    return agent
