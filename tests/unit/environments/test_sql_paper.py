"""The sql environment's paper profile: what an action shows, and what ends an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Database, Task
from pytest_intercode.environments.registry import environment_class
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.environments.sql.paper import PaperSqlEnvironment
from pytest_intercode.errors import BudgetExhausted
from pytest_intercode.sandboxes.provider import SandboxProvider

SHOP = """
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);
INSERT INTO item VALUES (1, 'pen', 1.5), (2, 'ink', 7.5), (3, 'cap', NULL);
"""
NAMES = "SELECT name FROM item ORDER BY id"

Start = Callable[..., PaperSqlEnvironment]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts an episode on SQLite, which needs no server."""
    (tmp_path / "shop.sql").write_text(SHOP)
    database = Database("sqlite", "shop", (tmp_path / "shop.sql",))
    provider = SandboxProvider()
    started = []

    def begin(*gold: str, **options: Any) -> PaperSqlEnvironment:
        environment = PaperSqlEnvironment(provider, **options)
        started.append(environment)
        environment.reset(
            task=Task("t", "Do it.", gold, "sql", "s", "s", fields=SqlFields(database))
        )
        return environment

    yield begin
    for environment in started:
        environment.close()
    provider.close()


def final(environment: PaperSqlEnvironment) -> float:
    assert environment.final is not None
    return environment.final.value


def test_it_is_the_paper_profile_of_sql() -> None:
    assert environment_class("sql", "paper") is PaperSqlEnvironment


@pytest.mark.parametrize(
    ("action", "observation", "executed"),
    [
        ("SELECT name, price FROM item", "[('pen', 1.5), ('ink', 7.5), ('cap', None)]", True),
        ("SELECT id FROM item WHERE id = 2", "[(2,)]", True),
        ("SELECT id FROM item WHERE id = 9", "[]", True),
        ("SELECT absent FROM item", "Error executing query: no such column: absent", False),
        ("", "[]", True),
        (" \n", "[]", True),
        ("SAVEPOINT here", "None", True),
    ],
)
def test_observations(start: Start, action: str, observation: str, executed: bool) -> None:
    shown = start(NAMES).step(action)[0]
    assert shown == observation
    assert shown.executed == executed


def test_several_statements_are_refused(start: Start) -> None:
    environment = start(NAMES)
    shown = environment.step(f"{NAMES}; {NAMES}")[0]
    assert shown.startswith("Error executing query: ")
    environment.submit()
    assert final(environment) == 0.0


def test_the_last_observation_is_graded(start: Start) -> None:
    environment = start(NAMES)
    environment.step("SELECT absent")
    environment.step(NAMES)
    observation, reward, terminated, *_ = environment.step("submitted, I think")
    assert (observation, reward, terminated) == ("", 1.0, True)
    state = environment.end_state()
    for side in ("agent", "gold"):
        assert state[side] == {"rows": ["('pen',)", "('ink',)", "('cap',)"], "count": 3}
    again = start(NAMES)
    again.step(NAMES)
    again.step("SELECT absent")
    again.step("submit")
    assert final(again) == 0.0


def test_nothing_done_gets_nothing(start: Start) -> None:
    environment = start("SELECT absent")
    environment.step("submit")
    assert final(environment) == 0.0


def test_order_counts_where_gold_asks_for_none(start: Start) -> None:
    environment = start("SELECT name FROM item")
    environment.step("SELECT name FROM item ORDER BY id DESC")
    environment.step("submit")
    assert final(environment) == -1.0


def test_a_gold_that_fails_has_no_rows(start: Start) -> None:
    environment = start("SELECT absent FROM item")
    environment.step("SELECT 1 WHERE 1 = 2")
    environment.step("submit")
    assert final(environment) == 1.0


def test_skip(start: Start) -> None:
    environment = start(NAMES)
    environment.step(NAMES)
    *_, reward, terminated, truncated, _ = environment.step("skip")
    assert (reward, terminated, truncated, final(environment)) == (0.0, True, False, 0.0)
    assert environment.over == "skipped"
    with pytest.raises(BudgetExhausted):
        environment.step("skip")


def test_try_again(start: Start) -> None:
    """With rewards as feedback every action is graded, and the best one counts."""
    environment = start(NAMES, feedback="reward", max_turns=3)
    rewards = [
        environment.step(action)[1]
        for action in (
            "SELECT name FROM item WHERE id < 3 ORDER BY id",
            "SELECT absent",
            "SELECT name FROM item ORDER BY id DESC",
        )
    ]
    assert rewards == [0.67, 0.0, -1.0]
    assert (environment.over, final(environment)) == ("budget", 0.67)
    solved = start(NAMES, feedback="reward")
    assert solved.step(NAMES)[1:3] == (1.0, True)
    assert solved.over == "solved"
