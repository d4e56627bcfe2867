"""Decode values from data; see ``encoding``.

The data may be anything, because the agent's side made them. They are decoded into objects of exact
builtin types and of a few standard library types, so no class of the agent takes part in a
comparison. Anything that ``encode`` does not write is refused.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import json
import re
from typing import Any

__all__ = ["Opaque", "decode", "parse", "plain"]

_MAX_DEPTH = 200  # nested containers
_MAX_DIGITS = 1_000_000  # hexadecimal digits of an integer
_MAX_DECIMAL = 10_000  # characters, and powers of ten
_HEXADECIMAL = re.compile(r"-?0x[0-9a-f]+")


class Opaque:
    """An object on the agent's side that is not data: it is equal to nothing."""

    def __init__(self, true: bool) -> None:
        self._true = true

    def __bool__(self) -> bool:
        return self._true

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


def parse(answer: str) -> Any:
    """Return the JSON of an answer.

    Raises:
        ValueError: it is not JSON, or has a key twice, or an integer with thousands of digits.
        RecursionError: it is nested too deeply.
    """
    return json.loads(answer, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    dictionary = dict(pairs)
    if len(dictionary) != len(pairs):
        raise ValueError("a key twice")
    return dictionary


def decode(data: Any, depth: int = 0) -> Any:
    """Return the value that ``encode`` was given.

    Raises:
        Exception: any exception, if ``encode`` did not make the data.
    """
    if not isinstance(data, list):
        if isinstance(data, dict):
            raise TypeError("an object")
        return data
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    name, *parts = data
    if name == "opaque":
        return Opaque(bool(parts[0]))
    if name in _FROM_TEXT:
        return _FROM_TEXT[name](*parts)
    return _FROM_VALUES[name]([decode(part, depth + 1) for part in parts])


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS or not _HEXADECIMAL.fullmatch(text):
        raise ValueError("no integer")
    return int(text, 16)


def _decimal(text: str) -> decimal.Decimal:
    number = decimal.Decimal(text if len(text) <= _MAX_DECIMAL else "sNaN")
    if number.is_snan() or (number.is_finite() and abs(number.adjusted()) > _MAX_DECIMAL):
        raise ValueError("no decimal to reckon with")
    return number


def _mapping(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))


def _datetime(*values: Any) -> datetime.datetime:
    return datetime.datetime(*values[:7]).replace(tzinfo=_zone(values[7]))


def _zone(offset: Any) -> datetime.timezone | None:
    return None if offset is None else datetime.timezone(offset)


_FROM_TEXT: dict[str, Any] = {
    "int": _int,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "Decimal": _decimal,
}
_FROM_VALUES: dict[str, Any] = {
    "complex": lambda values: complex(*values),
    "range": lambda values: range(*values),
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "iterator": iter,
    "dict": _mapping,
    "dict_keys": lambda values: dict.fromkeys(values).keys(),
    "dict_values": lambda values: dict(enumerate(values)).values(),
    "dict_items": lambda values: _mapping(values).items(),
    "OrderedDict": lambda values: collections.OrderedDict(_mapping(values)),
    "Counter": lambda values: collections.Counter(_mapping(values)),
    # Its default factory is the agent's code, so it is left out.
    "defaultdict": lambda values: collections.defaultdict(None, _mapping(values)),
    "deque": lambda values: collections.deque(values[1:], values[0]),
    "Fraction": lambda values: fractions.Fraction(*values),
    "date": lambda values: datetime.date(*values),
    "time": lambda values: datetime.time(*values[:4]).replace(tzinfo=_zone(values[4])),
    "datetime": lambda values: _datetime(*values),
    "timedelta": lambda values: datetime.timedelta(*values),
}


def plain(value: Any) -> Any:
    """Return a value with its tuples turned into lists, as in JSON."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
