"""The sql environment on SQLite: queries, changes, gold, and a run by pytest. Needs no Docker."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_intercode.errors import GoldError, GoldRefused
from tests.support.sql_shop import (
    CHEAPEST,
    RAISE,
    SHOP,
    Start,
    reason_of,
    reward_of,
)

# -- queries


def test_an_episode(start: Start) -> None:
    environment = start("SELECT name, price FROM item WHERE shelf = 'a'")
    observation, *rest = environment.step("SELECT price, name FROM item WHERE shelf = 'a';")
    assert observation == "price | name\n1.2 | pen\n7.5 | cap\n(2 rows)"
    assert observation.executed
    assert rest == [0.0, False, False, {"executed": True, "turns_left": 9}]
    observation = environment.step("SELECT absent FROM item")[0]
    assert observation == "Error: no such column: absent"
    assert not observation.executed
    assert environment.step("  -- only a comment ;")[0].startswith("[nothing was run")
    environment.step("SELECT name AS n, price AS p FROM item WHERE shelf = 'a' ORDER BY id DESC")
    assert environment.submit()[1] == 1.0
    assert environment.end_state()["gold"]["width"] == 2


@pytest.mark.parametrize(
    ("actions", "value"),
    [
        ([], 0.0),
        ([""], 0.0),
        (["SELECT name FROM item WHERE id = 1"], 1.0),
        (["SELECT 'pen'; "], 1.0),
        (["SELECT 'pen'", ""], 1.0),
        (["SELECT 'pen'", "SELECT 1"], 0.0),
        (["SELECT 'pen'", "SELECT absent"], 0.0),
        (["SELECT 'pen'; SELECT absent; SELECT 'pen'"], 0.0),
        (["SELECT 1; SELECT 'pen'"], 1.0),
        (["SELECT 'pen'; CREATE TEMP TABLE x (a)"], 0.0),
        (["SELECT 'pen' UNION ALL SELECT 'ink'"], 0.5),
        (["SELECT 'pen', 1"], 0.0),
        (["SELECT name FROM item ORDER BY price DESC LIMIT 1"], 0.0),
    ],
)
def test_what_is_graded(start: Start, actions: list[str], value: float) -> None:
    assert reward_of(start(CHEAPEST), *actions) == value


def test_a_submitted_query_is_the_answer(start: Start) -> None:
    assert reward_of(start(CHEAPEST), "SELECT 1", answer="SELECT 'pen'") == 1.0
    environment = start(CHEAPEST)
    assert environment.step("submit SELECT name FROM item WHERE id = 1")[1:4] == (1.0, True, False)
    environment = start(CHEAPEST)
    environment.step("SELECT 'pen'")
    assert environment.step("submit;")[1] == 1.0
    environment = start(CHEAPEST)
    assert reward_of(environment, "SELECT 'pen'", answer="SELECT absent") == 0.0
    assert reason_of(environment) == "the last statement failed: no such column: absent"


LETTERS = "SELECT column1 FROM (VALUES ('b'), ('A'), ('a'))"


@pytest.mark.parametrize(
    ("gold", "answer", "value"),
    [
        # ties, in the order and at its end
        ("SELECT name FROM item ORDER BY price DESC LIMIT 2", "VALUES ('pad'), ('cap')", 1.0),
        ("SELECT name FROM item ORDER BY price DESC LIMIT 2", "VALUES ('pad'), ('nib')", 1 / 3),
        ("SELECT name FROM item ORDER BY price LIMIT 3", "VALUES ('pen'), ('nib'), ('pad')", 1.0),
        ("SELECT name FROM item ORDER BY price LIMIT 3", "VALUES ('nib'), ('pen'), ('pad')", 5 / 6),
        (
            "SELECT id FROM item ORDER BY shelf IS NULL, shelf",
            "VALUES (3), (1), (2), (4), (5)",
            1.0,
        ),
        ("SELECT DISTINCT price FROM item ORDER BY price DESC LIMIT 1", "SELECT 7.5", 1.0),
        (
            "SELECT shelf, count(*) FROM item GROUP BY shelf ORDER BY count(*) DESC LIMIT 2",
            "VALUES ('a', 2), ('c', 1)",
            1.0,
        ),
        # no order
        ("SELECT id FROM item WHERE price = 7.5", "VALUES (5), (2), (3)", 1.0),
        ("SELECT id FROM item WHERE price = 7.5", "VALUES (5.0), (2), (3)", 1.0),
        ("SELECT id FROM item WHERE price = 7.5", "VALUES ('5'), (2), (3)", 0.5),
        # ties by a collation
        (f"{LETTERS} ORDER BY column1 COLLATE NOCASE", "VALUES ('a'), ('A'), ('b')", 1.0),
        (f"{LETTERS} ORDER BY column1 COLLATE NOCASE", "VALUES ('A'), ('a'), ('b')", 1.0),
        (f"{LETTERS} ORDER BY column1 COLLATE NOCASE", "VALUES ('b'), ('A'), ('a')", 0.5),
        (f"{LETTERS} ORDER BY column1 COLLATE NOCASE LIMIT 1", "SELECT 'a'", 1.0),
        (f"{LETTERS} ORDER BY column1", "VALUES ('a'), ('A'), ('b')", 5 / 6),
        (f"{LETTERS} ORDER BY 1 COLLATE NOCASE", "VALUES ('b'), ('A'), ('a')", 2 / 3),
        # an order that cannot be looked into is taken as it is
        ("SELECT id AS n FROM item ORDER BY n % 2, id LIMIT (SELECT 2)", "VALUES (2), (4)", 1.0),
        ("SELECT id AS n FROM item ORDER BY n % 2, id LIMIT (SELECT 2)", "VALUES (4), (2)", 0.5),
        ("SELECT 0.1 + 0.2", "SELECT 0.3", 1.0),
        ("SELECT NULL", "SELECT NULL", 1.0),
        ("SELECT id FROM item WHERE 0", "SELECT id FROM item WHERE 0", 1.0),
        ("SELECT id FROM item WHERE 0", "SELECT id, 1 FROM item WHERE 0", 0.0),
        ("SELECT id FROM item WHERE 0", "", 0.0),
    ],
)
def test_orders_and_values(start: Start, gold: str, answer: str, value: float) -> None:
    assert reward_of(start(gold), answer) == pytest.approx(value)


@pytest.mark.parametrize(
    ("reward", "answer", "value"),
    [
        ({"rows": "any-order"}, "SELECT price, name FROM item ORDER BY id", 1.0),
        ({"rows": "in-order"}, "SELECT price, name FROM item ORDER BY price, id", 1.0),
        ({"rows": "in-order"}, "SELECT price, name FROM item ORDER BY price, id DESC", 0.85),
        ({}, "SELECT name, price FROM item ORDER BY price", 0.0),
        ({"columns": "any-order"}, "SELECT name, price FROM item ORDER BY price", 1.0),
    ],
)
def test_options(start: Start, reward: dict[str, Any], answer: str, value: float) -> None:
    environment = start("SELECT price, name FROM item ORDER BY price", reward=reward)
    assert reward_of(environment, answer) == pytest.approx(value)


def test_what_people_type_in_the_shell(start: Start) -> None:
    environment = start(CHEAPEST)
    assert environment.step(".tables")[0] == "name\ncheap\nitem\nsale\n(3 rows)"
    assert environment.step(".schema sale")[0].startswith("schema\nCREATE TABLE sale (item_id")
    assert "CREATE VIEW cheap" in environment.step(".schema")[0]
    assert ".tables lists the tables" in environment.step("SHOW TABLES")[0]
    assert "are known" in environment.step(".mode csv")[0]


def test_a_session_remembers(start: Start) -> None:
    environment = start("SELECT sum(pieces) FROM sale")
    environment.step("CREATE TEMP TABLE big AS SELECT * FROM sale WHERE pieces > 1")
    environment.step("INSERT INTO big VALUES (9, '', 1)")
    assert environment.step("SELECT sum(pieces) FROM big")[0] == "sum(pieces)\n6\n(1 row)"
    assert environment.submit()[1] == 1.0
    assert "no such table" in start(CHEAPEST).step("SELECT * FROM big")[0]


def test_several_statements_in_one_action(start: Start) -> None:
    environment = start(CHEAPEST)
    observation = environment.step("SELECT 1; CREATE TEMP TABLE x (a); INSERT INTO x VALUES (1)")[0]
    assert observation == "1\n1\n(1 row)\nOK\nOK, 1 row affected"
    observation = environment.step("SELECT 1; SELECT b FROM x; SELECT 2; SELECT 3")[0]
    assert observation == (
        "1\n1\n(1 row)\nError: no such column: b\n[the 2 statements after it were not run]"
    )
    assert not observation.executed


def test_rewards_as_feedback(start: Start) -> None:
    environment = start(CHEAPEST, feedback="reward")
    assert environment.step("VALUES ('pen'), ('ink')")[1] == 0.5
    assert environment.step("SELECT 1")[1:4] == (0.0, False, False)
    assert environment.step(CHEAPEST)[1:4] == (1.0, True, False)


# -- gold


def test_gold_that_sqlite_refuses(start: Start) -> None:
    with pytest.raises(GoldRefused, match="engine refuses gold: no such column: absent"):
        start("SELECT absent FROM item")


@pytest.mark.parametrize(
    ("gold", "writes", "message"),
    [
        (["WITH r(n) AS (VALUES(1) UNION ALL SELECT n FROM r) SELECT max(n) FROM r"], None, "end"),
        (["DELETE FROM item WHERE 0"], None, "but leaves it as it was"),
        (["SELECT 1"], True, "but leaves it as it was"),
        (["DELETE FROM item"], False, r"may only query \(database.writes\): the database is read"),
        (["CREATE TEMP TABLE x (a)"], None, "gives no rows"),
        (["BEGIN", "DELETE FROM sale"], None, "leaves a transaction open"),
        (["-- nothing"], None, "holds no statement"),
    ],
)  # fmt: skip
def test_gold_that_cannot_be_graded_against(
    start: Start, gold: list[str], writes: bool | None, message: str
) -> None:
    with pytest.raises(GoldError, match=message) as caught:
        start(*gold, writes=writes, timeout=0.5)
    assert not isinstance(caught.value, GoldRefused)


def test_gold_of_several_statements(start: Start) -> None:
    gold = ["CREATE TEMP TABLE x AS SELECT max(price) AS p FROM item; SELECT 1;", "SELECT p FROM x"]
    assert reward_of(start(*gold), "SELECT 7.5") == 1.0


# -- tasks that write


@pytest.mark.parametrize(
    ("actions", "value"),
    [
        ([RAISE], 1.0),
        (
            ["UPDATE item SET price = 2.2 WHERE id = 1; UPDATE item SET price = 8.5 WHERE id = 3"],
            1.0,
        ),
        ([RAISE, "SELECT absent"], 1.0),
        (["BEGIN", RAISE, "COMMIT"], 1.0),
        (["BEGIN", RAISE, "ROLLBACK", RAISE], 1.0),
        (["CREATE TEMP TABLE item (id)", RAISE.replace("item", "main.item")], 1.0),
        ([], 0.0),
        (["SELECT 1"], 0.0),
        (["BEGIN", RAISE], 0.0),
        (["DELETE FROM sale"], 0.0),
        ([RAISE, "DELETE FROM sale WHERE pieces = 1"], 4 / 5),
        ([RAISE, "CREATE INDEX i ON item (shelf)"], 4 / 5),
        ([RAISE, "CREATE TABLE notes (a)"], 4 / 5),
        ([RAISE, "DROP VIEW cheap"], 4 / 8),
        (["UPDATE item SET price = 2.2 WHERE id = 1"], 0.5),
        (["DROP TABLE sale", "DROP VIEW cheap", "DROP TABLE item"], 2 / 19),
    ],
)
def test_end_states(start: Start, actions: list[str], value: float) -> None:
    environment = start(RAISE)
    assert reward_of(environment, *actions) == pytest.approx(value)
    assert reward_of(start(RAISE), RAISE) == 1.0


def test_an_open_transaction_does_not_count(start: Start) -> None:
    environment = start(RAISE)
    assert reward_of(environment, "BEGIN", RAISE) == 0.0
    assert reason_of(environment).endswith("a transaction was left open, and its work is undone")


def test_grading_leaves_an_open_transaction_open(start: Start) -> None:
    environment = start(RAISE, feedback="reward")
    assert environment.step("BEGIN")[1] == 0.0
    assert environment.step("UPDATE item SET price = 2.2 WHERE id = 1")[1] == 0.0
    assert environment.step("UPDATE item SET price = 8.5 WHERE id = 3; COMMIT")[1] == 1.0


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        (
            "CREATE TABLE total (name TEXT PRIMARY KEY, n INTEGER NOT NULL DEFAULT 0)",
            "create table if not exists total (n int default 0 not null, name char(9) primary key)",
            "CREATE TABLE total (name TEXT, n INTEGER NOT NULL DEFAULT 0)",
        ),
        (
            "CREATE INDEX by_day ON sale (day)",
            'create index if not exists "by_day" on sale(day)',
            "CREATE INDEX by_day ON sale (day, pieces)",
        ),
        (
            "CREATE VIEW dear AS SELECT name FROM item WHERE price > 7",
            "CREATE VIEW dear AS SELECT name FROM item WHERE price >= 7.5",
            "CREATE VIEW dear AS SELECT name FROM item WHERE price > 2",
        ),
        (
            "CREATE TABLE x (a INTEGER UNIQUE, b INTEGER REFERENCES item(id), CHECK (a > 1))",
            "CREATE TABLE x (a INT, b INT, CHECK(a>1), UNIQUE(a), FOREIGN KEY(b) REFERENCES item)",
            "CREATE TABLE x (a INTEGER, b INTEGER)",
        ),
        (
            "CREATE TRIGGER t AFTER INSERT ON sale BEGIN DELETE FROM sale WHERE pieces > 9; END",
            "create trigger t after insert on sale begin delete from sale where pieces > 9; end",
            "CREATE TRIGGER t AFTER INSERT ON sale BEGIN DELETE FROM sale WHERE pieces > 8; END",
        ),
        (
            "ALTER TABLE item ADD COLUMN note TEXT",
            "ALTER TABLE item ADD COLUMN note VARCHAR(20)",
            "ALTER TABLE item ADD COLUMN note INTEGER",
        ),
    ],
)  # fmt: skip
def test_schemas(start: Start, gold: str, right: str, wrong: str) -> None:
    assert reward_of(start(gold), right) == 1.0
    assert reward_of(start(gold), wrong) < 1.0
    assert reward_of(start(gold)) == 0.0


def test_a_table_is_no_view(start: Start) -> None:
    gold = "CREATE VIEW dear AS SELECT name FROM item WHERE price > 7"
    assert (
        reward_of(start(gold), "CREATE TABLE dear AS SELECT name FROM item WHERE price > 7") < 1.0
    )


# -- as pytest runs it


def test_a_suite_with_the_oracle(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Docker is needed, and what the engine refuses is an expected failure."""
    (pytester.path / "shop.sql").write_text(SHOP)
    (pytester.path / "shop.yaml").write_text(
        f"""\
env: sql
defaults:
  database: {{engine: sqlite, name: shop, script: shop.sql}}
tasks:
  - {{id: cheapest, query: q, gold: "{CHEAPEST}"}}
  - {{id: raise, query: q, gold: "{RAISE}"}}
  - {{id: refused, query: q, gold: "SELECT absent FROM item"}}
"""
    )
    pytester.makepyfile(wrong="def act(observation):\n    return 'submit SELECT name FROM item'\n")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    result = pytester.runpytest("shop.yaml", "--intercode-agent=oracle", "-rx")
    result.assert_outcomes(passed=2, xfailed=1)
    result.stdout.fnmatch_lines(["*the engine refuses gold: no such column: absent*"])
    result = pytester.runpytest("shop.yaml", "--intercode-agent=wrong:act")
    result.assert_outcomes(failed=2, xfailed=1)


def test_a_broken_script_is_an_error_of_the_suite(pytester: pytest.Pytester) -> None:
    (pytester.path / "shop.sql").write_text("CREATE TABLE t (a);\nCREATE TABLE t (a);")
    (pytester.path / "shop.yaml").write_text(
        "env: sql\ntasks:\n  - {id: a, query: q, gold: SELECT 1, "
        "database: {name: shop, script: shop.sql}}\n"
    )
    result = pytester.runpytest("shop.yaml", "--intercode-agent=oracle")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*shop.sql:2: table t already exists*"])
