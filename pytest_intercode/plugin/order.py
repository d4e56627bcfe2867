"""The items of a run in their order: whose turn it is, and what may be begun before its own."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator

import pytest

from pytest_intercode.plugin.eligibility import concurrency_group
from pytest_intercode.plugin.xdist import is_worker, queued

__all__ = ["ItemOrder"]


class ItemOrder:
    """Knows what is next. Whoever uses it from several threads guards it.

    Args:
        config: pytest's.

    Attributes:
        current: the item whose turn it is.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._items: list[pytest.Item] = []
        self._places: dict[pytest.Item, int] = {}
        self._cursor = 0  # no item before it is still to be begun
        self._group: Hashable | None = None  # of what may be begun now
        self._begun: set[pytest.Item] = set()
        self.current: pytest.Item | None = None

    def collected(self, items: Iterable[pytest.Item]) -> None:
        """Take the items in their order."""
        self._items = list(items)
        self._places = {item: place for place, item in enumerate(self._items)}

    def come_to(self, item: pytest.Item) -> None:
        """Note whose turn it is; what its predecessor had in common with others may be gone."""
        self.current = item
        if concurrency_group(item) != self._group:
            self._group = None

    def open_from(self, item: pytest.Item) -> bool:
        """Let an item be begun, and those after it that are of its group, if it has one."""
        self._group = concurrency_group(item)
        self._cursor = self._places.get(item, len(self._items))
        return self._group is not None

    def note(self, item: pytest.Item) -> None:
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
                if concurrency_group(item) != self._group:
                    return
                yield item

    def mine(self, items: Iterable[pytest.Item]) -> list[pytest.Item]:
        """Return those items that no other worker of xdist's has been given instead."""
        if not is_worker(self._config):
            return list(items)
        known = {self.current, *queued(self._config, self._items)}
        return [item for item in items if item in known]

    def _upcoming(self) -> Iterable[pytest.Item]:
        """Return the items from the present one on, as far as they are known, in order."""
        if is_worker(self._config):
            present = [self.current] if self.current is not None else []
            return [*present, *queued(self._config, self._items, kept=True)]
        while self._cursor < len(self._items) and self._items[self._cursor] in self._begun:
            self._cursor += 1
        return itertools.islice(self._items, self._cursor, None)
