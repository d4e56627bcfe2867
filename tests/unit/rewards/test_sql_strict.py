"""The strict reward for queries, held against its promises on generated results."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import RewardOptions
from pytest_intercode.rewards.sql_rows import Canonical, Row, column_orders
from pytest_intercode.rewards.sql_strict import (
    Rows,
    Run,
    accepts,
    rows_state,
    sql_rows_reward,
    sql_rows_reward_again,
)

_DEFAULTS = RewardOptions()
_ANY_COLUMNS = RewardOptions(columns="any-order")
_CELL: st.SearchStrategy[Canonical] = st.sampled_from([None, 0, 1, 2.5, "a", "b", ("bytes", "00")])


def _rows(width: int, most: int = 6) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(*[_CELL] * width), max_size=most)


def _answer(rows: Sequence[Row], width: int | None = None) -> Rows:
    if width is None:
        width = len(rows[0]) if rows else 1
    return Rows(width, (Run(tuple(rows)),))


def _ordered(*runs: Sequence[Row] | tuple[Sequence[Row], Sequence[Row]]) -> Rows:
    """Gold with an order: runs of rows, or pairs of rows and those that LIMIT left out."""
    made = []
    for run in runs:
        if isinstance(run, tuple):
            made.append(Run(tuple(run[0]), tuple(run[1])))
        else:
            made.append(Run(tuple(run)))
    width = len(made[0].rows[0]) if made else 1
    return Rows(width, tuple(made), ordered=True)


def _grade(rows: Sequence[Row], gold: Rows, options: RewardOptions = _DEFAULTS) -> Reward:
    return sql_rows_reward(_answer(rows, gold.width if not rows else None), gold, options)


# -- what is right


@given(_rows(2))
def test_gold_is_right_in_any_order_where_it_has_none(rows: list[Row]) -> None:
    gold = _answer(rows, 2)
    for order in itertools.islice(itertools.permutations(rows), 24):
        assert _grade(order, gold).value == 1.0


@given(_rows(1), _rows(1))
def test_only_equal_multisets_are_right(mine: list[Row], theirs: list[Row]) -> None:
    same = sorted(mine, key=repr) == sorted(theirs, key=repr)
    reward = _grade(mine, _answer(theirs, 1))
    assert (reward.value == 1.0) is same
    assert 0.0 <= reward.value <= 1.0
    assert (reward.reason == "") is same


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=7), st.data())
def test_ties_and_limits_are_as_an_engine_may_choose(
    table: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Right is just what some engine could answer to SELECT value ORDER BY key LIMIT n OFFSET m."""
    start = data.draw(st.integers(0, 3))
    count = data.draw(st.integers(0, 5))
    ordered = sorted(table)
    runs = []
    at = 0
    for _, group in itertools.groupby(ordered, key=lambda row: row[0]):
        tied: list[Row] = [(value,) for _, value in group]
        first, last = max(start - at, 0), max(start + count - at, 0)
        at += len(tied)
        if tied[first:last]:
            runs.append(Run(tuple(tied[first:last]), (*tied[:first], *tied[last:])))
    gold = Rows(1, tuple(runs), ordered=True)
    possible = {
        tuple((value,) for _, value in order[start : start + count])
        for order in itertools.permutations(table)
        if [key for key, _ in order] == [key for key, _ in ordered]
    }
    for answer in possible:
        assert _grade(answer, gold).value == 1.0
    other = data.draw(st.lists(st.tuples(st.integers(0, 4)), min_size=len(gold.rows), max_size=5))
    assert (_grade(other, gold).value == 1.0) is (tuple(other) in possible)
    unordered, bags = replace(gold, ordered=False), {tuple(sorted(answer)) for answer in possible}
    for bag in bags:
        assert _grade(bag, unordered).value == 1.0
    assert (_grade(other, unordered).value == 1.0) is (tuple(sorted(other)) in bags)


def test_any_order_knows_ties_that_both_ends_share() -> None:
    gold = replace(_ordered(([(1,)], [(2,)]), ([(1,)], [(3,)])), ordered=False)
    assert _grade([(1,), (2,)], gold).value == 1.0
    assert _grade([(2,), (3,)], gold).value == 1.0
    assert _grade([(2,), (2,)], gold).value == pytest.approx(1 / 3)


