"""The pages of the documentation, read as a site and a repository read them: headings and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = [
    *("DOCS", "PAGES", "ROOT", "Link", "anchors", "first_sentence", "links", "navigation", "title"),
]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
_MARKDOWN = MarkdownIt("commonmark").enable("table")


class Link(NamedTuple):
    """A link or a picture of a page: a path relative to the page, and a place in the target."""

    path: str
    anchor: str


def links(page: Path) -> list[Link]:
    """Return the links of a page, but for those that lead to other hosts."""
    targets = [
        str(token.attrGet("href") or token.attrGet("src"))
        for token in _inline(_tokens(page))
        if token.type in ("link_open", "image")
    ]
    split = [target.partition("#") for target in targets if not re.match(r"\w+:", target)]
    return [Link(path, anchor) for path, _, anchor in split]


def anchors(page: Path) -> set[str]:
    """Return the names that links call the headings of a page by.

    Only those are names that are the same in a repository and on the site: there, blanks and
    hyphens next to each other are one hyphen.
    """
    return {name for name in map(_slug, _headings(page)) if "--" not in name}


def title(page: Path) -> str:
    """Return the first heading of a page, as text."""
    return _headings(page)[0]


def first_sentence(page: Path) -> str:
    """Return the first sentence of a page's text, without links and marks."""
    for token, inline in _pairs(_tokens(page)):
        if token.type == "paragraph_open":
            text = " ".join(_text(inline).split())
            return re.split(r"(?<=[.?!])\s|:$", text)[0].rstrip(":")
    return ""


def navigation() -> list[tuple[str, list[str]]]:
    """Return the parts of the site's menu, each with its pages in order; the first has no name."""
    entries = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    parts: list[tuple[str, list[str]]] = [("", [])]
    for entry in entries:
        [(name, content)] = entry.items()
        if isinstance(content, str):
            parts[0][1].append(content)
        else:
            parts.append((name, list(_leaves(content))))
    return parts


def _leaves(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    else:
        for entry in content.values() if isinstance(content, dict) else content:
            yield from _leaves(entry)


def _tokens(page: Path) -> list[Token]:
    return _MARKDOWN.parse(page.read_text("utf-8"))


def _inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from token.children or ()


def _pairs(tokens: list[Token]) -> Iterator[tuple[Token, Token]]:
    return pairwise(tokens)


def _headings(page: Path) -> list[str]:
    return [_text(text) for token, text in _pairs(_tokens(page)) if token.type == "heading_open"]


def _text(inline: Token) -> str:
    return "".join(
        "\n" if token.type == "softbreak" else token.content
        for token in inline.children or ()
        if token.type in ("text", "code_inline", "softbreak")
    )


def _slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
