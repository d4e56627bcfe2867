"""Checks what a request asks for against the fields that are declared. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pytest_intercode.core.text import one_line
from pytest_intercode.gateway.exchange import Api
from pytest_intercode.gateway.fields import BETAS, FIELDS
from pytest_intercode.gateway.shapes import (
    ADDRESS,
    STORED_STATE,
    UNKNOWN_FIELD,
    Anything,
    Either,
    EpisodeId,
    Inline,
    Kinds,
    ListOf,
    MapOf,
    Object,
    Plain,
    Refusal,
    Shape,
)

__all__ = ["Limits", "NotAllowed", "check_fields", "is_beta"]

_MAX_DEPTH = 60  # keys that lead to a value

_Path: TypeAlias = "tuple[str, ...]"
"""The keys that lead to a value, without the places in lists."""


class NotAllowed(Exception):
    """A request has what may not be passed on.

    Args:
        message: what, where, and what it does.
        name: by which it can be allowed; empty where it cannot.
        hosted: whether it leaves the sandbox through the provider.
    """

    def __init__(self, message: str, name: str = "", *, hosted: bool = False) -> None:
        super().__init__(message)
        self.message, self.name, self.hosted = message, name, hosted


@dataclass(frozen=True)
class Limits:
    """What one request may have beyond the table.

    Attributes:
        names: fields and types that are passed on, whatever they hold.
        hosted: whether what runs at the provider may be used.
        answers: ids of what the provider answered in the same episode.
    """

    names: Container[str] = ()
    hosted: bool = False
    answers: Container[str] = ()


# A search that no field asks for: it is the model's own, or that of its name.
_SEARCHING = re.compile(
    r"search-(preview|api)|deep-research|:online\b|@preset/|(^|/)(sonar|compound)\b", re.I
)


def check_fields(api: Api, body: Mapping[str, Any], limits: Limits) -> None:
    """See that a request asks for nothing but what is known.

    Args:
        api: whose fields they are.
        body: the parsed body.
        limits: what is allowed beyond that.

    Raises:
        NotAllowed: it does.
    """
    model = body.get("model")
    if isinstance(model, str) and _SEARCHING.search(model) and not limits.hosted:
        raise NotAllowed(f"the model {_quote(model)} searches by itself", hosted=True)
    _check_object(FIELDS[api], body, (), limits)


def _check(shape: Shape, value: Any, path: _Path, limits: Limits) -> None:
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
        _check_object(shape.fields, value, path, limits)
    elif isinstance(shape, Kinds) and isinstance(value, dict):
        _check_kind(shape, value, path, limits)
    elif isinstance(shape, (Plain, Inline, EpisodeId)) and not isinstance(value, (dict, list)):
        _check_value(shape, value, path, limits)
    else:
        raise NotAllowed(f"the field {_quote_path(path)} has a form that is not known", path[-1])


def _check_value(
    shape: Plain | Inline | EpisodeId, value: object, path: _Path, limits: Limits
) -> None:
    if isinstance(shape, Plain):
        if shape.choices and value not in shape.choices:
            refusal = Refusal(f"{shape.reason}; allowed: {_join_values(shape.choices)}")
            description = f"the value {_quote(str(value))} of the field {_quote_path(path)}"
            raise _make_error(description, refusal, path[-1])
    elif isinstance(shape, Inline):
        if not limits.hosted and not (isinstance(value, str) and _is_inline(value)):
            raise _make_error(f"the field {_quote_path(path)}", ADDRESS, path[-1])
    elif value not in limits.answers:
        raise _make_error(f"the field {_quote_path(path)}", STORED_STATE, path[-1])


def _check_object(
    fields: Mapping[str, Shape], value: Mapping[str, Any], path: _Path, limits: Limits
) -> None:
    for key, inner in value.items():
        if key not in limits.names:
            _check(fields.get(key, UNKNOWN_FIELD), inner, (*path, key), limits)


def _check_kind(shape: Kinds, value: Mapping[str, Any], path: _Path, limits: Limits) -> None:
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
            raise _make_error(f"the type {_quote(kind)} in {_quote_path(path)}", inner, kind)
        return
    _check(inner, value, path, limits)


def _is_inline(text: str) -> bool:
    return text[:5].lower() == "data:" or _BASE64.fullmatch(text) is not None


_BASE64 = re.compile(r"[A-Za-z0-9+/=_\s-]*")  # which no address is, for want of a colon and a dot


def _make_error(description: str, refusal: Refusal, name: str) -> NotAllowed:
    return NotAllowed(
        f"{description} is not passed on: {refusal.reason}", name, hosted=refusal.hosted
    )


def _quote_path(path: _Path) -> str:
    return _quote(".".join(path))


def _quote(text: str) -> str:
    excerpt = one_line(text[:200])
    return f"'{excerpt[:80]}...'" if len(excerpt) > 80 else f"'{excerpt}'"


def _join_values(values: tuple[object, ...]) -> str:
    return " and ".join(value if isinstance(value, str) else json.dumps(value) for value in values)


def is_beta(name: str, limits: Limits) -> bool:
    """Whether a name in a header of betas is passed on: ``effort-2025-11-24``."""
    stem = re.sub(r"[-=]([\d-]+|experimental|v\d+)$", "", name)
    return stem in BETAS or name in limits.names or stem in limits.names
