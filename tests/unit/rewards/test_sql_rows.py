"""Cells in one form: what is the same value, and what is not."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.rewards.sql_rows import canonical, canonical_rows


@pytest.mark.parametrize(
    "cells",
    [
        [3, 3.0, Decimal(3), Decimal("3.00"), Decimal("3E0")],
        [1, True, 1.0],
        [0, 0.0, -0.0, False, Decimal("-0")],
        [0.3, 0.1 + 0.2, Decimal("0.3"), Decimal("0.30000000000000001")],
        [3, 2.9999999999999996, Decimal("2.9999999999999996")],
        [1 / 3, 0.333333333333, 0.3333333333, Decimal(1) / Decimal(3)],
        [2 / 3, 0.66666666666, 0.666666667],
        [1234567.885, Decimal("1234567.885"), 1234567.8849999998],
        [9007199254740992, 9007199254740992.0, Decimal(9007199254740992)],
        [1234567890, 1234567890.0, 1234567890.0000002],
        [100, 1e2, Decimal("1E+2")],
        ["2024-01-31", date(2024, 1, 31)],
        ["2024-01-31 05:06:07", datetime(2024, 1, 31, 5, 6, 7)],
        ["05:06:07", time(5, 6, 7), timedelta(hours=5, minutes=6, seconds=7)],
        ["-26:00:00.500000", timedelta(hours=-26, microseconds=-500000)],
        [b"\0\xff", bytearray(b"\0\xff"), memoryview(b"\0\xff")],
        [math.inf, Decimal("Infinity")],
        [math.nan, Decimal("NaN")],
        [None],
    ],
)
def test_equal_values(cells: list[Any]) -> None:
    assert len({canonical(cell) for cell in cells}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (3, "3"),
        (None, "NULL"),
        (None, 0),
        (None, ""),
        (3, 3.001),
        (0.12345678, 0.12345679),
        (1234567890, 1234567891),
        (9007199254740993, 9007199254740992),
        (b"a", "a"),
        (b"a", b"A"),
        ("a", "A"),
        ("a", "a "),
        ("é", "e\u0301"),
        (math.inf, -math.inf),
        (date(2024, 1, 31), datetime(2024, 1, 31)),
        (b"x" * 100, b"x" * 101),
    ],
)
def test_different_values(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)


_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.decimals(),
    st.text(max_size=5),
    st.binary(max_size=80),
    st.dates(),
    st.datetimes(),
    st.times(),
    st.timedeltas(),
)


@given(_CELLS)
def test_canonical_cells_are_builtins_that_stay_as_they_are(cell: Any) -> None:
    once = canonical(cell)
    hash(once)
    written = json.loads(json.dumps(once, allow_nan=False))
    assert (tuple(written) if isinstance(written, list) else written) == once
    if not isinstance(once, tuple):
        assert canonical(once) == once


@given(st.integers(-(2**53), 2**53))
def test_whole_numbers_are_exact(number: int) -> None:
    assert canonical(number) == canonical(float(number)) == canonical(Decimal(number)) == number


@given(_FLOATS)
def test_a_float_is_the_decimal_that_it_shows(number: float) -> None:
    assert canonical(number) == canonical(Decimal(repr(number)))


@given(st.floats(1e-6, 1e6), st.integers(-3, 3))
def test_the_last_bits_make_no_difference(number: float, steps: int) -> None:
    """Except where a number lies on the edge of the rounding, which is one in a million."""
    near = number
    for _ in range(abs(steps)):
        near = math.nextafter(near, math.inf if steps > 0 else -math.inf)
    one, other = canonical(number), canonical(near)
    assert isinstance(one, (int, float))
    assert isinstance(other, (int, float))
    assert math.isclose(one, other, rel_tol=2e-9)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_nine_digits_tell_numbers_apart(one: float, other: float) -> None:
    if abs(one - other) > 2e-8 * max(one, other):
        assert canonical(one) != canonical(other)


def test_rows() -> None:
    assert canonical_rows([(1, None), (Decimal("2.5"), "x")]) == ((1, None), (2.5, "x"))
