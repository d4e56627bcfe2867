"""The scan of SQL: where statements end, whether they query, whether they order."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_intercode.databases.scan import Dialect, Statement, scan, split


def _texts(text: str, dialect: Dialect = "sqlite") -> list[str]:
    return [statement.text for statement in split(text, dialect)]


def _only(text: str, dialect: Dialect = "sqlite") -> Statement:
    (statement,) = split(text, dialect)
    return statement


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ;; -- nothing\n/* ; */ ;", []),
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        ("-- first\nselect 1; -- done", ["select 1"]),
        ("select 1; select 2 ;", ["select 1", "select 2"]),
        ("select ';' ; select ';''' ;", ["select ';'", "select ';'''"]),
        ('select ";", [;], `;` from t; x', ['select ";", [;], `;` from t', "x"]),
        ("select 1 /* ; -- */ + 2; x", ["select 1 /* ; -- */ + 2", "x"]),
        ("select x';' ; y", ["select x';'", "y"]),
        ("select 'it goes on; for ever", ["select 'it goes on; for ever"]),
        ("select 1 -- ;\n + 1; x", ["select 1 -- ;\n + 1", "x"]),
        ("select 'a\\'; select 'b'", ["select 'a\\'", "select 'b'"]),
    ],
)
def test_split(text: str, statements: list[str]) -> None:
    assert _texts(text) == statements


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("select 'a\\'; b'; x", ["select 'a\\'; b'", "x"]),
        ('select "a;b"; x', ['select "a;b"', "x"]),
        ("select 1 # ;\n; x", ["select 1", "x"]),
        ("select 1 --;\n; x", ["select 1 --", "x"]),
        ("select 3--1; x", ["select 3--1", "x"]),
        ("/*!40101 SET NAMES utf8 */; x", ["/*!40101 SET NAMES utf8 */", "x"]),
        ("select [1; 2", ["select [1", "2"]),
        ("DELIMITER //\nselect 1; select 2//\nDELIMITER ;\nx; y", ["select 1; select 2", "x", "y"]),
        ("select '\\", ["select '\\"]),
    ],
)
def test_split_as_mysql_does(text: str, statements: list[str]) -> None:
    assert _texts(text, "mysql") == statements


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("sqlite", "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM b; SELECT 1; END"),
        (
            "sqlite",
            "create temp trigger t update on a begin update a set x = case when 1 then 2 end; end",
        ),
        ("mysql", "CREATE PROCEDURE p() BEGIN SELECT 1; BEGIN SELECT 2; END; SELECT 3; END"),
        (
            "mysql",
            "CREATE FUNCTION f() RETURNS INT BEGIN IF (1) THEN SELECT IF(1, 2, 3); ELSE SET @x = "
            "CASE 1 WHEN 1 THEN IF(1, 2, 3) END; END IF; RETURN 1; END",
        ),
        (
            "mysql",
            "CREATE PROCEDURE p() BEGIN a: LOOP LEAVE a; END LOOP; WHILE 0 DO SELECT 1; END WHILE; "
            "REPEAT SET @a = 1; UNTIL 1 END REPEAT; CASE 1 WHEN 1 THEN SELECT 1; END CASE; END",
        ),
        ("mysql", "CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW SET NEW.x = 1"),
    ],
)
def test_bodies_stay_whole(dialect: Dialect, body: str) -> None:
    assert _texts(f"{body};\nselect 1", dialect) == [body, "select 1"]


def test_begin_of_a_transaction_is_a_statement() -> None:
    assert _texts("BEGIN; UPDATE t SET a = 1; END;") == ["BEGIN", "UPDATE t SET a = 1", "END"]


def test_lines() -> None:
    text = "-- one\n\nselect 1;\n\n\nselect\n2; select 3"
    assert [statement.line for statement in split(text, "sqlite")] == [3, 6, 7]


@pytest.mark.parametrize(
    ("text", "keyword", "queries"),
    [
        ("select 1", "SELECT", True),
        ("/* hi */ Select 1", "SELECT", True),
        ("((select 1))", "SELECT", True),
        ("values (1)", "VALUES", True),
        ("with a as (select 1) select * from a", "WITH", True),
        ("with a as (select 1) delete from t", "WITH", False),
        ("with a as (select replace('a', 'b', 'c')) select * from a", "WITH", True),
        ("explain query plan select 1", "EXPLAIN", True),
        ("pragma table_info(t)", "PRAGMA", True),
        ("pragma user_version = 3", "PRAGMA", False),
        ("begin", "BEGIN", True),
        ("insert into t values (1)", "INSERT", False),
        ("replace into t values (1)", "REPLACE", False),
        ("update t set a = 1", "UPDATE", False),
        ("create table t (a)", "CREATE", False),
        ("create temp table t (a)", "CREATE", True),
        ("drop table t", "DROP", False),
        ("alter table t add a", "ALTER", False),
        ("'text'", "", False),
        (".tables", "", False),
    ],
)
def test_what_a_statement_does(text: str, keyword: str, queries: bool) -> None:
    statement = _only(text)
    assert (statement.keyword, statement.queries) == (keyword, queries)


def test_what_a_conditional_comment_does() -> None:
    statement = _only("/*!50003 DROP TABLE t */", "mysql")
    assert (statement.keyword, statement.queries) == ("DROP", False)


@pytest.mark.parametrize(
    ("text", "orders"),
    [
        ("select a from t", False),
        ("select a from t order by a", True),
        ("select a from t ORDER /* here */ BY a limit 1", True),
        ("select a from (select a from t order by a)", False),
        ("select row_number() over (order by a) from t", False),
        ("select group_concat(a order by a) from t", False),
        ("(select a from t order by a)", True),
        ("((select a from t order by a))", True),
        ("(select a from t order by a) union (select b from u order by b)", False),
        ("(select a from t) union (select b from u) order by 1", True),
        ("with x as (select 1 order by 1) select * from x", False),
        ("with x as (select 1) select * from x order by 1", True),
        ("select 'order by a' from t", False),
        ('select "order" from t -- order by a', False),
        ("select a from t where b in (select 1 order by 1) order by a", True),
        ("select 1)) order by 1", True),
    ],
)
def test_whether_a_query_orders(text: str, orders: bool) -> None:
    assert _only(text).orders is orders


_PIECES = st.lists(
    st.sampled_from(
        [
            *("select ", "create ", "trigger ", "begin ", "end ", "case ", "if ", "delimiter "),
            *("a", "1", "'", '"', "`", "[", "]", "\\", ";", "--", "/*", "*/", "/*!", "#", "(", ")"),
            *("\n", " ", "''", "x'", "//", "é", "\0", "$", ":"),
        ]
    ),
    max_size=30,
).map("".join)


@given(_PIECES, st.sampled_from(["sqlite", "mysql"]))
@example("((((", "sqlite")
@example("'\\", "mysql")
def test_any_text_is_split_without_a_loss(text: str, dialect: Dialect) -> None:
    """Every token is in one statement, in order, and where it says it is."""
    at = 0
    for statement in split(text, dialect):
        assert statement.text
        at = text.index(statement.text, at)
        for token in statement.tokens:
            assert statement.text[token.start : token.end] == token.text
            assert token.depth >= 0
        assert statement.orders in (True, False)
    kept = [token.text for s in split(text, dialect) for token in s.tokens]
    everything = [token.text for token in scan(text, dialect)]
    rest = iter(everything)
    assert all(any(token == other for other in rest) for token in kept)


@given(st.lists(st.sampled_from(["select 1", "x ';' y", "a [;] b", "(c)"]), max_size=5))
def test_joined_statements_come_apart(statements: list[str]) -> None:
    assert _texts(" ;\n".join(statements)) == statements


@pytest.mark.parametrize(
    "piece", ["'", "'\\", '"', "/*", "(", "((x))", "--", "a ", "`", "[ ", "1e", "''", ";", "x;\n"]
)
@pytest.mark.parametrize("dialect", ["sqlite", "mysql"])
def test_hostile_text_takes_no_time(piece: str, dialect: Dialect) -> None:
    began = time.process_time()
    for statement in split(piece * 20_000, dialect)[:3]:
        assert statement.orders is False
    assert time.process_time() - began < 5.0
