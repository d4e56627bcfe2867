"""Data models as the domains of tau2-bench declare them: the part of pydantic that they use.

A value is converted as pydantic does by default, which decides what a tool accepts. Only the
messages of refused values are worded differently.
"""

from __future__ import annotations

import copy
import datetime
import enum
import json
import types
import typing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MISSING", "BaseModel", "ConfigDict", "Field", "ValidationError", "describe_fields"]

MISSING = object()
"""The default of a field that has none."""

_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
_MAX_WHOLE_FLOAT = 2.0**63  # larger ones are refused if a whole number is needed
_TRUE_WORDS = ("1", "true", "t", "yes", "y", "on")
_FALSE_WORDS = ("0", "false", "f", "no", "n", "off")
_JSON_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_validators: dict[Any, Callable[[Any], Any]] = {}


class ValidationError(ValueError):
    """A value does not have its field's type."""


class FieldInfo:
    """The declaration of a field: its default or default factory, and its description."""

    def __init__(self, default: Any, factory: Callable[[], Any] | None, description: str) -> None:
        self.default = default
        self.factory = factory
        self.description = description


def Field(
    default: Any = MISSING,
    *,
    default_factory: Callable[[], Any] | None = None,
    description: str = "",
    **_: Any,
) -> Any:
    """Return the declaration of a field."""
    return FieldInfo(default, default_factory, description)


def ConfigDict(**config: Any) -> dict[str, Any]:
    """Return the configuration of a model."""
    return config


class BaseModel:
    """A model: its annotations are its fields."""

    model_config = ConfigDict()

    def __init__(self, **values: Any) -> None:
        fields = fields_of(type(self))
        if self.model_config.get("extra") == "forbid" and (unknown := values.keys() - fields):
            raise ValidationError(f"{type(self).__name__}: no field {', '.join(sorted(unknown))}")
        for name, (hint, info) in fields.items():
            if name in values:
                try:
                    self.__dict__[name] = _validator(hint)(values[name])
                except ValidationError as error:
                    raise ValidationError(f"{type(self).__name__}.{name}: {error}") from None
            elif info.factory is not None:
                self.__dict__[name] = info.factory()
            elif info.default is not MISSING:
                self.__dict__[name] = copy.deepcopy(info.default)
            else:
                raise ValidationError(f"{type(self).__name__}: {name} is missing")

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        """Return a model from a mapping."""
        return _validator(cls)(value)

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return builtin values, except for enumerations and dates."""
        return {name: _dump(value) for name, value in self.__dict__.items()}

    def model_dump_json(self, indent: int | None = None, **_: Any) -> str:
        """Return the model as JSON."""
        return json.dumps(self.model_dump(), indent=indent, default=str)

    def model_copy(self, *, update: dict[str, Any] | None = None, deep: bool = False) -> Any:
        """Return a copy."""
        new = copy.deepcopy(self) if deep else copy.copy(self)
        new.__dict__.update(update or {})
        return new

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._parts())})"

    def __str__(self) -> str:
        return " ".join(self._parts())

    def _parts(self) -> list[str]:
        return [f"{name}={value!r}" for name, value in self.__dict__.items()]


def fields_of(cls: type[Any]) -> dict[str, tuple[Any, FieldInfo]]:
    """Return the types and the declarations of a model's fields, in order."""
    if "_own_fields" not in cls.__dict__:
        fields = {}
        for name, hint in typing.get_type_hints(cls, include_extras=True).items():
            if name != "model_config":
                info = getattr(cls, name, MISSING)
                if not isinstance(info, FieldInfo):
                    info = FieldInfo(info, None, _description_of(hint))
                fields[name] = (hint, info)
        cls._own_fields = fields
    own_fields: dict[str, tuple[Any, FieldInfo]] = cls._own_fields
    return own_fields


def _description_of(hint: Any) -> str:
    extras = typing.get_args(hint)[1:] if typing.get_origin(hint) is typing.Annotated else ()
    return next((extra.description for extra in extras if isinstance(extra, FieldInfo)), "")


