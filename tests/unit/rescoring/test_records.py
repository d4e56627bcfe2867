"""Records of end states: the same reward from them, JSON in between, and their size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.task import Normaliser, RewardOptions
from pytest_intercode.databases.protocol import Answer, ResultSet
from pytest_intercode.environments.sql.strict import MAX_ACTION, LastAlike, compare_action
from pytest_intercode.rewards.bash_paper import (
    PaperState,
    bash_paper_reward,
    bash_paper_reward_again,
    bash_paper_state,
)
from pytest_intercode.rewards.bash_strict import (
    BashState,
    bash_strict_reward,
    bash_strict_reward_again,
    bash_strict_state,
)
from pytest_intercode.rewards.python import (
    python_paper_reward,
    python_paper_reward_again,
    python_paper_state,
    texts_of,
)
from pytest_intercode.rewards.recording import options_again, options_state
from pytest_intercode.rewards.sql_paper import (
    paper_rows_state,
    sql_paper_reward,
    sql_paper_reward_again,
)
from pytest_intercode.rewards.sql_strict import (
    Rows,
    Run,
    rows_state,
    sql_rows_reward,
    sql_rows_reward_again,
)
from pytest_intercode.sandboxes.protocol import Entry


def through_json(state: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(state))


_OPTIONS = st.builds(
    RewardOptions,
    output=st.sampled_from(["when-gold-prints", "always", "never"]),
    normalise=st.lists(
        st.sampled_from(
            [
                Normaliser("trailing-space"),
                Normaliser("pattern", r"\d+", "N"),
                Normaliser("numbers"),
            ]
        ),
        max_size=2,
    ).map(tuple),
    scratch=st.lists(st.sampled_from(["tmp", "/a"]), max_size=2).map(tuple),
    rows=st.sampled_from(["when-gold-orders", "in-order", "any-order"]),
    columns=st.sampled_from(["in-order", "any-order"]),
)


@given(_OPTIONS)
def test_options(options: RewardOptions) -> None:
    assert options_again(through_json(options_state(options))) == options


def test_usual_options_take_no_room() -> None:
    assert options_state(RewardOptions()) == {}


# -- bash

_ENTRIES = st.dictionaries(
    st.sampled_from(["/a", "/a/b", "/w/tmp/x", "/c"]),
    st.one_of(
        st.none(),
        st.builds(
            Entry,
            st.just("f"),
            st.sampled_from([0o644, 0o600]),
            st.just(0),
            st.just(0),
            st.sampled_from("xy"),
        ),
    ),
)
_OUTPUTS = st.sampled_from(["", "1\n", "1 \n", "2\n1\n", "\udc80"])


@st.composite
def _states(draw: st.DrawFn) -> BashState:
    entries = draw(_ENTRIES)
    touched = draw(st.sets(st.sampled_from(sorted(entries)))) if entries else set()
    return BashState(
        draw(_OUTPUTS),
        draw(st.sampled_from(["", "12"])),
        entries,
        draw(_ENTRIES),
        frozenset(touched),
    )


@given(_states(), _states(), _OPTIONS)
def test_bash_strict(agent: BashState, gold: BashState, options: RewardOptions) -> None:
    state = through_json(bash_strict_state(agent, gold, options, "/w"))
    reward = bash_strict_reward(agent, gold, options, "/w")
    assert bash_strict_reward_again(state) == reward
    assert bash_strict_reward_again(state, options) == reward


@pytest.mark.parametrize(("equal", "extra"), [(3000, 0), (2500, 500), (0, 3000)])
def test_very_many_paths_are_counted(equal: int, extra: int) -> None:
    file, other = Entry("f", 0o644, 0, 0, "x" * 64), Entry("f", 0o644, 0, 0, "y" * 64)
    theirs = {f"/work/some/where/{n}": file for n in range(equal + extra)}
    mine = {path: file if n < equal else other for n, path in enumerate(theirs)}
    agent = BashState("done", entries=mine, touched=frozenset(mine))
    gold = BashState("", entries=theirs, touched=frozenset(theirs))
    state = through_json(bash_strict_state(agent, gold, RewardOptions()))
    assert len(json.dumps(state)) < 1000
    reward, again = (
        bash_strict_reward(agent, gold, RewardOptions()),
        bash_strict_reward_again(state),
    )
    assert (again.value, again.parts) == (reward.value, reward.parts)
    assert bool(again.reason) == bool(reward.reason)
    with pytest.raises(KeyError):
        bash_strict_reward_again(state, RewardOptions())


_PAIRS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d.txt"]), st.sampled_from(["??", "M", "A"])),
    max_size=5,
).map(tuple)
_SUMS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d.txt"]), st.sampled_from(["1", "2" * 500])
)
_PAPER = st.builds(PaperState, _OUTPUTS, _PAIRS, _SUMS)


@given(_PAPER, _PAPER)
def test_bash_paper(agent: PaperState, gold: PaperState) -> None:
    state = through_json(bash_paper_state(agent, gold))
    assert bash_paper_reward_again(state) == bash_paper_reward(agent, gold)
    assert state["cut"] is False


def test_very_many_paths_of_git() -> None:
    mine = PaperState("a", tuple((f"mine/{n}", "??") for n in range(20_000)))
    theirs = PaperState("a", (("theirs", "M"),))
    for sides in ((mine, theirs), (theirs, mine)):
        state = bash_paper_state(*sides)
        assert len(json.dumps(state)) < 2000
        assert not state["cut"]
        again, reward = bash_paper_reward_again(state), bash_paper_reward(*sides)
        assert (again.value, again.parts) == (reward.value, reward.parts)
    assert bash_paper_state(mine, mine)["cut"]


# -- python

_RESULTS = st.dictionaries(
    st.sampled_from(["assert 1", "assert 2", "assert 3"]),
    st.fixed_dictionaries({"output": st.sampled_from(["", "x", "y" * 9000]), "error": st.just("")}),
)


@given(_RESULTS, _RESULTS)
def test_python_paper(agent: dict[str, Any], gold: dict[str, Any]) -> None:
    state = through_json(python_paper_state(agent, gold))
    assert len(json.dumps(state)) < 2000
    again = python_paper_reward_again(state)
    assert again == python_paper_reward(texts_of(agent), texts_of(gold))


# -- sql

_TEXTS = st.lists(st.sampled_from(["(1,)", "(2,)", "('a',)", "(None,)", "(10,)"]), max_size=8)


@given(st.none() | _TEXTS, _TEXTS)
def test_sql_paper(agent: list[str] | None, gold: list[str]) -> None:
    reward = sql_paper_reward(agent, gold)
    assert sql_paper_reward_again(through_json(paper_rows_state(agent, gold))) == reward


@given(st.none() | _TEXTS, _TEXTS)
def test_long_rows_of_sql_paper_are_ranks(agent: list[str] | None, gold: list[str]) -> None:
    filler = "x" * 300_000
    mine = agent and [f"{row}{filler}" for row in agent]
    theirs = [f"{row}{filler}" for row in gold] + [filler]
    state = through_json(paper_rows_state(mine, theirs))
    assert state["ranked"]
    assert len(json.dumps(state)) < 1000
    assert sql_paper_reward_again(state) == sql_paper_reward(mine, theirs)


def test_a_digest_keeps_the_best_order_of_columns() -> None:
    options = RewardOptions(columns="any-order")
    gold_rows = tuple((n, f"{n} " + "x" * 2000) for n in range(200))
    gold = Rows(2, (Run(gold_rows),))
    part = Rows(2, (Run(tuple((text, n) for n, text in gold_rows[:100])),))
    state = through_json(rows_state(part, gold, options))
    assert state["digested"]
    assert sql_rows_reward(part, gold, options).value == 0.5
    assert sql_rows_reward_again(state, options).value == 0.5


@pytest.mark.parametrize(
    ("action", "likeness"),
    [
        ("SELECT 1", "alike"),
        (" SELECT 1 ; ", "alike"),
        ("", "nothing"),
        (" \n", "nothing"),
        ("SELECT 1;;", "unlike"),
        ("-- why?\nSELECT 1", "unlike"),
        ("SELECT 1; SELECT 2", "unlike"),
        (";", "unlike"),
        (".tables", "unlike"),
        ("SELECT 1; CREATE TEMP TABLE t (a)", "never again"),
        ("SELECT 1; DELETE FROM t", "never again"),
        ("submitted, I think", "never again"),
        ("skip", "never again"),
        (f"SELECT '{'x' * MAX_ACTION}'", "never again"),
    ],
)
def test_what_both_profiles_run_alike(action: str, likeness: str) -> None:
    assert compare_action(action, "sqlite") == likeness


def test_dot_tables_is_nothing_special_on_mysql() -> None:
    assert compare_action(".tables", "mysql") == "alike"


def _answer(cell: int) -> Answer:
    return Answer(ResultSet(("n",), ((cell,),)))


def test_the_last_answer_that_both_have() -> None:
    last = LastAlike("sqlite")
    assert (last.answer, last.problem) == (None, "")
    last.note("SELECT 1; SELECT 2", _answer(2))
    assert "not run alike" in last.problem
    last.note("", _answer(2))
    assert (last.nothing, last.unlike_for_good) == (True, "")
    assert "not run alike" in last.problem  # the answer is still that of the action before
    last.note("SELECT 3", _answer(3))
    assert (last.answer, last.problem, last.nothing) == (_answer(3), "", False)
    last.note("DELETE FROM t; SELECT 4", _answer(4))
    last.note("SELECT 5", _answer(5))
    assert "not run alike" in last.problem
    assert last.unlike_for_good
