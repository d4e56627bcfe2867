"""The format of a results file's line: an :class:`EpisodeRecord` to JSON and back.

The reader and the writer are made from the declarations of the fields (in ``core/record.py``,
``core/turn.py`` and ``core/usage.py``); this module has the order of the keys, and the differences
of older versions and InterCode's own files. InterCode's keys come first, so that programs for its
files can read ours. ``results/schema.py`` describes a line for others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    Strict,
    StrictBool,
    StrictStr,
    ValidationError,
    create_model,
)

from pytest_intercode.core.line import LineField
from pytest_intercode.core.record import (
    FORMAT_VERSION,
    OUTCOMES,
    EpisodeRecord,
    ShardRecord,
    TaskRecord,
)
from pytest_intercode.core.secrets import names_secret
from pytest_intercode.core.turn import Turn
from pytest_intercode.core.usage import Usage
from pytest_intercode.errors import ConfigurationError

__all__ = [
    "from_line",
    "from_row",
    "line_model",
    "plain_text",
    "shown_arguments",
    "to_line",
    "to_row",
    "with_item",
]

# The order of a line's keys, InterCode's own first; a key that is not listed comes after them.
_ORDER = (
    *("environment", "dataset", "task_id", "query", "turn_history.actions"),
    *("turn_history.observations", "turn_history.rewards", "turn_history.valid_action"),
    *("turn_history.thoughts", "summary.max_reward", "summary.max_reward_idx"),
    *("summary.turns_taken", "summary.turns_max"),
    *("format_version", "outcome", "reward", "reward_parts", "reason", "detail", "seconds"),
    *("turn_seconds", "turn_parts", "turn_agent_seconds", "turn_passed", "turn_answers"),
    *("turn_tools", "turn_status", "turn_logs", "turn_usage", "usage", "dialogue", "user_usage"),
    *("log", "left_behind"),
    *("turn_model_calls", "model_calls"),
    *("suite", "hardness", "tags", "profile", "agent", "agent_arguments", "sandbox", "image"),
    *("task_digest", "repeat", "node_id", "attempts", "end_state", "test_output"),
    *("image_digest", "parameters_version", "calls", "calls_left_out"),
    *("host", "phases", "test_passed", "test_runs", "test_digest", "item", "run_name", "shard"),
    *("refused_hosts", "judge", "superseded", "rescored_from", "reward_function"),
)
_POSITIONS = {key: position for position, key in enumerate(_ORDER)}


# -- columns: the fields of a record, of its task and of its turns

_MAX_WHOLE = 2**53
_Number = Annotated[float, Strict()]
_Whole = Annotated[int, Strict(), Field(ge=-_MAX_WHOLE, le=_MAX_WHOLE)]
_STRICT: dict[Any, Any] = {
    **{str: StrictStr, bool: StrictBool, int: _Whole, float: _Number, Any: JsonValue}
}


class _Column(NamedTuple):
    """A field of a dataclass in a line.

    Attributes:
        name: the field's name.
        key: its key, ``a.b`` for one in an object.
        optional: whether it is left out if it is empty.
        required: whether it has no default.
        default: the value if a line does not have it.
        type: pydantic's type for reading it.
        getter: returns a line's value.
        write: converts a value to builtins.
    """

    name: str
    key: str
    optional: bool
    required: bool
    default: Any
    type: Any
    getter: Callable[[Any], Any]
    write: Callable[[Any], Any]

    def write_to(self, row: dict[str, Any], value: Any) -> None:
        """Put a value into a row, unless it is left out."""
        present = value if self.default is not None else value is not None
        if present or not self.optional:
            row[self.key] = self.write(value)

    def read_from(self, line: Any) -> Any:
        """Return the value that a line has; null means the default."""
        value = self.getter(line)
        return self.default if value is None else value


@cache
def _columns(cls: Any, *special: str) -> tuple[_Column, ...]:
    """Return the columns of a dataclass, without the special ones."""
    hints, columns = get_type_hints(cls), []
    for field in fields(cls):
        if field.name in special:
            continue
        hint, in_line = hints[field.name], LineField.of(field)
        required = field.default is MISSING and field.default_factory is MISSING
        if field.default_factory is not MISSING:
            default = field.default_factory()
        elif required:
            default = hint() if hint in (str, float, int) else None
        else:
            default = field.default
        key = in_line.key or field.name
        columns.append(
            _Column(
                *(field.name, key, in_line.optional, required, default),
                *(_type_of(hint), attrgetter(key), _writer(hint, in_line)),
            )
        )
    return tuple(columns)


def _position(key: str) -> int:
    return _POSITIONS.get(key, len(_POSITIONS))


def _type_of(hint: Any) -> Any:
    """Return pydantic's type for a field, which does not convert values of other types."""
    if hint in _STRICT:
        return _STRICT[hint]
    if is_dataclass(hint):
        cls: Any = hint
        return Annotated[_model_of(cls), AfterValidator(lambda model: _object_of(cls, model))]
    origin, members = get_origin(hint), get_args(hint)
    if origin is Literal:
        return hint
    members = tuple(
        member if member in (..., type(None)) else _type_of(member) for member in members
    )
    containers: dict[Any, Any] = {tuple: tuple, Mapping: dict}
    return containers[origin][members] if origin in containers else members[0] | None


