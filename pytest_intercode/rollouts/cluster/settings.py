"""What all rollouts of a run have in common on every node: plain data, sent once as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_intercode.core.presets import PRESETS
from pytest_intercode.results.cells import COMMAND_LINES
from pytest_intercode.rollouts.cluster.files import FileIndex, FileRef
from pytest_intercode.sandboxes.settings import SandboxSettings

__all__ = ["NodeSettings", "why_not_on_nodes", "with_agent_files"]

_INSTALLED = ("installed", *PRESETS)
_CHAT = ("single-turn", "try-again", "react", "plan-solve", "tools")


@dataclass(frozen=True)
class NodeSettings:
    """What a node gets before its first rollout.

    Attributes:
        agent: the agent as ``--intercode-agent`` names it.
        agent_arguments: what it is made with.
        agent_folder: where its relative paths are looked for on the driver.
        agent_file: the file that the agent replays, if it does.
        agent_archive: the folder that it lives in; None for one that every node has by itself.
        agent_subfolder: where that folder is, below ``agent_folder``.
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

    agent: str = ""
    agent_arguments: Mapping[str, str] = field(default_factory=dict)
    agent_folder: Path | None = None
    agent_file: FileRef | None = None
    agent_archive: FileRef | None = None
    agent_subfolder: str = ""
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
        fields = {**vars(self), "sandbox": self.sandbox.to_fields()}
        return json.dumps(fields, default=str).encode("ascii")

    @classmethod
    def from_json(cls, data: bytes) -> NodeSettings:
        """Return what :meth:`to_json` wrote."""
        fields = json.loads(data)
        folder, archive = fields["agent_folder"], fields["agent_archive"]
        file = fields["agent_file"]
        return cls(
            **{
                **fields,
                "agent_folder": None if folder is None else Path(folder),
                "agent_file": None if file is None else FileRef(*file),
                "agent_archive": None if archive is None else FileRef(*archive),
                "sandbox": SandboxSettings.from_fields(fields["sandbox"]),
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


def with_agent_files(settings: NodeSettings, files: FileIndex, source: str) -> NodeSettings:
    """Let nodes ask for what they need of an agent, and return settings that say where it is.

    Args:
        settings: the settings, which name the agent and its folder.
        files: the files that nodes may ask for.
        source: how the user asked for the agent, for messages.

    Raises:
        ConfigurationError: the agent's folder cannot be sent.
    """
    name, folder = settings.agent, settings.agent_folder or Path()
    head, _, argument = name.partition(":")
    if head == "replay":
        path = (folder / Path(argument.strip()).expanduser()).resolve()
        return replace(settings, agent_file=files.ref(path))
    if head in COMMAND_LINES:
        words = shlex.split(argument)
        if any((folder / word).is_file() and not Path(word).is_absolute() for word in words):
            return replace(settings, agent_archive=files.agent(folder, source))
    elif name and head not in (*_CHAT, "oracle"):
        module = name.rpartition(":")[0]
        if module.endswith(".py"):
            parent = (folder / Path(module).expanduser()).parent
            archive = files.agent(parent, source)
            return replace(settings, agent_archive=archive, agent_subfolder=str(parent))
        file = folder.joinpath(*module.split("."))
        if file.with_suffix(".py").is_file() or (file / "__init__.py").is_file():
            return replace(settings, agent_archive=files.agent(folder, source))
    return settings
