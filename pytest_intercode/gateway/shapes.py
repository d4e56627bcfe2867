"""What a field of a request may hold: the shapes of which the APIs' fields are declared. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    *("ADDRESS", "ANY", "EPISODE_ID", "FLAT", "HOSTED", "INLINE", "PLAIN", "PLAINS", "ROUTING"),
    *("STORED_FILE", "STORED_STATE", "UNKNOWN_FIELD", "UNKNOWN_KIND"),
    *("Anything", "Either", "EpisodeId", "Inline", "Kinds", "ListOf", "MapOf", "Object", "Plain"),
    *("Refusal", "Shape", "object_of", "part_of"),
]


@dataclass(frozen=True)
class Refusal:
    """What is not passed on, and the reason. ``hosted``: it leaves through the provider."""

    reason: str
    hosted: bool = False


UNKNOWN_FIELD = Refusal("the gateway does not know what it does")
UNKNOWN_KIND = Refusal("it may run at the provider", hosted=True)


@dataclass(frozen=True)
class Anything:
    """Any JSON: words of the agent or of the model, and schemas, which nobody follows."""


@dataclass(frozen=True)
class Plain:
    """A text, a number or a truth value; with ``choices``, one of these."""

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
    """One shape for a plain value, another one for an object or a list."""

    plain: Shape
    nested: Shape


@dataclass(frozen=True)
class MapOf:
    """An object whose keys the client chooses, and whose values are of one shape."""

    element: Shape


@dataclass(frozen=True)
class Object:
    """An object of fields; any other field is not known."""

    fields: Mapping[str, Shape]


@dataclass(frozen=True)
class Kinds:
    """An object whose ``type`` says what it is; the names may be patterns.

    ``missing`` is the type of those that name none, ``bare`` of those without a role, too.
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

ANY, PLAIN, INLINE, EPISODE_ID = Anything(), Plain(), Inline(), EpisodeId()
PLAINS = Either(PLAIN, ListOf(PLAIN))
FLAT = MapOf(PLAIN)


def object_of(names: str = "", **fields: Shape) -> Object:
    """Return an object of plain values by these names, and of further fields."""
    return Object({**dict.fromkeys(names.split(), PLAIN), **fields})


def part_of(names: str = "", **fields: Shape) -> Object:
    """Return an object with a ``type``, which may be marked as the end of what is cached."""
    cache = object_of("type", ttl=Plain(("5m",), "an hour of cache is written at another price"))
    mark = object_of("mode ttl")
    marks: dict[str, Shape] = {"cache_control": cache, "prompt_cache_breakpoint": mark}
    return object_of(f"type {names}", **(marks | fields))
