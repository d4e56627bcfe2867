"""Shapes of the values in a request, with which the APIs' fields are declared. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_intercode.core.text import one_line

__all__ = [
    *("ADDRESS", "ANY", "EPISODE_ID", "FLAT", "HOSTED", "INLINE", "PLAIN", "PLAINS", "PRICED"),
    *("ROUTING", "STORED_FILE", "STORED_STATE", "UNKNOWN_FIELD", "UNKNOWN_KIND"),
    *("Anything", "Either", "EpisodeId", "Inline", "Kinds", "ListOf", "MapOf", "Object", "Plain"),
    *("Limits", "NotAllowed", "Refusal", "Shape", "check_object", "object_of", "part_of", "quote"),
]

_MAX_DEPTH = 60  # keys that lead to a value
_BASE64 = re.compile(r"[A-Za-z0-9+/=_\s-]*")  # cannot match an address: no colon and no dot


@dataclass(frozen=True)
class Refusal:
    """A value that is refused, and why. ``hosted``: it leaves the sandbox through the provider."""

    reason: str
    hosted: bool = False


UNKNOWN_FIELD = Refusal("the gateway does not know what it does")
UNKNOWN_KIND = Refusal("it may run at the provider", hosted=True)


@dataclass(frozen=True)
class Anything:
    """Any JSON: text of the agent or the model, and schemas, whose references are not followed."""


@dataclass(frozen=True)
class Plain:
    """A string, a number or a boolean; with ``choices``, one of these."""

    choices: tuple[object, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Inline:
    """Content in the request itself: a ``data:`` URL, or base64."""


@dataclass(frozen=True)
class EpisodeId:
    """The id of something that the provider answered in the same episode."""


@dataclass(frozen=True)
class ListOf:
    """A list."""

    element: Shape


@dataclass(frozen=True)
class Either:
    """One shape for a plain value, and another for an object or a list."""

    plain: Shape
    nested: Shape


@dataclass(frozen=True)
class MapOf:
    """An object whose keys the client chooses, and whose values have one shape."""

    element: Shape


@dataclass(frozen=True)
class Object:
    """An object with known fields; any other field is unknown."""

    fields: Mapping[str, Shape]


@dataclass(frozen=True)
class Kinds:
    """An object whose ``type`` determines its shape; types may also match patterns.

    ``missing`` is the type of objects without one, ``bare`` that of objects without a role either.
    """

    kinds: Mapping[str, Shape]
    missing: str = ""
    bare: str = ""
    patterns: Mapping[re.Pattern[str], Shape] = field(default_factory=dict)
    unknown: Refusal = UNKNOWN_KIND


Shape: TypeAlias = (
    Anything | Plain | Inline | EpisodeId | Refusal | ListOf | Either | MapOf | Object | Kinds
)

ADDRESS = Refusal("the provider would fetch it from an address", hosted=True)
STORED_FILE = Refusal("it names a file that is kept at the provider", hosted=True)
STORED_STATE = Refusal("it names what is kept at the provider, and may be another episode's")
ROUTING = Refusal("it chooses another model, or another server")
HOSTED = Refusal("it runs at the provider", hosted=True)
PRICED = Refusal("it has another price")

ANY, PLAIN, INLINE, EPISODE_ID = Anything(), Plain(), Inline(), EpisodeId()
PLAINS = Either(PLAIN, ListOf(PLAIN))
FLAT = MapOf(PLAIN)


def object_of(names: str = "", **fields: Shape) -> Object:
    """Return an object with plain fields of these names, and with further fields."""
    return Object({**dict.fromkeys(names.split(), PLAIN), **fields})


def part_of(names: str = "", **fields: Shape) -> Object:
    """Return an object with a ``type``, which may be marked as the end of the cached prefix."""
    cache = object_of("type", ttl=Plain(("5m",), "an hour of cache is written at another price"))
    mark = object_of("mode ttl")
    marks: dict[str, Shape] = {"cache_control": cache, "prompt_cache_breakpoint": mark}
    return object_of(f"type {names}", **(marks | fields))


# -- the check of a request

KeyPath: TypeAlias = "tuple[str, ...]"
"""The keys that lead to a value, without positions in lists."""


class NotAllowed(Exception):
    """A request contains something that may not be passed on.

    Args:
        message: what it is, where it is, and what it does.
        name: the name by which the user can allow it; empty if that is not possible.
        hosted: whether it leaves the sandbox through the provider.
    """

    def __init__(self, message: str, name: str = "", *, hosted: bool = False) -> None:
        super().__init__(message)
        self.message, self.name, self.hosted = message, name, hosted


@dataclass(frozen=True)
class Limits:
    """What one request may have in addition to the declared fields.

    Attributes:
        names: fields and types that are passed on, whatever they contain.
        hosted: whether tools and content at the provider may be used.
        answers: ids of what the provider answered in the same episode.
    """

    names: Container[str] = ()
    hosted: bool = False
    answers: Container[str] = ()


def _check(shape: Shape, value: Any, path: KeyPath, limits: Limits) -> None:
    if len(path) > _MAX_DEPTH:
        raise NotAllowed(f"{_quote_path(path[:6])} is nested too deep")
    if isinstance(shape, Refusal):
        if not (shape.hosted and limits.hosted):
            raise _make_error(f"the field {_quote_path(path)}", shape, path[-1])
        return
    if value is None or isinstance(shape, Anything):
        return
    if isinstance(shape, Either):
        shape = shape.nested if isinstance(value, (dict, list)) else shape.plain
    if isinstance(shape, ListOf) and isinstance(value, list):
        for part in value:
            _check(shape.element, part, path, limits)
    elif isinstance(shape, MapOf) and isinstance(value, dict):
        for part in value.values():
            _check(shape.element, part, path, limits)
    elif isinstance(shape, Object) and isinstance(value, dict):
        check_object(shape.fields, value, path, limits)
    elif isinstance(shape, Kinds) and isinstance(value, dict):
        _check_kind(shape, value, path, limits)
    elif isinstance(shape, (Plain, Inline, EpisodeId)) and not isinstance(value, (dict, list)):
        _check_value(shape, value, path, limits)
    else:
        raise NotAllowed(f"the field {_quote_path(path)} has a form that is not known", path[-1])


def _check_value(
    shape: Plain | Inline | EpisodeId, value: object, path: KeyPath, limits: Limits
) -> None:
    if isinstance(shape, Plain):
        if shape.choices and value not in shape.choices:
            refusal = Refusal(f"{shape.reason}; allowed: {_join_values(shape.choices)}")
            description = f"the value {quote(str(value))} of the field {_quote_path(path)}"
            raise _make_error(description, refusal, path[-1])
    elif isinstance(shape, Inline):
        if not limits.hosted and not (isinstance(value, str) and _is_inline(value)):
            raise _make_error(f"the field {_quote_path(path)}", ADDRESS, path[-1])
    elif value not in limits.answers:
        raise _make_error(f"the field {_quote_path(path)}", STORED_STATE, path[-1])


def check_object(
    fields: Mapping[str, Shape], value: Mapping[str, Any], path: KeyPath, limits: Limits
) -> None:
    """Check that an object has only known fields that may be passed on.

    Args:
        fields: the known fields.
        value: the object.
        path: the keys that lead to it.
        limits: what is allowed in addition.

    Raises:
        NotAllowed: a field is unknown, or may not be passed on.
    """
    for key, inner in value.items():
        if key not in limits.names:
            _check(fields.get(key, UNKNOWN_FIELD), inner, (*path, key), limits)


def _check_kind(shape: Kinds, value: Mapping[str, Any], path: KeyPath, limits: Limits) -> None:
    kind = value.get("type")
    if kind is None:
        kind = shape.bare if shape.bare and "role" not in value else shape.missing
    if not isinstance(kind, str):
        raise NotAllowed(f"the type in {_quote_path(path)} is not a text")
    if kind in limits.names:
        return
    inner = shape.kinds.get(kind)
    if inner is None:
        matches = (
            candidate for pattern, candidate in shape.patterns.items() if pattern.fullmatch(kind)
        )
        inner = next(matches, shape.unknown)
    if isinstance(inner, Refusal):
        if not (inner.hosted and limits.hosted):
            raise _make_error(f"the type {quote(kind)} in {_quote_path(path)}", inner, kind)
        return
    _check(inner, value, path, limits)


def _is_inline(text: str) -> bool:
    return text[:5].lower() == "data:" or _BASE64.fullmatch(text) is not None


def _make_error(description: str, refusal: Refusal, name: str) -> NotAllowed:
    return NotAllowed(
        f"{description} is not passed on: {refusal.reason}", name, hosted=refusal.hosted
    )


def _quote_path(path: KeyPath) -> str:
    return quote(".".join(path))


def quote(text: str) -> str:
    """Return an excerpt of a request's text in quotes, for a message."""
    excerpt = one_line(text[:200])
    return f"'{excerpt[:80]}...'" if len(excerpt) > 80 else f"'{excerpt}'"


def _join_values(values: tuple[object, ...]) -> str:
    return " and ".join(value if isinstance(value, str) else json.dumps(value) for value in values)
