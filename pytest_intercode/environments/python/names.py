"""The names that a piece of Python loads and binds. Nothing here runs code."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["COMPREHENSIONS", "Names", "bases", "names_in"]

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_SIMPLE = (ast.expr, ast.Assert, ast.Assign, ast.AugAssign, ast.Expr)
_SCOPES = (*COMPREHENSIONS, ast.Lambda)


@dataclass(frozen=True)
class Names:
    """The module-level names that a piece of code loads, and those that it binds."""

    loaded: frozenset[str]
    bound: frozenset[str]


def names_in(node: ast.stmt | ast.expr) -> Names:
    """Return the names that code at top level loads and binds, inner functions included."""
    if isinstance(node, _SIMPLE):
        nodes = list(ast.walk(node))
        if not any(isinstance(inner, _SCOPES) for inner in nodes):
            names = [inner for inner in nodes if isinstance(inner, ast.Name)]
            target = node.target if isinstance(node, ast.AugAssign) else None
            return Names(
                frozenset(n.id for n in names if isinstance(n.ctx, ast.Load) or n is target),
                frozenset(n.id for n in names if isinstance(n.ctx, ast.Store)),
            )
    mode = "eval" if isinstance(node, ast.expr) else "exec"
    loaded_names, bound_names = set(), set()

    def look(table: symtable.SymbolTable, top: bool) -> None:
        for symbol in table.get_symbols():
            if not (top or symbol.is_global()):
                continue
            if symbol.is_referenced():
                loaded_names.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_imported():
                bound_names.add(symbol.get_name())
        for inner in table.get_children():
            look(inner, False)

    look(symtable.symtable(ast.unparse(node), "<test>", mode), True)
    if isinstance(node, ast.AugAssign):
        loaded_names |= set(bases([node.target]))
    return Names(frozenset(loaded_names), frozenset(bound_names))


def bases(targets: list[ast.expr]) -> Iterator[str]:
    """Yield the names at the bottom of assignments' targets: ``x`` of ``x[0].y``."""
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id
