"""Which item is next: the order of items, and the concurrency groups of those that may begin early.

Both ways of running rollouts use the order: inline execution starts the sandboxes of the next
items, and concurrent execution begins the next items themselves.

An item may begin before its turn if it needs only what we provide: its test takes only the episode,
and no fixture, mark or hook of the user prepares or ends something for this item alone. A resource
for longer than one item (such as a session's model server) exists from the turn of the first item
that needs it, so items run concurrently only with others that need the same resources.
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
    """Knows which items are next. Users with several threads have to guard it.

    Args:
        config: pytest's.

    Attributes:
        current: the item whose turn it is.
        next: the item that pytest runs after it; None for the last one.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._items: list[pytest.Item] = []
        self._positions: dict[pytest.Item, int] = {}
        self._cursor = 0  # no item before this position may still begin
        self._group: Hashable | None = None  # of the items that may begin now
        self._begun: set[pytest.Item] = set()
        self.current: pytest.Item | None = None
        self.next: pytest.Item | None = None

    def begin_turn(self, item: pytest.Item, next_item: pytest.Item | None = None) -> None:
        """Note whose turn it is; the resources of another group may be gone."""
        if not self._items:  # the first turn
            self._items = list(item.session.items)
            self._positions = {item: position for position, item in enumerate(self._items)}
        self.current, self.next = item, next_item
        if self._group is not None and _concurrency_group(item) != self._group:
            self._group = None

    def following(self, count: int) -> list[pytest.Item]:
        """Return the current item and up to ``count`` items after it, as far as they are known.

        An xdist worker may lose all but the next item to another worker.
        """
        if self.current is None:
            return []
        if is_worker(self._config):
            return [self.current, self.next] if self.next is not None else [self.current]
        position = self._positions.get(self.current, len(self._items))
        return self._items[position : position + 1 + count]

    def open_from(self, item: pytest.Item) -> bool:
        """Let an item and the later ones of its group begin; return whether it has a group."""
        self._group = _concurrency_group(item)
        self._cursor = self._positions.get(item, len(self._items))
        return self._group is not None

    def mark_begun(self, item: pytest.Item) -> None:
        """Note that an item has begun, or has had its turn."""
        self._begun.add(item)

    def is_over(self, item: pytest.Item) -> bool:
        """Whether an item has begun, or has had its turn."""
        return item in self._begun

    def waiting(self) -> Iterator[pytest.Item]:
        """Yield the items that may begin, in order: up to the first one of another group."""
        if self._group is None:
            return
        for item in self._upcoming():
            if item not in self._begun:
                if _concurrency_group(item) != self._group:
                    return
                yield item

    def may_begin_early(self, item: pytest.Item) -> bool:
        """Whether an item may begin before its turn; also true of an item without a task."""
        return task_of(item) is None or _concurrency_group(item) is not None

    def own_items_of(self, items: Iterable[pytest.Item]) -> list[pytest.Item]:
        """Return those items that xdist has not moved to another worker."""
        if not (is_worker(self._config) and self._items):  # only a worker can lose items
            return list(items)
        own_items = {self.current, *queued_items(self._config, self._items)}
        return [item for item in items if item in own_items]

    def _upcoming(self) -> Iterable[pytest.Item]:
        """Return the items from the current one on, as far as they are known, in order."""
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
    except ConfigurationError:  # the item itself reports what is wrong
        return False


def _concurrency_group(item: pytest.Item) -> Hashable | None:
    """Return the group of an item, which may run concurrently; None for one that runs inline."""
    if _GROUP not in item.stash:  # cached, as it is needed for every item when a rollout begins
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
            return None  # a fixture of the user that replaces ours
        if last.scope == "function":
            if marks or made_by not in _plugins(item.config):
                return None
            continue  # a plugin's fixture for all items, which this item does not configure
        lasting.add((tuple(definitions), spec.indices.get(name)))
        if last.scope != "session":
            module = item.parent
    return frozenset(lasting), module


def _can_travel(item: pytest.Item, task: Task) -> bool:
    """Whether an item's episode can run on another machine, as it needs nothing of this process."""
    hooks = (item.ihook.pytest_intercode_make_agent, item.ihook.pytest_intercode_make_environment)
    plugins = (implementation.plugin for hook in hooks for implementation in hook.get_hookimpls())
    return not why_env_not_on_nodes(task.env) and all(isinstance(plugin, Run) for plugin in plugins)


def _unconditional(item: pytest.Item) -> bool:
    """Whether an item has no mark that takes effect only in its turn, such as ``skipif``."""
    if any(item.get_closest_marker(name) for name in _OWN_TURN):
        return False
    return all(mark.kwargs.get("run", True) for mark in item.iter_markers("xfail"))


def _prepares_items(item: pytest.Item) -> bool:
    """Whether a ``conftest.py`` implements a hook that runs for each item."""
    hooks = (getattr(item.ihook, name).get_hookimpls() for name in _HOOKS)
    plugins = (implementation.plugin for hook in hooks for implementation in hook)
    files = (getattr(plugin, "__file__", None) or "" for plugin in plugins)
    return "conftest.py" in map(os.path.basename, files)


def _plugins(config: pytest.Config) -> frozenset[str]:
    """Return the modules of installed plugins, without the user's ``conftest.py``."""
    if _PLUGINS not in config.stash:
        installed = (plugin for plugin, _ in config.pluginmanager.list_plugin_distinfo())
        config.stash[_PLUGINS] = frozenset(
            str(getattr(plugin, "__name__", "")) for plugin in installed
        )
    return config.stash[_PLUGINS]
