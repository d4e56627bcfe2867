"""A simple scanner of SQL text: where statements end, what they begin with, whether they order.

It recognises words, strings, quoted names, comments and parentheses of SQLite and MySQL, but no
grammar beyond that: engines decide what is valid. Nothing is run or opened here. Safety never
depends on its results, because engines enforce what a session may do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "Definitions",
    "Dialect",
    "Statement",
    "Token",
    "is_word",
    "normalised",
    "scan",
    "split",
    "unquoted",
]

Dialect: TypeAlias = Literal["sqlite", "mysql"]
Kind: TypeAlias = Literal["word", "name", "string", "number", "mark", "conditional", "space"]

_COMMON = r"""
    (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<mark>.)
"""
# Strings and comments that do not end extend to the end of the text. Each pattern is written so
# that it takes linear time, whatever an agent sends.
_SQLITE = re.compile(
    r"""
    (?P<space>\s+ | --[^\n]* | /\*.*?(?:\*/|\Z))
  | (?P<string>[xX]?'[^']*(?:''[^']*)*(?:'|\Z))
  | (?P<name>"[^"]*(?:""[^"]*)*(?:"|\Z) | `[^`]*(?:``[^`]*)*(?:`|\Z) | \[[^\]]*(?:\]|\Z))
  |"""
    + _COMMON,
    re.VERBOSE | re.DOTALL,
)
_MYSQL = re.compile(
    r"""
    (?P<conditional>/\*!.*?(?:\*/|\Z))
  | (?P<space>\s+ | \#[^\n]* | --(?:[^\S\n][^\n]*|(?=\n)|\Z) | /\*.*?(?:\*/|\Z))
  | (?P<string>[xXbBnN]?'[^'\\]*(?:(?:\\.|'')[^'\\]*)*(?:'|\\?\Z)
        | "[^"\\]*(?:(?:\\.|"")[^"\\]*)*(?:"|\\?\Z))
  | (?P<name>`[^`]*(?:``[^`]*)*(?:`|\Z))
  |"""
    + _COMMON,
    re.VERBOSE | re.DOTALL,
)
_PATTERNS = {"sqlite": _SQLITE, "mysql": _MYSQL}
_CONDITIONAL = re.compile(r"/\*!\d*\s*(\w*)")

_MAX_DEPTH = 8  # parentheses around a whole statement that are skipped

_QUERIES = {"SELECT", "VALUES", "TABLE", "EXPLAIN", "SHOW", "DESCRIBE", "DESC", "HELP"}
_SESSION = {"USE", "SET", "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"}
_CHANGES = {"INSERT", "UPDATE", "DELETE", "REPLACE"}
_ROUTINES = {"TRIGGER", "PROCEDURE", "FUNCTION", "EVENT"}
_BLOCKS = {"IF", "LOOP", "WHILE", "REPEAT"}
_BEFORE_STATEMENT = {";", "BEGIN", "THEN", "ELSE", "DO", "LOOP", "REPEAT", ":"}


class Token(NamedTuple):
    """One piece of SQL that is neither white space nor a comment.

    Attributes:
        kind: a word, a quoted name, a string, a number, one character of punctuation, or one of
            MySQL's conditional comments.
        text: the text as it is written.
        start: its position in the scanned text.
        depth: the number of parentheses that it is in; a parenthesis itself counts as outside.
    """

    kind: Kind
    text: str
    start: int
    depth: int

    @property
    def end(self) -> int:
        """The position after it in the scanned text."""
        return self.start + len(self.text)


def is_word(token: Token, *words: str) -> bool:
    """Whether a token is one of the given words, which are in capitals."""
    return token.kind == "word" and token.text.upper() in words


def unquoted(name: str) -> str:
    """Return a name without the quotes around it."""
    return name[1:-1].replace(name[0] * 2, name[0])


def normalised(tokens: Iterable[Token]) -> str:
    """Join tokens with single spaces, with words in capitals and names without quotes."""
    texts = []
    for token in tokens:
        text = unquoted(token.text) if token.kind == "name" else token.text
        texts.append(text.upper() if token.kind in ("word", "name") else text)
    return " ".join(texts)


class Definitions:
    """Normalises definitions, up to an amount that takes a second or two.

    Args:
        dialect: the dialect of the definitions.

    Attributes:
        remaining: how many characters may still be normalised; below 0 if there were more.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.remaining = 2 * 1024**2
        self._dialect = dialect

    def tokens(self, sql: str) -> list[Token]:
        """Return the tokens of a definition; none if the definitions are too long."""
        self.remaining -= len(sql)
        return list(scan(sql, self._dialect)) if self.remaining >= 0 else []

    def normalised(self, sql: str) -> str:
        """Return a definition in normalised form."""
        return normalised(self.tokens(sql))


def scan(text: str, dialect: Dialect) -> Iterator[Token]:
    """Yield the tokens of a text."""
    depth = 0
    for match in _PATTERNS[dialect].finditer(text):
        kind: Kind = match.lastgroup  # type: ignore[assignment]
        if kind == "space":
            continue
        piece = match[0]
        if piece == ")":
            depth = max(0, depth - 1)
        yield Token(kind, piece, match.start(), depth)
        if piece == "(":
            depth += 1


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        text: its text from the first token to the last, without the semicolon.
        tokens: its tokens; their positions are relative to ``text``.
        line: the line on which it starts in the text that was split, counted from 1.
    """

    text: str
    tokens: tuple[Token, ...]
    line: int = 1

    @cached_property
    def keyword(self) -> str:
        """Its first word, in capitals."""
        for token in self.tokens:
            if token.kind == "word":
                return token.text.upper()
            if token.kind == "conditional":
                match = _CONDITIONAL.match(token.text)
                return match[1].upper() if match else ""
            if token.text != "(":
                break
        return ""

    @cached_property
    def queries(self) -> bool:
        """Whether its words show that it does not change the database."""
        words = [t.text.upper() for t in self.tokens if t.kind == "word" and t.depth == 0]
        if self.keyword == "WITH":
            return not _CHANGES & set(words)
        if self.keyword == "PRAGMA":
            return all(token.text != "=" for token in self.tokens)
        if self.keyword == "CREATE":
            return words[1:2] in (["TEMP"], ["TEMPORARY"])
        return self.keyword in _QUERIES or self.keyword in _SESSION

    @cached_property
    def base(self) -> int:
        """The depth of its outermost clauses: 0, or more if all of it is in parentheses."""
        tokens, depth = self.tokens, 0
        while (
            depth < _MAX_DEPTH
            and len(tokens) > 2 * depth + 2
            and tokens[depth].text == "("
            and tokens[-1 - depth].text == ")"
            and all(token.depth > depth for token in tokens[depth + 1 : -1 - depth])
        ):
            depth += 1
        return depth

    @cached_property
    def orders(self) -> bool:
        """Whether it orders its rows: ORDER BY outside of every parenthesis."""
        outer = [token for token in self.tokens if token.depth == self.base]
        return any(
            is_word(token, "ORDER") and is_word(successor, "BY")
            for token, successor in pairwise(outer)
        )


@lru_cache(maxsize=32)  # an episode splits its gold several times
def split(text: str, dialect: Dialect) -> tuple[Statement, ...]:
    """Split a text into its statements; a part with only comments is not a statement.

    Bodies of triggers and routines are not split, and MySQL's ``DELIMITER`` is supported, because
    scripts of its tools use it.
    """
    statements = []
    line, line_offset = 1, 0
    for tokens in _groups(text, dialect):
        first = tokens[0].start
        line, line_offset = line + text.count("\n", line_offset, first), first
        statements.append(Statement(text[first : tokens[-1].end], _moved(tokens), line))
    return tuple(statements)


def _moved(tokens: list[Token]) -> tuple[Token, ...]:
    """Return tokens with positions and depths relative to the start of their statement."""
    depth, first = 0, tokens[0].start
    moved = []
    for token in tokens:
        if token.text == ")":
            depth = max(0, depth - 1)
        moved.append(Token(token.kind, token.text, token.start - first, depth))
        depth += token.text == "("
    return tuple(moved)


def _groups(text: str, dialect: Dialect) -> Iterator[list[Token]]:
    """Yield the tokens of each statement."""
    group: list[Token] = []
    body = _Body()
    delimiter, resume = ";", 0
    for token in scan(text, dialect):
        if token.start < resume:
            continue
        if dialect == "mysql" and not group and is_word(token, "DELIMITER"):
            line = text[token.end :].split("\n", 1)[0]
            delimiter, resume = line.strip() or ";", token.end + len(line)
        elif delimiter != ";" and text.startswith(delimiter, token.start):
            resume = token.start + len(delimiter)
            if group:
                yield group
            group, body = [], _Body()
        elif delimiter == ";" and token.text == ";" and not body.open:
            if group:
                yield group
            group, body = [], _Body()
        else:
            group.append(token)
            body.see(token)
    if group:
        yield group


class _Body:
    """Tracks the blocks of a trigger's or routine's body, where a semicolon does not end it."""

    def __init__(self) -> None:
        self._seen = 0
        self._routine = False
        self._creates = False
        self._blocks: list[str] = []
        self._previous_word = ""
        self._closing = False

    @property
    def open(self) -> bool:
        """Whether a block is open."""
        return bool(self._blocks)

    def see(self, token: Token) -> None:
        """Take the next token of the statement."""
        word = token.text.upper() if token.kind == "word" else ""
        self._seen += 1
        if self._seen == 1:
            self._creates = word == "CREATE"
        elif self._creates and not self._routine:
            self._routine = word in _ROUTINES
        elif self._routine:
            self._follow(word)
        self._previous_word = word or token.text

    def _follow(self, word: str) -> None:
        # IF() and REPEAT() are also functions, and a CASE may be an expression.
        begins = self._previous_word in _BEFORE_STATEMENT
        if self._closing:
            self._closing = False
            if word in _BLOCKS or word == "CASE":
                return  # END IF, END LOOP: the END has closed it
        if word == "END" and self._blocks:
            self._blocks.pop()
            self._closing = True
        elif word == "BEGIN":
            self._blocks.append("BEGIN")
        elif word == "CASE":
            self._blocks.append("CASE" if begins else "expression")
        elif word in _BLOCKS and begins and self._blocks and self._blocks[-1] != "expression":
            self._blocks.append(word)
