"""The kinds of environments, built-in and added, and the class that runs each profile."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_intercode.core.task import TaskFields
from pytest_intercode.environments.episode import call_method
from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.system.imports import check_namesake, describe_error, load_point

if TYPE_CHECKING:
    from pytest_intercode.environments.base import Environment

__all__ = [
    "BUILTIN_ENVIRONMENTS",
    "GROUP",
    "PROFILES",
    "PROJECT",
    "builtin_kinds",
    "environment_class",
    "environment_names",
    "environment_suggestion",
    "environments_with",
    "is_builtin",
    "is_environment",
    "kind_of",
    "register_environment",
    "watch_environments",
    "why_env_not_on_nodes",
]

_Class = TypeVar("_Class", bound="type[Environment]")

PROFILES = ("strict", "paper")

# Imported on demand, because a run uses one or two of them.
_KINDS = {
    "bash": "BashKind",
    "sql": "SqlKind",
    "python": "PythonKind",
    "ctf": "CtfKind",
    "swe": "SweKind",
    "project": "ProjectKind",
    "tau2": "Tau2Kind",
    "checks": "ChecksKind",
}
PROJECT = "project"
"""The environment of project tests. Suites have no tasks of it, because the test itself grades."""

_OF_DATASETS = ("tau2", "checks")  # suites may have tasks for these, but no suite is bundled

BUILTIN_ENVIRONMENTS = tuple(name for name in _KINDS if name not in (PROJECT, *_OF_DATASETS))
"""The names of the built-in environments that have a bundled suite."""

GROUP = "pytest_intercode.environments"
"""The group of entry points: each has the name of its environment and refers to its class."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_OUR_MODULES = "pytest_intercode."


_added: dict[str, type[Any]] = {}
_watching: list[Callable[[str], None]] = []


def add_environment(added: type[Any]) -> None:
    """Register a class with a ``name`` and a ``suite``; it replaces an earlier one of that name."""
    _added[added.name] = added
    for call in _watching:
        call(added.name)


def watch_environments(call: Callable[[str], None]) -> None:
    """Call a function with each environment's name: now for all of them, later for added ones."""
    _watching.append(call)
    for name in environment_names():
        call(name)


def added_environment(name: str) -> type[Any] | None:
    """Return the class that was added under a name, loading its entry point if necessary.

    Raises:
        ConfigurationError: the entry point cannot be loaded, or two packages define it.
    """
    if name in _added or name in _KINDS:
        return _added.get(name)
    point = _entry_points().get(name)
    if point is None:
        return None
    loaded: type[Any] = load_point(point, f"the environment {name!r}")
    return loaded


def is_environment(name: str) -> bool:
    """Whether suites can have tasks for an environment of this name."""
    builtin = (*BUILTIN_ENVIRONMENTS, *_OF_DATASETS)
    return name in builtin or name in _added or name in _entry_points()


def is_builtin(name: str) -> bool:
    """Whether an environment is built in, so that every installation has it."""
    return name in _KINDS


def why_env_not_on_nodes(name: str) -> str:
    """Return why the nodes of a cluster cannot run an environment; empty if they can."""
    if not is_builtin(name):
        return "is registered in this process, and nodes do not have it"
    return kind_of(name).not_on_nodes


def environment_names() -> tuple[str, ...]:
    """Return the names of all environments, the built-in ones first."""
    return tuple(dict.fromkeys((*BUILTIN_ENVIRONMENTS, *sorted({*_added, *_entry_points()}))))


def _entry_points() -> dict[str, EntryPoint]:
    return _entry_points_on(tuple(sys.path))


