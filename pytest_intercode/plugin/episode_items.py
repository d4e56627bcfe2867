"""Which items run episodes: those that take one of our fixtures. Imported with the plugin."""

from __future__ import annotations

import pytest

__all__ = ["has_episodes"]

_FIXTURES = frozenset(("intercode_task", "intercode_project"))  # all our others need one of them


def has_episodes(item: pytest.Item) -> bool:
    """Whether an item runs episodes."""
    return not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
