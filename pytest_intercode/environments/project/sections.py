"""What an agent left in a project, as sections of the report page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_intercode.core.text import one_line
from pytest_intercode.environments.sections import Section, show_lines, show_marked_lines

__all__ = ["end_state_sections"]


def end_state_sections(state: Mapping[str, Any]) -> list[Section]:
    """Return the last message, the commits and the patch; the state is untrusted."""
    project = state.get("project")
    project = project if isinstance(project, Mapping) else {}
    sections = []
    if message := str(state.get("message", "")):
        sections.append(show_lines("Last message", message.splitlines()))
    commits = project.get("commits")
    if isinstance(commits, list) and commits:
        lines = [str(commit.get("message", "")) for commit in commits if isinstance(commit, dict)]
        sections.append(show_lines("Commits", [line.partition("\n")[0] for line in lines]))
    patch = str(project.get("patch", "")).splitlines()
    marked = [[line[0], line[1:]] if line[:1] in ("+", "-") else ["", line] for line in patch]
    unread = one_line(str(project.get("unread", "")))
    nothing = f"what was left could not be read: {unread}" if unread else "no file was changed"
    sections.append(show_marked_lines("Patch", marked or [["", nothing]], same=None))
    return sections
