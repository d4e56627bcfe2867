"""Messages about mistakes in a suite: where, what was found and what is allowed, in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from operator import eq
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml
from pydantic import BaseModel, ValidationError

from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.environments.registry import environment_names, kind_of
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.suites.schema import LayerModel

__all__ = ["first_error", "foreign_fields", "locate", "row_error"]

_TYPE_NAMES = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
}
"""The types that pydantic's type errors ask for."""

_UNKNOWN_FIELD = ("extra_forbidden", "unexpected_keyword_argument")  # in a model, in a dataclass


def first_error(
    path: Path, node: yaml.Node | None, raw: Any, error: ValidationError, model: type[BaseModel]
) -> str:
    """Return the message for a suite file that does not fit its environment's schema."""
    if not isinstance(raw, dict):
        content = "but this file is empty" if raw is None else f"not {raw!r:.60}"
        return f"{path}: a suite must be a mapping with env and tasks (or rows), {content}"
    details = _most_specific(error)
    line, name = locate(node, details["loc"])
    return f"{path}:{line}: {name}{_describe_error(details, model, raw.get('env'))}"


def row_error(place: str, error: ValidationError, model: type[BaseModel], env: str = "") -> str:
    """Return the message for data that does not fit a model, such as a row for a task."""
    details = _most_specific(error)
    name = ".".join(map(str, _field_names(details)))
    name = f"{name}: " if name else ""
    return f"{place}: {name}{_describe_error(details, model, env)}"


def _most_specific(error: ValidationError) -> Any:
    """Return the most specific of the errors for one place; a union has one for each branch.

    It is the deepest one. Among equally deep errors, an unknown name comes first, then the error of
    a branch of the right type, then those of branches of another type.
    """
    errors = error.errors(include_url=False)
    first = _field_names(errors[0])[:2]
    candidates = [e for e in errors if all(map(eq, _field_names(e)[:2], first))]

    def rank(details: Any) -> tuple[int, int]:
        default_rank = 0 if details["type"] in _TYPE_NAMES else 2
        ranks = {**dict.fromkeys(_UNKNOWN_FIELD, 3), "literal_error": 1}
        return len(_field_names(details)), ranks.get(details["type"], default_rank)

    best: Any = max(candidates, key=rank)
    alike = [
        e for e in candidates if e["type"] in _TYPE_NAMES and _field_names(e) == _field_names(best)
    ]
    return {**best, "needed": " or ".join(dict.fromkeys(_TYPE_NAMES[e["type"]] for e in alike))}


def _field_names(details: Any) -> list[int | str]:
    return [part for part in details["loc"] if not _is_branch(part)]


def _is_branch(part: object) -> bool:
    """Whether a part of a location names a branch of a union and not a field."""
    return isinstance(part, str) and (
        part in {"str", "constrained-str", "int", "bool", "RowSource", "ProgramTest", "CallTest"}
        or part.endswith("Model")
        or part.startswith(("list[", "tuple[", "dict[", "literal[", "function-"))
    )


def locate(node: yaml.Node | None, location: Iterable[int | str]) -> tuple[int, str]:
    """Find a location in the YAML, and return its line and its name."""
    line = 1
    names: list[str] = []
    task = ""
    for part in location:
        if _is_branch(part):
            continue
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line, node = key.start_mark.line + 1, value
                    break
            names.append(str(part))
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line + 1
            if names == ["tasks"] and isinstance(node, yaml.MappingNode):
                task = next((v.value for k, v in node.value if k.value == "id"), f"#{part + 1}")
                names = []
            else:
                names.append(str(part))
    name = ".".join(names)
    if task:
        name = f"task {task!r}: {name}" if name else f"task {task!r}"
    return line, f"{name}: " if name else ""


def _describe_error(details: Any, model: type[BaseModel], env: Any) -> str:
    """Describe what was found and what is allowed.

    Args:
        details: the error.
        model: the model of the whole data.
        env: the environment of the suite, which may have any type.
    """
    kind, value, context = details["type"], details.get("input"), details.get("ctx") or {}
    if kind == "missing":
        return "this field is missing"
    if kind in _UNKNOWN_FIELD:
        name = str(details["loc"][-1])
        place = _model_at(details["loc"], model)
        if issubclass(place, LayerModel) and name in (refusals := foreign_fields(env)):
            return refusals[name]
        names = _field_names_of(place)
        return f"there is no such field.{suggestion(name, names)} Allowed: {', '.join(names)}"
    if kind == "literal_error":
        choices = [
            part.strip(" '") for part in str(context["expected"]).replace(" or ", ",").split(",")
        ]
        hint = context.get("hint") or suggestion(str(value), choices)
        return f"{value!r} is not one of {', '.join(choices)}.{hint}"
    suffix = "" if isinstance(value, dict) else f" (found {value!r:.80})"
    if kind == "value_error":
        return f"{context.get('error', details['msg'])}{suffix}"
    if kind in _TYPE_NAMES:
        return f"{details['needed']} is needed, found {value!r:.80} ({type(value).__name__})"
    return f"{details['msg'][0].lower()}{details['msg'][1:]}{suffix}"


def foreign_fields(env: Any, kinds: Iterable[EnvironmentKind] | None = None) -> dict[str, str]:
    """Return the fields that the suites of other environments have, each with its refusal.

    Args:
        env: the environment that lacks them.
        kinds: the other environments; by default all known ones.
    """
    refusals: dict[str, str] = {}
    for kind in _kinds() if kinds is None else kinds:
        texts = {item.name: item.metadata.get("refusal") for item in fields(kind.fields_class)}
        if kind.has_verification:
            texts["verification"] = None
        if kind.has_shell:
            texts["services"] = "is for tasks with a shell, not for the env {env}"
        for name, refusal in texts.items():
            text = str(refusal) if refusal else f"is for the env {kind.name}, not {{env}}"
            # Not str.format(), because third-party texts may contain other braces.
            refusals.setdefault(name, text.replace("{env}", str(env)))
    return refusals


def _kinds() -> Iterator[EnvironmentKind]:
    for name in environment_names():
        with contextlib.suppress(ConfigurationError):  # ignore a kind that cannot be loaded
            yield kind_of(name)


def _model_at(location: tuple[int | str, ...], model: type[BaseModel]) -> type[Any]:
    models_by_place = _models_by_place(model)
    *names, _ = [part for part in location if isinstance(part, str)]
    for part in reversed(names):
        if part in models_by_place:
            return models_by_place[part]
    return model


@cache
def _models_by_place(model: type[BaseModel]) -> dict[str, type[Any]]:
    """Return the models of a model's fields, by the name of the field or of a union's branch."""
    models_by_place: dict[str, type[Any]] = {}
    pending: list[Any] = [model]
    while pending:
        for name, annotation in get_type_hints(pending.pop(0)).items():
            for part in _models_in(annotation):
                if name not in models_by_place:
                    pending.append(part)
                for place in (name, part.__name__):
                    models_by_place.setdefault(place, part)
    return models_by_place


def _models_in(annotation: Any) -> Iterator[Any]:
    """Yield the models and dataclasses in a type."""
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or is_dataclass(annotation)
    ):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _field_names_of(model: Any) -> list[str]:
    return list(getattr(model, "model_fields", None) or model.__dataclass_fields__)
