"""What all rollouts of a run have in common on every node: plain data, sent once as JSON."""

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
    """What a node needs to make one of a run's agents.

    Attributes:
        name: the agent as ``--intercode-agent`` names it.
        arguments: what it is made with.
        file: the file that it replays, if it does.
        archive: the folder that it lives in; None for one that every node has by itself.
        subfolder: where that folder is, below the folder where relative paths start.
    """

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    file: FileRef | None = None
    archive: FileRef | None = None
    subfolder: str = ""

    @property
    def files(self) -> tuple[FileRef, ...]:
        """What has to be sent."""
        return tuple(ref for ref in (self.archive, self.file) if ref is not None)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> AgentSource:
        """Return what its fields say, as JSON has them."""
        refs = {
            name: None if fields[name] is None else FileRef(*fields[name])
            for name in ("file", "archive")
        }
        return cls(**{**fields, **refs})


@dataclass(frozen=True)
class NodeSettings:
    """What a node gets before its first rollout.

    Attributes:
        agents: the run's agents.
        agent_folder: where their relative paths are looked for on the driver.
        sandbox: where sandboxes come from.
        variables: environment variables of the driver that nodes are to have; no text shows them.
        gateway: how programs reach models: the fields of the gateway's settings that are not keys.
        user_model: the model that plays users; empty for those that tasks name.
        network: sandboxes reach the network.
        seconds: what is left of the run's time; None for no limit.
        budget: the name of the actor that counts what the run uses up; empty where nothing but its
            time is limited.
        process: names the process that gets this.
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
        """Return it as JSON."""
        agents = [vars(agent) for agent in self.agents]
        fields = {**vars(self), "agents": agents, "sandbox": self.sandbox.to_fields()}
        return json.dumps(fields, default=str).encode("ascii")

    @classmethod
    def from_json(cls, data: bytes) -> NodeSettings:
        """Return what :meth:`to_json` wrote."""
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
    """Return why nodes cannot make an agent of this name, or nothing."""
    head = name.partition(":")[0]
    if head == "human":
        return "the agent human plays at this terminal"
    if head in _INSTALLED:
        return "an agent that is installed into sandboxes cannot be run on a cluster yet"
    return ""


def find_agent(
    name: str, arguments: Mapping[str, str], folder: Path | None, files: FileIndex, source: str
) -> AgentSource:
    """Return what nodes need of an agent, and let them ask for its files.

    Args:
        name: the agent.
        arguments: what it is made with.
        folder: where its relative paths are looked for.
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
