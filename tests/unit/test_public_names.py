"""The public names: there, documented, and no others by accident."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Iterator
from typing import get_origin

import pytest

import pytest_intercode
from pytest_intercode import errors

_ROOT = importlib.import_module("pytest_intercode")  # type checkers see its stub alone
_NAMES: list[str] = _ROOT.__all__
_MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pytest_intercode.__path__, "pytest_intercode.")
    if not module.name.startswith("pytest_intercode._")
)


def _undocumented(value: object, where: str) -> list[str]:
    """Return the public classes, functions, methods and properties without a docstring."""
    # To Python 3.10, an alias of types such as `Callable[[int], None]` is a class.
    if get_origin(value) or not (inspect.isclass(value) or inspect.isroutine(value)):
        return []
    missing = [] if inspect.getdoc(value) else [where]
    if not inspect.isclass(value):
        return missing
    for name, member in vars(value).items():
        if name.startswith("_") or name in getattr(value, "__dataclass_fields__", ()):
            continue
        if name.startswith("test_"):  # of the contract: its name says what it is about
            continue
        routine = isinstance(member, (types.FunctionType, classmethod, staticmethod, property))
        if routine and not inspect.getdoc(getattr(value, name)):
            missing.append(f"{where}.{name}")
    return missing


@pytest.mark.parametrize("name", _NAMES)
def test_public_names(name: str) -> None:
    value = getattr(pytest_intercode, name)
    home = importlib.import_module(_ROOT._homes()[name])
    assert value is getattr(home, name)
    assert name in home.__all__
    if inspect.isclass(value) or inspect.isroutine(value):  # else: an alias of types
        assert value.__doc__
        assert not _undocumented(value, name)
        assert value.__module__ == home.__name__


# -- signatures

# Of arguments that only the plugin and environments give, and of what streams alone ask a cluster.
_INTERNAL = {"CallTool", "Cancellation", "Ledger", "RunBudget"}
_INTERNAL |= {"ClusterExecutor", "Machines", "NodeAgent", "Observer", "Playback"}
# Of methods of a sandbox that only our own backends need.
_INTERNAL |= {"OverlayProbe", "Plan", "Proxy", "Stamps"}
# To users it is a tuple that answers questions: they have no reason to name it.
_INTERNAL |= {"ChangedPaths"}

# Users hand these on as they are, so that what their own signatures mention is not needed.
_OPAQUE = {"Agent", "SandboxProvider"}


def _bindings(module: types.ModuleType) -> dict[str, str]:
    """Return the names that a module imports or defines, each with the module that it is from."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: str(node.module) for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            found[node.name] = module.__name__
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = module.__name__
    return found


def _annotations(value: object) -> Iterator[str]:
    """Return the annotations of a function, or of what a class shows its users."""
    if inspect.isroutine(value):
        yield from map(str, value.__annotations__.values())
    for name, member in vars(value).items() if inspect.isclass(value) else ():
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)
        if name == "__annotations__":
            yield from (str(text) for field, text in member.items() if field[0] != "_")
        elif isinstance(function, types.FunctionType) and (name[0] != "_" or name == "__init__"):
            yield from map(str, function.__annotations__.values())


@pytest.mark.parametrize("name", sorted(set(_NAMES) - _OPAQUE))
def test_what_signatures_mention_is_public(name: str) -> None:
    value = getattr(pytest_intercode, name)
    bound = _bindings(importlib.import_module(_ROOT._homes()[name]))
    mentioned = {
        node.id
        for text in _annotations(value)
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.Name) and bound.get(node.id, "").startswith("pytest_intercode.")
    }
    private = {each for each in mentioned if each[0] == "_"}
    missing = mentioned - private - _INTERNAL - set(_NAMES)
    assert not missing, f"{name} mentions {sorted(missing)}: export them in __init__.pyi"


def _docstrings(value: object) -> Iterator[str]:
    """Return the docstring of a value, and those of a class's public methods and properties."""
    yield inspect.getdoc(value) or ""
    if inspect.isclass(value):
        members = {name for name in vars(value) if name[0] != "_"} | {"__next__", "__anext__"}
        yield from (inspect.getdoc(getattr(value, name, None)) or "" for name in sorted(members))


@pytest.mark.parametrize("name", _NAMES)
def test_errors_that_docstrings_name_are_public(name: str) -> None:
    text = "\n".join(_docstrings(getattr(pytest_intercode, name)))
    missing = set(errors.__all__) & set(re.findall(r"\w+", text)) - set(_NAMES)
    assert not missing, f"{name} names {sorted(missing)}: export them in __init__.pyi"


def test_the_rule_sees_what_it_should() -> None:
    assert "SandboxProvider | None" in set(_annotations(pytest_intercode.make))
    assert "tuple[Turn, ...]" in set(_annotations(pytest_intercode.PendingEpisode))
    assert any("ConfigurationError" in text for text in _docstrings(pytest_intercode.Cluster))
    assert {"Outcome", "TaskRecord"} <= set(_annotations(pytest_intercode.EpisodeRecord))


def test_all_is_sorted_and_listed() -> None:
    assert sorted(_NAMES) == _NAMES
    assert set(_NAMES) <= set(dir(pytest_intercode))


def test_star_import() -> None:
    names: dict[str, object] = {}
    exec("from pytest_intercode import *", names)
    assert set(_NAMES) <= set(names)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="'pytest_intercode' has no attribute 'nothing'"):
        _ = _ROOT.nothing


def test_modules_hold_what_they_announce() -> None:
    for name in _MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, name
        for public_name in getattr(module, "__all__", ()):
            assert hasattr(module, public_name), f"{name}.{public_name}"
            assert not _undocumented(getattr(module, public_name), f"{name}.{public_name}")
