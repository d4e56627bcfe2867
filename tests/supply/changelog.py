"""The changelog, and the fragments in ``changes/`` that its next section is made of.

A fragment is ``changes/NUMBER.TYPE.md``, or ``NUMBER.TYPE.1.md`` for a second one, as towncrier
names them. Of towncrier itself we would use a page of code, and a section that is written by hand,
as that of 1.0.0, has no place in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["TYPES", "Fragment", "ReleaseError", "add_release", "read_fragments", "section_of"]

TYPES = ("added", "changed", "deprecated", "removed", "fixed", "security")
"""The types of fragments, as Keep a Changelog has them, in the order of a section."""

_NAME = re.compile(rf"(?P<number>\d+)\.(?P<type>{'|'.join(TYPES)})(?:\.\d+)?\.md")
_MARK = re.compile(r"^<!-- releases: .*-->\n", re.MULTILINE)
_UNRELEASED = re.compile(r"^## (\S+) - unreleased$", re.MULTILINE)


class ReleaseError(Exception):
    """A release cannot be made: one line that says why, and what to do."""


@dataclass(frozen=True)
class Fragment:
    """One change.

    Attributes:
        number: of the issue or pull request.
        type: one of :data:`TYPES`.
        text: Markdown, without line ends around it.
        path: the file.
    """

    number: int
    type: str
    text: str
    path: Path


def read_fragments(folder: Path) -> list[Fragment]:
    """Return the fragments of a folder by their type and number.

    Raises:
        ReleaseError: a file has another name, or no text.
    """
    fragments = []
    for path in sorted(folder.iterdir() if folder.is_dir() else ()):
        if path.name == "README.md":
            continue
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ReleaseError(
                f"changes/{path.name} is not called NUMBER.TYPE.md, with a TYPE of"
                f" {', '.join(TYPES)}"
            )
        text = path.read_text(encoding="utf-8").strip()
        if not text:
            raise ReleaseError(f"changes/{path.name} is empty: say what users have, or remove it")
        fragments.append(Fragment(int(match["number"]), match["type"], text, path))
    return sorted(fragments, key=lambda one: (TYPES.index(one.type), one.number, one.path.name))


def add_release(changelog: str, fragments: Iterable[Fragment], version: str, date: str) -> str:
    """Return the changelog with the section of a version.

    A section ``VERSION - unreleased`` gets the date, and the fragments at its end; without one, the
    fragments are the section.

    Args:
        changelog: the text of CHANGELOG.md.
        fragments: what is new.
        version: the version.
        date: its day, ``YYYY-MM-DD``.

    Raises:
        ReleaseError: there is nothing to say, the version is there already, or another one waits.
    """
    written = _render(fragments)
    heading = f"## {version} - {date}"
    waiting = _UNRELEASED.search(changelog)
    if waiting and waiting[1] != version:
        raise ReleaseError(
            f"CHANGELOG.md has an unreleased section {waiting[1]}: release that first"
        )
    if waiting:
        start, end = _bounds(changelog, waiting.start())
        body = changelog[waiting.end() : end].rstrip("\n")
        section = f"{heading}{body}\n" + (f"\n{written}" if written else "")
        return _join(changelog[:start], section, changelog[end:])
    if re.search(rf"^## {re.escape(version)} ", changelog, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has a section {version} already: name a newer version")
    if not written:
        raise ReleaseError("changes/ has no fragment: there is nothing that users would notice")
    mark = _MARK.search(changelog)
    if mark is None:
        raise ReleaseError("CHANGELOG.md has no line '<!-- releases: ... -->' to write below")
    return _join(changelog[: mark.end()] + "\n", f"{heading}\n\n{written}", changelog[mark.end() :])


def section_of(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, without its heading.

    Raises:
        ReleaseError: nothing.
    """
    match = re.search(rf"^## {re.escape(version)} - .*\n", changelog, re.MULTILINE)
    if match is None:
        raise ReleaseError(f"CHANGELOG.md has no section {version}")
    _, end = _bounds(changelog, match.start())
    return changelog[match.end() : end].strip() + "\n"


def _bounds(changelog: str, start: int) -> tuple[int, int]:
    """Return where the section that begins at a place begins and ends."""
    end = changelog.find("\n## ", start + 1)
    return start, len(changelog) if end < 0 else end + 1


def _join(before: str, section: str, after: str) -> str:
    remaining = after.lstrip("\n")
    return before + section + (f"\n{remaining}" if remaining else "")


def _render(fragments: Iterable[Fragment]) -> str:
    """Return fragments as lists below the headings of their types."""
    by_type: dict[str, list[str]] = {}
    for fragment in fragments:
        text = f"{fragment.text} (#{fragment.number})".replace("\n", "\n  ")
        by_type.setdefault(fragment.type, []).append(f"- {text}\n")
    lists = (f"### {name.capitalize()}\n\n{''.join(lines)}" for name, lines in by_type.items())
    return "\n".join(lists)
