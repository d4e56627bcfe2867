"""What nodes need of an agent that the user names: its folder or its file, by content."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from pytest_intercode.rollouts.cluster.files import Shelf
from pytest_intercode.rollouts.cluster.settings import NodeSettings

__all__ = ["why_not_on_nodes", "with_agent_files"]

_INSTALLED = ("installed", "codex", "claude", "opencode", "qwen", "mini-swe-agent", "aider")
_PROGRAMS = ("command", "mcp")
_CHAT = ("single-turn", "try-again", "react", "plan-solve", "tools")


def why_not_on_nodes(name: str) -> str:
    """Return why nodes cannot make an agent of this name, or nothing."""
    head = name.partition(":")[0]
    if head == "human":
        return "the agent human plays at this terminal"
    if head in _INSTALLED:
        return "an agent that is installed into sandboxes cannot be run on a cluster yet"
    return ""


def with_agent_files(settings: NodeSettings, shelf: Shelf, asked: str) -> NodeSettings:
    """Put what nodes need of an agent on a shelf, and return settings that say where it is.

    Args:
        settings: the settings, which name the agent and its folder.
        shelf: the files that nodes may ask for.
        asked: how the user asked for the agent, for messages.

    Raises:
        ConfigurationError: the agent's folder cannot be sent.
    """
    name, folder = settings.agent, settings.agent_folder or Path()
    head, _, rest = name.partition(":")
    if head == "replay":
        path = (folder / Path(rest.strip()).expanduser()).resolve()
        found = shelf.parcel(path)
        return replace(settings, agent_file=(path, found)) if found is not None else settings
    if head in _PROGRAMS:
        words = shlex.split(rest)
        if any((folder / word).is_file() and not Path(word).is_absolute() for word in words):
            return replace(settings, agent_parcel=shelf.agent(folder, asked))
    elif name and head not in (*_CHAT, "oracle"):
        module = name.rpartition(":")[0]
        if module.endswith(".py"):
            place = folder / Path(module).expanduser()
            parcel = shelf.agent(place.parent, asked)
            return replace(settings, agent_parcel=parcel, agent_below=str(place.parent))
        if _is_below(module, folder):
            return replace(settings, agent_parcel=shelf.agent(folder, asked))
    return settings


def _is_below(module: str, folder: Path) -> bool:
    """Whether a module is a file of the folder, and not of an installed package."""
    at = folder.joinpath(*module.split("."))
    return at.with_suffix(".py").is_file() or (at / "__init__.py").is_file()
