"""Cells of result sets in one form, so that equal values are equal whatever type a driver gives.

A canonical cell is None, an int, a float, a str, or a pair of a kind and a text (bytes, and numbers
that are no finite numbers). All of them can be hashed and written as JSON.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, TypeAlias

__all__ = ["Canonical", "Row", "canonical", "canonical_rows"]

Canonical: TypeAlias = "int | float | str | tuple[str, str] | None"
Row: TypeAlias = "tuple[Canonical, ...]"

_WHOLE = Context(prec=15)  # what is whole to this many digits is whole
_NEAR = Context(prec=12)  # the noise of sums of floats is below this
_DIGITS = Context(prec=9, rounding=ROUND_HALF_UP)
_LONG = 64  # bytes, above which a digest stands for them


def canonical(cell: Any) -> Canonical:
    """Return a cell in its canonical form.

    Whole numbers are exact. Others have 9 significant digits, rounded half up from 12, so that
    neither the last bits of a float nor its way to a decimal make a difference. Dates, times and
    spans are ISO text.
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
        long = len(data) > _LONG
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
        return int(value)  # written out in full, as no float is
    rounded = float(_DIGITS.plus(_NEAR.plus(value)))
    return int(rounded) if rounded.is_integer() and abs(rounded) <= 2**53 else rounded


def _span(value: timedelta) -> str:
    """Write a span as SQL does: hours, which may be more than 24, minutes and seconds."""
    sign = "-" if value < timedelta(0) else ""
    value = abs(value)
    minutes, seconds = divmod(value.days * 86400 + value.seconds, 60)
    text = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
    return f"{text}.{value.microseconds:06d}" if value.microseconds else text
