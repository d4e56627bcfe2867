"""Writes docs/statistics.md's tables of pass rates and drops: ``python -m
tests.support.statistics_tables``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_intercode.core.rates import PassRule
from pytest_intercode.statistics.rates import wilson
from tests.support.power import (
    chance_to_pass,
    fisher_power,
    mcnemar_power,
    tries_until_decided,
)

__all__ = ["with_tables"]

_PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
_RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_RULES = [PassRule(tries, rate) for tries, rate in ((1, 1.0), (5, 1.0), (5, 0.8), (10, 0.8))]
_RULES += [PassRule(20, 0.8), PassRule(50, 0.8)]
_DROPS = ((0.95, 0.85), (0.9, 0.8), (0.8, 0.7))
_TRIES = (5, 10, 20, 50, 100, 200, 300)
_TASKS = (50, 100, 200, 300)


def with_tables(text: str) -> str:
    """Return a text with what the code computes in place of its own tables."""
    for table in (_passing(), _running(), _intervals(), _one_test(), _many_tasks()):
        head = "\n".join(table[:2]) + "\n"
        assert text.count(head) == 1, head
        start = text.index(head)
        end = start + len(head)
        while text.startswith("|", end):
            end = text.index("\n", end) + 1
        text = text[:start] + "\n".join(table) + "\n" + text[end:]
    return text


def _table(label: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {label} | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def _name(rule: PassRule) -> str:
    misses = {0: "no miss", 1: "1 miss"}.get(rule.allowed_misses, f"{rule.allowed_misses} misses")
    return f"{rule.tries} {'tries' if rule.tries > 1 else 'try'}, {misses}"


def _passing() -> list[str]:
    rows = [
        [
            _name(rule),
            *(f"{chance_to_pass(rate, rule.tries, rule.allowed_misses):.1%}" for rate in _RATES),
        ]
        for rule in _RULES
    ]
    return _table("passes, of an agent that solves", [f"{rate:.0%}" for rate in _RATES], rows)


def _running() -> list[str]:
    rows = []
    for rule in _RULES[1:]:
        means = (tries_until_decided(rate, rule.tries, rule.allowed_misses) for rate in _RATES)
        rows.append([_name(rule), *(f"{mean:.1f}" for mean in means)])
    return _table("tries that run, of an agent that solves", [f"{p:.0%}" for p in _RATES], rows)


def _intervals() -> list[str]:
    rows = []
    for tries in (5, 10, 20, 50):
        solved = tries * 4 // 5
        low, high = wilson(solved, tries)
        rows.append([f"{solved} of {tries}", f"{low:.0%} to {high:.0%}"])
    return _table("solved", ["the agent solves (95 %)"], rows)


def _one_test() -> list[str]:
    rows = [
        [str(tries), *(f"{fisher_power(*drop, tries):.1%}" for drop in _DROPS)] for tries in _TRIES
    ]
    columns = [f"{before:.0%} to {after:.0%}" for before, after in _DROPS]
    return _table("found on one test, tries in each run", columns, rows)


def _many_tasks() -> list[str]:
    rows = []
    for tasks in _TASKS:
        chances = [
            mcnemar_power(before * (1 - after), after * (1 - before), tasks)
            for before, after in _DROPS
        ]
        rows.append([str(tasks), *(f"{chance:.1%}" for chance in chances)])
    columns = [f"{before:.0%} to {after:.0%}" for before, after in _DROPS]
    return _table("found over tasks, one try at each", columns, rows)


if __name__ == "__main__":
    _PAGE.write_text(with_tables(_PAGE.read_text("utf-8")), "utf-8")
