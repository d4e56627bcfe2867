"""How the fields of a record are written in a line of a results file, by their declarations.

``results/format.py`` makes the schema, the reader and the writer of lines from these declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from typing import Any, NamedTuple

__all__ = ["LineField", "in_line"]


class LineField(NamedTuple):
    """How a field is written in a line; the docstring of the field's class says what it means.

    Attributes:
        key: its key, ``a.b`` for a key in a nested object; empty for the field's own name.
        optional: leave the field out if it is empty; always so for a default of None or False.
        digits: digits after the point that numbers are rounded to; None for no rounding.
        printed: a program or a model may have written it, so bytes that are not UTF-8 are escaped.
        secrets: hide the values of keys and passwords in it.
        in_statistics: tables, rates and comparisons need it.
        long: it is one of the texts and states that make up most of a record's size.
    """

    key: str = ""
    optional: bool = False
    digits: int | None = None
    printed: bool = False
    secrets: bool = False
    in_statistics: bool = True
    long: bool = False

    @classmethod
    def of(cls, declared: Field[Any]) -> LineField:
        """Return how a field of a dataclass is written in a line."""
        in_line: LineField = declared.metadata.get("line", cls())
        absent = declared.default is None or declared.default is False
        return in_line._replace(optional=in_line.optional or absent)


def in_line(
    key: str = "",
    *,
    optional: bool = False,
    digits: int | None = None,
    printed: bool = False,
    secrets: bool = False,
    in_statistics: bool = True,
    long: bool = False,
) -> Mapping[str, LineField]:
    """Return the metadata of a dataclass's field; see :class:`LineField` for the arguments."""
    return {"line": LineField(key, optional, digits, printed, secrets, in_statistics, long)}
