"""Values as data, and back; the judge's verdict on them. The code is that of the sandboxes."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import itertools
import json
import math
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_intercode.environments.python.inside.decoding import Opaque, decode
from pytest_intercode.environments.python.inside.encoding import encode, is_iterator
from pytest_intercode.environments.python.inside.judge import verdict


def back(value: Any) -> Any:
    data, opaque = encode(value)
    assert not opaque
    return decode(json.loads(json.dumps(data)))


def same(one: Any, two: Any) -> bool:
    """Compare types as well, and NaN with itself."""
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        if math.isnan(one):
            return math.isnan(two)  # JSON has no sign of NaN, and nothing compares it
        return one == two and math.copysign(1, one) == math.copysign(1, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


_HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(max_size=20),
    st.dates(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.fractions(),
)
# With offsets that are fixed: where clocks are put back or forward, Python itself finds a time of
# one zone unlike that of any other.
_MOMENTS = st.datetimes(
    timezones=st.timedeltas(datetime.timedelta(hours=-23), datetime.timedelta(hours=23)).map(
        datetime.timezone
    )
)
_VALUES = st.recursive(
    st.one_of(_HASHABLE, st.floats(), st.times(), _MOMENTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(_HASHABLE, inner, max_size=4),
        st.sets(_HASHABLE, max_size=4),
        st.frozensets(_HASHABLE, max_size=4),
    ),
    max_leaves=12,
)


@given(_VALUES)
@settings(max_examples=150, deadline=None)
@example([2**53, -(2**53), 2**200, -1, True, 1, 1.0, -0.0, float("nan"), float("inf")])
@example(["\ud800", "\0", "é😀", ""])
def test_values_come_back_as_they_were(value: Any) -> None:
    assert same(back(value), value)


def test_integers_of_any_length() -> None:
    assert back(7**100_000) == 7**100_000


@pytest.mark.parametrize(
    "value",
    [
        complex(-0.0, float("inf")),
        bytearray(b"\0\xff"),
        range(1, 10, 3),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.Counter("abca"),
        collections.defaultdict(list, {1: [2]}),
        collections.deque([1, 2], 5),
        decimal.Decimal("1.10"),
        fractions.Fraction(1, 3),
        datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.timezone.utc),
        datetime.time(1, 2, 3, 4, datetime.timezone(datetime.timedelta(hours=-3))),
        {(1, "a"): [{frozenset({1})}]},
    ],
)
def test_kinds(value: Any) -> None:
    made = back(value)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        *(map(abs, [-1, 2]), filter(None, [1, 0, 2]), iter([1, 2]), reversed([2, 1])),
        *((n for n in (1, 2)), zip([1], [2], strict=True), enumerate("a"), iter({1: 2}.items())),
        *(itertools.islice(itertools.count(1), 2), itertools.chain([1], [2])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_iterators_are_what_they_yield(value: Any) -> None:
    assert is_iterator(value)
    value, kept = itertools.tee(value)
    made = back(value)
    assert next(made) in (1, (1, 2), (0, "a"))
    assert [*kept][1:] == [*made]


def test_views_of_dictionaries() -> None:
    value = {"a": 1, "b": 2}
    assert back(value.keys()) == {"a", "b"}
    assert sorted(back(value.values())) == [1, 2]
    assert back(value.items()) == value.items()


class Pair(NamedTuple):
    one: int
    two: str


class Colour(enum.IntEnum):
    RED = 3


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 8


class LiarText(str):
    def __str__(self) -> str:
        return "what is expected"


def test_subclasses_are_what_is_underneath() -> None:
    assert (back(Pair(1, "x")), type(back(Pair(1, "x")))) == ((1, "x"), tuple)
    assert (back(Colour.RED), type(back(Colour.RED))) == (3, int)
    assert (back(Liar(5)), type(back(Liar(5)))) == (5, int)
    assert back(LiarText("said")) == "said"


class Equal:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


class Breaks:
    def __bool__(self) -> bool:
        raise RuntimeError

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    "value",
    [Equal(), Breaks, object(), int, len, lambda: 1],
    ids=["equal", "breaks", "object", "class", "function", "lambda"],
)
def test_other_objects_equal_nothing(value: Any) -> None:
    data, opaque = encode([1, value() if value is Breaks else value])
    assert opaque
    made = decode(json.loads(json.dumps(data)))[1]
    assert isinstance(made, Opaque)
    assert made != made
    assert made not in [8, 8.0, "8", None]
    assert (made == value) is False
    assert bool(made)
    assert not bool(decode(["opaque", False]))


def test_what_is_endless_or_huge_is_lost_as_a_whole() -> None:
    endless: list[Any] = [1]
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(1000):
        deep = [deep]
    for value in (endless, deep, [0] * 1_000_001, itertools.count()):
        data, opaque = encode(value)
        assert opaque
        assert data == ["opaque", True]


# -- verdicts


def code(source: str, expected: dict[int, list[str]] | None = None, **answer: Any) -> str:
    data = {"values": {}, "raises": [], **answer}
    return verdict(("code", source, expected or {}), json.dumps(data))


def test_verdict_on_code() -> None:
    assert code("assert __value__(0) == 8", values={"0": 8}) == ""
    assert code("assert __value__(0) == 8", values={"0": 9}) == "failed"
    assert code("assert __value__(0) == 8", values={"0": ["opaque", True]}) == (
        "gave an object, not plain data"
    )
    assert code("assert __value__(0) == 8", values={}) == "failed"
    assert code("assert __value__(0) == 8", values={"0": ["raised", "KeyError"]}) == (
        "raised KeyError"
    )
    assert code("assert __value__(0) or __value__(1)", values={"0": 1}) == ""
    assert code("", stopped="TypeError") == "raised TypeError"
    assert code("assert False", stopped="TypeError") == "failed"
    assert code("assert undefined", values={}) == "failed"


def test_verdict_with_sides_and_rows() -> None:
    side = "assert __side__(1, lambda: len(__value__(0))) == 2"
    assert code(side, values={"0": ["list", 1, 2]}) == ""
    assert code(side, values={"0": ["opaque", True], "1": 2}) == ""
    assert code(side, values={"0": ["opaque", True]}) == "gave an object, not plain data"
    rows = "assert all(a == n for n in (1, 2) for (a,) in [__row__(0)])"
    values = [["list", ["tuple", 1], ["tuple", 2]], ["list", ["tuple", 1]]]
    assert code(rows, values={"0": values[0]}) == ""
    assert code(rows, values={"0": values[1]}) == "failed"


def test_verdict_on_raises() -> None:
    expected = {0: ["ValueError"]}
    assert code("", expected, raises=[[0, ["JSONDecodeError", "ValueError", "object"]]]) == ""
    wrong = "did not raise what it should"
    assert code("", expected, raises=[[0, ["KeyError", "object"]]]) == wrong
    assert code("", expected, raises=[[0, None]]) == wrong
    assert code("", expected, raises=[]) == wrong
    assert code("", expected, raises=[[0, ["ValueError"]], [0, None]]) == wrong
    two = ["Both", "KeyError", "LookupError", "ValueError", "Exception"]
    assert code("", expected, raises=[[0, two]]) == ""
    # One of all kinds at once is of none.
    assert code("", expected, raises=[[0, ["All", "TypeError", *two]]]) == wrong


def test_verdict_on_calls() -> None:
    def call(expected: Any, value: Any) -> str:
        return verdict(("call", json.dumps(expected)), json.dumps({"value": encode(value)[0]}))

    assert call([1, [2, {"a": [3]}]], (1, (2, {"a": (3,)}))) == ""
    assert call([1, 2], {1, 2}) == "failed"
    assert call(1, True) == ""
    assert call("1", 1) == "failed"
    assert call(None, Equal()) == "failed"
    assert verdict(("call", "1"), '{"stopped": "KeyError"}') == "raised KeyError"


def test_verdict_on_programs() -> None:
    def program(expected: str, output: str, status: int = 0) -> str:
        answer = json.dumps({"output": output, "status": status})
        return verdict(("program", expected), answer)

    assert program("1\n2\n", "1  \n2\n\n") == ""
    assert program("1\n2", "1\n2") == ""
    assert program("1 2", "1  2") == "failed"
    assert program("1\n\n2", "1\n2") == "failed"
    assert program("", "") == ""
    assert program("1", "1", 1) == "ended with status 1"


@pytest.mark.parametrize(
    "answer",
    [
        *("", "{", "[]", "{}", "1", "null", '{"values": 3}', '{"values": {}, "raises": 1}'),
        '{"values": {"0": ["set", ["list"]]}, "raises": []}',
        '{"values": {"0": ["nonsense", 1]}, "raises": []}',
        '{"values": {"0": [[]]}, "raises": []}',
        "[" * 100_000,
        '{"values": {"0": ' + '["list",' * 5000,
        '{"values": {"0": 8, "0": 8}, "raises": []}',
        '{"values": {"0": 8}, "raises": [], "verdict": ""}',
        '{"values": {"0": 8}, "raises": [], "raises": []}',
        '{"value": 8, "verdict": ""}',
        '{"output": "8", "status": 0, "value": 8}',
        '{"output": "8", "status": 1e999}',
        f'{{"values": {{"0": {"8" * 5000}}}, "raises": []}}',
        f'{{"value": {"8" * 5000}}}',
        f'{{"output": "8", "status": {"8" * 5000}}}',
        '{"values": {"0": {"a": 8}}, "raises": []}',
        '{"values": {"0": ["int", "8"]}, "raises": []}',
        f'{{"values": {{"0": ["int", "0x{"0" * 10**6}8"]}}, "raises": []}}',
        '{"values": {"0": ["Decimal", "sNaN"]}, "raises": []}',
        '{"values": {"0": ["Decimal", "1e999999999"]}, "raises": []}',
        '{"values": {"0": ' + '["list",' * 201 + "8" + "]" * 201 + '}, "raises": []}',
    ],
)
def test_answers_that_are_not_ours_fail(answer: str) -> None:
    code_test: tuple[Any, ...] = ("code", "assert __value__(0) == 8", {})
    for test in (code_test, ("call", "8"), ("program", "8")):
        assert verdict(test, answer) in ("failed", "gave no answer")


@pytest.mark.parametrize("name", [["list"], {}, 3, "a b", "x" * 101, "", "\x1b[2J", None])
def test_the_name_of_what_was_raised_is_a_name(name: Any) -> None:
    assert code("", stopped=name) == "raised an exception"
    assert code("assert __value__(0)", values={"0": ["raised", name]}) == "raised an exception"
    assert verdict(("call", "1"), json.dumps({"stopped": name})) == "raised an exception"


def test_words_in_place_of_an_answer() -> None:
    for word, why in (
        ('"died"', "ended the interpreter"),
        ('"timed out"', "timed out"),
        ('"too long"', "gave too large an answer"),
    ):
        assert verdict(("call", "8"), word) == why
