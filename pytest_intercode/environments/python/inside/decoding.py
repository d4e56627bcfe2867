"""Values back from data; see ``encoding``. Whatever the data are, nothing but values is made."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
from typing import Any

__all__ = ["Opaque", "decode", "plain"]


class Opaque:
    """An object of the agent's side that is no data: it equals nothing."""

    def __init__(self, true: bool) -> None:
        self._true = true

    def __bool__(self) -> bool:
        return self._true

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


def decode(data: Any) -> Any:
    """Return the value that ``encode`` was given.

    Raises:
        Exception: of any kind, where ``encode`` did not make the data.
    """
    if not isinstance(data, list):
        return data
    name, *parts = data
    if name == "opaque":
        return Opaque(bool(parts[0]))
    if name in _FROM_TEXT:
        return _FROM_TEXT[name](str(parts[0]))
    return _FROM_VALUES[name]([decode(part) for part in parts])


def _mapping(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))


def _datetime(*values: Any) -> datetime.datetime:
    return datetime.datetime(*values[:7]).replace(tzinfo=_zone(values[7]))


def _zone(offset: Any) -> datetime.timezone | None:
    return None if offset is None else datetime.timezone(offset)


_FROM_TEXT: dict[str, Any] = {
    "int": lambda text: int(text, 16),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "Decimal": decimal.Decimal,
}
_FROM_VALUES: dict[str, Any] = {
    "complex": lambda values: complex(*values),
    "range": lambda values: range(*values),
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": _mapping,
    "OrderedDict": lambda values: collections.OrderedDict(_mapping(values)),
    "Counter": lambda values: collections.Counter(_mapping(values)),
    # What it does with a missing key is the agent's code.
    "defaultdict": lambda values: collections.defaultdict(None, _mapping(values)),
    "deque": lambda values: collections.deque(values[1:], values[0]),
    "Fraction": lambda values: fractions.Fraction(*values),
    "date": lambda values: datetime.date(*values),
    "time": lambda values: datetime.time(*values[:4]).replace(tzinfo=_zone(values[4])),
    "datetime": lambda values: _datetime(*values),
    "timedelta": lambda values: datetime.timedelta(*values),
}


def plain(value: Any) -> Any:
    """Return a value with its tuples made lists, as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
