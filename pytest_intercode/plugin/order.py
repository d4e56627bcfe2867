"""Which item is next: the order of items, and the concurrency groups of those that may begin early.

The order is asked by both ways of running rollouts: what runs in its turn has the sandboxes of the
next items started, and what runs concurrently begins the next items themselves.

An item may begin before its turn if all that it needs is ours: its test takes nothing but the
episode, and no fixture, mark or hook of the user's prepares or ends something for it alone. What
is set up for longer than one item (a session's server of models, say) is there once the first item
that needs it has had its turn, so items run concurrently only with others that need the same.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.environments.registry import environment_class, why_env_not_on_nodes
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.plugin.resume import resumed_of
from pytest_intercode.plugin.run import Run, agent_of, run_of, task_of
from pytest_intercode.plugin.xdist import is_worker, queued_items

__all__ = ["OUR_FIXTURES", "ItemOrder", "in_order"]

OUR_FIXTURES = "pytest_intercode.plugin.fixtures"
"""The module of our fixtures, as their functions name it."""

_OUR_ARGUMENTS = frozenset(("intercode_episode", "intercode_task"))
_OWN_TURN = ("skip", "skipif", "usefixtures", "filterwarnings")
_HARMLESS = frozenset(("intercode", "parametrize", "xfail", "flaky", "timeout", "xdist_group"))
_HOOKS = ("pytest_runtest_protocol", "pytest_runtest_setup", "pytest_runtest_call")
_PLUGINS = pytest.StashKey[frozenset[str]]()
_GROUP = pytest.StashKey[Hashable | None]()


class ItemOrder:
    """Knows what is next. Its users guard it where they are in several threads.

    Args:
        config: pytest's.

    Attributes:
        current: the item whose turn it is.
        next: the one after it, as pytest says; None for the last one.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._items: list[pytest.Item] = []
        self._positions: dict[pytest.Item, int] = {}
        self._cursor = 0  # no item before it is still to be begun
        self._group: Hashable | None = None  # of what may be begun now
        self._begun: set[pytest.Item] = set()
        self.current: pytest.Item | None = None
        self.next: pytest.Item | None = None

    def begin_turn(self, item: pytest.Item, next_item: pytest.Item | None = None) -> None:
        """Note whose turn it is; what its predecessor had in common with others may be gone."""
        if not self._items:  # the first turn
            self._items = list(item.session.items)
            self._positions = {item: position for position, item in enumerate(self._items)}
        self.current, self.next = item, next_item
        if self._group is not None and _concurrency_group(item) != self._group:
            self._group = None

    def following(self, count: int) -> list[pytest.Item]:
        """Return the present item and so many after it, as far as they are known.

        A worker of xdist's may lose all but the next one to another worker.
        """
        if self.current is None:
            return []
        if is_worker(self._config):
            return [self.current, self.next] if self.next is not None else [self.current]
        position = self._positions.get(self.current, len(self._items))
        return self._items[position : position + 1 + count]

    def open_from(self, item: pytest.Item) -> bool:
        """Let an item be begun, and those after it that are of its group, if it has one."""
        self._group = _concurrency_group(item)
        self._cursor = self._positions.get(item, len(self._items))
        return self._group is not None

    def mark_begun(self, item: pytest.Item) -> None:
        """Note that an item was begun, or has had its turn."""
        self._begun.add(item)

    def is_over(self, item: pytest.Item) -> bool:
        """Whether an item was begun, or has had its turn."""
        return item in self._begun

    def waiting(self) -> Iterator[pytest.Item]:
        """Yield the items that may be begun, in order: up to the first of another group."""
        if self._group is None:
            return
        for item in self._upcoming():
            if item not in self._begun:
                if _concurrency_group(item) != self._group:
                    return
                yield item

    def may_begin_early(self, item: pytest.Item) -> bool:
        """Whether an item may begin before its turn; one of the user's own tests may not."""
        return task_of(item) is None or _concurrency_group(item) is not None

    def own_items_of(self, items: Iterable[pytest.Item]) -> list[pytest.Item]:
        """Return those items that no other worker of xdist's has been given instead."""
        if not (is_worker(self._config) and self._items):  # else no item has had its turn
            return list(items)
        own_items = {self.current, *queued_items(self._config, self._items)}
        return [item for item in items if item in own_items]

    def _upcoming(self) -> Iterable[pytest.Item]:
        """Return the items from the present one on, as far as they are known, in order."""
        if is_worker(self._config):
            present = [self.current] if self.current is not None else []
            return [*present, *queued_items(self._config, self._items, only_own=True)]
        while self._cursor < len(self._items) and self._items[self._cursor] in self._begun:
            self._cursor += 1
        return itertools.islice(self._items, self._cursor, None)


