"""Names of environments: InterCode's four, and those that others add.

An environment is added by ``pytest_intercode.register_environment`` or by an entry point of an
installed package. Only names and what belongs to a name are known here, so that suites can be
checked by them; ``environments/registry.py`` knows the classes. Entry points are looked for when a
name is not built in, and loaded when their name is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pytest_intercode.core.task import ENVIRONMENTS
from pytest_intercode.errors import ConfigurationError

__all__ = [
    "GROUP",
    "add_environment",
    "added_environment",
    "environment_names",
    "is_environment",
    "watch_environments",
]

GROUP = "pytest_intercode.environments"
"""The group of entry points: each is named as its environment, and names its class."""


_added: dict[str, type[Any]] = {}
_watching: list[Callable[[str], None]] = []


def add_environment(added: type[Any]) -> None:
    """Register a class with a ``name`` and a ``suite``; it replaces an earlier one of that name."""
    _added[added.name] = added
    for call in _watching:
        call(added.name)


def watch_environments(call: Callable[[str], None]) -> None:
    """Call a function with the name of every environment, now and as they are added."""
    _watching.append(call)
    for name in environment_names():
        call(name)


def added_environment(name: str) -> type[Any] | None:
    """Return what was added under a name, from an entry point if need be.

    Raises:
        ConfigurationError: the entry point cannot be loaded.
    """
    if name in _added or name in ENVIRONMENTS:
        return _added.get(name)
    point = _entry_points().get(name)
    if point is None:
        return None
    try:
        loaded: type[Any] = point.load()
    except Exception as error:
        raise ConfigurationError(
            f"the environment {name!r} cannot be loaded from the entry point {point.value} "
            f"({GROUP}): {type(error).__name__}: {error}"
        ) from None
    return loaded


def is_environment(name: str) -> bool:
    """Whether there is an environment of this name."""
    return name in ENVIRONMENTS or name in _added or name in _entry_points()


def environment_names() -> tuple[str, ...]:
    """Return all names: the built-in ones, then the added ones."""
    return tuple(dict.fromkeys((*ENVIRONMENTS, *sorted({*_added, *_entry_points()}))))


def _entry_points() -> dict[str, EntryPoint]:
    return _entry_points_on(tuple(sys.path))


# To look for them reads the metadata of every installed package: 8 ms, where tasks by the thousand
# ask whether their tags name an environment. What is installed changes with the path, if at all.
@cache
def _entry_points_on(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
