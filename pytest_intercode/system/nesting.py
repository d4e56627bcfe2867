"""How deep JSON values are nested that others wrote.

Functions that call themselves for what is in a value fail from some hundred levels on, and where
that is depends on the Python, and on who calls them. The requests of agents, whose schemas of tools
are the deepest part, have some ten levels.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MAX_DEPTH", "is_too_deep"]

MAX_DEPTH = 200
"""Lists and objects, one in the other, that a value from others may have."""


def is_too_deep(value: Any) -> bool:
    """Whether a parsed JSON value has more than :data:`MAX_DEPTH` levels."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    return bool(level)
