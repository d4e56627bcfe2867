"""Wrong but plausible answers to sql tasks: gold without one of its clauses. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pytest_intercode.auditing.playing import Answer
from pytest_intercode.core.task import Task
from pytest_intercode.databases.scan import Dialect, Token, is_word, scan

__all__ = ["changed_gold", "no_rows", "same_text"]

_CLAUSES = ("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "WINDOW")
_LEFT_OUT = ("WHERE", "HAVING", "LIMIT")


def dialect_of(task: Task) -> Dialect:
    """Return the dialect of a task's database."""
    return task.database.engine if task.database else "sqlite"


def changed_gold(task: Task) -> Iterator[Answer]:
    """Yield gold without its WHERE, HAVING, LIMIT and DISTINCT, in another order, and so on.

    A person has to judge each that is taken for right: the data may be such that the clause has
    nothing to do. Rows that come in the right order by themselves are worth a note and no more: no
    data make an engine forget the order of its keys.
    """
    *before, last = task.gold
    tokens = list(scan(last, dialect_of(task)))
    for word in _LEFT_OUT:
        text = _without(last, tokens, word)
        if text:
            yield Answer((*before, text), what=f"gold without {word}", surely=False)
    for token in tokens:
        if is_word(token, "DISTINCT"):
            text = last[: token.start] + last[token.end :]
            yield Answer((*before, text), what="gold without DISTINCT", surely=False)
            break
    for previous, token in pairwise(tokens):
        if token.kind == "number" and token.text.isdigit() and not is_word(previous, "SELECT"):
            text = f"{last[: token.start]}{int(token.text) + 1}{last[token.end :]}"
            yield Answer((*before, text), what="gold with another number", surely=False)
            break
    order = next((at for at, t in enumerate(tokens) if not t.depth and is_word(t, "ORDER")), None)
    if order is not None:
        yield Answer(
            (*before, _reversed(last, tokens, order)), what="gold in reverse", surely=False
        )
        text = _without(last, tokens, "ORDER")
        yield Answer((*before, text), what="gold without ORDER BY", surely=False, note=True)


def _reversed(text: str, tokens: list[Token], order: int) -> str:
    """Turn the direction of the first key of ORDER BY."""
    end = len(text)
    for token in tokens[order + 2 :]:
        if is_word(token, "ASC", "DESC") and not token.depth:
            turned = "DESC" if is_word(token, "ASC") else "ASC"
            return f"{text[: token.start]}{turned}{text[token.end :]}"
        stops = token.text in {",", ";"} or is_word(token, "LIMIT", "NULLS", "COLLATE")
        if stops and not token.depth:
            end = token.start
            break
    return f"{text[:end].rstrip()} DESC {text[end:]}"


def _without(text: str, tokens: list[Token], word: str) -> str:
    """Cut the last clause of a kind that stands in no parentheses."""
    starts = [at for at, t in enumerate(tokens) if t.depth == 0 and is_word(t, word)]
    if not starts:
        return ""
    begin = starts[-1]
    end = len(text)
    for token in tokens[begin + 1 :]:
        if token.depth == 0 and (is_word(token, *_CLAUSES) or token.text == ";"):
            end = token.start
            break
    return f"{text[: tokens[begin].start]}{text[end:]}".rstrip()


def no_rows(width: int) -> str:
    """Return a query that has so many columns, and no rows, in either dialect."""
    columns = ", ".join(f"1 AS c{number}" for number in range(1, width + 1))
    return f"SELECT * FROM (SELECT {columns}) AS e WHERE 1 = 0"


def same_text(text: str, dialect: Dialect) -> str:
    """Return a text that is the same for queries that differ in spaces, case and comments alone."""
    tokens = [t for t in scan(text, dialect) if t.text != ";"]
    return " ".join(t.text.casefold() if t.kind == "word" else t.text for t in tokens)
