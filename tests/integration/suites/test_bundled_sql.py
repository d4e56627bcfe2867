"""Our own sql suite: gold solves it, nothing does not, and the usual mistakes do not either."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from typing import Any

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.environments.sql.fields import database_of
from pytest_intercode.environments.sql.gold import writes
from pytest_intercode.results.files import read_results
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.support.thinning import every, thinned

SUITE = load_suite(bundled_folder("tasks") / "sql.yaml")
ONE_IN = every(6)  # what plays more than gold takes every sixth task

PLAYER = """\
import json
from pathlib import Path


class Player:
    def reset(self, task):
        self.left = [*json.loads(Path("plays.json").read_text())[task.id], "submit"]

    def act(self, observation):
        return self.left.pop(0)
"""

# The usual mistakes: what to replace in gold to make one, each text being there once.
MISTAKES: dict[str, tuple[tuple[str, str], ...]] = {
    "library-copies-out": (("LEFT JOIN loan l ON", "JOIN loan l ON"),),
    "library-brought-nobody": (
        (
            "NOT EXISTS (SELECT 1 FROM member b WHERE b.brought_by = m.id)",
            "m.id NOT IN (SELECT brought_by FROM member)",
        ),
    ),
    "library-author-and-translator": (("INTERSECT", "UNION"),),
    "library-overdue-in-march": ((" OR l.returned > '2024-03-31'", ""),),
    "library-genre-favourites": (("rank()", "row_number()"),),
    "library-loans-by-month": (("AND returned < date(", "AND lent < date("),),
    "library-shared-taste": (("SELECT DISTINCT", "SELECT"),),
    "library-referral-families": (("WHERE steps > 0", "WHERE steps = 1"),),
    "library-extend-loans": (("AND r.closed IS NULL", ""),),
    "library-empty-old-town": (("WHERE returned IS NULL", ""),),
    "library-merge-members": (("lower(trim(email))", "lower(email)"),),
    "library-title-stock-view": (
        ("FROM title t", "FROM title t JOIN copy ON title_id = t.id GROUP BY t.id"),
    ),
    "library-one-loan-at-a-time": (("(copy_id) WHERE returned IS NULL", "(copy_id, returned)"),),
    "clinic-newsletter-consent": (("avg(newsletter)", "sum(newsletter) / count(*)"),),
    "clinic-owners-without-animals": (
        (" AND a.died IS NULL\nWHERE a.id IS NULL", "\nWHERE a.died IS NOT NULL OR a.id IS NULL"),
    ),
    "clinic-no-show-rate": (("WHERE a.status IN ('done', 'no-show')", ""),),
    "clinic-double-booked": (("b.begins < a.ends", "b.begins <= a.ends"),),
    "clinic-open-balances": (
        (
            "coalesce((SELECT sum(cents) FROM payment WHERE invoice_id = i.id), 0)",
            "coalesce(p.cents, 0)",
        ),
        ("GROUP BY", "LEFT JOIN payment p ON p.invoice_id = i.id GROUP BY"),
    ),
    "clinic-rabies-due": (("lower(trim(a.species))", "lower(a.species)"),),
    "clinic-weight-loss": (("WHERE grams IS NOT NULL", ""),),
    "clinic-median-invoice": (("IN ((r.n + 1) / 2, (r.n + 2) / 2)", "= (r.n + 1) / 2"),),
    "clinic-free-slots": (
        ("coalesce(max(ends) OVER", "coalesce(lag(ends) OVER"),
        ("\n      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING", ""),
    ),
    "clinic-clean-species": (("nullif(lower(trim(species)), '')", "lower(trim(species))"),),
    "clinic-archive-missed": (
        ("AND NOT EXISTS (SELECT 1 FROM treatment WHERE appointment_id = a.id)", ""),
        ("AND NOT EXISTS (SELECT 1 FROM invoice WHERE appointment_id = a.id)", ""),
    ),
    "clinic-send-reminders": (("coalesce(r.sent, '') < ", "r.sent < "),),
    "shop-revenue-by-country": (("o.placed < '2024-04-01'", "o.placed <= '2024-03-31'"),),
    "shop-never-sold": (("AND o.status <> 'cancelled'", ""),),
    "shop-status-by-quarter": (("sum(status = 'open')", "count(status = 'open')"),),
    "shop-best-customers": (("dense_rank()", "rank()"),),
    "shop-monthly-net": (
        ("= o.id) AS refunds", "= o.id AND made LIKE substr(o.placed, 1, 7) || '%') AS refunds"),
    ),
    "shop-wrong-prices": (("valid_from <= date(o.placed)", "valid_from < date(o.placed)"),),
    "shop-stock-shortfall": (
        (
            "sum(change) AS change FROM stock_move GROUP BY product_id, day",
            "change FROM stock_move",
        ),
        ("ORDER BY day)", "ORDER BY day ROWS UNBOUNDED PRECEDING)"),
    ),
    "shop-bought-together": (("SELECT DISTINCT", "SELECT"),),
    "shop-second-order": (("second.day <= date", "second.day < date"),),
    "shop-category-rollup": (("SELECT t.root, c.id FROM", "SELECT c.id, c.id FROM"),),
    "shop-list-differences": (("upper(trim(sku))", "upper(sku)"),),
    "shop-refunded-orders": (("\n    shipping_cents + ", " "),),
    "shop-lifetime-column": ((" AND o.status IN ('paid', 'shipped')", ""),),
    "shop-stock-levels": (
        ("DELETE FROM stock_level WHERE product_id NOT IN", "SELECT 1 WHERE 0 IN"),
    ),
    "shop-newsletter-dedup": (
        ("CASE WHEN count(n.unsubscribed) = count(*) THEN", "CASE WHEN true THEN"),
    ),
    "shop-supplier-feed": (("ORDER BY line DESC", "ORDER BY line"),),
    "shop-price-rise": ((" + 999) / 1000", ") / 1000"),),
    "tram-common-stops": (("INTERSECT", "UNION"),),
    "tram-unserved-stops": (
        (
            "LEFT JOIN line_stop l ON l.stop_id = s.id\nWHERE l.stop_id IS NULL",
            "WHERE s.id NOT IN (SELECT stop_id FROM line_stop)",
        ),
    ),
    "tram-one-day-cards": (
        ("EXCEPT\nSELECT card FROM tap WHERE", "UNION\nSELECT card FROM tap WHERE NOT"),
    ),
    "tram-taps-by-zone": (
        ("FROM tap)", "FROM tap JOIN stop ON stop.id = stop_id WHERE zone > 0)"),
    ),
    "tram-punctuality": (("BETWEEN -1 AND 3", "<= 3"),),
    "tram-longest-wait": (("'2024-06-12'", "'2024-06-12' AND departs < '24'"),),
    "tram-inspection-overdue": (("AND i.passed = 1 ", ""),),
    "tram-fewest-changes": (("min(r.rides) - 1", "min(r.rides)"),),
    "tram-fares": (("t.at >= datetime(", "t.at > datetime("),),
    "tram-disrupted-minutes": (
        ("max(0, until - max(since, coalesce(covered, since)))", "until - since"),
    ),
    "tram-vehicle-breakdown": (("departs >= '14:00'", "departs BETWEEN '14:00' AND '23:59'"),),
    "tram-double-taps": (("PARTITION BY card, stop_id", "PARTITION BY card"),),
    "tram-insert-stop": (("SET seq = -seq, minutes = minutes + 2", "SET seq = -seq"),),
    "tram-daily-table": (("LEFT JOIN trip", "JOIN trip"),),
    "payroll-unassigned": (("coalesce(a.ends, '2024-06-30')", "a.ends"),),
    "payroll-client-hours": (
        ("sum(t.hours * (p.client IS NOT NULL)) / sum(t.hours)", "count(p.client) / count(*)"),
    ),
    "payroll-chain-of-command": (("= c.id\nORDER", "= c.id AND e.left_on IS NULL\nORDER"),),
    "payroll-headcount": (("SELECT t.root, d.id FROM tree", "SELECT d.id, d.id FROM tree"),),
    "payroll-above-manager": ((" AND valid_from <= '2024-06-30'", ""),),
    "payroll-raises": (("FROM salary\n", "FROM salary WHERE valid_from >= '2023-01-01'\n"),),
    "payroll-second-salary": (("dense_rank()", "rank()"),),
    "payroll-missing-entries": (("coalesce(e.left_on, d.day)", "e.left_on"),),
    "payroll-overbooked": (("coalesce(a.ends, s.day)", "a.ends"),),
    "payroll-absent-days": (("count(DISTINCT d.day)", "count(d.day)"),),
    "payroll-close-assignments": (("assignment.ends IS NULL OR ", ""),),
    "payroll-correct-salaries": ((" AND monthly_cents % 1000 <> 0", ""),),
    "payroll-yearly-raise": (("= e.id)\nWHERE", "= e.id AND valid_from <= '2024-07-01')\nWHERE"),),
    "payroll-new-managers": (("ORDER BY steps DESC LIMIT 1", "AND steps = 2"),),
    "payroll-reject-hours": (("coalesce(a.ends, t.day)", "a.ends"),),
    "weather-mean-rain": (("avg(r.rain_mm)", "sum(r.rain_mm) / count(*)"),),
    "weather-hottest-days": (("\nORDER BY", "\nGROUP BY s.id\nORDER BY"),),
    "weather-rain-by-month": (("LEFT JOIN", "JOIN"),),
    "weather-known-snow": (("AND snow_cm IS NOT NULL ", ""),),
    "weather-missing-days": (("BETWEEN s.opened AND coalesce(s.closed, d.day)", ">= s.opened"),),
    "weather-odd-ones-out": ((" AND o.station_id <> r.station_id", ""),),
    "weather-week-mean": (("date(r.day, '-6 days')", "date(r.day, '-7 days')"),),
    "weather-dry-spells": (("rain_mm = 0.0", "coalesce(rain_mm, 0.0) = 0.0"),),
    "weather-frozen-column": (("frozen = 1, gust_ms = NULL", "frozen = 1"),),
    "weather-void-maintenance": (("coalesce(m.ends, reading.day)", "m.ends"),),
    "weather-note-dedup": (("lower(trim(body))", "lower(body)"),),
    "weather-import": (("t_max = coalesce(excluded.t_max, t_max)", "t_max = excluded.t_max"),),
}


def mistaken(task: Task) -> list[str]:
    """Return gold with its mistake in it."""
    statements = list(task.gold)
    for right, wrong in MISTAKES[task.id]:
        assert sum(each.count(right) for each in statements) == 1, (task.id, right)
        statements = [each.replace(right, wrong) for each in statements]
    return [each for each in statements if each.strip()]


def run(task: Task, *, reverse: bool) -> tuple[list[Any], dict[str, Any]]:
    """Run gold on SQLite alone; return its last rows, and the database after it."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for script in database_of(task).scripts:
            connection.executescript(script.read_text(encoding="utf-8"))
        connection.execute(f"PRAGMA reverse_unordered_selects = {reverse:d}")
        rows: list[Any] = []
        for statement in task.gold:
            rows = connection.execute(statement).fetchall()
        listed = connection.execute(
            "SELECT name, type IN ('table', 'view') FROM sqlite_master ORDER BY name"
        ).fetchall()
        content = {
            name: Counter(connection.execute(f'SELECT * FROM "{name}"')) if holds else None
            for name, holds in listed
        }
        return rows, content
    finally:
        connection.close()


