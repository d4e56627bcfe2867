"""The strict reward for tasks that change a database, on generated states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_intercode.databases.protocol import State, Table
from pytest_intercode.rewards.sql_changes import (
    Changes,
    changes_between,
    changes_state,
    sql_changes_reward,
    sql_changes_reward_again,
)

_COLUMNS = (("id", "INTEGER"), ("name", "TEXT"))
_ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None])), max_size=4)
_TABLES = st.builds(lambda rows: Table(_COLUMNS, tuple(rows)), _ROWS)
_STATES = st.builds(
    State,
    st.dictionaries(st.sampled_from(["t", "u"]), _TABLES),
    st.dictionaries(st.sampled_from(["index i on t", "trigger r on t"]), st.sampled_from("xy")),
)


def _content(state: State) -> Any:
    tables = {n: (t.columns, sorted(t.rows, key=repr)) for n, t in state.tables.items()}
    return tables, dict(state.others)


def _state(others: Mapping[str, str] | None = None, /, **tables: list[tuple[Any, ...]]) -> State:
    made = {name: Table(_COLUMNS, tuple(rows)) for name, rows in tables.items()}
    return State(made, others or {})


def _value(before: State, agent: State, gold: State) -> float:
    return sql_changes_reward(changes_between(before, agent), changes_between(before, gold)).value


@given(_STATES, _STATES, _STATES)
def test_only_equal_states_are_right(before: State, agent: State, gold: State) -> None:
    assume(_content(before) != _content(gold))
    value = _value(before, agent, gold)
    assert (value == 1.0) is (_content(agent) == _content(gold))
    assert value == 1.0 or 0.0 <= value <= 0.99


def test_a_state_that_cannot_be_read_earns_nothing() -> None:
    before, emptied = _state(t=[(1, "a")]), _state()
    assert _value(before, emptied, emptied) == 1.0
    unreadable = changes_between(before, State(unreadable="it is too large"))
    gold = changes_between(before, emptied)
    reward = sql_changes_reward(unreadable, gold)
    assert (reward.value, "it is too large" in reward.reason) == (0.0, True)
    assert sql_changes_reward_again(changes_state(unreadable, gold)) == reward


@given(_STATES, _STATES)
def test_doing_nothing_earns_nothing(before: State, gold: State) -> None:
    assume(_content(before) != _content(gold))
    assert _value(before, before, gold) == 0.0
    assert _value(before, gold, gold) == 1.0


@given(_STATES, _STATES, _STATES)
def test_a_record_gives_the_same_reward(before: State, agent: State, gold: State) -> None:
    sides = changes_between(before, agent), changes_between(before, gold)
    record = json.loads(json.dumps(changes_state(*sides)))
    assert sql_changes_reward_again(record) == sql_changes_reward(*sides)


_BEFORE = _state(t=[(1, "a"), (2, "b"), (3, "c")], u=[(9, "z")])


@pytest.mark.parametrize(
    ("agent", "value"),
    [
        (_state(t=[(1, "a"), (2, "B"), (3, "C")], u=[(9, "z")]), 1.0),
        (_state(t=[(3, "C"), (2, "B"), (1, "a")], u=[(9, "z")]), 1.0),
        (_state(t=[(1, "a"), (2, "B"), (3, "c")], u=[(9, "z")]), 0.5),
        (_state(t=[(1, "a"), (2, "B"), (3, "X")], u=[(9, "z")]), 3 / 5),
        (_state(t=[(1, "a"), (2, "B"), (3, "C")], u=[]), 4 / 5),
        (_state(t=[(1, "a"), (2, "B"), (3, "C")]), 4 / 6),
        (_state(t=[(1, "A"), (2, "b"), (3, "c")], u=[(9, "z")]), 0.0),
        (_state({"index i": ""}, t=[(1, "a"), (2, "B"), (3, "C")], u=[(9, "z")]), 4 / 5),
    ],
)
def test_partial_credit(agent: State, value: float) -> None:
    gold = _state(t=[(1, "a"), (2, "B"), (3, "C")], u=[(9, "z")])
    assert _value(_BEFORE, agent, gold) == pytest.approx(value)


def test_many_right_changes_are_not_all() -> None:
    gold = _state(t=[(n, "x") for n in range(1000)])
    agent = _state(t=[(n, "x") for n in range(999)])
    assert _value(_state(t=[]), agent, gold) == 0.99


def test_columns_in_another_order_and_names_in_other_letters() -> None:
    before = State()
    gold = State({"Sums": Table((("a", "TEXT"), ("n", "REAL")), (("x", 2.0),))})
    moved = State({"sums": Table((("N", "REAL"), ("A", "TEXT")), ((Decimal(2), "x"),))})
    swapped = State({"sums": Table((("a", "TEXT"), ("n", "REAL")), ((2, "x"),))})
    assert _value(before, moved, gold) == 1.0
    assert _value(before, swapped, gold) == pytest.approx(1 / 3)


def test_what_cannot_be_read_is_never_right() -> None:
    gold = _state(t=[(1, "a")])
    more = State({"t": Table(_COLUMNS, ((1, "a"),), truncated=True)})
    assert _value(State(), more, gold) == pytest.approx(2 / 3)
    assert _value(more, more, gold) < 1.0


def test_reasons_tell_the_agents_own_deeds() -> None:
    before, gold = _state(t=[]), changes_between(_state(t=[]), _state(t=[(1, "secret")]))
    nothing = sql_changes_reward(Changes(), gold)
    assert (nothing.value, nothing.reason) == (0.0, "nothing was changed")
    wrong = sql_changes_reward(changes_between(before, _state(t=[(2, "own")])), gold)
    assert wrong.reason == (
        '2 of 2 changes to the database differ from gold\'s, this among them: row of t: [2, "own"]'
    )
    open_ = sql_changes_reward(Changes(uncommitted=True), gold)
    assert open_.reason == (
        "nothing was changed; a transaction was left open, and its work is undone"
    )


def test_the_record_of_many_changes_is_short() -> None:
    before = _state(t=[])
    gold = changes_between(before, _state(t=[(n, "x" * 500) for n in range(2000)]))
    agent = changes_between(before, _state(t=[(n, "x" * 500) for n in range(1999)]))
    record = json.dumps(changes_state(agent, gold))
    assert len(record) < 200_000
    again = sql_changes_reward_again(json.loads(record))
    assert again.value == sql_changes_reward(agent, gold).value
