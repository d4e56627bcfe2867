"""The page of runs over time: its charts, its words, and what others wrote."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.usage import Usage
from pytest_intercode.page.history import over_time, write_history
from pytest_intercode.results.files import to_text
from pytest_intercode.results.history import read_history
from pytest_intercode.results.history_series import Series, make_leaderboard, make_series
from tests.support.cell_records import tries_of

pytest.importorskip("jinja2", reason="the page needs the extra html")

TASKS = [f"t{number}" for number in range(20)]


def results(path: Path, records: Iterable[EpisodeRecord], day: int) -> None:
    path.write_text(to_text(list(records)), encoding="utf-8")
    os.utime(path, (day * 86400,) * 2)


@pytest.fixture
def all_series(tmp_path: Path) -> list[Series]:
    """Two agents in two runs, of which one is in the first alone and reports what it costs."""
    claude = [
        replace(record, usage=Usage(1, 5, 5, 0.25)) for record in tries_of(TASKS, agent="claude")
    ]
    results(tmp_path / "a.jsonl", [*tries_of(TASKS), *claude], 1)
    results(tmp_path / "b.jsonl", tries_of(TASKS[:5], TASKS[5:]), 2)
    return make_series(read_history([tmp_path]))


def test_charts_have_each_run_at_its_place(all_series: list[Series]) -> None:
    rate, turns, cost = over_time(all_series)
    assert (rate.title, turns.title, cost.title) == ("Solved", "Turns of a try", "Cost of a try")
    first, second, other = rate.points
    assert (first.run, second.run, other.run) == (0, 0, 1)
    assert first.y == rate.top
    assert second.y == pytest.approx(rate.bottom - 0.25 * (rate.bottom - rate.top))
    assert rate.left < first.x < other.x < second.x < rate.right
    assert all(
        rate.top <= point.high <= point.y <= point.low <= rate.bottom for point in rate.points
    )
    assert [tick.text for tick in rate.x_ticks] == ["01-02", "01-03"]
    assert [tick.text for tick in rate.y_ticks] == ["0%", "25%", "50%", "75%", "100%"]
    assert rate.says == "Solved: codex 100.0% to 25.0%, claude 100.0%."
    assert [line.run for line in rate.lines] == [0]  # a single run has no line
    assert rate.rows[1][2:] == ["25.0% (11.2% to 46.9%)", "-"]
    assert [point.run for point in cost.points] == [1]
    assert cost.y_ticks[-1].text == "0.4"


def test_what_nobody_reports_has_no_chart(tmp_path: Path) -> None:
    results(tmp_path / "a.jsonl", tries_of(TASKS), 1)
    charts = over_time(make_series(read_history([tmp_path])))
    assert [chart.title for chart in charts] == ["Solved", "Turns of a try"]


def test_the_page_names_what_it_shows(all_series: list[Series], tmp_path: Path) -> None:
    history = read_history([tmp_path])
    write_history(tmp_path / "page.html", all_series, make_leaderboard(history), ["A note."])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.search(r'class="verdict regressed"><strong>codex: regressed</strong> -75', page)
    assert "2 agents, over the 20 tasks that all have in common" in page
    assert "<li>A note.</li>" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(set(ids)) == len(ids)
    references = {
        name for names in re.findall(r'labelledby="([^"]+)"', page) for name in names.split()
    }
    assert references <= set(ids)
    assert page.count("<figure>") == 3


def test_it_loads_nothing_and_runs_nothing(all_series: list[Series], tmp_path: Path) -> None:
    write_history(tmp_path / "page.html", all_series, None)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    rules = [rule.split()[0] for rule in policy[1].split("; ")]
    assert rules == ["default-src", "style-src", "base-uri", "form-action"]
    assert not re.search(r"\b(?:src|href)=|@import|url\(", page)


def test_what_others_wrote_is_text(tmp_path: Path) -> None:
    hostile = '<img src=x onerror=alert(1)>"\x1b[31m\u202e'
    records = [
        replace(record, agent=hostile, run_name=hostile, profile=hostile)
        for record in tries_of(TASKS)
    ]
    results(tmp_path / "a.jsonl", records, 1)
    history = read_history([tmp_path])
    history = [entry.model_copy(update={"commit": hostile}) for entry in history]
    write_history(
        tmp_path / "page.html", make_series(history), make_leaderboard(history), [hostile]
    )
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert not set("\x1b\u202e") & set(page)
    assert "&lt;img src=x onerror=alert(1)&gt;&#34;\\x1b[31m\\u202e" in page


def test_more_agents_than_colours(tmp_path: Path) -> None:
    records = [record for number in range(8) for record in tries_of(TASKS, agent=f"agent-{number}")]
    results(tmp_path / "a.jsonl", records, 1)
    write_history(tmp_path / "page.html", make_series(read_history([tmp_path])), None)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The charts show the first 6 of 8; the tables show all." in page
    assert "point run-5" in page
    assert "run-6" not in page
    assert '<div class="scrolled" role="group" aria-label="agent-7"' in page


def test_the_option(
    all_series: list[Series], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "page.html"
    assert main(["history", str(tmp_path), "--json", f"--page={page}"]) == 0
    printed = capsys.readouterr()
    assert printed.err == f"pytest-intercode: written: {page}\n"
    assert page.is_file()
    # The results of a run are not lost by a wrong name.
    assert main(["history", str(tmp_path), f"--page={tmp_path / 'a.jsonl'}"]) == 1
    assert "this file holds the results of a run" in capsys.readouterr().err
