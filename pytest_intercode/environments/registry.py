"""Which class runs which environment under which profile; and how others add theirs."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from pytest_intercode.core.task import ENVIRONMENTS
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.interpreter import InterpreterEnvironment
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.suites.registered import (
    add_environment,
    added_environment,
    environment_names,
)

__all__ = ["PROFILES", "environment_class", "environments_with", "register_environment"]

_Class = TypeVar("_Class", bound=type[Environment])

PROFILES = ("strict", "paper")

# Imported when they are asked for: a run has one or two of them.
_CLASSES = {
    ("bash", "strict"): "BashEnvironment",
    ("bash", "paper"): "PaperBashEnvironment",
    ("ctf", "strict"): "CtfEnvironment",
    ("ctf", "paper"): "PaperCtfEnvironment",
    ("python", "strict"): "PythonEnvironment",
    ("python", "paper"): "PaperPythonEnvironment",
    ("sql", "strict"): "SqlEnvironment",
    ("sql", "paper"): "PaperSqlEnvironment",
    ("swe", "strict"): "SweEnvironment",
}
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def register_environment(cls: _Class) -> _Class:
    """Add an environment of your own, from a conftest.py or a module; also a decorator.

    From then on its name is valid in suites (``env:``), for ``--intercode-env``, in marks, for
    ``make`` and for Gymnasium. An installed package needs no call: it names its class in an entry
    point of the group ``pytest_intercode.environments``.

    Args:
        cls: the class. It has a ``name``, and where it likes a ``suite`` and a ``dockerfile``.

    Returns:
        The class as it is.

    Raises:
        ConfigurationError: it is not an environment that can be made, or its name is taken.
    """
    _check(cls)
    registered = added_environment(cls.name)
    # The same class, imported again, replaces its former self.
    if registered is not None and _qualified_name(registered) != _qualified_name(cls):
        raise ConfigurationError(
            f"{_qualified_name(cls)}: the environment {cls.name!r} is there already, from "
            f"{_qualified_name(registered)}; take another name"
        )
    add_environment(cls)
    return cls


def environment_class(env: str, profile: str) -> type[Environment]:
    """Return the class for an environment and a profile.

    Raises:
        ConfigurationError: there is none.
    """
    if (env, profile) in _CLASSES:
        module = import_module(f"pytest_intercode.environments.{env}.{profile}")
        builtin: type[Environment] = getattr(module, _CLASSES[env, profile])
        return builtin
    if env in ENVIRONMENTS:
        profiles = [name for name in PROFILES if (env, name) in _CLASSES]
        raise ConfigurationError(
            f"the environment {env!r} cannot be run with the profile {profile!r}; allowed: "
            f"{', '.join(profiles)}.{suggestion(profile, profiles)}"
        )
    registered = added_environment(env)
    if registered is None:
        names = environment_names()
        raise ConfigurationError(
            f"the environment {env!r} cannot be run here: there is none of this name (one of "
            f"your own needs register_environment()); allowed are {', '.join(names)}."
            f"{suggestion(env, names)}"
        )
    cls: type[Environment] = registered
    _check(cls)  # it may come from an entry point
    if cls.name != env:
        raise ConfigurationError(
            f"{_qualified_name(cls)}: its name is {cls.name!r}, and its entry point calls it "
            f"{env!r}"
        )
    if cls.profile != profile:
        raise ConfigurationError(
            f"the environment {env!r} cannot be run with the profile {profile!r}; it has only "
            f"{cls.profile!r}"
        )
    return cls


def environments_with(profile: str) -> tuple[str, ...]:
    """Return those of our environments that can be run with a profile."""
    return tuple(env for env in ENVIRONMENTS if (env, profile) in _CLASSES)


def _check(cls: object) -> None:
    """Refuse what cannot be an environment."""
    if not (isinstance(cls, type) and issubclass(cls, Environment)):
        raise ConfigurationError(
            f"register_environment({cls!r:.80}): a subclass of pytest_intercode.Environment is "
            "needed"
        )
    location = _qualified_name(cls)
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing or inspect.isabstract(cls):
        raise ConfigurationError(f"{location}: it does not define {', '.join(missing)}")
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{location}: name: small letters, digits and _ are needed, such as 'perl'; found "
            f"{name!r}"
        )
    if name in (*ENVIRONMENTS, "all"):
        raise ConfigurationError(f"{location}: name: {name!r} is ours; take another")
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


def _qualified_name(cls: type[Environment]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
