"""What a run is called where nobody named it: the agent and the suites, in a few words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import PurePosixPath

__all__ = ["run_name"]

_MAX_NAMED_SUITES = 3
_MAX_AGENT_LENGTH = 60  # characters
_STARTERS = re.compile(
    r"env|exec|sudo|nohup|uv|uvx|npx|run|-.*|\w+=.*|(?:python|node|perl|ruby)[\d.]*|\w*sh"
)


def run_name(agent: str | None, suites: Iterable[str]) -> str:
    """Return a name for a run.

    Args:
        agent: the agent as the user named it; of a command line its program is taken.
        suites: the suites of its tasks, with repetitions.
    """
    suite_names = list(dict.fromkeys(filter(None, suites)))
    suites_text = (
        ", ".join(suite_names[:_MAX_NAMED_SUITES])
        if len(suite_names) <= _MAX_NAMED_SUITES
        else f"{len(suite_names)} suites"
    )
    short = _short(agent or "pytest-intercode")
    return f"{short} on {suites_text}" if suites_text else short


def _short(agent: str) -> str:
    style, colon, rest = agent.partition(":")
    if colon and style in ("command", "mcp"):
        agent = f"{style}:{_program(rest)}"
    elif colon and ("/" in rest or "/" in style):
        agent = ":".join(PurePosixPath(part).name for part in (style, rest))
    return agent if len(agent) <= _MAX_AGENT_LENGTH else f"{agent[: _MAX_AGENT_LENGTH - 3]}..."


def _program(line: str) -> str:
    """Return the name of the program that a command line starts, behind what starts it."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    names = [PurePosixPath(word).name for word in words if word]
    return next(
        (name for name in names if not _STARTERS.fullmatch(name)), names[0] if names else ""
    )
