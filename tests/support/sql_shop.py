"""A small database for tests of the sql environment, and episodes on it. Needs no Docker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_intercode.core.task import Database, RewardOptions, Task
from pytest_intercode.databases.sqlite.engine import SqliteEngine
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.environments.sql.strict import SqlEnvironment
from pytest_intercode.sandboxes.provider import SandboxProvider

SHOP = """
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, price REAL, shelf TEXT);
INSERT INTO item VALUES
  (1, 'pen', 1.2, 'a'), (2, 'ink', 7.5, 'b'), (3, 'cap', 7.5, 'a'), (4, 'nib', 3, 'c'),
  (5, 'pad', 7.5, NULL);
CREATE TABLE sale (item_id INTEGER REFERENCES item(id), day TEXT, pieces INT CHECK (pieces > 0));
INSERT INTO sale VALUES (1, '2024-01-05', 3), (1, '2024-01-06', 1), (4, '2024-01-06', 2);
CREATE VIEW cheap AS SELECT name FROM item WHERE price < 5;
"""
CHEAPEST = "SELECT name FROM item ORDER BY price, id LIMIT 1"
RAISE = "UPDATE item SET price = price + 1 WHERE shelf = 'a'"
ENDLESS = "WITH RECURSIVE r(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
STUBBORN = "SELECT length(printf('%.*c', 2000000000, 'x'))"  # one step that cannot be interrupted


@pytest.fixture(scope="module")
def way() -> str:
    """Return how SQLite's processes are limited and ended; some modules try both ways."""
    return "linux"


@pytest.fixture(scope="module")
def sql_provider(way: str) -> Iterator[SandboxProvider]:
    provider = SandboxProvider()
    yield provider
    assert not provider._state.started  # nothing here may have started the Docker engine
    provider.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Database:
    script = tmp_path_factory.mktemp("shop") / "shop.sql"
    script.write_text(SHOP)
    return Database("sqlite", "shop", (script,))


Start = Callable[..., SqlEnvironment]


@pytest.fixture
def start(sql_provider: SandboxProvider, shop: Database) -> Iterator[Start]:
    """Return a function that starts an episode for a gold."""
    started: list[SqlEnvironment] = []

    def begin(*gold: str, writes: bool | None = None, **fields: Any) -> SqlEnvironment:
        environment = SqlEnvironment(
            fields.pop("provider", sql_provider),
            feedback=fields.pop("feedback", "observation"),
            action_timeout=fields.pop("timeout", 5.0),
        )
        started.append(environment)
        database = fields.pop("database", shop)
        if writes is not None:
            database = Database("sqlite", "shop", database.scripts, database.file, writes)
        reward = RewardOptions(**fields.pop("reward", {}))
        environment.reset(
            task=Task(
                *("t", "Do it.", gold, "sql", "s", "s"),
                reward=reward,
                fields=SqlFields(database),
                **fields,
            )
        )
        return environment

    yield begin
    for environment in started:
        environment.close()


def reward_of(environment: SqlEnvironment, *actions: str, answer: str = "") -> float:
    for action in actions:
        environment.step(action)
    return environment.submit(answer)[1]


def reason_of(environment: SqlEnvironment) -> str:
    assert environment.final is not None
    return environment.final.reason


@pytest.fixture
def sqlite_engine(way: str) -> Iterator[SqliteEngine]:
    engine = SqliteEngine()
    yield engine
    engine.close()
