"""Links between the pages lead somewhere: to a file that is there, and a heading that it has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.pages import DOCS, PAGES, ROOT, anchors, links, navigation, title


def test_there_is_something_to_test() -> None:
    assert sum(len(links(page)) for page in PAGES) > 300
    assert sum(bool(link.anchor) for page in PAGES for link in links(page)) > 50
    assert "a-pass-rate" in anchors(DOCS / "results.md")


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in PAGES])
def test_the_links_of_a_page(page: str) -> None:
    for path, anchor in links(ROOT / page):
        target = Path(os.path.normpath((ROOT / page).parent / path)) if path else ROOT / page
        assert target.is_relative_to(ROOT), f"{path} leads out of the repository"
        assert target.exists(), f"there is no {path}"
        if target.is_relative_to(DOCS):
            assert target.is_file(), f"{path} is a folder, which the site has no page of"
        if anchor:
            assert anchor in anchors(target), f"{path or page} has no heading #{anchor}"


def test_each_page_is_in_the_navigation_once() -> None:
    listed = [page for _, pages in navigation() for page in pages]
    assert sorted(listed) == sorted(
        page.relative_to(DOCS).as_posix() for page in PAGES if page.is_relative_to(DOCS)
    ), "add a page to the part of nav in mkdocs.yml that a reader looks for it in"


def test_the_navigation_has_four_parts() -> None:
    assert [name for name, _ in navigation()] == [
        *("", "Tutorial", "How-to", "Reference", "Explanation")
    ]


def test_titles_tell_pages_apart() -> None:
    titles = [title(page) for page in PAGES if page.is_relative_to(DOCS)]
    assert len({*titles}) == len(titles)
