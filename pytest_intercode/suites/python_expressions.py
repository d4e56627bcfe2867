"""Splits one expression of a hidden test: what the agent's side evaluates, and what the judge does.

The agent's side evaluates *chains*: a name that only it knows, with all calls, attributes and
subscripts that follow, as ``f([3, 1])[0]`` in ``f([3, 1])[0] == 1``. In the judge's expression,
``__value__(N)`` replaces the chain. Nothing here runs code.
"""

from __future__ import annotations

import ast
import copy
import symtable
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Chains", "Names", "TestError", "names_in"]

Step: TypeAlias = "tuple[str | int, ...]"

_CHAIN = (ast.Call, ast.Attribute, ast.Subscript)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_SIMPLE = (ast.expr, ast.Assert, ast.Assign, ast.AugAssign, ast.Expr)
_SCOPES = (*_COMPREHENSIONS, ast.Lambda)


class TestError(ValueError):
    """A test cannot be split; the message says why, and what to write in place of it."""

    __test__ = False  # pytest would take it for a test class


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
            kept = node.target if isinstance(node, ast.AugAssign) else None
            return Names(
                frozenset(n.id for n in names if isinstance(n.ctx, ast.Load) or n is kept),
                frozenset(n.id for n in names if isinstance(n.ctx, ast.Store)),
            )
    mode = "eval" if isinstance(node, ast.expr) else "exec"
    loaded, bound = set(), set()

    def look(table: symtable.SymbolTable, top: bool) -> None:
        for symbol in table.get_symbols():
            if not (top or symbol.is_global()):
                continue
            if symbol.is_referenced():
                loaded.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_imported():
                bound.add(symbol.get_name())
        for inner in table.get_children():
            look(inner, False)

    look(symtable.symtable(ast.unparse(node), "<test>", mode), True)
    if isinstance(node, ast.AugAssign):
        loaded |= set(bases([node.target]))
    return Names(frozenset(loaded), frozenset(bound))


def bases(targets: list[ast.expr]) -> Iterator[str]:
    """Yield the names at the bottom of assignments' targets: ``x`` of ``x[0].y``."""
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id


def has_comparison(node: ast.AST) -> bool:
    """Whether code compares anything."""
    return any(isinstance(inner, ast.Compare) for inner in ast.walk(node))


