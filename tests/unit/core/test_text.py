"""What a hostile sandbox prints does not drive the human's terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.text import fragments, harmless


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
    ],
)
def test_what_does_not_show_as_itself_is_escaped(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text(st.characters(codec=None)))
def test_nothing_but_printable_characters_is_left(text: str) -> None:
    shown = harmless(text)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert "".join(piece for _, piece in fragments(text)) == shown


def test_an_escape_looks_unlike_the_same_words_of_the_text() -> None:
    assert fragments("\x1b\\x1b", "bold") == [("reverse", "\\x1b"), ("bold", "\\x1b")]
