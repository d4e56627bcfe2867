"""Split a hidden test between the agent's side, which calls, and the judge, which compares.

The judge never runs the agent's code, and the agent's side is not sent what is expected, unless the
test itself passes that in arguments. In an ``assert``, the agent's side evaluates the chains (see
``expressions.py``) and the judge evaluates the remainder. The same holds for an assignment that
combines the agent's values with others (see ``ownership.py``). Every other statement runs where it
is needed: on the agent's side if it uses the agent's code or makes its arguments; by the judge if
what is expected depends on it. Nothing here runs code.

A list that a test gives to the agent's code and then compares on its own (``f(x)``, then
``assert x == [...]``) is compared as the agent's code left it. In an assert that also calls the
agent's code (``assert f(x) == sorted(x)``), it has the value that the test gave it.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pytest_intercode.environments.python.expressions import Chains, Step, TestError
from pytest_intercode.environments.python.ownership import (
    Names,
    Ownership,
    bases,
    methods_of,
    names_in,
)

__all__ = ["Split", "split_test"]

_BUILTINS = frozenset(dir(builtins))
_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINITIONS = (*_IMPORTS, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_PLAIN = (
    *(ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp),
    *(ast.JoinedStr, ast.FormattedValue, ast.expr_context, ast.operator, ast.unaryop, ast.boolop),
    ast.cmpop,
)
_DISPLAYS = (ast.List, ast.Tuple, ast.Dict)
_SIMPLE = (
    *(ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp, ast.Call),
    *(ast.Name, ast.expr_context, ast.operator, ast.unaryop),
)


@dataclass(frozen=True)
class Split:
    """A test in its two parts.

    Attributes:
        steps: what the agent's side does, in order: ``("setup", N, SOURCE)`` and
            ``("run", N, SOURCE)`` for statements, and those of :class:`Chains`.
        source: what the judge runs.
        raises: the names of the exceptions, by the number of each ``raises``; one of them must have
            been raised.
    """

    steps: tuple[Step, ...]
    source: str
    raises: Mapping[int, tuple[str, ...]]


@dataclass
class _Statement:
    node: ast.stmt
    is_setup: bool
    names: Names
    judged: bool = False  # the judge can run it
    computed: bool = False  # an assignment that is split like an assert
    known_names: frozenset[str] = frozenset()  # the names that the judge knows before it
    steps: list[Step] = field(default_factory=list)
    remainder: ast.stmt | None = None  # what the judge runs
    loaded: set[str] = field(default_factory=set)  # the names that the agent's side loads

    @property
    def compared(self) -> Iterable[str]:
        """The names that the judge loads for a comparison."""
        if self.remainder is None or self.computed:
            return ()
        return names_in(self.remainder).loaded

    @property
    def affects(self) -> set[str]:
        """The names that it binds, or whose values it may change."""
        if isinstance(self.node, _DEFINITIONS):
            return set(self.names.bound)
        if isinstance(self.node, ast.Assign):
            return set(self.names.bound) | set(bases(self.node.targets))
        return set(self.names.bound) | set(self.names.loaded - _BUILTINS)


def split_test(
    setup: str,
    code: str,
    gold_names: Iterable[str],
    entry: str,
    methods: frozenset[str] = frozenset(),
) -> Split:
    """Split a test.

    Args:
        setup: code that runs before it.
        code: the test.
        gold_names: names that gold defines at top level, even if they are also builtins.
        entry: the name of what is submitted.
        methods: names of methods that gold's classes define.

    Raises:
        TestError: it does not parse, or cannot be split.
    """
    root = entry.partition(".")[0]
    known_names = _BUILTINS - {root}
    if not setup:
        simple = _simple(code, root, known_names)
        if simple is not None:
            return simple
    raises: dict[int, tuple[str, ...]] = {}
    statements = []
    for text, is_setup in ((setup, True), (code, False)):
        for node in _parse(text):
            if not isinstance(node, ast.Assert):
                node = _Raising(raises).visit(node)
                _check_asserts(node)
            statements.append(_Statement(node, is_setup, names_in(node)))
    functions = frozenset({root, *gold_names})
    owner = Ownership(
        lambda name: name not in known_names,
        methods | methods_of([ast.Module([statement.node for statement in statements], [])]),
        functions,
        _foreign(statements, known_names),
    )
    displays = _displays(statements)
    argument_names: set[str] = set()
    while True:
        _classify(statements, known_names, owner, argument_names)
        _check_names(statements, functions)
        agent_needs = _split_statements(statements, owner, displays)
        judge_needs = _collect_names(statements, lambda statement: statement.compared)
        computed = {
            name for statement in statements if statement.computed for name in statement.names.bound
        }
        conflicts = sorted(computed & agent_needs & judge_needs)
        if conflicts:
            raise TestError(
                f"{conflicts[0]!r} combines what the agent's code returned with other values, "
                "and is then both given to the agent's code and compared; use two names"
            )
        if not computed & agent_needs:
            break
        argument_names |= (
            computed & agent_needs
        )  # arguments of the agent's code that are not compared
    if not any(statement.steps for statement in statements):
        raise TestError("it calls none of the agent's code")
    run_by_judge = [_judge_statement(statement, judge_needs) for statement in statements]
    source = ast.unparse(ast.Module([node for node in run_by_judge if node is not None], []))
    return Split(tuple(_steps(statements, agent_needs)), source, raises)


def _split_statements(
    statements: list[_Statement], owner: Ownership, displays: Mapping[str, ast.expr]
) -> set[str]:
    """Set every statement's steps and remainder; return the names that the agent's side needs."""
    changeable: set[str] = set()
    while True:
        count = 0
        for statement in statements:
            count = _split_statement(statement, owner, displays, changeable, count)
        agent_needs = _collect_names(statements, lambda statement: statement.loaded)
        mutable_names = _mutable_names(statements, agent_needs)
        if mutable_names <= changeable:
            return agent_needs
        changeable |= mutable_names


def _simple(code: str, root: str, known_names: frozenset[str]) -> Split | None:
    """Split the most common test, ``assert ROOT(...) == DATA``, in a tenth of the time."""
    code = code.strip()
    body = _parse(code)
    test = body[0].test if len(body) == 1 and isinstance(body[0], ast.Assert) else None
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and code.isascii()):
        return None
    call, data = test.left, test.comparators[0]
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        return None
    if call.func.id != root or "\n" in code or not isinstance(test.ops[0], ast.Eq):
        return None
    parts = [*call.args, *(keyword.value for keyword in call.keywords), data]
    for node in (node for part in parts for node in ast.walk(part)):
        if not isinstance(node, _SIMPLE) or (
            isinstance(node, ast.Name) and node.id not in known_names
        ):
            return None
    call_text, data_text = (code[node.col_offset : node.end_col_offset] for node in (call, data))
    return Split((("value", 0, call_text),), f"assert __value__(0) == ({data_text})", {})


def _parse(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except SyntaxError as error:
        raise TestError(f"it does not parse: line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise TestError(f"it does not parse: {error}") from None


class _Raising(ast.NodeTransformer):
    """Numbers every ``with raises(...)``, and extracts its exceptions."""

    def __init__(self, raises: dict[int, tuple[str, ...]]) -> None:
        self._raises = raises

    def visit_withitem(self, node: ast.withitem) -> ast.withitem:
        call = node.context_expr
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            return node
        if call.func.id != "raises":
            return node
        if len(call.args) != 1 or call.keywords:
            raise TestError("raises() takes an exception, or several in parentheses")
        kinds = call.args[0].elts if isinstance(call.args[0], ast.Tuple) else call.args
        if not all(isinstance(kind, (ast.Name, ast.Attribute)) for kind in kinds):
            raise TestError("raises() takes an exception by its name")
        number = len(self._raises)
        self._raises[number] = tuple(ast.unparse(kind).rpartition(".")[2] for kind in kinds)
        node.context_expr = ast.Call(ast.Name("__raises__", ast.Load()), [ast.Constant(number)], [])
        return node


def _check_asserts(statement: ast.stmt) -> None:
    for node in ast.walk(statement):
        if isinstance(node, ast.Assert) and node is not statement:
            raise TestError(
                f"line {node.lineno}: an assert inside another statement would run on the "
                "agent's side, which would see what it expects; put the values into a list "
                "and compare that, or write several asserts"
            )


def _displays(statements: list[_Statement]) -> dict[str, ast.expr]:
    """Return the lists, tuples and dictionaries that the test names, and then only asserts use."""
    displays: dict[str, ast.expr] = {}
    changed: set[str] = set()
    for statement in statements:
        node = statement.node
        if isinstance(node, ast.Assert):
            continue
        changed |= statement.affects & displays.keys()
        if isinstance(node, ast.Assign) and isinstance(node.value, _DISPLAYS):
            displays |= {
                target.id: node.value for target in node.targets if isinstance(target, ast.Name)
            }
    return {name: value for name, value in displays.items() if name not in changed}


def _foreign(statements: list[_Statement], known_names: frozenset[str]) -> frozenset[str]:
    """Return the names that the test imports from third parties, or makes only of such names."""
    foreign_names: set[str] = set()
    for statement in statements:
        node, names = statement.node, statement.names
        if isinstance(node, _IMPORTS):
            foreign_names |= set() if _is_standard(node) else names.bound
        elif isinstance(node, ast.Assign) and names.loaded & foreign_names:
            foreign_names |= names.bound if names.loaded <= known_names | foreign_names else set()
        if names.loaded <= known_names:
            known_names |= names.bound - foreign_names
    return frozenset(foreign_names)


def _classify(
    statements: list[_Statement],
    known_names: frozenset[str],
    owner: Ownership,
    argument_names: set[str],
) -> None:
    """Set which statements the judge can run, and which names it knows before each of them.

    Raises:
        TestError: a statement that the agent's side has to run would compare there.
    """
    helpers: set[str] = set()
    assigned_names: set[str] = set()
    for statement in statements:
        node, names = statement.node, statement.names
        statement.known_names = known_names
        if isinstance(node, ast.Assert):
            continue
        if isinstance(node, _IMPORTS):
            statement.judged = _is_standard(node)
        else:
            defined_names = names.bound if isinstance(node, _DEFINITIONS) else frozenset()
            statement.judged = names.loaded - defined_names <= known_names
        statement.computed = False
        if not (statement.judged or names.bound & argument_names):
            statement_owner = replace(
                owner, assigned_names=frozenset(assigned_names), helpers=frozenset(helpers)
            )
            _classify_mixing(statement, _with_known_names(statement_owner, known_names))
        if statement.judged or statement.computed:
            known_names |= names.bound
            assigned_names -= names.bound
            helpers |= names.bound if isinstance(node, ast.FunctionDef) else set()
        elif isinstance(node, ast.Assign):
            known_names -= statement.affects
            assigned_names |= statement.affects
        else:
            known_names -= names.bound
            assigned_names |= names.bound


def _with_known_names(owner: Ownership, known_names: frozenset[str]) -> Ownership:
    return replace(owner, unknown=lambda name: name not in known_names)


def _classify_mixing(statement: _Statement, owner: Ownership) -> None:
    """Let the judge evaluate an assignment whose result the agent's objects must not decide."""
    node = statement.node
    mixing = None if isinstance(node, _IMPORTS) else owner.mixing(node)
    if mixing is None:
        return
    if isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Name) for target in node.targets
    ):
        statement.computed = True
        return
    raise TestError(
        f"line {mixing.lineno}: {ast.unparse(mixing)!r} would be evaluated on the agent's side, "
        "where its objects decide and what is expected can be seen; put the values into a list "
        "and evaluate it in an assert"
    )


