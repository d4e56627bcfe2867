"""Finds possible agents in a Python file by parsing it; none of its code is run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

__all__ = ["find_candidates", "suggest_agent"]

_METHODS = ("act", "run")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def suggest_agent(name: str, folder: Path) -> str:
    """Suggest what the user may have meant by a file or module without ``:Attr``.

    Args:
        name: what the user wrote.
        folder: the folder in which relative paths and modules are looked up.

    Returns:
        One line; empty if there is no such module and ``name`` is not a file name.
    """
    is_file = name.endswith(".py")
    path = folder / (Path(name).expanduser() if is_file else f"{name.replace('.', '/')}.py")
    if not path.is_file():
        return f"there is no file {path}" if is_file else ""
    try:
        attributes = find_candidates(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = f"{path}:{error.lineno}" if isinstance(error, SyntaxError) else str(path)
        return f"{line}: not valid Python: {getattr(error, 'msg', error)}"
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}"
    if not attributes:
        return (
            f"{path} has no class with act(observation) or run(task, env), and no function that "
            "takes (observation) or (task, env)"
        )
    *earlier, last = (f"{name}:{attribute}" for attribute in attributes)
    choices = f"{', '.join(earlier)} or {last}" if earlier else last
    return f"name the class or function, too: {choices}"


def find_candidates(source: bytes) -> list[str]:
    """Return the public top-level classes and functions that can be agents, in order.

    Classes that inherit from outside the file count only if nothing else matches.

    Raises:
        SyntaxError: the source is not valid Python.
        ValueError: the source contains a NUL.
    """
    body = ast.parse(source).body
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    certain, possible = [], []
    for node in body:
        if not isinstance(node, (ast.ClassDef, *_FUNCTIONS)) or node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            if _has_agent_method(node, classes, frozenset()):
                certain.append(node.name)
            elif any(
                _base_name(base) not in (*classes, "object", "Protocol") for base in node.bases
            ):
                possible.append(node.name)
        elif _count_required_arguments(node) in (1, 2):
            certain.append(node.name)
    return certain or possible


def _has_agent_method(
    cls: ast.ClassDef, classes: Mapping[str, ast.ClassDef], visited: frozenset[str]
) -> bool:
    """Whether a class, or a base class in the same file, has one of an agent's methods."""
    if any(isinstance(part, _FUNCTIONS) and part.name in _METHODS for part in cls.body):
        return True
    bases = {_base_name(base) for base in cls.bases} & classes.keys() - visited
    return any(_has_agent_method(classes[base], classes, visited | bases) for base in bases)


def _count_required_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many positional arguments a function requires; -1 if it requires keywords."""
    arguments = function.args
    if any(default is None for default in arguments.kw_defaults):
        return -1
    return len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)


def _base_name(base: ast.expr) -> str:
    return base.id if isinstance(base, ast.Name) else ""
