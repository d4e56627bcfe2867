"""Wrong answers to an sql task: gold without a clause, in another order, and so on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pytest_intercode.core.task import Task
from pytest_intercode.databases.scan import Token, is_word, scan
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.sql.text import dialect_of

__all__ = ["change_gold", "select_no_rows"]

_CLAUSES = ("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "WINDOW")
_REMOVABLE_CLAUSES = ("WHERE", "HAVING", "LIMIT")


def change_gold(task: Task) -> Iterator[Answer]:
    """Yield gold without its WHERE, HAVING, LIMIT and DISTINCT, in another order, and so on.

    Gold without ORDER BY is only worth a note: rows often come in the order of their keys anyway.
    """
    *earlier, last = task.gold
    tokens = list(scan(last, dialect_of(task)))
    for word in _REMOVABLE_CLAUSES:
        text = _cut_clause(last, tokens, word)
        if text:
            yield Answer((*earlier, text), description=f"gold without {word}", certain=False)
    for token in tokens:
        if is_word(token, "DISTINCT"):
            text = last[: token.start] + last[token.end :]
            yield Answer((*earlier, text), description="gold without DISTINCT", certain=False)
            break
    for previous, token in itertools.pairwise(tokens):
        if token.kind == "number" and token.text.isdigit() and not is_word(previous, "SELECT"):
            text = f"{last[: token.start]}{int(token.text) + 1}{last[token.end :]}"
            yield Answer((*earlier, text), description="gold with another number", certain=False)
            break
    order = next(
        (index for index, t in enumerate(tokens) if not t.depth and is_word(t, "ORDER")), None
    )
    if order is not None:
        yield Answer(
            (*earlier, _reverse_order(last, tokens, order)),
            description="gold in reverse",
            certain=False,
        )
        text = _cut_clause(last, tokens, "ORDER")
        yield Answer(
            (*earlier, text), description="gold without ORDER BY", certain=False, note=True
        )


def _reverse_order(text: str, tokens: list[Token], order: int) -> str:
    """Reverse the direction of the first key of ORDER BY."""
    end = len(text)
    for token in tokens[order + 2 :]:
        if is_word(token, "ASC", "DESC") and not token.depth:
            direction = "DESC" if is_word(token, "ASC") else "ASC"
            return f"{text[: token.start]}{direction}{text[token.end :]}"
        stops = token.text in {",", ";"} or is_word(token, "LIMIT", "NULLS", "COLLATE")
        if stops and not token.depth:
            end = token.start
            break
    return f"{text[:end].rstrip()} DESC {text[end:]}"


def _cut_clause(text: str, tokens: list[Token], word: str) -> str:
    """Cut the last clause of a kind outside of parentheses; empty if there is none."""
    starts = [index for index, t in enumerate(tokens) if t.depth == 0 and is_word(t, word)]
    if not starts:
        return ""
    begin = starts[-1]
    end = len(text)
    for token in tokens[begin + 1 :]:
        if token.depth == 0 and (is_word(token, *_CLAUSES) or token.text == ";"):
            end = token.start
            break
    return f"{text[: tokens[begin].start]}{text[end:]}".rstrip()


def select_no_rows(width: int) -> str:
    """Return a query, valid in both dialects, with the given number of columns and no rows."""
    columns = ", ".join(f"1 AS c{number}" for number in range(1, width + 1))
    return f"SELECT * FROM (SELECT {columns}) AS e WHERE 1 = 0"
