"""Wrong but plausible answers to python tasks: a constant, and gold off by one. Runs nothing."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator

from pytest_intercode.auditing.playing import Answer
from pytest_intercode.core.task import CallTest, CodeTest, ProgramTest, Task
from pytest_intercode.suites.python_tests import entry_of, parsed

__all__ = ["changed_gold", "constants", "empty"]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add},
    **{ast.FloorDiv: ast.Mult, ast.Div: ast.Mult},
}


def empty(task: Task) -> Answer:
    """Return a function that does nothing, or an empty program."""
    name = entry_of(task)
    if not name:
        return Answer(("pass",), what="an empty program")
    head, _, method = name.partition(".")
    if method:
        source = f"class {head}:\n    def {method}(self, *args, **kwargs):\n        pass"
    else:
        source = f"def {head}(*args, **kwargs):\n    pass"
    return Answer((source,), head, what="a body that does nothing")


def constants(task: Task) -> Iterator[Answer]:
    """Yield a function that returns, or a program that prints, what a test expects, always."""
    name = entry_of(task)
    expected = Counter(_expected(task))
    if not expected and name:
        expected = Counter(["True", "False"])  # asserts that compare nothing
    for value, _ in expected.most_common(2):
        if not name:
            yield Answer((f"print({value}, end='')",), what="a program that always prints the same")
        elif "." not in name:
            source = f"def {name}(*args, **kwargs):\n    return {value}"
            yield Answer((source,), name, what="a body that returns a constant")


def _expected(task: Task) -> Iterator[str]:
    """Yield what tests expect of a call, as literals."""
    for test in task.tests:
        if isinstance(test, CallTest):
            yield repr(test.result)
        elif isinstance(test, ProgramTest):
            yield repr(test.output)
        elif isinstance(test, CodeTest):
            tree = parsed(test.code)
            for node in ast.walk(tree) if tree else ():
                if isinstance(node, ast.Assert):
                    yield from _compared(node.test)


def _compared(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "False"
    elif isinstance(node, ast.Call):
        yield "True"
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.Is):
        for side in (node.comparators[0], node.left):
            try:
                yield repr(ast.literal_eval(side))
                return
            except (ValueError, TypeError, MemoryError, RecursionError):
                continue


def changed_gold(task: Task) -> Iterator[Answer]:
    """Yield gold with another comparison, another number, and another operator.

    A person has to judge each that is taken for right: it may do the same in another way.
    """
    name = entry_of(task).partition(".")[0]
    for what, change in _CHANGES:
        for at in reversed(range(len(task.gold))):
            tree = parsed(task.gold[at])
            if tree is not None and any(map(change, ast.walk(tree))):
                actions = (*task.gold[:at], ast.unparse(tree), *task.gold[at + 1 :])
                yield Answer(actions, name, what=what, surely=False)
                break


def _comparison(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        node.ops[0] = _COMPARISONS[type(node.ops[0])]()
        return True
    return False


def _number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
        return True
    return False


def _operator(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        node.op = _OPERATORS[type(node.op)]()
        return True
    return False


_CHANGES: tuple[tuple[str, Callable[[ast.AST], bool]], ...] = (
    ("gold with another comparison", _comparison),
    ("gold with a number off by one", _number),
    ("gold with another operator", _operator),
)