def _writer(hint: Any, in_line: LineField) -> Callable[[Any], Any]:
    """Return the function that converts a field's values to builtins."""
    if hint is Usage:
        return Usage.as_row
    if is_dataclass(hint):
        return _write_object
    if hint is str:
        return plain_text if in_line.printed else lambda value: value
    if hint is float and in_line.digits is not None:
        return lambda value: round(value, in_line.digits)
    if hint is float or hint is bool:
        to_builtin: Callable[[Any], Any] = hint
        return to_builtin
    if in_line.secrets:
        return shown_arguments
    origin, members = get_origin(hint), get_args(hint)
    if origin is tuple:
        write = _writer(members[0], in_line)
        return lambda value: [write(member) for member in value]
    if origin is Mapping:
        write = _writer(members[1], in_line)
        return lambda value: {name: write(member) for name, member in value.items()}
    if type(None) in members:
        write = _writer(members[0], in_line)
        return lambda value: None if value is None else write(value)
    return lambda value: value


def plain_text(text: str) -> str:
    """Return a text that can be written as UTF-8, which is not true of every text of an agent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown_arguments(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return an agent's arguments as they may be written: without keys and passwords."""
    return {
        name: "(hidden)" if names_secret(name) else plain_text(str(value))
        for name, value in arguments.items()
    }


