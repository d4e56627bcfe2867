"""Says what is wrong with a suite: where, what was found and what is allowed, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import eq
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pytest_intercode.errors import suggestion
from pytest_intercode.suites import schema

__all__ = ["first_error", "locate", "row_error"]

_NEEDED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
"""What pydantic's errors of type ask for."""


def first_error(path: Path, node: yaml.Node | None, raw: Any, error: ValidationError) -> str:
    """Return the message of a suite file that does not fit the schema."""
    if not isinstance(raw, dict):
        return f"{path}: a suite is a mapping with env and tasks (or rows), not {raw!r:.60}"
    found = _most_telling(error)
    line, where = locate(node, found["loc"])
    return f"{path}:{line}: {where}{_explain(found)}"


def row_error(place: str, fields: Mapping[str, Any], error: ValidationError) -> str:
    """Return the message of a row that does not make a task."""
    found = _most_telling(error)
    where = ".".join(map(str, _names(found)))
    where = f"{where}: " if where else ""
    return f"{place}: {where}{_explain({**found, 'loc': ('tasks', *found['loc'])})}"


def _most_telling(error: ValidationError) -> Any:
    """Of the errors for one place (a union reports one for each branch), take the deepest.

    Of those that are as deep, a name that does not exist tells most, then what a branch of a union
    says of its own type, and the branches that want another type least.
    """
    errors = error.errors(include_url=False)
    first = _names(errors[0])[:2]
    same = [e for e in errors if all(map(eq, _names(e)[:2], first))]

    def telling(found: Any) -> tuple[int, int]:
        other = 0 if found["type"] in _NEEDED else 2
        return len(_names(found)), {"extra_forbidden": 3, "literal_error": 1}.get(
            found["type"], other
        )

    best: Any = max(same, key=telling)
    alike = [e for e in same if e["type"] in _NEEDED and _names(e) == _names(best)]
    return {**best, "needed": " or ".join(dict.fromkeys(_NEEDED[e["type"]] for e in alike))}


def _names(found: Any) -> list[int | str]:
    return [part for part in found["loc"] if not _is_branch(part)]


def _is_branch(part: object) -> bool:
    """Whether a part of a location names a branch of a union and not a field."""
    return isinstance(part, str) and (
        part in {"str", "constrained-str", "int", "RowSource"}
        or part.endswith("Model")
        or part.startswith(("list[", "literal[", "function-"))
    )


def locate(node: yaml.Node | None, location: Iterable[int | str]) -> tuple[int, str]:
    """Follow a location through the YAML and return its line and its name."""
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
    where = ".".join(names)
    if task:
        where = f"task {task!r}: {where}" if where else f"task {task!r}"
    return line, f"{where}: " if where else ""


def _explain(found: Any) -> str:
    """Say what was found and what is allowed."""
    kind, value, context = found["type"], found.get("input"), found.get("ctx") or {}
    if kind == "missing":
        return "this field is missing"
    if kind == "extra_forbidden":
        name = str(found["loc"][-1])
        fields = _fields_at(found["loc"])
        return f"there is no such field.{suggestion(name, fields)} Allowed: {', '.join(fields)}"
    if kind == "literal_error":
        allowed = [
            part.strip(" '") for part in str(context["expected"]).replace(" or ", ",").split(",")
        ]
        return f"{value!r} is not one of {', '.join(allowed)}.{suggestion(str(value), allowed)}"
    said = "" if isinstance(value, dict) else f" (found {value!r:.80})"
    if kind == "value_error":
        return f"{context.get('error', found['msg'])}{said}"
    if kind in _NEEDED:
        return f"{found['needed']} is needed, found {value!r:.80} ({type(value).__name__})"
    return f"{found['msg'][0].lower()}{found['msg'][1:]}{said}"


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    names = [part for part in location if isinstance(part, str)]
    models: dict[str, type[BaseModel]] = {
        "limits": schema.LimitsModel,
        "reward": schema.RewardModel,
        "files": schema.FileModel,
        "archive": schema.ArchiveModel,
    }
    for part in reversed(names[:-1]):
        if part in models:
            return list(models[part].model_fields)
    if len(names) > 1 and names[0] == "tasks":
        return list(schema.TaskModel.model_fields)
    if "defaults" in names[:-1] or "overrides" in names[:-1]:
        return list(schema.TaskFields.model_fields)
    if len(names) > 1 and names[0] == "rows":
        return list(schema.RowSource.model_fields)
    return list(schema.SuiteModel.model_fields)
