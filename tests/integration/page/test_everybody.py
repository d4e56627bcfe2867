"""Whether everybody can use the pages: axe-core has nothing to say of them, wide and narrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.page import write
from pytest_intercode.page.history import write_history
from pytest_intercode.results.files import to_text
from pytest_intercode.results.format import from_row
from pytest_intercode.results.history import read_history
from pytest_intercode.results.history_series import make_leaderboard, make_series
from tests.support import page_rows
from tests.support.axe import DAILY_LOOKS, LOOKS, Axe, Theme, looking
from tests.support.browser import Browser

pytest.importorskip("jinja2", reason="the page needs the extra html")

DAILY = ("run", "history")
DIALOG = "document.getElementById('trajectory')"


@pytest.fixture
def browser(shared_browser: Browser) -> Iterator[Browser]:
    """The browser; no page has anything to complain of, and none asks for anything."""
    shared_browser.forget()
    yield shared_browser
    assert shared_browser.requests == []
    assert shared_browser.problems == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page of each kind: one run, its cells, two runs, and runs over time."""
    folder = tmp_path_factory.mktemp("pages")
    older, newer = (
        list(map(from_row, page_rows.placed(page_rows.run(60, seed=seed, repeats=2), 2)))
        for seed in (1, 2)
    )
    cells = [
        replace(record, agent=agent, task=replace(record.task, treatment=treatment))
        for agent in ("codex", "claude")
        for treatment in ("control", "skill")
        for record in map(from_row, page_rows.run(20, seed=len(agent + treatment)))
    ]
    write(older, folder / "run.html", "A run")
    write(older, folder / "two.html", "Two runs", other=newer, names=("old", "new"))
    write(cells, folder / "cells.html", "Several agents")
    for day, records in enumerate((older, newer, cells), 1):
        path = folder / f"run-{day}.jsonl"
        path.write_text(to_text(records), encoding="utf-8")
        os.utime(path, (day * 86400,) * 2)
    history = read_history([folder])
    write_history(
        folder / "history.html", make_series(history), make_leaderboard(history), ["A note."]
    )
    return folder


def of_every_look(*names: str) -> pytest.MarkDecorator:
    """Each page in each look; every day those of one run and of history, in two of the looks."""
    return pytest.mark.parametrize(
        ("name", "theme", "width"),
        [
            pytest.param(
                *(name, *look),
                marks=() if name in DAILY and look in DAILY_LOOKS else pytest.mark.slow,
            )
            for name in names
            for look in LOOKS
        ],
    )


@of_every_look("run", "history", "two", "cells")
def test_a_page(
    browser: Browser, axe: Axe, pages: Path, name: str, theme: Theme, width: int
) -> None:
    with looking(browser, theme, width):
        browser.open(pages / f"{name}.html")
        assert axe.violations(browser) == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


@of_every_look("run", "two", "cells")
def test_a_trajectory(
    browser: Browser, axe: Axe, pages: Path, name: str, theme: Theme, width: int
) -> None:
    with looking(browser, theme, width):
        browser.open(pages / f"{name}.html", "#q=bash")
        browser.evaluate("document.getElementById('scroller').focus()")
        browser.press("Enter")
        browser.wait(f"{DIALOG}.open")
        browser.evaluate(
            f"Promise.all({DIALOG}.getAnimations().map(a => a.finished)).then(() => 1)"
        )
        assert axe.violations(browser) == []


def test_the_rules_see_what_they_should(browser: Browser, axe: Axe, pages: Path) -> None:
    browser.open(pages / "run.html")
    browser.evaluate("document.querySelector('.verdict').style.color = '#ccc'")
    browser.evaluate(
        "document.getElementById('q').closest('label').replaceWith(document.getElementById('q'))"
    )
    browser.evaluate("document.getElementById('q').placeholder = ''")
    rules = {line.split()[0] for line in axe.violations(browser)}
    assert rules == {"color-contrast", "label"}
