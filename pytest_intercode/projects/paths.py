"""The files that an agent created, changed or deleted, and a test's questions about them."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable

from pytest_intercode.core.text import first_names, one_line
from pytest_intercode.environments.project.environment import ProjectState
from pytest_intercode.projects.answer import Answer

__all__ = ["ChangedPaths", "ask_unchanged", "matches"]

__tracebackhide__ = True  # a report shows the line of the test that asked

_MAX_NAMES = 20  # names that an explanation shows


class ChangedPaths(tuple[str, ...]):
    """Paths relative to the project, sorted. A call asks whether a path is among them.

    ``run.created`` is a tuple, and ``run.created("docs/")`` is an answer.
    """

    kind: str
    _state: ProjectState

    @classmethod
    def of(cls, kind: str, state: ProjectState) -> ChangedPaths:
        """Return the paths of one kind.

        Args:
            kind: ``created``, ``changed`` or ``deleted``.
            state: what the agent left.
        """
        paths = cls(getattr(state, kind))
        paths.kind, paths._state = kind, state
        return paths

    def __call__(self, path: str) -> Answer:
        """Whether a path was created, changed or deleted.

        Args:
            path: a file; a folder, for any file in it; or a pattern, in which ``*`` also matches
                the slash (as in :mod:`fnmatch`).

        Raises:
            ValueError: the path is absolute, or leads out of the project.
        """
        _check_relative(self.kind, path)
        value = any(matches(name, path) for name in self)
        return Answer(value, f"{self.kind}({path!r})", _describe(self._state, path))


def ask_unchanged(state: ProjectState, path: str) -> Answer:
    """Answer whether nothing was created, changed or deleted at a path.

    Args:
        state: what the agent left.
        path: as for :class:`ChangedPaths`.

    Raises:
        ValueError: the path is absolute, or leads out of the project.
    """
    _check_relative("unchanged", path)
    names = (*state.created, *state.changed, *state.deleted)
    value = not any(matches(name, path) for name in names)
    return Answer(value, f"unchanged({path!r})", _describe(state, path))


def matches(name: str, path: str) -> bool:
    """Whether a file is at a path, is in the folder at that path, or matches it as a pattern."""
    normal_path = posixpath.normpath(path)
    if normal_path == ".":
        return True
    return (
        name == normal_path
        or name.startswith(f"{normal_path}/")
        or (fnmatch.fnmatchcase(name, normal_path))
    )


def _check_relative(kind: str, path: str) -> None:
    """Refuse a path that no file of a project can have, as nothing there would ever change."""
    if posixpath.isabs(path):
        raise ValueError(
            f"run.{kind}({path!r}): the path has to be relative to the project's folder"
        )
    if posixpath.normpath(path).split("/")[0] == "..":
        raise ValueError(f"run.{kind}({path!r}): the path leads out of the project's folder")


def _describe(state: ProjectState, path: str) -> str:
    """Return how files changed, with a mark on those at the path."""
    groups = {"created": state.created, "changed": state.changed, "deleted": state.deleted}
    if not any(groups.values()):
        return "the agent changed no file"
    lines = ["the agent"]
    for kind, names in groups.items():
        ordered = sorted(names, key=lambda name: not matches(name, path))  # those at the path first
        if names:
            lines.append(f"  {kind} {_listing(ordered, path)}")
    return "\n".join(lines)


def _listing(names: Iterable[str], path: str) -> str:
    marked = [one_line(f"{name} <-" if matches(name, path) else name) for name in names]
    return first_names(marked, _MAX_NAMES)
