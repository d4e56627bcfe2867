"""Diffs for people: right, and bounded whatever an agent leaves."""

from __future__ import annotations

import difflib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.task import RewardOptions
from pytest_intercode.rewards.bash_strict import BashState, differing_files
from pytest_intercode.rewards.text_diffs import text_diff
from pytest_intercode.sandboxes.protocol import Entry

NO_END = "\\ No newline at end of file"
LONG = b"".join(b"%d\n" % number for number in range(100))


@pytest.mark.parametrize(
    ("mine", "theirs", "lines"),
    [
        (b"a\nB\nc\n", b"a\nb\nc\n", ["@@ -1 +1 @@", " a", "-b", "+B", " c"]),
        (None, b"ok\n", ["@@ -1 +1 @@", "-ok"]),
        (b"x", None, ["@@ -1 +1 @@", "+x", NO_END]),
        (b"a", b"a\n", ["@@ -1 +1 @@", " a", NO_END]),
        (b"a\r\n", b"a\n", ["@@ -1 +1 @@", "-a", "+a\r"]),
        (b"", b"", []),
        (b"same\n", b"same\n", []),
        (b"\0a\n", b"a\n", []),
        (b"\xff\n", b"a\n", []),
        (b"", None, []),
        (b"x" * 1000, b"y\n", ["@@ -1 +1 @@", "-y", f"+{'x' * 300}...", NO_END]),
    ],
)
def test_lines_of_a_diff(mine: bytes | None, theirs: bytes | None, lines: list[str]) -> None:
    assert text_diff(mine, theirs) == lines


def test_places_count_from_the_beginning_of_the_file() -> None:
    found = text_diff(LONG.replace(b"\n50\n", b"\nfifty\n"), LONG)
    assert found == [
        *("@@ -48 +48 @@", " 47", " 48", " 49", "-50", "+fifty", " 51", " 52", " 53"),
    ]
    head, *_ = (each for each in difflib.unified_diff(["x"] * 3, ["x", "y", "x"]) if "@@" in each)
    assert head.startswith("@@ -1")


@given(st.text("ab\n", max_size=30), st.text("ab\n", max_size=30))
def test_a_diff_holds_both_sides(mine: str, theirs: str) -> None:
    found = text_diff(mine.encode(), theirs.encode())
    assert bool(found) == (mine != theirs)
    for mark, text in (("+", mine), ("-", theirs)):
        own = [line[1:] for line in found if line[0] == mark]
        lines = text.split("\n")
        for line in own:
            lines.remove(line)


def test_what_is_long_takes_no_time() -> None:
    began = time.process_time()
    assert text_diff(b"a\n" * 60_000, b"b\n" * 60_000) == []
    found = text_diff(b"a\n" * 400, b"b\na\n" * 200)
    assert len(found) == 201
    assert found[-1].endswith("more lines @@")
    assert time.process_time() - began < 2


def test_files_that_differ_are_those_with_other_contents() -> None:
    def file(content: str, mode: int = 0o644) -> Entry:
        return Entry("f", mode, 0, 0, content)

    mine = {
        "/w/other": file("1"),
        "/w/mode": file("1", 0o600),
        "/w/same": file("1"),
        "/w/mine": file("1"),
        "/w/gone": None,
        "/w/folder": Entry("d", 0o755, 0, 0),
        "/tmp/scratch": file("1"),
    }
    theirs = {**dict.fromkeys(mine), "/w/other": file("2"), "/w/mode": file("1")}
    theirs |= {"/w/same": file("1"), "/w/gone": file("3"), "/w/folder": file("4")}
    agent = BashState("", entries=mine, touched=frozenset(mine))
    gold = BashState("", entries=theirs, touched=frozenset(theirs) - {"/w/mine", "/tmp/scratch"})
    options = RewardOptions(scratch=("/tmp",))
    assert differing_files(agent, gold, options, "/w") == ["/w/gone", "/w/mine", "/w/other"]
