"""The site is built without a warning, shows what pages say, and needs nothing from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.support.browser import Browser, chromium
from tests.support.pages import DOCS, ROOT, navigation

pytestmark = pytest.mark.slow
ELEMENTS = {"h1", "h2", "h3", "img", "li", "p", "pre", "table", "td"}


class _Reader(HTMLParser):
    """Counts the elements of a page's text, and notes what a browser would load for it."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.loaded: set[str] = set()
        self._in_text = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._in_text |= tag == "article"
        if self._in_text and tag in ELEMENTS:
            self.elements[tag] += 1
        name = "href" if tag == "link" else "src"
        if (address := attributes.get(name)) and tag != "a":
            self.loaded.add(address)

    def handle_endtag(self, tag: str) -> None:
        self._in_text &= tag != "article"


def read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    return reader


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra site is not installed: scripts/site does it")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_a_page_shows_what_its_markdown_says(site: Path) -> None:
    """The site's Markdown has rules of its own, of lists above all: as many elements come out."""
    markdown = MarkdownIt("commonmark").enable("table")
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS)
        if name != Path("reference/api.md"):  # which is made of docstrings
            expected = read(f"<article>{markdown.render(page.read_text('utf-8'))}</article>")
            shown = read((site / name).with_suffix(".html").read_text("utf-8"))
            assert shown.elements == expected.elements, name
        assert (site / name).read_text("utf-8") == page.read_text("utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = read(path.read_text("utf-8")).loaded
        assert loaded
        assert not [address for address in loaded if re.match(r"(\w+:)?//", address)], path


def test_pages_are_found_by_their_words(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    places = {entry["location"].partition("#")[0] for entry in entries}
    listed = {name.removesuffix("md") + "html" for _, names in navigation() for name in names}
    assert listed <= places
    assert any("intercode_project" in entry["text"] for entry in entries)


def test_search_needs_no_server(site: Path) -> None:
    """Pages are opened as files; a hidden frame takes the place of a worker."""
    if chromium() is None:
        pytest.skip("Chromium is not installed: scripts/browser-up does it")
    with Browser() as browser:
        browser.send("Page.navigate", url=(site / "agents.html").as_uri())
        browser.wait("document.readyState === 'complete'")
        browser.evaluate(
            "(() => { const field = document.querySelector('.md-search__input');"
            "field.focus(); field.value = 'treatments';"
            "field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); })()"
        )
        browser.wait("document.querySelector('.md-search-result__item h1')")
        title = "[...document.querySelectorAll('.md-search-result__item h1')].map(h => h.innerText)"
        assert "Test what you ship to agents" in browser.evaluate(title)
        loaded = [url for url in browser.requests if not url.startswith(("file:", "data:"))]
        assert not loaded


def test_a_file_that_a_page_links_to_is_shown(site: Path) -> None:
    page = (site / "tasks.html").read_text("utf-8")
    assert 'href="files/examples-perl.html"' in page
    shown = (site / "files" / "examples-perl.html").read_text("utf-8")
    assert "repl.pl" in shown
    assert "perl.Dockerfile" in shown
