"""A limit on the nesting of JSON values from untrusted sources.

Recursive functions fail on values with some hundred levels; the exact number depends on the Python
version and on the caller. The requests of agents, whose schemas of tools are the deepest part, have
about ten levels.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MAX_DEPTH", "is_too_deep"]

MAX_DEPTH = 200
"""Maximum levels of nested lists and objects in an untrusted value."""


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