def _write_object(value: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column in _columns(value.__class__):
        column.write_to(row, getattr(value, column.name))
    return row


# -- the shape of a line


class _Lenient(BaseModel):
    """An object that may have further keys."""

    model_config = ConfigDict(extra="allow", defer_build=True)
    __pydantic_extra__: dict[str, JsonValue]


@cache
def _model_of(cls: Any) -> type[BaseModel]:
    """Return the model for the objects of a dataclass."""
    members: dict[str, Any] = {
        column.key: (column.type, ... if column.required else column.default)
        for column in _columns(cls)
    }
    model: type[BaseModel] = create_model(cls.__name__, __base__=_Lenient, **members)
    return model


def _object_of(cls: Any, model: BaseModel) -> Any:
    return cls(**{column.name: getattr(model, column.key) for column in _columns(cls)})


_TASK = _columns(TaskRecord)
_TURN = _columns(Turn)
_RECORD = _columns(EpisodeRecord, "task", "turns", "extra", "format_version")
_OF_ITEM = [column for column in _RECORD if column.name in ("item", "run_name", "shard")]


@cache
def line_model() -> type[BaseModel]:
    """Return the model of a line, with which pydantic checks lines that are read.

    InterCode's lines have only a few of the keys. The model is made on first use, so that a run
    that reads no results does not spend the time for it.
    """
    shapes: dict[str, tuple[Any, Any]] = {
        column.key: (column.type, column.default) for column in (*_TASK, *_RECORD)
    }
    shapes |= {column.key: (list[column.type], []) for column in _TURN}  # type: ignore[name-defined]
    version = Annotated[int, Strict(), Field(ge=0, le=FORMAT_VERSION)]
    shapes |= {"summary.max_reward": (_Number, None), "format_version": (version | None, None)}
    shapes |= dict.fromkeys(("summary.max_reward_idx", "summary.turns_taken"), (_Whole, None))
    for key in ("outcome", "reward"):  # InterCode's lines do not have them
        shapes[key] = (shapes[key][0] | None, None)
    line: dict[str, Any] = {}
    members: dict[str, dict[str, Any]] = {"": line, "turn_history": {}, "summary": {}}
    for key, (type_, default) in sorted(shapes.items(), key=lambda shape: _position(shape[0])):
        parent, _, name = key.rpartition(".")
        line |= {parent: None} if parent else {}  # reserves its position; its type follows below
        if parent == "turn_history":  # InterCode's columns have gaps
            type_ = list[get_args(type_)[0] | None]  # type: ignore[misc]
        elif parent == "summary":
            type_, default = type_ | None, None
        members[parent][name] = (type_, default)
    members["turn_history"]["actions"] = (list[StrictStr], ...)
    history = create_model("TurnHistory", __base__=_Lenient, **members["turn_history"])
    summary = create_model("EpisodeSummary", __base__=_Lenient, **members["summary"])
    line |= {"turn_history": (history, ...), "summary": (summary, summary.model_construct())}
    line["task_id"] = (StrictStr | _Whole, ...)
    return create_model("EpisodeLine", __base__=_Lenient, **line)


# -- writing


def to_line(record: EpisodeRecord) -> str:
    """Return a record as a line of JSON, in ASCII and without the line end."""
    return json.dumps(to_row(record), ensure_ascii=True)


def with_item(
    line: str, item: int | None, shard: ShardRecord | None = None, run_name: str = ""
) -> str:
    """Return a line of :func:`to_line`, with its item's position, its shard and its run."""
    values = {"item": item, "run_name": run_name, "shard": shard}
    row: dict[str, Any] = {}
    for column in _OF_ITEM:
        column.write_to(row, values[column.name])
    return f"{line[:-1]}, {json.dumps(row)[1:]}" if row else line


def to_row(record: EpisodeRecord) -> dict[str, Any]:
    """Return a record as builtins, ready for JSON. Keys and passwords are hidden."""
    task, turns = record.task, record.turns
    flat: dict[str, Any] = {"format_version": record.format_version}
    for column in _TASK:
        column.write_to(flat, getattr(task, column.name))
    flat["environment"] = f"ic_{task.env}" if task.env else ""
    for column in _RECORD:
        column.write_to(flat, getattr(record, column.name))
    for column in _TURN:
        cells = [column.write(getattr(turn, column.name)) for turn in turns]
        # A status of 0 is not empty.
        filled = any(cell or type(cell) is int for cell in cells)
        if not column.optional or (record.usage if column.name == "usage" else filled):
            flat[column.key] = cells
    rewards = flat["turn_history.rewards"]
    flat["summary.max_reward"] = max([flat["reward"], *rewards])
    flat["summary.max_reward_idx"] = max(range(len(rewards)), key=rewards.__getitem__, default=0)
    flat["summary.turns_taken"] = len(turns)
    row: dict[str, Any] = {}
    for key in sorted(flat, key=_position):
        parent, _, name = key.rpartition(".")
        (row.setdefault(parent, {}) if parent else row)[name] = flat[key]
    extra = dict(record.extra)
    row["turn_history"] |= extra.pop("turn_history", {})
    return {**row, **extra}


# -- reading


def from_line(line: str) -> EpisodeRecord:
    """Return the record from a line that :func:`to_line` wrote."""
    return from_row(json.loads(line))


def from_row(row: object, where: str = "row") -> EpisodeRecord:
    """Return the record from a parsed line of any version, or of InterCode.

    Args:
        row: the line's object.
        where: the place of the line, for the message.

    Raises:
        ConfigurationError: it is not a recorded episode.
    """
    try:
        line: Any = line_model().model_validate(row)
    except ValidationError as error:
        problem = _problem(error)
    else:
        problem = _contradiction(line)
        if not problem:
            return _record(line)
    raise ConfigurationError(f"{where}: not a recorded episode: {problem}")


def _record(line: Any) -> EpisodeRecord:
    task = {column.name: column.read_from(line) for column in _TASK}
    task |= {"id": str(line.task_id), "env": line.environment.removeprefix("ic_")}
    values = {column.name: column.read_from(line) for column in _RECORD}
    version = line.format_version
    if version is None:
        version = 0 if line.outcome is None else 1
    if line.outcome is None:  # InterCode's
        reward = values["reward"] = line.summary.max_reward or 0.0
        values["outcome"] = "solved" if reward >= 1 else "failed"
    extra: dict[str, Any] = dict(line.model_extra)
    if line.turn_history.model_extra:
        extra["turn_history"] = line.turn_history.model_extra
    return EpisodeRecord(
        task=TaskRecord(**task),
        turns=_turns(line, version),
        extra=extra,
        format_version=version,
        **values,
    )


def _turns(line: Any, version: int) -> tuple[Turn, ...]:
    history = line.turn_history
    if version == 0 and history.thoughts:
        history.actions = [_unwrapped(action) for action in history.actions]
    turns: list[dict[str, Any]] = [{"observation": "", "executed": None} for _ in history.actions]
    for column in _TURN:
        for turn, cell in zip(turns, column.read_from(line), strict=False):
            if cell is not None:
                turn[column.name] = cell
    return tuple(Turn(**turn) for turn in turns)


def _unwrapped(action: str) -> str:
    """Take an action out of the ``execute[...]`` of InterCode's ReAct recordings."""
    text = action.strip()
    if text.startswith("execute[") and text.endswith("]"):
        return text[len("execute[") : -1]
    return action


# -- what is wrong with a row

_NEEDED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "literal_error": f"one of {', '.join(OUTCOMES)}",
    "greater_than_equal": "a number of a sensible size",
    "less_than_equal": "a number of a sensible size",
}