def test_any_order_still_knows_the_ties_at_the_limit() -> None:
    gold = replace(_ordered([(1,)], ([(2,)], [(3,)])), ordered=False)
    assert _grade([(3,), (1,)], gold).value == 1.0
    assert _grade([(2,), (3,)], gold).value == pytest.approx(1 / 3)
    assert _grade([(1,), (1,)], gold).value < 1.0


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ([(1,), (2,), (3,)], 1.0),
        ([(3,), (2,), (1,)], 0.5),
        ([(2,), (1,), (3,)], (1 + 2 / 3) / 2),
        ([(1,), (2,)], 2 / 3),
        ([(2,), (1,)], 2 / 3 / 2),
        ([(1,), (2,), (3,), (4,)], 0.75),
        ([(4,), (5,), (6,)], 0.0),
        ([], 0.0),
    ],
)
def test_partial_credit_with_an_order(answer: list[Row], value: float) -> None:
    reward = _grade(answer, _ordered([(1,)], [(2,)], [(3,)]))
    assert reward.value == pytest.approx(value)
    assert set(reward.parts) == {"rows", "order"}


def test_partial_credit_without_an_order() -> None:
    gold = _answer([(1,), (1,), (2,)])
    assert _grade([(1,), (1,), (2,)], gold) == Reward(1.0, {"rows": 1.0})
    assert _grade([(1,), (2,)], gold).value == pytest.approx(2 / 3)
    assert _grade([(1,), (2,), (2,)], gold).value == 0.5
    assert _grade([("1",), ("2",)], gold).value == 0.0


def test_many_right_rows_are_not_all() -> None:
    rows: list[Row] = [(n,) for n in range(1000)]
    assert _grade(rows[:-1], _answer(rows)).value == 0.99


@given(_rows(2), _rows(2))
def test_nothing_but_right_answers_reach_one(mine: list[Row], theirs: list[Row]) -> None:
    gold = Rows(2, tuple(Run((row,)) for row in theirs), ordered=True)
    reward = _grade(mine, gold)
    assert (reward.value == 1.0) is (mine == theirs)
    assert reward.value == 1.0 or 0.0 <= reward.value <= 0.99


# -- what earns nothing


@given(_rows(1))
def test_no_result_earns_nothing(theirs: list[Row]) -> None:
    """Not even where gold's result is empty."""
    reward = sql_rows_reward(Rows(problem="no statement was run"), _answer(theirs, 1), _DEFAULTS)
    assert reward == Reward(0.0, {"rows": 0.0}, "no statement was run")


def test_another_number_of_columns_earns_nothing() -> None:
    assert _grade([(1, 2)], _answer([(1,)])).value == 0.0
    empty = _answer([], 2)
    assert sql_rows_reward(_answer([], 1), empty, _DEFAULTS).value == 0.0
    assert sql_rows_reward(_answer([], 2), empty, _DEFAULTS).value == 1.0


def test_a_result_that_is_too_long_is_right_only_where_golds_is() -> None:
    rows: list[Row] = [(1,), (2,)]
    longer = replace(_answer(rows), truncated=True)
    reward = sql_rows_reward(longer, _answer(rows), _DEFAULTS)
    assert (reward.value, reward.reason) == (0.0, "the answer has more rows than can be right")
    assert sql_rows_reward(_answer(rows), longer, _DEFAULTS).value == 0.0
    assert sql_rows_reward(longer, longer, _DEFAULTS).value == 1.0


def test_reasons_tell_nothing_of_golds_values() -> None:
    gold = _ordered([("secret",)], [("hidden",)])
    for rows in ([], [("x",)], [("hidden",), ("secret",)], [("secret",)], [("a", "b")]):
        reason = sql_rows_reward(_answer(rows), gold, _DEFAULTS).reason
        assert reason
        assert "secret" not in reason
        assert "hidden" not in reason


# -- columns in any order


