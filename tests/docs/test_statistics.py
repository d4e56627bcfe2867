"""docs/statistics.md: its tables are what the code computes."""

from __future__ import annotations

from pathlib import Path

from tests.support.statistics_tables import with_tables


def test_the_tables_of_pass_rates() -> None:
    text = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text("utf-8")
    assert with_tables(text) == text, "run python -m tests.support.statistics_tables"