def test_suite_is_varied() -> None:
    assert len(SUITE.tasks) >= 48
    assert len({database_of(task) for task in SUITE.tasks}) >= 5
    assert sum(writes(task) for task in SUITE.tasks) >= 14
    assert {task.id for task in SUITE.tasks if "writes" in task.tags} == {
        task.id for task in SUITE.tasks if writes(task)
    }
    assert all(n >= 16 for n in Counter(task.hardness for task in SUITE.tasks).values())
    assert set(MISTAKES) == {task.id for task in SUITE.tasks}


@pytest.mark.parametrize("task", SUITE.tasks, ids=lambda task: task.id)
def test_gold_is_unambiguous(task: Task) -> None:
    """Gold answers something, and the same when SQLite visits rows the other way round."""
    rows, content = run(task, reverse=False)
    assert bool(rows) != writes(task)
    assert (rows, content) == run(task, reverse=True)


def test_oracle_solves_every_task(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--intercode-env=sql", "--intercode-agent=oracle")
    result.assert_outcomes(passed=len(SUITE.tasks))


def test_doing_nothing_earns_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(lazy="def act(observation):\n    return 'SELECT 1'\n")
    result = pytester.runpytest_subprocess(
        "--intercode-env=sql",
        "--intercode-agent=lazy:act",
        "--intercode-max-turns=1",
        "--intercode-results=r.jsonl",
        *thinned(pytester.path, ONE_IN),
    )
    result.assert_outcomes(failed=len(SUITE.tasks[::ONE_IN]))
    assert {row["reward"] for row in read_results(pytester.path / "r.jsonl")} == {0.0}


def test_usual_mistakes_fail(pytester: pytest.Pytester) -> None:
    plays = {task.id: mistaken(task) for task in SUITE.tasks}
    (pytester.path / "plays.json").write_text(json.dumps(plays))
    pytester.makepyfile(player=PLAYER)
    result = pytester.runpytest_subprocess(
        *("--intercode-env=sql", "--intercode-agent=player:Player"),
        *("--intercode-results=r.jsonl", *thinned(pytester.path, ONE_IN)),
    )
    number = len(SUITE.tasks[::ONE_IN])
    result.assert_outcomes(failed=number)
    rows = read_results(pytester.path / "r.jsonl")
    assert len(rows) == number
    # they fail by what they answer, not as they cannot be run
    assert [row["task_id"] for row in rows if not all(row["turn_history"]["valid_action"])] == []
    assert {row["outcome"] for row in rows} == {"failed"}