def _dump(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, dict):
        return {_dump(key): _dump(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return type(value)(map(_dump, value))
    return value


# -- values, converted


def _validator(hint: Any) -> Callable[[Any], Any]:
    if hint not in _validators:
        _validators[hint] = _make_validator(hint)
    return _validators[hint]


def _make_validator(hint: Any) -> Callable[[Any], Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any:
        return lambda value: value
    if origin is typing.Annotated:
        return _validator(arguments[0])
    if origin is typing.Literal:
        return lambda value: _one_of(value, arguments)
    if origin in _UNIONS:
        return lambda value: _first_of(value, arguments)
    container = origin or hint
    if container is dict:
        key, item = map(_validator, arguments or (typing.Any, typing.Any))
        return lambda value: {key(name): item(part) for name, part in _need(value, dict).items()}
    if container in (list, set):
        [member] = map(_validator, arguments or (typing.Any,))
        return lambda value: container(map(member, _need(value, (list, tuple, set))))
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return lambda value: _make_model(value, hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return lambda value: _convert(hint, value)
    return _SCALARS.get(hint) or (lambda value: _need(value, hint))


def _need(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise ValidationError(f"{value!r:.60} is not valid")
    return value


def _convert(kind: Callable[[Any], Any], value: Any) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        raise ValidationError(f"{value!r:.60} is not valid") from None


def _one_of(value: Any, allowed: tuple[Any, ...]) -> Any:
    for literal in allowed:
        if type(literal) is type(value) and literal == value:
            return value
    raise ValidationError(f"{value!r:.60} is not one of {', '.join(map(repr, allowed))}")


def _make_model(value: Any, cls: type[Any]) -> Any:
    return value if isinstance(value, cls) else cls(**_need(value, dict))


def _first_of(value: Any, members: tuple[Any, ...]) -> Any:
    """Return a value unchanged if it has a member's type, or else as the best fitting member."""
    if any(type(value) is member for member in members):
        return value
    candidates = []
    for member in members:
        try:
            candidates.append(_validator(member)(value))
        except ValidationError:
            continue
    if not candidates:
        raise ValidationError(f"{value!r:.60} is of none of the types")
    models = [candidate for candidate in candidates if isinstance(candidate, BaseModel)]
    if models and isinstance(value, dict):
        return max(models, key=lambda model: len(model.__dict__.keys() & value.keys()))
    return candidates[0]


def _text(value: Any) -> str:
    text: str = _need(value, str)
    return text


def _whole_number(value: Any) -> int:
    if isinstance(value, float) and not (value.is_integer() and abs(value) < _MAX_WHOLE_FLOAT):
        raise ValidationError(f"{value!r} is not a whole number")
    return int(_convert(int, _need(value, (int, float, str))))


def _number(value: Any) -> float:
    return float(_convert(float, _need(value, (int, float, str))))


def _truth(value: Any) -> bool:
    word = str(value).lower() if isinstance(value, str) else value
    if word in (1, *_TRUE_WORDS):
        return True
    if word in (0, *_FALSE_WORDS):
        return False
    raise ValidationError(f"{value!r:.60} is neither true nor false")


def _moment(kind: type[datetime.date], value: Any) -> datetime.date:
    if isinstance(value, kind):
        return value
    moment: datetime.date = _convert(kind.fromisoformat, value)
    return moment


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    str: _text,
    int: _whole_number,
    float: _number,
    bool: _truth,
    datetime.date: lambda value: _moment(datetime.date, value),
    datetime.datetime: lambda value: _moment(datetime.datetime, value),
}


# -- types, described


def describe_type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a type.

    Args:
        hint: the type.
        definitions: receives the schemas of models and enumerations that it refers to.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return describe_type(arguments[0], definitions)
    if origin is typing.Literal:
        kinds = {_JSON_NAMES[type(value)] for value in arguments}
        values: dict[str, Any] = {"enum": list(arguments)}
        if len(arguments) == 1:
            values = {"const": arguments[0]}
        return {**values, "type": kinds.pop()} if len(kinds) == 1 else values
    if origin in _UNIONS:
        return {"anyOf": [describe_type(member, definitions) for member in arguments]}
    container = origin or hint
    if container is list:
        items = describe_type(arguments[0], definitions) if arguments else {}
        return {"items": items, "type": "array"}
    if container is dict:
        members: Any = describe_type(arguments[1], definitions) if arguments else True
        return {"additionalProperties": members or True, "type": "object"}
    if isinstance(hint, type) and issubclass(hint, (BaseModel, enum.Enum)):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # it may refer to itself
            definitions[hint.__name__] = _describe_class(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return {"type": _JSON_NAMES[hint]} if hint in _JSON_NAMES else {}


def _describe_class(cls: type[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    docstring = cls.__dict__.get("__doc__")
    description = {"description": " ".join(docstring.split())} if docstring else {}
    if issubclass(cls, enum.Enum):
        members = [member.value for member in cls]
        return {"enum": members, "title": cls.__name__, "type": _JSON_NAMES[type(members[0])]}
    fields = {
        name: (hint, info.default if info.factory is None else info.factory(), info.description)
        for name, (hint, info) in fields_of(cls).items()
    }
    closed = {"additionalProperties": False} if cls.model_config.get("extra") == "forbid" else {}
    return {**closed, **description, **describe_fields(cls.__name__, fields, definitions)}


def describe_fields(
    title: str, fields: dict[str, tuple[Any, Any, str]], definitions: dict[str, Any]
) -> dict[str, Any]:
    """Return the JSON schema of an object.

    Args:
        title: its title.
        fields: the type, the default and the description of each field; ``MISSING`` for a
            field without a default.
        definitions: as for :func:`describe_type`.
    """
    properties: dict[str, Any] = {}
    required = []
    for name, (hint, default, description) in fields.items():
        schema = describe_type(hint, definitions)
        if "$ref" not in schema:
            schema["title"] = name.replace("_", " ").title()
        if description:
            schema["description"] = description
        if default is MISSING:
            required.append(name)
        else:
            schema["default"] = _dump(default)
        properties[name] = schema
    result = {"properties": properties, "title": title, "type": "object"}
    return {**result, "required": required} if required else result
