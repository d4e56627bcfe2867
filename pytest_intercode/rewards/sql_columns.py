"""Finds the orders of an answer's columns in which its rows could be gold's.

Columns are matched by what they hold before any order is tried, so that few orders are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_intercode.rewards.sql_cells import Canonical, Row

__all__ = ["column_orders"]

_MOST_STEPS = 2000  # of the search; only columns that are almost the same need many


def column_orders(
    rows: Sequence[Row], universe: Sequence[Row], width: int
) -> Iterator[tuple[int, ...]]:
    """Yield orders of columns in which all rows are among gold's, if there are any.

    Args:
        rows: the answer's rows.
        universe: every row that gold accepts.
        width: how many columns both have.

    Yields:
        For each column of gold, the number of the answer's column in its place.
    """
    mine: list[Sequence[Canonical]] = [[row[at] for row in rows] for at in range(width)]
    theirs: list[Sequence[Canonical]] = [[row[at] for row in universe] for at in range(width)]
    counted = [Counter(column) for column in mine]
    accepted = [Counter(column) for column in theirs]
    fitting = [[at for at in range(width) if _within(counted[at], each)] for each in accepted]
    places = sorted(range(width), key=lambda place: len(fitting[place]))
    steps = 0

    def search(depth: int, chosen: dict[int, int]) -> Iterator[tuple[int, ...]]:
        nonlocal steps
        if depth == width:
            yield tuple(chosen[place] for place in range(width))
            return
        place = places[depth]
        tried: list[Sequence[Canonical]] = []
        for at in fitting[place]:
            if at in chosen.values() or mine[at] in tried:
                continue
            steps += 1
            if steps > _MOST_STEPS:
                return
            tried.append(mine[at])
            extended = {**chosen, place: at}
            left = Counter(zip(*(mine[n] for n in extended.values()), strict=True))
            right = Counter(zip(*(theirs[n] for n in extended), strict=True))
            if _within(left, right):
                yield from search(depth + 1, extended)

    yield from search(0, {})


def _within(part: Counter[Any], whole: Counter[Any]) -> bool:
    return all(whole[key] >= count for key, count in part.items())
