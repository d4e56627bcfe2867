"""Encode values as JSON, exactly: builtin types and a few standard library types.

None, True, False, strings, floats and small integers are JSON's own; everything else is a list
whose first item names its kind. An iterator is encoded as what it yields, which exhausts it. An
object of a subclass is encoded as its base type, without calling the subclass's own methods. An
object of any other class becomes ``opaque``, for which only its truth value is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    _Kind = Callable[["Encoder", Any, Any, int], Any]

__all__ = ["encode", "is_iterator"]

_MAX_NODES = 1_000_000  # of one value
_MAX_YIELDED = 100_000  # by one iterator, which may be infinite
_MAX_DEPTH = 150  # nested containers
_MAX_EXACT = 2**53  # smaller integers are written as JSON numbers


class Encoder:
    """Encodes one value; tracks how large it has become, and whether something was lost."""

    def __init__(self) -> None:
        self.nodes = 0
        self.opaque = False

    def encode(self, value: Any, depth: int = 0) -> Any:
        """Return a value as JSON can write it."""
        self.nodes += 1
        if self.nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise ValueError("too large, or holds itself")
        for kind in type(value).__mro__:
            encoder = _BUILTIN.get(kind) or _STANDARD.get(f"{kind.__module__}.{kind.__qualname__}")
            if encoder is not None:
                return encoder(self, value, kind, depth + 1)
        if is_iterator(value):
            return self.items("iterator", _yielded(value), depth + 1)
        self.opaque = True
        try:
            return ["opaque", bool(value)]
        except Exception:
            return ["opaque", True]

    def items(self, name: str, values: Iterable[Any], depth: int) -> list[Any]:
        """Encode several values."""
        return [name, *(self.encode(value, depth) for value in values)]


def is_iterator(value: Any) -> bool:
    """Whether a value is one of Python's own iterators, which encoding exhausts."""
    kind = type(value)
    return kind in _ITERATORS or (kind.__module__ == "itertools" and hasattr(kind, "__next__"))


def _yielded(value: Any) -> Iterator[Any]:
    for count, item in enumerate(value):
        if count == _MAX_YIELDED:
            raise ValueError("yields too much")
        yield item


def _int(encoder: Encoder, value: Any, kind: Any, depth: int) -> Any:
    number = int.__pos__(value)
    return number if -_MAX_EXACT < number < _MAX_EXACT else ["int", hex(number)]


def _complex(encoder: Encoder, value: Any, kind: Any, depth: int) -> Any:
    number = complex.__pos__(value)
    return ["complex", number.real, number.imag]


def _all(name: str) -> _Kind:
    return lambda encoder, value, kind, depth: encoder.items(name, kind.__iter__(value), depth)


def _pairs(name: str) -> _Kind:
    def encode_pairs(encoder: Encoder, value: Any, kind: Any, depth: int) -> Any:
        return encoder.items(name, (part for pair in kind.items(value) for part in pair), depth)

    return encode_pairs


def _of(name: str, *attributes: str) -> _Kind:
    def encode_attributes(encoder: Encoder, value: Any, kind: Any, depth: int) -> Any:
        return encoder.items(name, (getattr(value, part) for part in attributes), depth)

    return encode_attributes


def _deque(encoder: Encoder, value: Any, kind: Any, depth: int) -> Any:
    return encoder.items("deque", (value.maxlen, *kind.__iter__(value)), depth)


def _moment(name: str, *attributes: str) -> _Kind:
    def encode_moment(encoder: Encoder, value: Any, kind: Any, depth: int) -> Any:
        parts = [getattr(value, part) for part in attributes]
        return encoder.items(name, (*parts, kind.utcoffset(value)), depth)

    return encode_moment


_BUILTIN: dict[type, _Kind] = {
    type(None): lambda encoder, value, kind, depth: None,
    bool: lambda encoder, value, kind, depth: value,
    int: _int,
    float: lambda encoder, value, kind, depth: float.__pos__(value),
    complex: _complex,
    str: lambda encoder, value, kind, depth: str.__str__(value),
    bytes: lambda encoder, value, kind, depth: ["bytes", bytes.hex(value)],
    bytearray: lambda encoder, value, kind, depth: ["bytearray", bytearray.hex(value)],
    range: _of("range", "start", "stop", "step"),
    list: _all("list"),
    tuple: _all("tuple"),
    set: _all("set"),
    frozenset: _all("frozenset"),
    dict: _pairs("dict"),
    type({}.keys()): _all("dict_keys"),
    type({}.values()): _all("dict_values"),
    type({}.items()): lambda encoder, value, kind, depth: encoder.items(
        "dict_items", (part for pair in kind.__iter__(value) for part in pair), depth
    ),
}
_ITERATORS: set[type] = {
    *(map, filter, zip, enumerate, reversed, type(_ for _ in ()), type(iter(int, 0))),
    *(type(iter([])), type(iter(())), type(iter("")), type(iter("é")), type(iter(b""))),
    *(type(iter(set())), type(iter(range(0))), type(iter({})), type(iter({}.values()))),
    *(type(iter({}.items())), type(reversed([])), type(reversed({})), type(reversed(range(0)))),
}
# Keyed by name, so that these modules are not imported for other values.
_STANDARD: dict[str, _Kind] = {
    "collections.OrderedDict": _pairs("OrderedDict"),
    "collections.Counter": _pairs("Counter"),
    "collections.defaultdict": _pairs("defaultdict"),
    "collections.deque": _deque,
    "decimal.Decimal": lambda encoder, value, kind, depth: ["Decimal", kind.__str__(value)],
    "fractions.Fraction": _of("Fraction", "numerator", "denominator"),
    "datetime.date": _of("date", "year", "month", "day"),
    "datetime.time": _moment("time", "hour", "minute", "second", "microsecond"),
    "datetime.datetime": _moment(
        "datetime", "year", "month", "day", "hour", "minute", "second", "microsecond"
    ),
    "datetime.timedelta": _of("timedelta", "days", "seconds", "microseconds"),
}


def encode(value: Any) -> tuple[Any, bool]:
    """Return a value as JSON can write it, and whether a part of it was lost.

    A value that is too large, or cannot be read, is lost as a whole.
    """
    encoder = Encoder()
    try:
        return encoder.encode(value), encoder.opaque
    except Exception:
        return ["opaque", True], True