@dataclass
class Chains:
    """Takes the chains out of expressions.

    Args:
        unknown: whether a name is known on the agent's side alone.
        first: the number of the first value.

    Attributes:
        steps: what the agent's side has to do, in order. ``("value", N, SOURCE)`` is a chain;
            ``("side", N, SOURCE, M, ...)`` is the side of a comparison that it is in, which is
            worked out there when one of the values M is no data.
        sources: the expressions that the agent's side evaluates, as syntax trees.
    """

    unknown: Callable[[str], bool]
    first: int = 0
    steps: list[Step] = field(default_factory=list)
    sources: list[ast.expr] = field(default_factory=list)
    _bound: frozenset[str] = frozenset()
    _rows: list[ast.expr] = field(default_factory=list)
    _lambdas: set[int] = field(default_factory=set)

    def take(self, expression: ast.expr) -> ast.expr:
        """Return an expression in which every chain is replaced.

        Raises:
            TestError: the expression cannot be split between the agent's side and the judge.
        """
        remainder = self._visit(expression)
        if self._lambdas:
            raise TestError(
                "a lambda that calls the agent's code is only possible in a comparison's side "
                "that compares nothing itself"
            )
        return remainder

    def _number(self) -> int:
        return self.first + len(self.steps)

    def _visit(self, node: ast.expr) -> ast.expr:
        if self._is_chain(node):
            return self._value(node)
        if isinstance(node, ast.Lambda) and self._uses_unknown(node):
            self._lambdas.add(self._number())
            return self._value(node)
        if isinstance(node, _COMPREHENSIONS) and self._uses_unknown(node):
            return self._comprehension(node)
        if isinstance(node, _SCOPES):
            return node  # it uses nothing of the agent's
        if isinstance(node, ast.Compare):
            left = self._side(node.left)
            return ast.Compare(left, node.ops, [self._side(side) for side in node.comparators])
        if isinstance(node, (ast.Constant, ast.Name)):
            return node
        return self._children(node)

    def _children(self, node: ast.expr) -> ast.expr:
        changed = copy.copy(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(changed, name, self._visit(value))
            elif isinstance(value, list):
                setattr(changed, name, [self._item(item) for item in value])
        return changed

    def _item(self, item: object) -> object:
        if isinstance(item, ast.keyword):
            return ast.keyword(item.arg, self._visit(item.value))
        return self._visit(item) if isinstance(item, ast.expr) else item

    def _is_chain(self, node: ast.expr) -> bool:
        while isinstance(node, _CHAIN):
            node = node.func if isinstance(node, ast.Call) else node.value
        return isinstance(node, ast.Name) and node.id not in self._bound and self.unknown(node.id)

    def _uses_unknown(self, node: ast.expr) -> bool:
        return any(map(self.unknown, names_in(node).loaded - self._bound))

    def _value(self, node: ast.expr) -> ast.expr:
        used = names_in(node).loaded & self._bound
        if used:
            self._rows.append(node)
            return ast.Name(f"__row_{len(self._rows)}__", ast.Load())
        number = self._number()
        self.steps.append(("value", number, ast.unparse(node)))
        self.sources.append(node)
        return _call("__value__", number)

    def _side(self, operand: ast.expr) -> ast.expr:
        """Take the chains out of a side of a comparison, and note it as a whole."""
        before = len(self.steps)
        lambdas = set(self._lambdas)
        remainder = self._visit(operand)
        numbers = [int(step[1]) for step in self.steps[before:] if step[0] == "value"]
        if not numbers or self._bound or _is_value(remainder) or has_comparison(operand):
            return remainder
        number = self._number()
        self.steps.append(("side", number, ast.unparse(remainder), *numbers))
        self.sources.append(operand)
        self._lambdas = lambdas
        later = ast.Lambda(ast.arguments([], [], None, [], [], None, []), remainder)
        return _call("__side__", number, later)

    def _comprehension(self, node: ast.expr) -> ast.expr:
        assert isinstance(node, _COMPREHENSIONS)
        if not has_comparison(node):
            if isinstance(node, ast.GeneratorExp):
                node = ast.ListComp(node.elt, node.generators)  # no data, else
            return self._value(node)
        if self._bound:
            raise TestError("comparisons in a comprehension in another: write them one by one")
        node = copy.deepcopy(node)
        bound = frozenset(bases([generator.target for generator in node.generators]))
        first = node.generators[0]
        generators = copy.deepcopy(node.generators)
        first.iter = self._visit(first.iter)
        remainder = [first.ifs, *([g.iter, g.ifs] for g in node.generators[1:])]
        clauses = ast.List([*_flat(remainder)], ast.Load())
        if self._uses_unknown_besides(clauses, bound):
            raise TestError(
                "the clauses of a comprehension that compares call the agent's code: put its "
                "values into a name first"
            )
        self._bound, self._rows = bound, []
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                setattr(node, part, self._visit(getattr(node, part)))
        rows, self._bound, self._rows = self._rows, frozenset(), []
        if rows:
            number = self._number()
            source = ast.ListComp(ast.Tuple(rows, ast.Load()), generators)
            self.steps.append(("value", number, ast.unparse(source)))
            self.sources.append(source)
            names: list[ast.expr] = [
                ast.Name(f"__row_{at}__", ast.Store()) for at in range(1, len(rows) + 1)
            ]
            row = ast.List([_call("__row__", number)], ast.Load())
            node.generators.append(ast.comprehension(ast.Tuple(names, ast.Store()), row, [], 0))
        return node

    def _uses_unknown_besides(self, node: ast.expr, bound: frozenset[str]) -> bool:
        return any(map(self.unknown, names_in(node).loaded - bound))


def _flat(parts: object) -> Iterator[ast.expr]:
    if isinstance(parts, list):
        for part in parts:
            yield from _flat(part)
    elif isinstance(parts, ast.expr):
        yield parts


def _is_value(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "__value__"
    )


def _call(name: str, number: int, *more: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), *more], [])
