"""Whose values an expression of a hidden test is made of: the agent's alone, or data as well.

What is made of the agent's values alone may be worked out on the agent's side: all that it can gain
there is to choose a value. What brings them together with data may not. ``abs(f(2) - 3.0)`` would
show what is expected, and let an operator of the agent's class decide. Nothing here runs code.
"""

from __future__ import annotations

import ast
import builtins
import collections
import datetime
import decimal
import fractions
import symtable
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

__all__ = ["COMPREHENSIONS", "Names", "Ownership", "bases", "methods_of", "names_in", "root_of"]

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

_Mixing: TypeAlias = "ast.BinOp | ast.Compare | ast.Call | ast.AugAssign"

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

# Functions that turn values into others without bringing anything else in.
_CONVERSIONS = frozenset(
    {
        *("abs", "bool", "bytes", "bytearray", "chain", "complex", "deque", "dict"),
        *("enumerate", "float", "frozenset", "int", "islice", "iter", "len", "list", "max"),
        *("min", "next", "pairwise", "repr", "reversed", "set", "sorted", "str", "sum"),
        *("tuple", "zip", "Counter", "OrderedDict", "Decimal", "Fraction"),
    }
)
_COUNTED = frozenset({"islice", "enumerate", "zip", "range", "count"})
# Functions that call what they are given; if that is the agent's, the others are its arguments.
_HIGHER = frozenset({"dropwhile", "filter", "filterfalse", "map", "reduce", "starmap", "takewhile"})
_KEYED = frozenset({"groupby", "max", "min", "nlargest", "nsmallest", "sorted"})
# Functions that compare what they are given, whatever they return.
_COMPARING = frozenset(
    {
        *("allclose", "assertEqual", "close_to", "compare", "contains", "countOf", "dist"),
        *("divmod", "eq", "fmod", "ge", "gt", "indexOf", "isclose", "le", "lt", "ne", "pow"),
        *("remainder", "sub"),
    }
)
# Methods of data that compare them with what they are given.
_ASKING = frozenset(
    {
        *("count", "difference", "endswith", "find", "index", "intersection", "isdisjoint"),
        *("issubset", "issuperset", "rfind", "rindex", "startswith", "symmetric_difference"),
    }
)

_PLAIN = (
    *(bool, int, float, complex, str, bytes, bytearray, range, list, tuple, set, frozenset, dict),
    *(collections.OrderedDict, collections.Counter, collections.deque),
    *(decimal.Decimal, fractions.Fraction),
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta),
)
# What the judge can ask data for; not what also changes them, which the agent's side has to see.
_OF_DATA = frozenset(name for kind in _PLAIN for name in dir(kind)) - {
    *("pop", "popleft", "setdefault")
}
_OPERATORS: Mapping[type[ast.AST], str] = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.MatMult: "matmul", ast.Pow: "pow"},
    **{ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.BitOr: "or"},
    **{ast.BitAnd: "and", ast.BitXor: "xor", ast.LShift: "lshift", ast.RShift: "rshift"},
    **{ast.Eq: "eq", ast.NotEq: "eq", ast.Lt: "lt", ast.Gt: "lt", ast.LtE: "le", ast.GtE: "le"},
    **{ast.In: "contains", ast.NotIn: "contains"},
}