# Finding entry points reads the metadata of every installed package, which takes 8 ms, and tasks
# ask by the thousand whether their tags name an environment. Only a new path can change the result.
@cache
def _entry_points_on(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    points = entry_points(group=GROUP)
    return {point.name: point for point in points if _NAME.fullmatch(point.name)}


def register_environment(cls: _Class) -> _Class:
    """Add an environment of your own, from a conftest.py or a module; also a decorator.

    From then on, its name is valid in suites (``env:``), for ``--intercode-env``, in marks, for
    ``make`` and for Gymnasium. An installed package does not need this call: it names its class in
    an entry point of the group ``pytest_intercode.environments``.

    Args:
        cls: the class. It has a ``name``, and optionally a ``suite`` and a ``dockerfile``.

    Returns:
        The class, unchanged.

    Raises:
        ConfigurationError: it is not an environment class that can be used, or its name is taken.
    """
    __tracebackhide__ = True  # pytest shows the line of the conftest.py
    _check(cls)
    point = _entry_points().get(cls.name)
    # The entry point cannot be loaded here: its module is still being imported, without the class.
    of_point = point is not None and point.module == cls.__module__
    registered = _added.get(cls.name) if of_point else added_environment(cls.name)
    # The same class, imported again, replaces the earlier one.
    if registered is not None and _qualified_name(registered) != _qualified_name(cls):
        raise ConfigurationError(
            f"{_qualified_name(cls)}: the environment {cls.name!r} already exists, from "
            f"{_qualified_name(registered)}; choose another name"
        )
    add_environment(cls)
    return cls


def kind_of(name: str) -> EnvironmentKind:
    """Return the kind of an environment; a default kind for an unknown name.

    Raises:
        ConfigurationError: its entry point cannot be loaded.
    """
    if name in _KINDS:
        return _builtin_kind(name)
    cls = added_environment(name)
    return EnvironmentKind(name=name) if cls is None else _kind_of_class(cls, name)


def builtin_kinds() -> tuple[EnvironmentKind, ...]:
    """Return the kinds of the built-in environments that have a bundled suite."""
    return tuple(map(_builtin_kind, BUILTIN_ENVIRONMENTS))


@cache
def _builtin_kind(name: str) -> EnvironmentKind:
    module = import_module(f"pytest_intercode.environments.{name}.kind")
    kind: EnvironmentKind = getattr(module, _KINDS[name])()
    return kind


_kinds_by_class: dict[type[Environment], EnvironmentKind] = {}


def _kind_of_class(cls: type[Environment], name: str) -> EnvironmentKind:
    if cls not in _kinds_by_class:
        _check(cls)  # a class from an entry point was not checked by register_environment()
        _kinds_by_class[cls] = _guarded(cls.kind(cls))
    if cls.name != name:
        raise ConfigurationError(
            f"{_qualified_name(cls)}: its name is {cls.name!r}, but its entry point calls it "
            f"{name!r}"
        )
    return _kinds_by_class[cls]


def _guarded(kind: EnvironmentKind) -> EnvironmentKind:
    """Wrap the methods of a third-party kind, so that they only raise this package's errors."""
    for name, function in inspect.getmembers(type(kind), inspect.isfunction):
        is_ours = name.startswith("_") or function.__module__.startswith(_OUR_MODULES)
        if not is_ours and name != "check":  # the loader reports its errors as the suite's
            setattr(kind, name, partial(call_method, kind.name, getattr(kind, name)))
    return kind


def environment_class(env: str, profile: str) -> type[Environment]:
    """Return the class for an environment and a profile.

    Raises:
        ConfigurationError: there is none, or a package defines one with a built-in name.
    """
    kind = kind_of(env)
    if is_builtin(env):
        check_namesake(_entry_points().get(env), f"the environment {env!r}")
    cls: type[Environment] | None = kind.environment_class(profile)
    if cls is not None:
        return cls
    if env in _KINDS:
        profiles = list(kind.profiles)
        raise ConfigurationError(
            f"the environment {env!r} cannot be run with the profile {profile!r}; allowed: "
            f"{', '.join(profiles)}.{suggestion(profile, profiles)}"
        )
    if kind.environment is None:
        names = environment_names()
        raise ConfigurationError(
            f"the environment {env!r} is not installed; allowed are "
            f"{', '.join(names)}.{environment_suggestion(env)}"
        )
    raise ConfigurationError(
        f"the environment {env!r} cannot be run with the profile {profile!r}; it has only "
        f"{kind.environment.profile!r}"
    )


def environment_suggestion(name: str) -> str:
    """Return a hint for an unknown name: a similar name, or how to register an environment."""
    near = suggestion(name, environment_names())
    return near or (
        " Register your own with register_environment() in a conftest.py, which only pytest "
        "reads; commands know those of installed packages."
    )


def environments_with(profile: str) -> tuple[str, ...]:
    """Return the names of the built-in environments that have a profile."""
    return tuple(kind.name for kind in builtin_kinds() if profile in kind.profiles)


def _check(cls: object) -> None:
    """Refuse a class that cannot be an environment."""
    __tracebackhide__ = True
    # These import half of the package, which callers that need a prompt or a tool do not use.
    from pytest_intercode.environments.base import Environment
    from pytest_intercode.environments.interpreter import InterpreterEnvironment

    if not (isinstance(cls, type) and issubclass(cls, Environment)):
        raise ConfigurationError(
            f"register_environment({cls!r:.80}): a subclass of pytest_intercode.Environment is "
            "needed"
        )
    location = _qualified_name(cls)
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing or inspect.isabstract(cls):
        raise ConfigurationError(f"{location}: it does not define {', '.join(missing)}")
    if inspect.isfunction(inspect.getattr_static(cls, "sandboxes")):
        raise ConfigurationError(f"{location}: sandboxes(cls, task, provider) needs @classmethod")
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{location}: name: lower-case letters, digits and _ are needed, such as 'perl'; found "
            f"{name!r}"
        )
    if name in (*_KINDS, "all"):
        raise ConfigurationError(f"{location}: name: {name!r} is reserved; choose another")
    if cls.profile not in PROFILES:
        raise ConfigurationError(
            f"{location}: profile: allowed are {', '.join(PROFILES)}, found {cls.profile!r}"
        )
    if issubclass(cls, InterpreterEnvironment) and (
        not cls.program or isinstance(cls.program, str)
    ):
        raise ConfigurationError(
            f"{location}: program: the words of a command are needed, such as ('perl', 'repl.pl'); "
            f"found {cls.program!r}"
        )
    for attribute in ("suite", "dockerfile"):
        path = getattr(cls, attribute)
        if path is not None and not Path(path).is_file():
            raise ConfigurationError(f"{location}: {attribute}: {path} is not a file")
    if not (isinstance(cls.kind, type) and issubclass(cls.kind, EnvironmentKind)):
        raise ConfigurationError(
            f"{location}: kind: a subclass of EnvironmentKind is needed, found {cls.kind!r:.60}"
        )
    try:
        kind = cls.kind(cls)
        own_fields = kind.fields_class
    except Exception as error:
        raise ConfigurationError(
            f"{location}: kind: {cls.kind.__qualname__} raised {describe_error(error, cls.kind)}"
        ) from None
    if isinstance(kind.labels, str):
        raise ConfigurationError(
            f"{location}: labels: a tuple of names is needed, such as ('perl', 'pl'); found "
            f"{kind.labels!r:.60}"
        )
    if own_fields is not TaskFields:
        from pytest_intercode.environments.fields import check_fields  # it imports pydantic

        check_fields(own_fields)


def _qualified_name(cls: type[Environment]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
