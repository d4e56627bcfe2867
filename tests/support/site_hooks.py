"""What the site does with pages that are written for a repository: mkdocs.yml names this module.

- A file outside of docs/ that a page links to gets a page of its own, which shows it: the site
  needs no repository.
- The file name behind the language of a block is its title.
- Each page is on the site as Markdown, too, as llms.txt says.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[2]
_FOLDER = "files"  # of the site, with a page for each file outside of docs/
_LINK = re.compile(r"(?<=\]\()([\w./-]+)((?:#[\w-]+)?)(?=\))")
_FENCE = re.compile(r"^( *`{3,}\w+) ([\w./-]+)$", re.MULTILINE)
_ROLE = re.compile(r":\w+:<code>~?(?:[\w.]+\.)?(\w+)</code>")
_LANGUAGES = {
    **{
        ".Dockerfile": "docker",
        ".in": "text",
        ".c": "c",
        ".md": "markdown",
        ".pl": "perl",
        ".py": "python",
    },
    **{".json": "json", ".sh": "sh", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"},
}


_MAX_FILE = 65536  # bytes of a file that is shown; larger ones are data


def outside(text: str, page: str) -> set[str]:
    """Return the files and folders outside of docs/ that a page links to.

    Args:
        text: the page's Markdown.
        page: its path in the repository; those that are returned are, too.
    """
    targets = {normpath(join(dirname(page), link)) for link, _ in _LINK.findall(text)}
    return {path for path in targets if not path.startswith("docs/") and (ROOT / path).exists()}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file outside of docs/ that is linked to, by a page or by such a page."""
    waiting: set[str] = set()
    for file in files.documentation_pages():
        waiting |= outside(file.content_string, f"docs/{file.src_uri}")
    shown: set[str] = set()
    while waiting:
        path = waiting.pop()
        shown.add(path)
        content = _content(path)
        if path.endswith(".md"):
            waiting |= outside(content, path) - shown
        files.append(
            File.generated(
                config, _page_of(path), content=content, inclusion=InclusionLevel.NOT_IN_NAV
            )
        )
    _paths.update({_page_of(path): path for path in shown})
    return files


_paths: dict[str, str] = {}  # of files outside of docs/, by their pages


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the pages that show their targets, and title blocks."""
    uri = page.file.src_uri
    path = _paths.get(uri, f"docs/{uri}")

    def lead(match: re.Match[str]) -> str:
        target = normpath(join(dirname(path), match[1]))
        place = target.removeprefix("docs/") if target.startswith("docs/") else _page_of(target)
        return relpath(place, dirname(uri) or ".") + match[2]

    if uri not in _paths or path.endswith(".md"):
        markdown = _LINK.sub(lead, markdown)
    return _FENCE.sub(r'\1 title="\2"', markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show names in docstrings without the roles by which Sphinx would link them."""
    return _ROLE.sub(r"<code>\1</code>", html)


def on_post_build(config: Any) -> None:
    """Copy the pages as they are written next to those that are made of them."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    for path in docs.rglob("*.md"):
        shutil.copyfile(path, site / path.relative_to(docs))


def _page_of(path: str) -> str:
    return f"{_FOLDER}/{path.replace('/', '-')}.md"


def _content(path: str) -> str:
    """Return a page that shows a file, or the files of a folder; a page of Markdown is its own."""
    place = ROOT / path
    if path.endswith(".md"):
        return place.read_text("utf-8")
    files = [place] if place.is_file() else sorted(_tracked(place))
    blocks = []
    for file in files:
        if file.stat().st_size > _MAX_FILE:
            continue
        text = file.read_text("utf-8").rstrip()
        name = file.relative_to(place if place.is_dir() else place.parent)
        blocks.append(f"````{_LANGUAGES.get(file.suffix, 'text')} {name}\n{text}\n````\n")
    return f"# {path}\n\n" + "\n".join(blocks)


def _tracked(folder: Path) -> list[Path]:
    """Return the text files of a folder, without what programs leave in it."""
    paths = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        paths += [Path(parent, name) for name in names if Path(name).suffix in _LANGUAGES]
    return paths
