"""The words of shell text without their quotes, as Bash removes them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["ShellSource", "Word", "marks_translation", "unescape"]

_GLOB = re.compile(r"[*?\[]|^~|\{[^{}]*(?:,|\.\.)[^{}]*\}")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\([$`"\\\n])')
_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_ANSI = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r"}
_ANSI |= {"t": "\t", "v": "\v"}


class Word(str):
    """A word of a command as its program gets it, without quotes.

    Attributes:
        expands: whether the shell expands it (``$X``, ``*.py``, ``{a,b}``); the expansion is kept
            as it is in the text.
    """

    __slots__ = ("expands",)
    expands: bool

    def __new__(cls, text: str, expands: bool = False) -> Word:
        """Make a word."""
        word = super().__new__(cls, text)
        word.expands = expands
        return word


@dataclass(frozen=True)
class ShellSource:
    """The bytes of a text, from which the nodes of its tree get their words.

    Attributes:
        data: the text in UTF-8.
    """

    data: bytes

    def text(self, node: Node) -> str:
        """Return the text of a node."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def word(self, node: Node) -> Word:
        """Return a word without its quotes, as Bash removes them."""
        kind, source = node.type, self.text(node)
        if kind in ("word", "number", "test_operator") and not node.named_children:
            bare = _ESCAPE.sub("", source)
            return Word(_ESCAPE.sub(unescape, source), _GLOB.search(bare) is not None)
        if kind == "raw_string":
            return Word(source[1:-1])
        if kind == "ansi_c_string":
            text = _ANSI_ESCAPE.sub(_unescape_ansi, source[2:-1])
            return Word(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        if kind == "string":
            return self._double_quoted(node)
        if kind in ("translated_string", "concatenation"):
            return self._join(node)
        return Word(source, node.is_named)

    def _join(self, node: Node) -> Word:
        parts = [self.word(child) for child in node.children if not marks_translation(child)]
        # {a,b} and a* consist of several nodes.
        bare = "".join(self.text(child) for child in node.children if child.type == "word")
        expands = any(part.expands for part in parts) or _GLOB.search(bare) is not None
        return Word("".join(parts), expands)

    def _double_quoted(self, node: Node) -> Word:
        """Return the text between two double quotes; expansions stay as they are."""
        texts, position, expands = [], node.start_byte + 1, False
        end = node.end_byte - 1
        for child in node.named_children:
            if child.type == "string_content":
                continue
            expands = True
            texts += [self._unquoted(position, child.start_byte), self.text(child)]
            position = child.end_byte
        return Word("".join([*texts, self._unquoted(position, end)]), expands)

    def _unquoted(self, start: int, end: int) -> str:
        text = self.data[start:end].decode("utf-8", "replace")
        return _QUOTED_ESCAPE.sub(unescape, text)


def marks_translation(node: Node) -> bool:
    """Whether a node is the first character of ``$"..."``."""
    following = node.next_sibling
    return node.type == "$" and following is not None and following.start_byte == node.end_byte


def unescape(match: re.Match[str]) -> str:
    """Return the character that a backslash escapes; an escaped line end is removed."""
    return "" if match[1] == "\n" else match[1]


def _unescape_ansi(match: re.Match[str]) -> str:
    """Return the character of an escape in ``$'...'``, or a byte as a surrogate escape."""
    short, unicode, long, octal, control, letter = match.groups()
    if letter is not None:
        return _ANSI.get(letter, letter if letter in "\\'\"?" else match[0])
    if control is not None:
        return chr(ord(control.upper()) & 0x1F)
    if octal or short:
        byte = int(octal, 8) & 0xFF if octal else int(short, 16)
        return bytes((byte,)).decode("ascii", "surrogateescape")
    number = int(unicode or long, 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
