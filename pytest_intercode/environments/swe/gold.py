"""Gold of swe tasks: a patch in git's format, or commands; and what a patch is about."""

from __future__ import annotations

import re
import shlex

from pytest_intercode.core.task import Task
from pytest_intercode.suites.patches import heredoc

__all__ = ["gold_actions", "is_patch", "paths_of_patch"]

_HEADER = re.compile(  # most often both names are the same, and tell where the first one ends
    r'^diff --git "?a/(?:(?P<both>.*?)"? "?b/(?P=both)|(?P<old>.*?)"? "?b/(?P<new>.*?))"?$',
    re.MULTILINE,
)


def is_patch(text: str) -> bool:
    """Whether a gold is a patch, and not a command."""
    return text.lstrip().startswith(("diff --git ", "--- a/"))


def paths_of_patch(patch: str) -> set[str]:
    """Return the paths, old and new, that a patch in git's format is about."""
    return {path for found in _HEADER.finditer(patch) for path in found.groups() if path}


def gold_actions(task: Task) -> list[str]:
    """Return the actions that bring a sandbox into gold's end state; a patch is applied by git."""
    at = task.repository.at if task.repository else task.workdir
    command = f"git -C {shlex.quote(at)} apply --whitespace=nowarn"
    return [heredoc(command, gold) if is_patch(gold) else gold for gold in task.gold]
