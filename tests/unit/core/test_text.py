"""What a hostile sandbox prints does not drive the human's terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.text import (
    clipped,
    escape_for_terminal,
    format_columns,
    fragments,
    indented,
    markdown_text,
    one_line,
)
from tests.support.ci_log import HOSTILE, commands


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text\n\twith a tab", "plain text\n\twith a tab"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("over\rwritten\b\x7f", r"over\rwritten\x08\x7f"),
        ("\x9b31m", r"\x9b31m"),  # CSI in one character
        ("a\u202eb", r"a\u202eb"),  # turns the direction
        ("a\u2028b\u00a0c\ufeff", r"a\u2028b\xa0c\ufeff"),
        ("\udcff\x00", r"\udcff\x00"),
        ("naïve 日本 🎉", "naïve 日本 🎉"),
        ("::error::x", r":\x3aerror::x"),
        ("a\n \t::add-mask::e", "a\n \t:\\x3aadd-mask::e"),
        ("a::b and std::vector", "a::b and std::vector"),
        ("in a ##[error]line", r"in a ##\x5berror]line"),
        ("###[group]", r"###\x5bgroup]"),
        ("##vso[task.debug]x", r"##vs\x6f[task.debug]x"),
        ("##teamcity[x]", r"##teamcity\x5bx]"),
        ("## A title [link]", "## A title [link]"),
    ],
)
def test_what_does_not_show_as_itself_is_escaped(text: str, shown: str) -> None:
    assert escape_for_terminal(text) == shown


_PIECES = st.lists(st.sampled_from([*"#[:vso \t\n\r", "error", "teamcity", "::", "##"]))


@given(_PIECES.map("".join), _PIECES.map("".join))
def test_text_is_escaped_piece_by_piece_as_at_once(begun: str, more: str) -> None:
    whole = escape_for_terminal(begun + more)
    assert whole.startswith(escape_for_terminal(begun))
    assert commands(whole) == []
    assert escape_for_terminal(whole) == whole


def test_what_is_made_of_hostile_text_commands_nothing() -> None:
    table = format_columns([[HOSTILE, "1"], [HOSTILE, "2"]], labels=1)
    for made in (escape_for_terminal(HOSTILE), indented(HOSTILE), *table):
        assert commands(made) == []
    assert len(table) == 2
    assert "\n" not in one_line(HOSTILE)
    assert all(line.startswith("    ") for line in indented(HOSTILE).split("\n"))
    shown = markdown_text("<img src=x>|**b**\n[a](b) `c` &lt; $x$")
    assert shown == r"\<img src=x\>\|\*\*b\*\*\\n\[a\](b) \`c\` \&lt; \$x\$"


@pytest.mark.parametrize("line", ["x" * 300_000, "\x00" * 10_000_000])
def test_a_long_line_is_clipped_in_the_middle(line: str) -> None:
    shown = escape_for_terminal(clipped(line, 100_000))
    assert len(shown) < 500_000
    assert f"[... {len(line) - 100_000} characters ...]" in shown
    assert clipped("short") == "short"


@given(st.text(st.characters(codec=None)))
def test_nothing_but_printable_characters_is_left(text: str) -> None:
    shown = escape_for_terminal(text)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert "".join(piece for _, piece in fragments(text)) == shown


def test_an_escape_looks_unlike_the_same_words_of_the_text() -> None:
    assert fragments("\x1b\\x1b", "bold") == [("reverse", "\\x1b"), ("bold", "\\x1b")]
