"""What nodes need of an agent that the user names: its folder or its file, by content."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from pytest_intercode.rollouts.cluster.files import Parcel, Shelf

__all__ = ["AgentFiles", "agent_files", "why_not_on_nodes"]

_INSTALLED = ("installed", "codex", "claude", "opencode", "qwen", "mini-swe-agent", "aider")
_PROGRAMS = ("command", "mcp")
_CHAT = ("single-turn", "try-again", "react", "plan-solve", "tools")


class AgentFiles(NamedTuple):
    """The fields of :class:`NodeSettings` of the same names, without ``agent_`` before them."""

    file: tuple[Path, Parcel] | None = None
    parcel: Parcel | None = None
    below: str = ""


def why_not_on_nodes(name: str) -> str:
    """Return why nodes cannot make an agent of this name, or nothing."""
    head = name.partition(":")[0]
    if head == "human":
        return "the agent human plays at this terminal"
    if head in _INSTALLED:
        return "an agent that is installed into sandboxes cannot be run on a cluster yet"
    return ""


def agent_files(name: str, folder: Path, shelf: Shelf, asked: str) -> AgentFiles:
    """Put what nodes need of an agent on a shelf, and return where they find it.

    Args:
        name: the agent as the user named it.
        folder: where its relative paths and modules are looked for.
        shelf: the files that nodes may ask for.
        asked: how the user asked for it, for messages.

    Raises:
        ConfigurationError: the agent's folder cannot be sent.
    """
    head, _, rest = name.partition(":")
    if head == "replay":
        path = (folder / Path(rest.strip()).expanduser()).resolve()
        found = shelf.parcel(path)
        return AgentFiles(file=(path, found) if found is not None else None)
    if head in _PROGRAMS:
        words = shlex.split(rest)
        if any((folder / word).is_file() and not Path(word).is_absolute() for word in words):
            return AgentFiles(parcel=shelf.agent(folder, asked))
    elif name and head not in (*_CHAT, "oracle"):
        module = name.rpartition(":")[0]
        if module.endswith(".py"):
            place = folder / Path(module).expanduser()
            return AgentFiles(parcel=shelf.agent(place.parent, asked), below=str(place.parent))
        if _is_below(module, folder):
            return AgentFiles(parcel=shelf.agent(folder, asked))
    return AgentFiles()


def _is_below(module: str, folder: Path) -> bool:
    """Whether a module is a file of the folder, and not of an installed package."""
    at = folder.joinpath(*module.split("."))
    return at.with_suffix(".py").is_file() or (at / "__init__.py").is_file()
