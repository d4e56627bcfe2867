"""Finds what in a file of Python may be an agent, by its text alone: nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

__all__ = ["candidates", "which_agent"]

_METHODS = ("act", "run")
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def which_agent(name: str, folder: Path) -> str:
    """Say what the user may have meant by a file or module without ``:Attr``.

    Args:
        name: what the user wrote.
        folder: where relative paths and modules are looked for.

    Returns:
        One line, or nothing where there is no such file and none was meant.
    """
    is_file = name.endswith(".py")
    path = folder / (Path(name).expanduser() if is_file else f"{name.replace('.', '/')}.py")
    if not path.is_file():
        return f"there is no file {path}" if is_file else ""
    try:
        found = candidates(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = f"{path}:{error.lineno}" if isinstance(error, SyntaxError) else str(path)
        return f"{line}: this is no Python: {getattr(error, 'msg', error)}"
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}"
    if not found:
        return (
            f"{path} has no class with act(observation) or run(task, env), and no function that "
            "takes (observation) or (task, env)"
        )
    *others, last = (f"{name}:{each}" for each in found)
    offered = f"{', '.join(others)} or {last}" if others else last
    return f"name the class or function, too: {offered}"


def candidates(source: bytes) -> list[str]:
    """Return the public classes and functions at the top of a file that fit an agent, in order.

    Classes that inherit from elsewhere count only where nothing else fits.

    Raises:
        SyntaxError: it is no Python.
        ValueError: it holds a NUL.
    """
    body = ast.parse(source).body
    classes = {each.name: each for each in body if isinstance(each, ast.ClassDef)}
    sure, perhaps = [], []
    for each in body:
        if not isinstance(each, (ast.ClassDef, *_Function)) or each.name.startswith("_"):
            continue
        if isinstance(each, ast.ClassDef):
            if _acts(each, classes, frozenset()):
                sure.append(each.name)
            elif any(_name(base) not in (*classes, "object", "Protocol") for base in each.bases):
                perhaps.append(each.name)
        elif _wanted(each) in (1, 2):
            sure.append(each.name)
    return sure or perhaps


def _acts(each: ast.ClassDef, classes: Mapping[str, ast.ClassDef], seen: frozenset[str]) -> bool:
    """Whether a class, or one of the file that it inherits from, has a method of an agent's."""
    if any(isinstance(part, _Function) and part.name in _METHODS for part in each.body):
        return True
    bases = {_name(base) for base in each.bases} & classes.keys() - seen
    return any(_acts(classes[base], classes, seen | bases) for base in bases)


def _wanted(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many positional arguments a function must be given; -1 if it needs others."""
    given = function.args
    if any(default is None for default in given.kw_defaults):
        return -1
    return len(given.posonlyargs) + len(given.args) - len(given.defaults)


def _name(base: ast.expr) -> str:
    return base.id if isinstance(base, ast.Name) else ""
