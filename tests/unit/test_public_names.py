"""The public names: there, documented, and no others by accident."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types

import pytest

import pytest_intercode

_MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pytest_intercode.__path__, "pytest_intercode.")
    if not module.name.startswith("pytest_intercode._")
)


def _undocumented(value: object, where: str) -> list[str]:
    """Return the public classes, functions, methods and properties without a docstring."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return []
    missing = [] if inspect.getdoc(value) else [where]
    if not inspect.isclass(value):
        return missing
    for name, member in vars(value).items():
        if name.startswith("_") or name in getattr(value, "__dataclass_fields__", ()):
            continue
        routine = isinstance(member, (types.FunctionType, classmethod, staticmethod, property))
        if routine and not inspect.getdoc(getattr(value, name)):
            missing.append(f"{where}.{name}")
    return missing


@pytest.mark.parametrize("name", pytest_intercode.__all__)
def test_public_names(name: str) -> None:
    value = getattr(pytest_intercode, name)
    assert value.__doc__
    assert not _undocumented(value, name)
    assert value.__module__.startswith("pytest_intercode.")


def test_all_is_sorted_and_listed() -> None:
    assert sorted(pytest_intercode.__all__) == list(pytest_intercode.__all__)
    assert set(pytest_intercode.__all__) <= set(dir(pytest_intercode))
    assert set(pytest_intercode.__all__) == set(pytest_intercode._HOMES)


def test_star_import() -> None:
    names: dict[str, object] = {}
    exec("from pytest_intercode import *", names)
    assert set(pytest_intercode.__all__) <= set(names)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="'pytest_intercode' has no attribute 'nothing'"):
        _ = pytest_intercode.nothing


@pytest.mark.parametrize("module", _MODULES)
def test_modules_hold_what_they_announce(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__doc__
    for name in getattr(found, "__all__", ()):
        assert hasattr(found, name)
        assert not _undocumented(getattr(found, name), f"{module}.{name}")
