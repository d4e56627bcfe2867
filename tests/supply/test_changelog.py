"""CHANGELOG.md is what users read, and the next section of it is made of fragments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.supply.changelog import ReleaseError, add_release, read_fragments, section_of
from tests.supply.locks import ROOT, project

TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MAX_WORDS = 1200  # of one version
EMPTY = "# Changelog\n\n<!-- releases: here -->\n"


def fragments(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name.replace('_', '.').lstrip('.')}.md").write_text(text)


def test_the_changelog_has_the_version_and_can_be_read() -> None:
    section = section_of(TEXT, project()["version"])
    assert 100 < len(section.split()) <= MAX_WORDS
    for page in re.findall(r"docs/[\w-]+\.md", TEXT):
        assert (ROOT / page).is_file(), page


def test_our_fragments_can_be_released() -> None:
    for fragment in read_fragments(ROOT / "changes"):
        assert len(fragment.text.split()) <= 100, f"{fragment.path.name} is a page, not a line"


def test_fragments_become_a_section(tmp_path: Path) -> None:
    fragments(tmp_path, _41_fixed="Ends.\nAt once.\n", _7_added="New.", _7_added_1="Newer.")
    assert add_release(EMPTY, read_fragments(tmp_path), "1.1.0", "2027-01-02") == (
        f"{EMPTY}\n## 1.1.0 - 2027-01-02\n\n### Added\n\n- Newer. (#7)\n- New. (#7)\n\n"
        "### Fixed\n\n- Ends.\n  At once. (#41)\n"
    )


def test_sections_are_newest_first_and_older_ones_stay(tmp_path: Path) -> None:
    fragments(tmp_path, _1_added="First.")
    first = add_release(EMPTY, read_fragments(tmp_path), "1.0.0", "2027-01-01")
    (tmp_path / "1.added.md").write_text("Second.")
    second = add_release(first, read_fragments(tmp_path), "1.1.0", "2027-02-01")
    assert re.findall(r"^## .*", second, re.MULTILINE) == [
        "## 1.1.0 - 2027-02-01",
        "## 1.0.0 - 2027-01-01",
    ]
    assert section_of(second, "1.0.0") == section_of(first, "1.0.0")
    assert section_of(second, "1.1.0") == "### Added\n\n- Second. (#1)\n"


@pytest.mark.parametrize("older", ["", "\n## 0.9.0 - 2026-01-01\n\nOld.\n"])
def test_what_was_written_by_hand_gets_its_date(tmp_path: Path, older: str) -> None:
    text = f"{EMPTY}\n## 1.0.0 - unreleased\n\nBy hand.\n{older}"
    assert add_release(text, [], "1.0.0", "2027-01-01") == text.replace("unreleased", "2027-01-01")
    fragments(tmp_path, _3_fixed="It ends.")
    section = section_of(
        add_release(text, read_fragments(tmp_path), "1.0.0", "2027-01-01"), "1.0.0"
    )
    assert section == "By hand.\n\n### Fixed\n\n- It ends. (#3)\n"


@pytest.mark.parametrize(
    ("text", "version", "message"),
    [
        (EMPTY, "1.0.0", "changes/ has no fragment"),
        (f"{EMPTY}\n## 1.0.0 - 2027-01-01\n", "1.0.0", "has a section 1.0.0 already"),
        (f"{EMPTY}\n## 1.0.0 - unreleased\n", "1.1.0", "an unreleased section 1.0.0"),
    ],
)
def test_nothing_to_release(text: str, version: str, message: str) -> None:
    with pytest.raises(ReleaseError, match=re.escape(message)):
        add_release(text, [], version, "2027-01-01")


@pytest.mark.parametrize(
    ("name", "text"), [("41.news.md", "x"), ("fixed.md", "x"), ("41.fixed.md", " \n")]
)
def test_a_fragment_that_is_none(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ReleaseError, match=f"^changes/{re.escape(name)} is "):
        read_fragments(tmp_path)
