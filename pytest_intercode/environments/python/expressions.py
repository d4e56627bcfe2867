"""Split an expression of a hidden test between the agent's side and the judge.

The agent's side evaluates *chains*: a name that only it knows, with all calls, attributes and
subscripts that follow, such as ``f([3, 1])[0]`` in ``f([3, 1])[0] == 1``. In the judge's
expression, ``__value__(N)`` replaces the chain. Nothing here runs code.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pytest_intercode.environments.python.ownership import (
    COMPREHENSIONS,
    Ownership,
    bases,
    names_in,
    root_of,
)

__all__ = ["Chains", "TestError"]

Step: TypeAlias = "tuple[str | int, ...]"

_SCOPES = (*COMPREHENSIONS, ast.Lambda)


class TestError(ValueError):
    """A test cannot be split; the message says why, and what to write instead."""

    __test__ = False  # otherwise pytest collects it as a test class


@dataclass
class Chains:
    """Takes the chains out of expressions.

    Args:
        owner: distinguishes the agent's values from data.
        first: the number of the first value.
        displays: lists, tuples and dictionaries that the test writes literally, by their names.

    Attributes:
        steps: what the agent's side has to do, in order. ``("value", N, SOURCE)`` is a chain, or
            a loop over chains. ``("side", N, SOURCE, M, ...)`` is an expression that is made only
            of such values; the agent's side evaluates it if one of the values M is not data.
        sources: the expressions that the agent's side evaluates, as syntax trees.
    """

    owner: Ownership
    first: int = 0
    displays: Mapping[str, ast.expr] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    sources: list[ast.expr] = field(default_factory=list)
    _bound: frozenset[str] = frozenset()
    _rows: list[ast.expr] = field(default_factory=list)
    _in_side: bool = False

    def take(self, expression: ast.expr) -> ast.expr:
        """Return an expression in which every chain is replaced.

        Raises:
            TestError: the expression cannot be split between the agent's side and the judge.
        """
        return self._visit(expression)

    def _number(self) -> int:
        return self.first + len(self.steps)

    def _visit(self, node: ast.expr) -> ast.expr:
        if isinstance(node, COMPREHENSIONS) and self._uses_unknown(node):
            return self._comprehension(node)
        if isinstance(node, ast.Lambda) and self._uses_unknown(node):
            raise TestError(
                "a lambda that calls the agent's code is only possible as the function of map, "
                "sorted and the like, and may not combine its values with others"
            )
        if isinstance(node, (ast.Constant, *_SCOPES)):
            return node  # it uses none of the agent's values
        if isinstance(node, ast.NamedExpr):
            raise TestError("an assert that binds a name: bind it in a statement of its own")
        pure = self._owner().is_pure(node) and self._uses_unknown(node)
        if self._is_chain(node):
            if pure and (root_of(node) not in self.owner.foreign or self._owner().uses_code(node)):
                return self._value(node)
            return self._split_chain(node)
        if isinstance(node, ast.Name):
            return node
        if pure and not isinstance(node, ast.Starred):
            if isinstance(node, ast.Call) and self._owner().hands_on(node):
                return self._value(node)
            if not self._bound and not self._in_side:
                return self._side(node)
        return self._children(node)

    def _owner(self) -> Ownership:
        return self.owner.binding(data_names=self._bound) if self._bound else self.owner

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

    def _split_chain(self, node: ast.expr) -> ast.expr:
        """Split a chain whose last call the judge makes: a method of data that is given data."""
        if (name := root_of(node)) in self.owner.foreign:
            raise TestError(
                f"{name!r} is not of the standard library, so it would compare on the agent's "
                "side; compare plain values"
            )
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return self._children(node)
        changed = self._children(ast.Call(ast.Constant(None), node.args, node.keywords))
        assert isinstance(changed, ast.Call)
        changed.func = ast.Attribute(self._visit(node.func.value), node.func.attr, ast.Load())
        return changed

    def _is_chain(self, node: ast.expr) -> bool:
        name = root_of(node)
        return bool(name) and self._owner().is_agents(name)

    def _uses_unknown(self, node: ast.expr) -> bool:
        return self._owner().uses(node)

    def _value(self, node: ast.expr) -> ast.expr:
        if names_in(node).loaded & self._bound:
            self._rows.append(node)
            return ast.Name(f"__row_{len(self._rows)}__", ast.Load())
        number = self._number()
        self.steps.append(("value", number, ast.unparse(node)))
        self.sources.append(node)
        return _call("__value__", number)

    def _side(self, node: ast.expr) -> ast.expr:
        """Take the chains out of an expression that is made only of them; add a step for it all."""
        step_count = len(self.steps)
        self._in_side = True
        remainder = self._children(node)
        self._in_side = False
        numbers = [int(step[1]) for step in self.steps[step_count:]]
        number = self._number()
        self.steps.append(("side", number, ast.unparse(remainder), *numbers))
        self.sources.append(node)
        later = ast.Lambda(ast.arguments([], [], None, [], [], None, []), remainder)
        return _call("__side__", number, later)

    def _comprehension(self, node: ast.expr) -> ast.expr:
        assert isinstance(node, COMPREHENSIONS)
        if self._owner().is_pure(node):
            loops = self._narrow_loops(node.generators, _parts(node))
            if isinstance(node, ast.DictComp):
                return self._value(ast.DictComp(node.key, node.value, loops))
            kind = ast.SetComp if isinstance(node, ast.SetComp) else ast.ListComp
            return self._value(kind(node.elt, loops))
        if self._bound:
            raise TestError(
                "a comprehension in another that compares or computes: write them one by one"
            )
        node = copy.deepcopy(node)
        bound_names = frozenset(bases([generator.target for generator in node.generators]))
        first = node.generators[0]
        generators = copy.deepcopy(node.generators)
        first.iter = self._visit(first.iter)
        remainder = [first.ifs, *([g.iter, g.ifs] for g in node.generators[1:])]
        clauses = ast.List([*_flat(remainder)], ast.Load())
        if self._uses_unknown_besides(clauses, bound_names):
            raise TestError(
                "the clauses of a comprehension that compares or computes call the agent's code: "
                "put its values into a name first"
            )
        self._bound, self._rows = bound_names, []
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                setattr(node, part, self._visit(getattr(node, part)))
        rows, self._bound, self._rows = self._rows, frozenset(), []
        if rows:
            number = self._number()
            loops = self._narrow_loops(generators, rows)
            source = ast.ListComp(ast.Tuple(rows, ast.Load()), loops)
            self.steps.append(("value", number, ast.unparse(source)))
            self.sources.append(source)
            names: list[ast.expr] = [
                ast.Name(f"__row_{index}__", ast.Store()) for index in range(1, len(rows) + 1)
            ]
            row = ast.List([_call("__row__", number)], ast.Load())
            node.generators.append(ast.comprehension(ast.Tuple(names, ast.Store()), row, [], 0))
        return node

    def _narrow_loops(
        self, loops: list[ast.comprehension], parts: list[ast.expr]
    ) -> list[ast.comprehension]:
        """Remove the parts of loops that the agent's side does not need, like expected values."""
        used_names = {name for part in parts for name in names_in(part).loaded}
        for loop in loops:
            used_names |= {
                name for clause in (loop.iter, *loop.ifs) for name in names_in(clause).loaded
            }
        return [self._narrow(loop, used_names) for loop in loops]

    def _narrow(self, loop: ast.comprehension, used_names: set[str]) -> ast.comprehension:
        items = self._items(loop.iter)
        target = loop.target
        if items is None:
            return loop
        if isinstance(target, ast.Tuple):
            names = [element.id if isinstance(element, ast.Name) else "" for element in target.elts]
            rows = [item.elts for item in items if isinstance(item, (ast.Tuple, ast.List))]
            used_indices = [
                index for index, name in enumerate(names) if name in used_names or not name
            ]
            if len(rows) < len(items) or any(len(row) != len(names) for row in rows):
                return loop
            target = ast.Tuple([target.elts[index] for index in used_indices], ast.Store())
            items = [ast.Tuple([row[index] for index in used_indices], ast.Load()) for row in rows]
        return ast.comprehension(target, ast.List(items, ast.Load()), loop.ifs, loop.is_async)

    def _items(self, iterable: ast.expr) -> list[ast.expr] | None:
        """Return the items that a loop iterates over, if the test writes them literally."""
        called = iterable.func if isinstance(iterable, ast.Call) else None
        pairs = isinstance(called, ast.Attribute) and called.attr == "items"
        display = called.value if pairs and isinstance(called, ast.Attribute) else iterable
        display = (
            self.displays.get(display.id, display) if isinstance(display, ast.Name) else display
        )
        if isinstance(display, ast.Dict):
            keys = [key for key in display.keys if key is not None]
            if len(keys) < len(display.keys) or not _differ(keys):
                return None
            if not pairs:
                return keys
            values = zip(keys, display.values, strict=True)
            return [ast.Tuple([*pair], ast.Load()) for pair in values]
        if not pairs and isinstance(display, (ast.List, ast.Tuple)):
            plain = not any(isinstance(element, ast.Starred) for element in display.elts)
            return display.elts if plain else None
        return None

    def _uses_unknown_besides(self, node: ast.expr, bound: frozenset[str]) -> bool:
        return any(map(self.owner.is_agents, names_in(node).loaded - bound))


def _parts(node: ast.expr) -> list[ast.expr]:
    return [getattr(node, name) for name in ("elt", "key", "value") if hasattr(node, name)]


def _differ(keys: list[ast.expr]) -> bool:
    """Whether keys are literals and all of them differ."""
    try:
        return len({ast.literal_eval(key) for key in keys}) == len(keys)
    except (ValueError, TypeError):
        return False


def _flat(parts: object) -> Iterator[ast.expr]:
    if isinstance(parts, list):
        for part in parts:
            yield from _flat(part)
    elif isinstance(parts, ast.expr):
        yield parts


def _call(name: str, number: int, *more: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), *more], [])
