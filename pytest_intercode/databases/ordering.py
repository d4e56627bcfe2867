"""Rewrite an ordered query so that it shows what it orders by, and what its LIMIT leaves out.

The strict reward must know which rows of gold's result are tied. This module adds the keys of ORDER
BY as columns at the end, unless they are in the result already, and removes LIMIT. It does not
parse SQL's grammar: the rewritten query is only used if its result agrees with the original's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_intercode.databases.scan import Statement, Token, is_word, unquoted

__all__ = ["Ordered", "show_order"]

_SETS = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER")


@dataclass(frozen=True)
class Ordered:
    """A query that shows its order.

    Attributes:
        text: the query: the original's columns, then the keys that are not among them.
        keys: the index of each key of ORDER BY in the query's rows, in order.
        start: how many rows the original skips.
        limit: how many rows the original returns at most; None for no limit.
        distinct: the original removes duplicate rows, which an additional column may change.
        ranked: the same query with one more column, the engine's rank of each row; empty if that is
            not possible.
    """

    text: str
    keys: tuple[int, ...]
    start: int = 0
    limit: int | None = None
    distinct: bool = False
    ranked: str = ""


def show_order(statement: Statement, columns: Sequence[str]) -> Ordered | None:
    """Return a query that shows how a query orders its rows; None if it cannot be rewritten.

    Args:
        statement: the query; it has an ORDER BY outside of parentheses.
        columns: the names of its result's columns.
    """
    base = statement.base
    inner = statement.tokens[base : len(statement.tokens) - base]
    outer = [token for token in inner if token.depth == base]
    orders = [
        index
        for index, token in enumerate(outer[:-1])
        if is_word(token, "ORDER") and is_word(outer[index + 1], "BY")
    ]
    select = next((token for token in outer if is_word(token, "SELECT")), None)
    if len(orders) != 1 or select is None:
        return None
    order = outer[orders[0]]
    tail = [
        index for index, token in enumerate(outer) if index > orders[0] and is_word(token, "LIMIT")
    ]
    start, limit = 0, None
    end = inner[-1].end
    if tail:
        window = _window(outer[tail[0] + 1 :])
        if window is None or len(tail) > 1:
            return None
        start, limit = window
        end = outer[tail[0]].start
    text = statement.text
    terms = _terms(
        [token for token in inner if outer[orders[0] + 1].end <= token.start < end], base
    )
    keys: list[int] = []
    hidden: list[str] = []
    for term in terms:
        column = _column(term, columns)
        if column is None:
            keys.append(len(columns) + len(hidden))
            hidden.append(text[term[0].start : term[-1].end])
        else:
            keys.append(column)
    head, order_by = text[inner[0].start : order.start], text[order.start : end]
    distinct = is_word(outer[outer.index(select) + 1], "DISTINCT")
    if any(is_word(token, *_SETS) for token in outer):
        same_query = Ordered(f"{head}{order_by}", tuple(keys), start, limit, distinct)
        # Each side of a set operation would need the additional columns.
        return None if hidden else same_query
    clauses = [token for token in outer if token.start > select.start and is_word(token, *_CLAUSES)]
    position = clauses[0].start - inner[0].start

    def with_columns(*columns: str) -> str:
        selection = "".join(f", {column}" for column in columns)
        # On a line of its own, because the text before it may end with a comment.
        return f"{head[:position]}\n{selection}\n{head[position:]}{order_by}"

    key_columns = [f"({expression})" for expression in hidden]
    by_number = any(len(term) == 1 and term[0].kind == "number" for term in terms)
    # In a window, a number does not mean a column: it is a constant, or is refused.
    ranked = "" if by_number else with_columns(*key_columns, f"DENSE_RANK() OVER ({order_by}\n)")
    query = with_columns(*key_columns) if hidden else f"{head}{order_by}"
    return Ordered(query, tuple(keys), start, limit, distinct, ranked)


def _window(tokens: Sequence[Token]) -> tuple[int, int | None] | None:
    """Read what follows LIMIT, ``n``, ``n OFFSET m`` or ``m, n``, as start and limit."""
    texts = [token.text.upper() for token in tokens]
    numbers = [int(text) for text in texts if text.isdecimal()]
    shape = ["n" if text.isdecimal() else text for text in texts]
    if shape == ["n"]:
        return 0, numbers[0]
    if shape == ["n", "OFFSET", "n"]:
        return numbers[1], numbers[0]
    if shape == ["n", ",", "n"]:
        return numbers[0], numbers[1]
    return None


def _terms(tokens: Sequence[Token], base: int) -> list[list[Token]]:
    """Split the list of ORDER BY at its commas, and remove directions."""
    terms: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == "," and token.depth == base:
            terms.append([])
        else:
            terms[-1].append(token)
    for term in terms:
        if len(term) > 2 and is_word(term[-2], "NULLS") and is_word(term[-1], "FIRST", "LAST"):
            del term[-2:]
        if len(term) > 1 and is_word(term[-1], "ASC", "DESC"):
            del term[-1]
        if len(term) == 3 and term[0].kind == "number" and is_word(term[1], "COLLATE"):
            del term[1:]  # it is still the number of a column
    return [term for term in terms if term]


def _column(term: Sequence[Token], columns: Sequence[str]) -> int | None:
    """Return the index of the result's column that a term names, by number or by name."""
    if len(term) != 1:
        return None
    text = term[0].text
    if term[0].kind == "number":
        return int(text) - 1 if text.isdecimal() and 0 < int(text) <= len(columns) else None
    if term[0].kind == "name":
        text = unquoted(text)
    elif term[0].kind != "word":
        return None
    indexes = [
        index for index, column in enumerate(columns) if column.casefold() == text.casefold()
    ]
    return indexes[0] if len(indexes) == 1 else None