def _is_standard(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        modules = [node.module or ""] if node.level == 0 else [""]
    else:
        modules = [alias.name for alias in node.names]
    return all(module.partition(".")[0] in sys.stdlib_module_names for module in modules)


def _check_names(statements: list[_Statement], gold_names: Iterable[str]) -> None:
    """Refuse names that nothing defines, because the agent could define them in any way."""
    defined_names = set(_BUILTINS) | set(gold_names) | {"__raises__"}
    for statement in statements:
        defined_names |= statement.names.bound
        for name in sorted(statement.names.loaded - defined_names):
            raise TestError(
                f"it uses {name!r}, which neither gold nor the test defines; define or import it "
                "in test_setup"
            )


def _split_statement(
    statement: _Statement,
    owner: Ownership,
    displays: Mapping[str, ast.expr],
    changeable: set[str],
    first: int,
) -> int:
    """Set a statement's steps and remainder; return the number for the next step."""
    node, known_names = statement.node, statement.known_names
    statement.steps, statement.remainder, statement.loaded = [], None, set()
    if isinstance(node, ast.Assert) or (isinstance(node, ast.Assign) and statement.computed):
        expression = node.test if isinstance(node, ast.Assert) else node.value
        chains = Chains(_with_known_names(owner, known_names), first, displays)
        remainder = chains.take(expression)
        if not chains.steps and changeable:
            chains = Chains(
                _with_known_names(owner, known_names.difference(changeable)), first, displays
            )
            remainder = chains.take(expression)
        statement.steps = chains.steps
        if isinstance(node, ast.Assert):
            statement.remainder = ast.Assert(remainder)
        else:
            statement.remainder = ast.Assign(node.targets, remainder, lineno=node.lineno)
        for source in chains.sources:
            statement.loaded |= names_in(source).loaded
        return first + len(chains.steps)
    if not statement.judged:
        kind = "setup" if statement.is_setup else "run"
        statement.steps = [(kind, first, ast.unparse(node))]
        statement.loaded = set(statement.names.loaded)
        return first + 1
    return first


def _collect_names(
    statements: list[_Statement], loads: Callable[[_Statement], Iterable[str]]
) -> set[str]:
    """Return all names that a side needs, including those that their values are made of."""
    names: set[str] = set()
    for statement in statements:
        names |= set(loads(statement))
    size = -1 if len(statements) > 1 else len(names)
    while size != len(names):
        size = len(names)
        for statement in statements:
            is_judges = statement.judged or statement.computed
            if is_judges and statement.affects & names:
                names |= statement.names.loaded
    return names


def _mutable_names(statements: list[_Statement], agent_needs: set[str]) -> set[str]:
    """Return the needed names of data that the agent's code could change."""
    mutable_names: set[str] = set()
    for statement in statements:
        node = statement.node
        if not statement.judged or isinstance(node, _DEFINITIONS):
            continue
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else node
        for inner in ast.walk(value or node):
            mutable = not isinstance(inner, _PLAIN)
            if mutable and not (isinstance(inner, ast.Name) and inner.id not in mutable_names):
                mutable_names |= statement.affects
                break
    return mutable_names & agent_needs


def _judge_statement(statement: _Statement, judge_needs: set[str]) -> ast.stmt | None:
    if statement.remainder is not None:
        return statement.remainder
    return statement.node if statement.judged and statement.affects & judge_needs else None


def _steps(statements: list[_Statement], agent_needs: set[str]) -> Iterator[Step]:
    for statement in statements:
        yield from statement.steps
        if statement.judged and statement.affects & agent_needs:
            kind = "setup" if statement.is_setup else "run"
            yield (kind, -1, ast.unparse(statement.node))
