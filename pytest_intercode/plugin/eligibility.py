"""Concurrency groups: which items may run before their turns, and beside which others.

An item may if all that it needs is ours: its test takes nothing but the episode, and no fixture,
mark or hook of the user's prepares or ends something for it alone. What is set up for longer than
one item (a session's server of models, say) is there once the first item that needs it has had its
turn, so items run concurrently only with others that need the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.plugin.resume import resumed_of
from pytest_intercode.plugin.run import task_of

__all__ = ["concurrency_group"]

_OUR_FIXTURES = "pytest_intercode.plugin.fixtures"
_OUR_ARGUMENTS = frozenset(("intercode_episode", "intercode_task"))
_OWN_TURN = ("skip", "skipif", "usefixtures", "filterwarnings")
_HARMLESS = frozenset(("intercode", "parametrize", "xfail", "flaky", "timeout", "xdist_group"))
_HOOKS = ("pytest_runtest_protocol", "pytest_runtest_setup", "pytest_runtest_call")
_PLUGINS = pytest.StashKey[frozenset[str]]()
_GROUP = pytest.StashKey[Hashable | None]()


def concurrency_group(item: pytest.Item) -> Hashable | None:
    """Return what items have in common that may run concurrently; None for one that runs inline."""
    if _GROUP not in item.stash:  # asked for every item whenever an episode begins
        item.stash[_GROUP] = _find_group(item)
    return item.stash[_GROUP]


def _find_group(item: pytest.Item) -> Hashable | None:
    task = task_of(item)
    if task is None or not isinstance(item, pytest.Function) or not _unconditional(item):
        return None
    resumed = resumed_of(item.config)
    if resumed is not None and resumed.record_of(item) is not None:
        return None
    spec: Any = getattr(item, "callspec", None)
    parameters = spec.params if spec is not None else {}
    if "intercode_task" not in parameters:
        return None
    # pytest has no public way to ask which fixtures an item will be given.
    info: Any = item._fixtureinfo
    arguments = set(info.argnames) - set(parameters)
    if "intercode_episode" not in arguments or not arguments <= _OUR_ARGUMENTS:
        return None
    if _prepares_items(item):
        return None
    marks = {mark.name for mark in item.iter_markers()} - {task.env, *task.tags} - _HARMLESS
    lasting: set[Hashable] = set()
    module: object = None
    for name, definitions in info.name2fixturedefs.items():
        last = definitions[-1]
        made_by = str(last.func.__module__)
        if made_by == _OUR_FIXTURES or (name in parameters and made_by.startswith("_pytest.")):
            continue
        if name.startswith("intercode_"):
            return None  # somebody else's in place of ours
        if last.scope == "function":
            if marks or made_by not in _plugins(item.config):
                return None
            continue  # one that a plugin gives to every item, and this one asks nothing of it
        lasting.add((tuple(definitions), spec.indices.get(name)))
        if last.scope != "session":
            module = item.parent
    return frozenset(lasting), module


def _unconditional(item: pytest.Item) -> bool:
    """Whether nothing but the item's own turn can decide that it is not run."""
    if any(item.get_closest_marker(name) for name in _OWN_TURN):
        return False
    return all(mark.kwargs.get("run", True) for mark in item.iter_markers("xfail"))


def _prepares_items(item: pytest.Item) -> bool:
    """Whether a ``conftest.py`` does something of its own for each item."""
    hooks = (getattr(item.ihook, name).get_hookimpls() for name in _HOOKS)
    plugins = (found.plugin for each in hooks for found in each)
    return any(
        Path(getattr(each, "__file__", None) or "").name == "conftest.py" for each in plugins
    )


def _plugins(config: pytest.Config) -> frozenset[str]:
    """Return the modules of installed plugins, the user's ``conftest.py`` not among them."""
    if _PLUGINS not in config.stash:
        installed = (plugin for plugin, _ in config.pluginmanager.list_plugin_distinfo())
        config.stash[_PLUGINS] = frozenset(str(getattr(each, "__name__", "")) for each in installed)
    return config.stash[_PLUGINS]
