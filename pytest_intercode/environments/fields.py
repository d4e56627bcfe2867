"""Fields that only tasks of some environments have: how suites write them and how they are checked.

The fields of a built-in environment are declared in the module of this name in its folder.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PydanticSchemaGenerationError,
    StrictStr,
    TypeAdapter,
)

from pytest_intercode.core.task import Task, TaskFields, in_suite
from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.suite_folder import SuitePath

__all__ = [
    *("AbsolutePath", "CallTest", "CodeTest", "FileForm", "InterpreterFields", "ProgramTest"),
    *("SuiteForm", "Test", "Texts", "as_tuple", "check_fields", "forms_of", "leaves_of"),
    "path_fields",
]


class SuiteForm(BaseModel):
    """A mapping in a suite."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )


class FileForm(SuiteForm):
    """A mapping in a suite that names files in the suite's folder."""

    def build(self, folder: SuitePath) -> Any:
        """Return the value that the mapping describes.

        Args:
            folder: where relative paths in the suite start.

        Raises:
            SuiteError: it names a file that the suite may not read, or that does not exist.
        """
        raise NotImplementedError


def as_tuple(value: str | list[str]) -> tuple[str, ...]:
    """Return one or more texts as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("an absolute path is needed, one that starts with /")
    return value


AbsolutePath = Annotated[StrictStr, AfterValidator(_absolute)]
Texts = Annotated[
    StrictStr | Annotated[list[StrictStr], Field(min_length=1)], AfterValidator(as_tuple)
]


# -- hidden tests

_NO_OTHER_KEYS: Mapping[str, str] = {"extra": "forbid"}


@dataclass(frozen=True)
class CodeTest:
    """Source code that runs after the agent's; in Python, statements with an ``assert``."""

    code: str


@dataclass(frozen=True)
class ProgramTest:
    """A whole program's input, and the output that it should have.

    Attributes:
        input: what it reads.
        output: what it should print.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    input: str
    output: str


@dataclass(frozen=True)
class CallTest:
    """Arguments of one call, and the result that it should have; both are JSON values.

    Attributes:
        arguments: the arguments, in order.
        result: what the call should return.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    arguments: tuple[Any, ...]
    result: Any


Test: TypeAlias = CodeTest | ProgramTest | CallTest


def _test(test: str | ProgramTest | CallTest) -> Test:
    return CodeTest(test) if isinstance(test, str) else test


_Tests = Annotated[
    list[Annotated[StrictStr | ProgramTest | CallTest, AfterValidator(_test)]],
    Field(min_length=1),
    AfterValidator(tuple),
]


@dataclass(frozen=True)
class InterpreterFields(TaskFields):
    """The fields of tasks for an interpreter.

    Attributes:
        tests: the hidden tests.
    """

    tests: tuple[Test, ...] = field(
        default=(),
        metadata=in_suite(_Tests, refusal="they are for the env python, not {env}"),
    )


# -- the fields that a class declares


def forms_of(cls: type[TaskFields]) -> dict[str, Any]:
    """Return the fields of a class, each with the type that pydantic reads from a suite."""
    hints = get_type_hints(cls, include_extras=True)
    return {item.name: item.metadata.get("form") or hints[item.name] for item in fields(cls)}


@cache
def path_fields(kind: EnvironmentKind) -> tuple[str, ...]:
    """Return the names of a kind's fields that hold paths."""
    cls = kind.fields_class
    hints = get_type_hints(cls)
    return tuple(item.name for item in fields(cls) if _holds_paths(hints[item.name], ()))


def _holds_paths(hint: Any, outer: tuple[Any, ...]) -> bool:
    if hint is Path:
        return True
    parts = get_type_hints(hint).values() if is_dataclass(hint) else get_args(hint)
    return hint not in outer and any(_holds_paths(part, (*outer, hint)) for part in parts)


def leaves_of(value: object) -> Iterator[object]:
    """Yield the texts, numbers and paths in plain data."""
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, (tuple, list)):
        parts = [*value]
    elif is_dataclass(value):
        parts = [getattr(value, item.name) for item in fields(value)]
    else:
        yield value
        return
    for part in parts:
        yield from leaves_of(part)


_TAKEN = frozenset({*(item.name for item in fields(Task)), "dockerfile", "network"})
"""The names of the fields that every task has, and of other keys of a task in suites."""


def check_fields(cls: type[TaskFields]) -> None:
    """Check a class of fields that a third party declares.

    Raises:
        ConfigurationError: suites could not be read with it.
    """
    location = f"{cls.__module__}.{cls.__qualname__}" if isinstance(cls, type) else repr(cls)
    if not (isinstance(cls, type) and issubclass(cls, TaskFields)):
        raise ConfigurationError(f"{location}: fields: a subclass of TaskFields is needed")
    if "__dataclass_params__" not in vars(cls):
        raise ConfigurationError(f"{location}: put @dataclass(frozen=True) above it")
    try:
        TypeAdapter(cls)
        forms_of(cls)
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, PydanticSchemaGenerationError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"{location}: its types cannot be read: {reason}") from None
    for item in fields(cls):
        name = f"{location}: {item.name}"
        if item.default is MISSING and item.default_factory is MISSING:
            raise ConfigurationError(
                f"{name}: a default is needed; let the kind's check() refuse a task without it"
            )
        is_taken = any(hasattr(base, item.name) for base in (BaseModel, TaskFields))
        if item.name in _TAKEN or item.name.startswith("_") or is_taken:
            raise ConfigurationError(f"{name}: this name is taken; choose another one")
        for hint in _not_plain(hints[item.name], ()):
            text = hint.__name__ if type(hint) is type else hint
            raise ConfigurationError(
                f"{name}: {text} is not plain data; use str, int, float, bool, Path, or tuples, "
                "mappings of str and frozen dataclasses of these"
            )


_PLAIN_TYPES = (str, int, float, bool, type(None), Path, Any, Ellipsis)
_MAPPINGS = (dict, Mapping)
_CONTAINERS = (*_MAPPINGS, tuple, list, Sequence, Union, types.UnionType)


def _not_plain(hint: Any, outer: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the parts of a type that JSON, digests and the check of paths do not support.

    For example, nothing would check that a path in a set lies in the suite's folder.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _PLAIN_TYPES or origin is Literal or hint in outer:
        return
    if origin is Annotated:
        parts = parts[:1]
    elif is_dataclass(hint):
        parts = tuple(get_type_hints(hint, include_extras=True).values())
    elif (origin or hint) not in _CONTAINERS or (origin in _MAPPINGS and parts[0] is not str):
        yield hint
        return
    for part in parts:
        yield from _not_plain(part, (*outer, hint))
