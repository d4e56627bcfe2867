"""Find out whether an expression of a hidden test is made only of the agent's values.

Such an expression may be evaluated on the agent's side: all that the agent can gain there is to
choose a value. An expression that combines the agent's values with data must not be evaluated
there: ``abs(f(2) - 3.0)`` would show what is expected, and would let an operator of the agent's
class decide. Nothing here runs code.
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

# Functions that convert values without adding anything else to them.
_CONVERSIONS = frozenset(
    {
        *("abs", "bool", "bytes", "bytearray", "chain", "complex", "deque", "dict"),
        *("enumerate", "float", "frozenset", "int", "islice", "iter", "len", "list", "max"),
        *("min", "next", "pairwise", "repr", "reversed", "set", "sorted", "str", "sum"),
        *("tuple", "zip", "Counter", "OrderedDict", "Decimal", "Fraction"),
    }
)
_COUNTED = frozenset({"islice", "enumerate", "zip", "range", "count"})
# Functions that call a given function; if it is the agent's, it gets the other arguments.
_HIGHER = frozenset({"dropwhile", "filter", "filterfalse", "map", "reduce", "starmap", "takewhile"})
_KEYED = frozenset({"groupby", "max", "min", "nlargest", "nsmallest", "sorted"})
# Functions that compare their arguments, whatever they return.
_COMPARING = frozenset(
    {
        *("allclose", "assertEqual", "close_to", "compare", "contains", "countOf", "dist"),
        *("divmod", "eq", "fmod", "ge", "gt", "indexOf", "isclose", "le", "lt", "ne", "pow"),
        *("remainder", "sub"),
    }
)
# Methods of data that compare the data with their arguments.
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
# The attributes of data that the judge can use, except methods that also change the data, because
# the agent's side has to see the change.
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
    """Return the names of methods that classes in a task's own code define."""
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
        unknown: whether a name is known only on the agent's side.
        methods: methods that classes of gold and of the test define. They, and the operators among
            them, are the agent's own code, which the test is meant to call.
        functions: names that gold defines.
        foreign: names that the test imports from outside of the standard library, and names that it
            makes only of these.
        assigned_names: names that earlier statements of the test bound to the agent's values.
        helpers: functions that the test defines and that do not use the agent's code.
        agent_names: names that are bound to the agent's values within an expression.
        data_names: names that are bound to data within an expression.
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
        """Whether a name refers to one of the agent's values."""
        return name in self.agent_names or (name not in self.data_names and self.unknown(name))

    def uses(self, node: ast.stmt | ast.expr) -> bool:
        """Whether code loads a name that refers to one of the agent's values."""
        return any(map(self.is_agents, names_in(node).loaded))

    def is_pure(self, node: ast.AST) -> bool:
        """Whether an expression is made only of the agent's values and arguments for its code."""
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
        """Return a copy with the names that an inner scope binds."""
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
        """Whether a call passes a function of the agent to ``map``, ``sorted`` and the like."""
        name = _name_of(node.func)
        functions = [*node.args[:1]] if name in _HIGHER else []
        if name in _KEYED:
            functions = [keyword.value for keyword in node.keywords if keyword.arg == "key"]
        return self._is_of_nobody(node.func) and any(map(self._is_function, functions))

    def uses_code(self, node: ast.stmt | ast.expr) -> bool:
        """Whether code loads one of the agent's values, not counting the test's foreign names."""
        return any(map(self.is_agents, names_in(node).loaded - self.foreign))

    def _is_of_nobody(self, function: ast.expr) -> bool:
        """Whether a function is Python's or the test's, perhaps in a module, not the agent's."""
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
        """Whether a part of a comprehension is pure, or is the loop's data, as in ``x, f(x)``."""
        if isinstance(node, ast.Tuple):
            return all(map(self._is_row, node.elts))
        return self.is_pure(node) or (isinstance(node, ast.Name) and node.id in self.data_names)

    # -- statements, which the agent's side runs as a whole

    def mixing(self, statement: ast.stmt) -> _Mixing | None:
        """Return the part of a statement that combines the agent's values with data, if any."""
        return self._within(statement)._first_mixing(statement)

    def _within(self, statement: ast.stmt) -> Ownership:
        """Return a copy with the names that a statement binds at any depth."""
        nodes = list(ast.walk(statement))
        changed = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
        names = (node for node in nodes if isinstance(node, ast.Name) and id(node) not in changed)
        stored = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
        defined = {node.name for node in nodes if isinstance(node, _DEFINITIONS)}
        inner = self.binding(data_names=(stored | defined) - self.assigned_names | parameters)
        sources = list(_bindings(nodes))
        while True:
            # Repeat until nothing changes: in a loop, a line may use what a later one binds.
            agent_names = {name for names, value in sources if inner.uses(value) for name in names}
            if agent_names <= inner.agent_names:
                return inner
            inner = inner.binding(agent_names=agent_names)

    def _first_mixing(self, node: ast.AST) -> _Mixing | None:
        kinds = (ast.BinOp, ast.Compare, ast.Call, ast.AugAssign)
        if isinstance(node, kinds) and self._mixes(node):
            return node
        if isinstance(node, ast.Call) and self.is_pure(node.func):
            children: Iterable[ast.AST] = [node.func]  # the agent's side may see the arguments
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
        """Whether a function of the agent is passed on, and not called."""
        return isinstance(node, ast.Lambda) or (
            isinstance(node, ast.Name) and node.id in self.functions
        )


def root_of(node: ast.expr) -> str:
    """Return the name that a chain of calls, attributes and subscripts begins with; or empty."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_harmless(node: ast.expr, name: str) -> bool:
    """Whether an argument of a function reveals nothing about what is expected."""
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
    """Yield the names that each statement binds, with the code that they are bound to."""
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
    """The module-level names that a piece of code loads, and the ones that it binds."""

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
        # For symtable, the target of an augmented assignment is bound, but not loaded.
        loaded_names |= set(bases([node.target]))
    return Names(frozenset(loaded_names), frozenset(bound_names))


def bases(targets: list[ast.expr]) -> Iterator[str]:
    """Yield the names at the root of assignments' targets: ``x`` for ``x[0].y``."""
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id