def in_order(item: pytest.Item) -> bool:
    """Whether the episode of an item depends on those of the items before it."""
    task = task_of(item)
    if task is None:
        return False
    try:
        return environment_class(task.env, run_of(item.config).settings.profile).in_order
    except ConfigurationError:  # the item itself says what is wrong
        return False


def _concurrency_group(item: pytest.Item) -> Hashable | None:
    """Return what items have in common that may run concurrently; None for one that runs inline."""
    if _GROUP not in item.stash:  # asked for every item whenever a rollout begins
        item.stash[_GROUP] = _find_group(item)
    return item.stash[_GROUP]


def _find_group(item: pytest.Item) -> Hashable | None:
    task = task_of(item)
    if task is None or not isinstance(item, pytest.Function) or not _unconditional(item):
        return None
    if in_order(item):
        return None
    if run_of(item.config).settings.cluster and not _can_travel(item, task):
        return None
    resumed = resumed_of(item.config)
    if resumed is not None and resumed.has_result(item):
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
    agent = agent_of(item)
    own_names = {task.env, *task.tags, *((agent.label,) if agent is not None else ())}
    marks = {mark.name for mark in item.iter_markers()} - own_names - _HARMLESS
    lasting: set[Hashable] = set()
    module: object = None
    for name, definitions in info.name2fixturedefs.items():
        last = definitions[-1]
        made_by = str(last.func.__module__)
        if made_by == OUR_FIXTURES or (name in parameters and made_by.startswith("_pytest.")):
            continue
        if name.startswith("intercode_"):
            return None  # the user's, which replaces ours
        if last.scope == "function":
            if marks or made_by not in _plugins(item.config):
                return None
            continue  # one that a plugin gives to every item, and this one asks nothing of it
        lasting.add((tuple(definitions), spec.indices.get(name)))
        if last.scope != "session":
            module = item.parent
    return frozenset(lasting), module


def _can_travel(item: pytest.Item, task: Task) -> bool:
    """Whether nothing of this process is needed to run an item's episode on another machine."""
    hooks = (item.ihook.pytest_intercode_make_agent, item.ihook.pytest_intercode_make_environment)
    plugins = (implementation.plugin for hook in hooks for implementation in hook.get_hookimpls())
    return not why_env_not_on_nodes(task.env) and all(isinstance(plugin, Run) for plugin in plugins)


def _unconditional(item: pytest.Item) -> bool:
    """Whether nothing but the item's own turn can decide that it is not run."""
    if any(item.get_closest_marker(name) for name in _OWN_TURN):
        return False
    return all(mark.kwargs.get("run", True) for mark in item.iter_markers("xfail"))


def _prepares_items(item: pytest.Item) -> bool:
    """Whether a ``conftest.py`` does something of its own for each item."""
    hooks = (getattr(item.ihook, name).get_hookimpls() for name in _HOOKS)
    plugins = (implementation.plugin for hook in hooks for implementation in hook)
    files = (getattr(plugin, "__file__", None) or "" for plugin in plugins)
    return "conftest.py" in map(os.path.basename, files)


def _plugins(config: pytest.Config) -> frozenset[str]:
    """Return the modules of installed plugins, the user's ``conftest.py`` not among them."""
    if _PLUGINS not in config.stash:
        installed = (plugin for plugin, _ in config.pluginmanager.list_plugin_distinfo())
        config.stash[_PLUGINS] = frozenset(
            str(getattr(plugin, "__name__", "")) for plugin in installed
        )
    return config.stash[_PLUGINS]
