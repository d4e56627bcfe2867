"""Wrong answers to a python task: bodies that do nothing, constants, and gold with a change."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator

from pytest_intercode.core.task import Task
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.fields import CallTest, CodeTest, ProgramTest
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.python.hidden_tests import entry_of, parse_code

__all__ = ["change_gold", "constants", "empty_answer"]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add},
    **{ast.FloorDiv: ast.Mult, ast.Div: ast.Mult},
}


def empty_answer(task: Task) -> Answer:
    """Return a function that does nothing, or an empty program."""
    name = entry_of(task)
    if not name:
        return Answer(("pass",), description="an empty program")
    head, _, method = name.partition(".")
    if method:
        source = f"class {head}:\n    def {method}(self, *args, **kwargs):\n        pass"
    else:
        source = f"def {head}(*args, **kwargs):\n    pass"
    return Answer((source,), head, description="a body that does nothing")


def constants(task: Task) -> Iterator[Answer]:
    """Yield functions that always return, or programs that always print, what a test expects."""
    name = entry_of(task)
    expected = Counter(_find_expected(task))
    if not expected and name:
        expected = Counter(["True", "False"])  # the asserts do not compare with a literal
    for value, _ in expected.most_common(2):
        if not name:
            yield Answer(
                (f"print({value}, end='')",), description="a program that always prints the same"
            )
        elif "." not in name:
            source = f"def {name}(*args, **kwargs):\n    return {value}"
            yield Answer((source,), name, description="a body that returns a constant")


def _find_expected(task: Task) -> Iterator[str]:
    """Yield the results that tests expect of calls, as literals."""
    for test in PythonFields.of(task).tests:
        if isinstance(test, CallTest):
            yield repr(test.result)
        elif isinstance(test, ProgramTest):
            yield repr(test.output)
        elif isinstance(test, CodeTest):
            tree = parse_code(test.code)
            for node in ast.walk(tree) if tree else ():
                if isinstance(node, ast.Assert):
                    yield from _find_compared(node.test)


def _find_compared(node: ast.expr) -> Iterator[str]:
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


def change_gold(task: Task) -> Iterator[Answer]:
    """Yield gold with one operator or number changed; a person has to judge each."""
    name = entry_of(task).partition(".")[0]
    for label, change in _CHANGES:
        for index in reversed(range(len(task.gold))):
            tree = parse_code(task.gold[index])
            if tree is not None and any(map(change, ast.walk(tree))):
                actions = (*task.gold[:index], ast.unparse(tree), *task.gold[index + 1 :])
                yield Answer(actions, name, description=label, certain=False)
                break


def _change_comparison(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        node.ops[0] = _COMPARISONS[type(node.ops[0])]()
        return True
    return False


def _change_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
        return True
    return False


def _change_operator(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        node.op = _OPERATORS[type(node.op)]()
        return True
    return False


_CHANGES: tuple[tuple[str, Callable[[ast.AST], bool]], ...] = (
    ("gold with another comparison", _change_comparison),
    ("gold with a number off by one", _change_number),
    ("gold with another operator", _change_operator),
)
