"""What each operating system's Python has, by the stubs of typeshed.

They say it in blocks such as ``if sys.platform == "linux":``, for each version of Python, after the
documentation's notes on availability. mypy brings them along.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["missing_names", "names_of"]

_COMPARISONS = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
}


def missing_names(module: str, platform: str) -> frozenset[str]:
    """Return the names that a module has on Linux, and not on another platform."""
    return names_of(module, "linux") - names_of(module, platform)


def names_of(module: str, platform: str) -> frozenset[str]:
    """Return the names that a module of the standard library has on a platform.

    Args:
        module: its name, such as ``os``.
        platform: as ``sys.platform`` is: ``linux``, ``darwin``, ``win32``.

    Raises:
        FileNotFoundError: if there is no such module, or no mypy.
        ValueError: if its stub has a condition that is not understood.
    """
    mypy = find_spec("mypy")
    if mypy is None or mypy.origin is None:
        raise FileNotFoundError("the stubs of the standard library are mypy's, which is not here")
    folder = Path(mypy.origin).parent / "typeshed/stdlib" / module.replace(".", "/")
    file = folder / "__init__.pyi" if folder.is_dir() else folder.with_suffix(".pyi")
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(_names(body, platform))


def _names(body: list[ast.stmt], platform: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.If):
            branch = node.body if _value(node.test, platform) else node.orelse
            yield from _names(branch, platform)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            # A stub gives on what it imports by the same name twice.
            yield from (alias.asname for alias in node.names if alias.asname == alias.name)
            yield from _names_of_star(node, platform)


def _names_of_star(node: ast.Import | ast.ImportFrom, platform: str) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.module and node.names[0].name == "*":
        yield from names_of(node.module, platform)


def _value(node: ast.expr, platform: str) -> Any:
    """Evaluate a condition on the platform and the version of Python."""
    if isinstance(node, ast.BoolOp):
        values = [_value(part, platform) for part in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, platform)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _value(node.left, platform), _value(node.comparators[0], platform)
        if isinstance(right, tuple):
            left = left[: len(right)]
        return _COMPARISONS[type(node.ops[0])](left, right)
    if ast.unparse(node) == "sys.platform":
        return platform
    if ast.unparse(node) == "sys.version_info":
        return tuple(sys.version_info)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "sys.platform.startswith":
        return platform.startswith(ast.literal_eval(node.args[0]))
    if ast.unparse(node) == "TYPE_CHECKING":
        return False
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise ValueError(f"a condition that is not understood: {ast.unparse(node)}") from error