def methods_of(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the methods that classes of a task's own code define."""
    return frozenset(
        member.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for member in node.body
        if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


@dataclass(frozen=True)
class Ownership:
    """Distinguishes the agent's values from data.

    Args:
        unknown: whether a name is known on the agent's side alone.
        methods: methods that classes of gold and of the test define. They and the operators among
            them are the agent's own code, which the test is there to call.
        functions: names that gold defines.
        foreign: names that the test imports, and not from the standard library, and what it makes
            of them alone.
        assigned_names: names that earlier statements of the test bound to the agent's values.
        helpers: functions that the test defines, and that the agent's code has no part in.
        agent_names: names bound within an expression, to the agent's values.
        data_names: names bound within an expression, to data.
    """

    unknown: Callable[[str], bool]
    methods: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    assigned_names: frozenset[str] = frozenset()
    helpers: frozenset[str] = frozenset()
    agent_names: frozenset[str] = frozenset()
    data_names: frozenset[str] = frozenset()

    def is_agents(self, name: str) -> bool:
        """Whether a name is one of the agent's values."""
        return name in self.agent_names or (name not in self.data_names and self.unknown(name))

    def uses(self, node: ast.stmt | ast.expr) -> bool:
        """Whether code loads a name that is one of the agent's values."""
        return any(map(self.is_agents, names_in(node).loaded))

    def is_pure(self, node: ast.AST) -> bool:
        """Whether an expression is made of the agent's values alone, besides what it is given."""
        if isinstance(node, ast.Name):
            return self.is_agents(node.id)
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
            return self.is_pure(node.value)
        if isinstance(node, ast.Call):
            return self._is_pure_call(node)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return bool(node.elts) and all(map(self.is_pure, node.elts))
        if isinstance(node, ast.UnaryOp):
            return self.is_pure(node.operand) and not isinstance(node.op, ast.Not)
        if isinstance(node, ast.BinOp):
            sides = [self.is_pure(node.left), self.is_pure(node.right)]
            return all(sides) or (any(sides) and self._defines(node.op))
        if isinstance(node, ast.Lambda):
            return self.binding(agent_names=_parameters(node)).is_pure(node.body)
        return isinstance(node, COMPREHENSIONS) and self._is_pure_comprehension(node)

    def binding(self, agent_names: Iterable[str] = (), data_names: Iterable[str] = ()) -> Ownership:
        """Return this with names that an inner scope binds."""
        agent, data = frozenset(agent_names), frozenset(data_names)
        return replace(
            self,
            agent_names=(self.agent_names - data) | agent,
            data_names=(self.data_names | data) - agent,
        )

    def _defines(self, operator: ast.AST) -> bool:
        name = _OPERATORS.get(type(operator), "")
        return bool({f"__{name}__", f"__r{name}__"} & self.methods)

    def _is_pure_call(self, node: ast.Call) -> bool:
        called = node.func
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        name = _name_of(called) if self._is_of_nobody(called) else ""
        if self.hands_on(node):
            return True
        if name:
            pure = [self.is_pure(argument) for argument in arguments]
            harmless = (
                is_pure or _is_harmless(argument, name)
                for is_pure, argument in zip(pure, arguments, strict=True)
            )
            return name in _CONVERSIONS and any(pure) and all(harmless)
        foreign = root_of(called) in self.foreign
        if (
            foreign
            and any(map(self.uses_code, arguments))
            and not all(map(self.is_pure, arguments))
        ):
            return False
        if not isinstance(called, ast.Attribute):
            return self.is_pure(called)
        if not self.is_pure(called.value):
            return False
        return (
            called.attr in self.methods
            or foreign
            or called.attr not in _OF_DATA
            or all(self.is_pure(argument) or _is_harmless(argument, "") for argument in arguments)
        )

    def hands_on(self, node: ast.Call) -> bool:
        """Whether ``map``, ``sorted`` and the like are given a function of the agent's to call."""
        name = _name_of(node.func)
        functions = [*node.args[:1]] if name in _HIGHER else []
        if name in _KEYED:
            functions = [keyword.value for keyword in node.keywords if keyword.arg == "key"]
        return self._is_of_nobody(node.func) and any(map(self._is_function, functions))

    def uses_code(self, node: ast.stmt | ast.expr) -> bool:
        """Whether code loads one of the agent's values; what the test imports is not one."""
        return any(map(self.is_agents, names_in(node).loaded - self.foreign))

    def _is_of_nobody(self, function: ast.expr) -> bool:
        """Whether a function is one of Python's or of the test's, perhaps in a module."""
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return not self.is_agents(function.value.id)
        return isinstance(function, ast.Name) and not self.is_agents(function.id)

    def _is_function(self, node: ast.expr) -> bool:
        kinds = (ast.Name, ast.Attribute, ast.Lambda)
        return isinstance(node, kinds) and self.uses(node) and self.is_pure(node)

    def _is_pure_comprehension(self, node: ast.expr) -> bool:
        inner = self
        for generator in getattr(node, "generators", ()):
            names = list(bases([generator.target]))
            if not inner.uses(generator.iter):
                inner = inner.binding(data_names=names)
            elif inner.is_pure(generator.iter):
                inner = inner.binding(agent_names=names)
            else:
                return False
            if any(
                inner.uses(condition) and not inner.is_pure(condition)
                for condition in generator.ifs
            ):
                return False
        parts = [getattr(node, name) for name in ("elt", "key", "value") if hasattr(node, name)]
        return all(map(inner._is_row, parts))

    def _is_row(self, node: ast.expr) -> bool:
        """Whether a part of a comprehension is pure, or an argument of what is next to it."""
        if isinstance(node, ast.Tuple):
            return all(map(self._is_row, node.elts))
        return self.is_pure(node) or (isinstance(node, ast.Name) and node.id in self.data_names)

    # -- statements, which the agent's side runs as a whole

    def mixing(self, statement: ast.stmt) -> _Mixing | None:
        """Return what brings the agent's values together with data in a statement, if anything."""
        return self._within(statement)._first_mixing(statement)

    def _within(self, statement: ast.stmt) -> Ownership:
        """Return this with the names that a statement binds, at whatever depth."""
        nodes = list(ast.walk(statement))
        changed = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
        names = (node for node in nodes if isinstance(node, ast.Name) and id(node) not in changed)
        stored = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
        defined = {node.name for node in nodes if isinstance(node, _DEFINITIONS)}
        inner = self.binding(data_names=(stored | defined) - self.assigned_names | parameters)
        sources = list(_bindings(nodes))
        while True:
            # Until nothing changes, as in a loop a line may use what a later one binds.
            agent_names = {name for names, value in sources if inner.uses(value) for name in names}
            if agent_names <= inner.agent_names:
                return inner
            inner = inner.binding(agent_names=agent_names)

    def _first_mixing(self, node: ast.AST) -> _Mixing | None:
        kinds = (ast.BinOp, ast.Compare, ast.Call, ast.AugAssign)
        if isinstance(node, kinds) and self._mixes(node):
            return node
        if isinstance(node, ast.Call) and self.is_pure(node.func):
            children: Iterable[ast.AST] = [node.func]  # what it is given is the agent's to see
        else:
            children = ast.iter_child_nodes(node)
        mixing_nodes = map(self._first_mixing, children)
        return next((node for node in mixing_nodes if node is not None), None)

    def _mixes(self, node: _Mixing) -> bool:
        if isinstance(node, ast.AugAssign):
            target, value = self.uses(_loaded(node.target)), node.value
            return target and not self.is_pure(value) and not self._defines(node.op)
        if not self.uses(node):
            return False
        if isinstance(node, ast.Compare):
            return not all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops) and not all(
                map(self._defines, node.ops)
            )
        if isinstance(node, ast.Call):
            return self._call_mixes(node)
        return not self.is_pure(node)

    def _call_mixes(self, node: ast.Call) -> bool:
        called = node.func
        if self.is_pure(called):
            return root_of(called) in self.foreign and not self.is_pure(node)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        name = _name_of(called)
        values = [
            argument
            for argument in arguments
            if self.uses(argument) and not self._is_reference(argument)
        ]
        if isinstance(called, ast.Attribute) and name in _ASKING:
            return bool(values)
        compares = name in self.helpers | _HIGHER | _KEYED | _COMPARING
        is_pure = self.is_pure(node) or all(map(self.is_pure, arguments))
        return compares and bool(values) and not is_pure

    def _is_reference(self, node: ast.expr) -> bool:
        """Whether a function of the agent's is handed on, and not called."""
        return isinstance(node, ast.Lambda) or (
            isinstance(node, ast.Name) and node.id in self.functions
        )


def root_of(node: ast.expr) -> str:
    """Return the name that a chain of calls, attributes and subscripts begins with, or nothing."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_harmless(node: ast.expr, name: str) -> bool:
    """Whether what a function is given says nothing of what is expected."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, type(None))) or (
            isinstance(node.value, int) and name in _COUNTED
        )
    if isinstance(node, ast.Name):
        return hasattr(builtins, node.id)
    if isinstance(node, ast.Call) and name in _COUNTED:
        inner = _name_of(node.func)
        return inner in _COUNTED and all(_is_harmless(argument, inner) for argument in node.args)
    return False


def _parameters(node: ast.Lambda) -> list[str]:
    return [parameter.arg for parameter in ast.walk(node.args) if isinstance(parameter, ast.arg)]


def _loaded(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


def _bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[list[str], ast.expr | ast.stmt]]:
    """Yield the names that statements bind, each with what it binds them to."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield list(bases(node.targets)), node.value
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            if node.value is not None:
                yield list(bases([node.target])), node.value
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            yield list(bases([node.target])), node.iter
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield list(bases([node.optional_vars])), node.context_expr
        elif isinstance(node, _DEFINITIONS):
            yield [node.name], node


# -- the names that a piece of code loads and binds

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
        # For symtable, a name that is only added to is bound and not loaded.
        loaded_names |= set(bases([node.target]))
    return Names(frozenset(loaded_names), frozenset(bound_names))


def bases(targets: list[ast.expr]) -> Iterator[str]:
    """Yield the names at the bottom of assignments' targets: ``x`` of ``x[0].y``."""
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id
