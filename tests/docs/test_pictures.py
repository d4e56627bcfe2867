"""The pictures of docs/pictures: there, small, shown somewhere, and what a run prints today."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.pages import PAGES, ROOT, links
from tests.support.pictures import PICTURES, SHOTS, record_run
from tests.support.terminal_picture import Line, draw, text_of

MAX_SIZES = {".png": 150_000, ".svg": 60_000}  # bytes


def rows(svg: str) -> list[str]:
    space = "{http://www.w3.org/2000/svg}"
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{space}text")]


def test_each_is_small_and_drawn_by_the_script() -> None:
    names = {path.name for path in PICTURES.iterdir()}
    assert names == {"run.svg", *(f"page-{scheme}-{width}.png" for scheme, width in SHOTS)}
    for path in PICTURES.iterdir():
        assert path.stat().st_size < MAX_SIZES[path.suffix], path


def test_pages_show_them() -> None:
    shown = {Path(link.path).name for page in PAGES for link in links(page)}
    assert {"run.svg", "page-light-1400.png"} <= shown


def test_lines_are_wrapped_and_coloured() -> None:
    lines = [Line(0.1, "\x1b[1m\x1b[31mE  a<b\x1b[0m & more"), Line(9.0, "x" * 25)]
    svg = draw("pytest", lines, columns=20)
    assert rows(svg) == ["$ pytest", "E  a<b & more", "x" * 20, "x" * 5]
    assert '<tspan class="b" style="fill:#ff7b72">E  a&lt;b</tspan> &amp; more' in svg
    # A pause of nine seconds is one of a second and a half.
    assert svg.count('style="animation-delay:2.00s"') == 2


@pytest.mark.slow
def test_the_terminal_shows_what_is_printed(bubblewrap: None) -> None:
    """But for times; rules between parts are as wide as their terminal."""
    shown = "".join(rows((PICTURES / "run.svg").read_text("utf-8"))[1:])
    printed = "".join(text_of(line) for line in record_run())

    def mask(text: str) -> str:
        return re.sub(r"\s+|[\d.]+|[=_-]{2,}", "", text)

    assert mask(shown) == mask(printed), "run scripts/pictures"
    assert not re.search(re.escape(str(ROOT)) + "|/tmp", shown)