def _contradiction(line: Any) -> str:
    """Return what contradicts something else or is out of range; empty if nothing does."""
    if line.outcome is not None and line.reward is None:
        return "it has an outcome but no reward"
    if any(line.turn_parts) and not line.turn_history.rewards:
        return "it has turn_parts but no turn_history.rewards"
    if line.pass_rate is not None and not 0 < line.pass_rate <= 1:  # NaN is neither
        return "pass_rate is not a number above 0 and up to 1"
    if line.tries is not None and line.tries < 1:
        return "tries is not a whole number above 0"
    for number, call in enumerate(line.model_calls):
        if call.base is not None and not 0 <= call.base < number:
            return f"model_calls[{number}].base is not an earlier call"
    return ""


def _problem(error: ValidationError) -> str:
    """Return what the first mistake is, and where."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind, location = first["type"], first["loc"]
    if kind == "recursion_depth_exceeded" or kind == "recursion_loop":
        return f"{location[0]} is nested too deeply"
    if location[:1] == ("task_id",):
        return "it has no task_id" if kind == "missing" else "task_id is neither text nor a number"
    if location[:1] == ("format_version",) and kind == "less_than_equal":
        return (
            "it was written by a newer version; this one reads format_version up to "
            f"{FORMAT_VERSION}"
        )
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    name = name.removeprefix(".")
    if kind == "missing":
        return f"it has no {'turn_history.actions' if name == 'turn_history' else name}"
    return f"{name or 'it'} is not {_NEEDED.get(kind, 'as it should be: ' + first['msg'])}"
