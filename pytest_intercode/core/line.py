"""How a line of a results file has the fields of a record: what their declarations say of it.

``results/format.py`` makes the schema, the reader and the writer of lines from these declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from typing import Any, NamedTuple

__all__ = ["LineField", "in_line"]


class LineField(NamedTuple):
    """How a line has a field; the docstring of the field's class says what it means.

    Attributes:
        key: its key, ``a.b`` for one in an object; empty for the field's own name.
        optional: it is left out where it is empty, as those are whose default is None or False.
        digits: digits after the point that numbers are rounded to; None for all of them.
        printed: anybody may have printed it, so that what is not UTF-8 in it is escaped.
        secrets: values of keys and passwords in it are hidden.
        in_statistics: tables, rates and comparisons need it.
        long: it is one of the texts and states that most of a record's size comes from.
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
        """Return how a line has a field of a dataclass."""
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
