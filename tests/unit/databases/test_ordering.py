"""Queries that show what they order by, as the strict reward needs them."""

from __future__ import annotations

import sqlite3

import pytest

from pytest_intercode.databases.ordering import Ordered, show_order
from pytest_intercode.databases.scan import split

_SETUP = """
create table t (id integer primary key, name text, points int, town text);
insert into t values (1, 'Ada', 3, 'Ulm'), (2, 'Bo', 5, 'Bonn'), (3, 'Cy', 3, 'Ulm'),
  (4, 'Di', null, 'Bonn'), (5, 'Ed', 5, 'Kiel');
create table u (name text, of int);
insert into u values ('x', 1), ('y', 2), ('z', 3);
"""


def _shown(query: str) -> Ordered | None:
    """Rewrite a query with the columns that SQLite gives it."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(_SETUP)
        columns = [column[0] for column in connection.execute(query).description]
        (statement,) = split(query, "sqlite")
        return show_order(statement, columns)
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("query", "keys", "start", "limit"),
    [
        ("select name from t order by points", (1,), 0, None),
        ("select name from t order by points desc limit 2", (1,), 0, 2),
        ("select name from t order by points limit 2 offset 1", (1,), 1, 2),
        ("select name from t order by points limit 1, 2", (1,), 1, 2),
        ("select name, points from t order by points, name desc", (1, 0), 0, None),
        ("select name, points p from t order by P desc nulls last", (1,), 0, None),
        ("select name, points from t order by 2, 1", (1, 0), 0, None),
        ("select * from t order by points", (2,), 0, None),
        ("select *, points + 1 from t order by length(name), town", (5, 3), 0, None),
        ("select town, count(*) from t group by town order by count(*) desc", (2,), 0, None),
        ("select town from t group by town having count(*) > 1 order by max(id)", (1,), 0, None),
        ("select distinct town from t order by town", (0,), 0, None),
        ("select name from t union select name from u order by name", (0,), 0, None),
        (
            "with a as (select * from t order by id) select name from a order by points",
            (1,),
            0,
            None,
        ),
        ("select t.name from t join u on u.of = t.id order by u.name", (1,), 0, None),
        ("select name from t -- all\norder by points -- so\n limit 1", (1,), 0, 1),
        ("select (select name from u order by of limit 1) from t order by id", (1,), 0, None),
        ("select 1 order by 2 + 3", (1,), 0, None),
        ("select name from t order by points collate nocase", (1,), 0, None),
        ('select name as "a b" from t order by "a b"', (0,), 0, None),
        ("select name from t order by case when points > 3 then 0 else id end", (1,), 0, None),
    ],
)
def test_keys_are_shown(query: str, keys: tuple[int, ...], start: int, limit: int | None) -> None:
    shown = _shown(query)
    assert shown is not None
    assert (shown.keys, shown.start, shown.limit) == (keys, start, limit)
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(_SETUP)
        rows = connection.execute(query).fetchall()
        full = connection.execute(shown.text).fetchall()
    finally:
        connection.close()
    stop = None if limit is None else start + limit
    width = len(rows[0])
    assert [row[:width] for row in full[start:stop]] == rows
    assert all(len(row) > max(keys) for row in full)


@pytest.mark.parametrize(
    ("query", "ranks"),
    [
        ("select name from t order by points desc", [1, 1, 2, 2, 3]),
        ("select name from t order by points desc -- so\n limit 2", [1, 1, 2, 2, 3]),
        ("select distinct town from t order by town", [1, 2, 3]),
        ("select town, count(*) from t group by town order by count(*)", [1, 2, 2]),
        ("select name, lower(town) as town from t order by name", [1, 2, 3, 4, 5]),
    ],
)
def test_ranks_are_shown(query: str, ranks: list[int]) -> None:
    ordered_query = _shown(query)
    assert ordered_query is not None
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(_SETUP)
        full = connection.execute(ordered_query.text).fetchall()
        ranked = connection.execute(ordered_query.ranked).fetchall()
    finally:
        connection.close()
    assert [row[:-1] for row in ranked] == full
    assert [row[-1] for row in ranked] == ranks


@pytest.mark.parametrize("order", ["1", "1 collate nocase", "name"])
def test_some_orders_have_no_ranks(order: str) -> None:
    first_select = "select name from t union " if order == "name" else ""
    ordered_query = _shown(f"{first_select}select name from u order by {order}")
    assert ordered_query is not None
    assert (ordered_query.keys, ordered_query.ranked) == ((0,), "")


@pytest.mark.parametrize(
    "query",
    [
        "select name from t union select name from u order by name limit 1 + 1",
        "select name from t order by points limit (select 2)",
        "select name from t union select name from u order by name || 'x'",
    ],
)
def test_what_is_beyond_it(query: str) -> None:
    (statement,) = split(query, "sqlite")
    assert show_order(statement, ["name"]) is None


def test_a_query_in_parentheses() -> None:
    (statement,) = split("((select name from t order by points limit 3))", "mysql")
    shown = show_order(statement, ["name"])
    assert shown is not None
    assert shown.text.split() == [
        "select",
        "name",
        ",",
        "(points)",
        "from",
        "t",
        "order",
        "by",
        "points",
    ]
    assert (shown.keys, shown.limit) == ((1,), 3)


def test_a_distinct_query_says_so() -> None:
    shown = _shown("select distinct town from t order by points")
    assert shown is not None
    assert shown.distinct
