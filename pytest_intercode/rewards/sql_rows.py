"""Rows of result sets as they are compared: cells, orders of columns, orders of rows.

Cells are converted to one form, so that values are equal whatever type a driver returns. A
canonical cell is None, an int, a float, a str, or a pair of a kind and a text (bytes, and numbers
that are not finite). All of them can be hashed and written as JSON.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, TypeAlias

__all__ = ["Canonical", "Row", "canonical", "canonical_rows", "column_orders", "inversions"]

Canonical: TypeAlias = "int | float | str | tuple[str, str] | None"
Row: TypeAlias = "tuple[Canonical, ...]"

_WHOLE = Context(prec=15)  # a number that is whole to this many digits is whole
_NEAR = Context(prec=12)  # rounding errors of sums of floats are in later digits
_DIGITS = Context(prec=9, rounding=ROUND_HALF_UP)
_MAX_STEPS = 2000  # of the search for columns; only columns that are almost equal need many
_MAX_CELLS = 30_000_000  # that the search compares, in some seconds
_MAX_BYTES = 64  # of a cell; longer ones become a digest


def canonical(cell: Any) -> Canonical:
    """Return a cell in its canonical form.

    Whole numbers are exact. Others have 9 significant digits, rounded half up from 12, so that
    neither the last bits of a float nor its conversion to a decimal make a difference. Dates and
    times are ISO text, and time spans are text as SQL writes them.
    """
    if cell is None or cell.__class__ is int or cell.__class__ is str:
        return cell
    if cell.__class__ is float:
        return _float(cell)
    if isinstance(cell, (bool, int)):
        return int(cell)
    if isinstance(cell, Decimal):
        return _decimal(cell)
    if isinstance(cell, (bytes, bytearray, memoryview)):
        data = bytes(cell)
        long = len(data) > _MAX_BYTES
        return ("bytes", hashlib.sha256(data).hexdigest() if long else data.hex())
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ")
    if isinstance(cell, (date, time)):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return _span(cell)
    return str(cell)


def canonical_rows(rows: Iterable[Iterable[Any]]) -> tuple[Row, ...]:
    """Return rows with every cell in its canonical form."""
    return tuple(tuple([canonical(cell) for cell in row]) for row in rows)


def _float(value: float) -> Canonical:
    if not math.isfinite(value):
        return ("number", str(value))
    if value.is_integer() and abs(value) <= 2**53:
        return int(value)
    # Most floats have no more digits than are compared, and decimals are slow.
    if float(f"{value:.9g}") == value:
        return value
    return _decimal(Decimal(repr(value)))


def _decimal(value: Decimal) -> Canonical:
    if not value.is_finite():
        return ("number", "nan" if value.is_nan() else str(float(value)))
    if abs(value) <= 2**53:
        near = _WHOLE.plus(value)
        for candidate in (value, near):
            if candidate == candidate.to_integral_value():
                return int(candidate)
    elif value == value.to_integral_value() and value.as_tuple().exponent == 0:
        return int(value)  # written out in full, so it does not come from a float
    rounded = float(_DIGITS.plus(_NEAR.plus(value)))
    return int(rounded) if rounded.is_integer() and abs(rounded) <= 2**53 else rounded


def _span(value: timedelta) -> str:
    """Write a span as SQL does: hours, which may be more than 24, minutes and seconds."""
    sign = "-" if value < timedelta(0) else ""
    value = abs(value)
    minutes, seconds = divmod(value.days * 86400 + value.seconds, 60)
    text = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
    return f"{text}.{value.microseconds:06d}" if value.microseconds else text


def column_orders(
    rows: Sequence[Row], universe: Sequence[Row], width: int
) -> Iterator[tuple[int, ...]]:
    """Yield the orders of columns in which all rows are among gold's, if there are any.

    Columns are matched by their contents before any order is tried, so that few orders remain.

    Args:
        rows: the answer's rows.
        universe: every row that gold accepts.
        width: how many columns both have.

    Yields:
        For each column of gold, the index of the answer's column in its place.
    """
    agent_columns: list[Sequence[Canonical]] = [
        [row[index] for row in rows] for index in range(width)
    ]
    gold_columns: list[Sequence[Canonical]] = [
        [row[index] for row in universe] for index in range(width)
    ]
    agent_counts = [Counter(column) for column in agent_columns]
    gold_counts = [Counter(column) for column in gold_columns]
    fitting = [
        [index for index in range(width) if _within(agent_counts[index], gold_count)]
        for gold_count in gold_counts
    ]
    places = sorted(range(width), key=lambda place: len(fitting[place]))
    steps = cells = 0

    def search(depth: int, matched: dict[int, int]) -> Iterator[tuple[int, ...]]:
        nonlocal steps, cells
        if depth == width:
            yield tuple(matched[place] for place in range(width))
            return
        place = places[depth]
        tried_columns: list[Sequence[Canonical]] = []
        for index in fitting[place]:
            # Columns with equal contents give equal results.
            if index in matched.values() or agent_columns[index] in tried_columns:
                continue
            steps += 1
            cells += (depth + 1) * (len(rows) + len(universe))
            # However large the rows are, one step for each column is allowed.
            if steps > _MAX_STEPS or (steps > width and cells > _MAX_CELLS):
                return
            tried_columns.append(agent_columns[index])
            extended = {**matched, place: index}
            agent_tuples = Counter(zip(*(agent_columns[n] for n in extended.values()), strict=True))
            gold_tuples = Counter(zip(*(gold_columns[n] for n in extended), strict=True))
            if _within(agent_tuples, gold_tuples):
                yield from search(depth + 1, extended)

    yield from search(0, {})


def _within(part: Counter[Any], whole: Counter[Any]) -> bool:
    return all(whole[key] >= count for key, count in part.items())


def inversions(numbers: Sequence[int]) -> int:
    """Count the pairs whose larger number comes first, by merging sorted halves."""
    count, size = 0, 1
    numbers = list(numbers)
    while size < len(numbers):
        for start in range(0, len(numbers), 2 * size):
            first_half = numbers[start : start + size]
            second_half = numbers[start + size : start + 2 * size]
            for value in second_half:
                # A value after equal ones is in order.
                count += len(first_half) - bisect_right(first_half, value)
            numbers[start : start + 2 * size] = sorted((*first_half, *second_half))
        size *= 2
    return count
