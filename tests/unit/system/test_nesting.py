"""Where the bound of nested values lies."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_intercode.system.nesting import MAX_DEPTH, is_too_deep


def _nest(value: Any, depth: int) -> Any:
    for number in range(depth):
        value = [value] if number % 2 else {"a": 1, "b": value}
    return value


@pytest.mark.parametrize("value", [1, "[[[", {}, [], [1, {"a": [2]}]])
def test_a_shallow_value(value: Any) -> None:
    assert not is_too_deep(value)


@pytest.mark.parametrize("innermost", [None, "text"])
def test_the_bound(innermost: Any) -> None:
    assert not is_too_deep(_nest(innermost, MAX_DEPTH))
    assert is_too_deep(_nest(innermost, MAX_DEPTH + 1))
    assert is_too_deep([1, _nest(innermost, MAX_DEPTH), 2])
    assert is_too_deep(_nest(innermost, 50_000))


def test_an_empty_list_is_a_level() -> None:
    assert not is_too_deep(_nest([], MAX_DEPTH - 1))
    assert is_too_deep(_nest([], MAX_DEPTH))