@given(_rows(3), st.permutations([0, 1, 2]))
def test_columns_in_any_order(rows: list[Row], order: list[int]) -> None:
    moved = [tuple(row[at] for at in order) for row in rows]
    gold = _answer(rows, 3)
    assert _grade(moved, gold, _ANY_COLUMNS).value == 1.0
    assert (_grade(moved, gold).value == 1.0) is accepts(moved, gold)
    ordered = Rows(3, tuple(Run((row,)) for row in rows), ordered=True)
    assert _grade(moved, ordered, _ANY_COLUMNS).value == 1.0


@given(_rows(3, 4), _rows(3, 4))
def test_columns_in_any_order_are_what_all_orders_would_find(
    mine: list[Row], theirs: list[Row]
) -> None:
    gold = _answer(theirs, 3)
    expected = any(
        accepts([tuple(row[at] for at in order) for row in mine], gold)
        for order in itertools.permutations(range(3))
    )
    assert (_grade(mine, gold, _ANY_COLUMNS).value == 1.0) is expected


def test_columns_in_any_order_with_ties_at_the_limit() -> None:
    gold = _ordered([("a", 9)], ([("b", 5)], [("c", 5), ("d", 5)]))
    assert _grade([(9, "a"), (5, "d")], gold, _ANY_COLUMNS).value == 1.0
    assert _grade([(9, "a"), (5, "e")], gold, _ANY_COLUMNS).value < 1.0
    assert _grade([(9, "a"), (5, "d")], gold).value == 0.0


def test_many_columns_take_no_time() -> None:
    began = time.process_time()
    wide: list[Row] = [tuple((row + column) % 7 for column in range(60)) for row in range(100)]
    moved = [row[::-1] for row in wide]
    assert _grade(moved, _answer(wide), _ANY_COLUMNS).value == 1.0
    same: list[Row] = [(1,) * 200]
    assert len(list(column_orders(same, same, 200))) == 1
    hard: list[Row] = [tuple(int(at == row) for at in range(40)) for row in range(40)]
    other = [*hard[:-1], tuple(reversed(hard[-1]))]
    assert _grade(other, _answer(hard), _ANY_COLUMNS).value < 1.0
    assert time.process_time() - began < 10.0


def test_many_rows_take_no_time() -> None:
    began = time.process_time()
    rows: list[Row] = [(n % 1000, n) for n in range(50_000)]
    gold = Rows(2, tuple(Run((row,)) for row in rows), ordered=True)
    assert _grade(rows, gold).value == 1.0
    assert _grade(rows[::-1], gold).value == 0.5
    assert _grade(rows, _answer(rows), _ANY_COLUMNS).value == 1.0
    assert time.process_time() - began < 10.0


# -- graded again from the record


@given(_rows(2), _rows(2), st.booleans(), st.sampled_from([_DEFAULTS, _ANY_COLUMNS]))
def test_a_record_gives_the_same_reward(
    mine: list[Row], theirs: list[Row], ordered: bool, options: RewardOptions
) -> None:
    gold = Rows(2, tuple(Run((row,)) for row in theirs), ordered=ordered)
    answer = _answer(mine, 2)
    state = json.loads(json.dumps(rows_state(answer, gold, options)))
    assert sql_rows_reward_again(state, options) == sql_rows_reward(answer, gold, options)


@pytest.mark.parametrize("options", [_DEFAULTS, _ANY_COLUMNS])
def test_the_record_of_a_long_result_is_short(options: RewardOptions) -> None:
    rows: list[Row] = [(n, "x" * 1000) for n in range(2000)]
    gold = Rows(2, tuple(Run((row,)) for row in rows), ordered=True)
    moved: list[Row] = [(text, n) for n, text in rows]
    for answer in (_answer(rows), _answer(moved), _answer(rows[1:]), _answer(rows[::-1])):
        written = json.dumps(rows_state(answer, gold, options))
        assert len(written) < 200_000
        reward = sql_rows_reward(answer, gold, options)
        assert sql_rows_reward_again(json.loads(written), options).value == reward.value
    bare = Rows(problem="the last statement gives no rows")
    state = rows_state(bare, gold, options)
    assert sql_rows_reward_again(state, options) == sql_rows_reward(bare, gold, options)


@given(_rows(1))
def test_doing_nothing_is_not_a_solution(rows: list[Row]) -> None:
    assume(rows)
    assert _grade([], _answer(rows)).value == 0.0
