"""The hidden tests of python tasks: checked when a suite is read, and split for grading."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import lru_cache

from pytest_intercode.core.task import Task
from pytest_intercode.environments.fields import CallTest, CodeTest, ProgramTest
from pytest_intercode.environments.python.expressions import TestError
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.python.ownership import methods_of
from pytest_intercode.environments.python.split import Split, split_test
from pytest_intercode.errors import SuiteError

__all__ = ["check_tests", "entry_of", "parse_code", "split_tests"]

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def check_tests(task: Task) -> None:
    """Check that a task has tests, and that they can be graded.

    Raises:
        SuiteError: it has none, or one of them does not parse or cannot be split.
    """
    label = f"{task.source}: task {task.id!r}: tests"
    if task.skip:
        return
    tests = PythonFields.of(task).tests
    if not tests:
        raise SuiteError(
            f"{label}: a python task needs some: a list of asserts, of {{input, output}} or of "
            "{arguments, result}"
        )
    if any(isinstance(test, CallTest) for test in tests) and not entry_of(task):
        raise SuiteError(
            f"{label}: what they call is missing; give entry, or a gold that defines it"
        )
    for _ in split_tests(task):
        pass


def split_tests(task: Task) -> Iterator[Split | ProgramTest | CallTest]:
    """Yield the tests of a task; tests that are code are split into their two parts.

    Raises:
        SuiteError: one of them does not parse or cannot be split.
    """
    fields = PythonFields.of(task)
    defined = frozenset(_defined_by(task.gold))
    methods = _methods_of(task.gold)
    entry = entry_of(task)
    for number, test in enumerate(fields.tests, start=1):
        if not isinstance(test, CodeTest):
            yield test
            continue
        try:
            yield _split(fields.test_setup, test.code, defined, entry, methods)
        except (TestError, RecursionError, MemoryError) as error:
            problem = error if isinstance(error, TestError) else "it is nested too deeply"
            if not any(map(parse_code, task.gold)):  # then the test cannot know its names
                raise SuiteError(f"{task.source}: task {task.id!r}: gold is not Python") from None
            raise SuiteError(
                f"{task.source}: task {task.id!r}: tests: test {number}: {problem}"
            ) from None


def entry_of(task: Task) -> str:
    """Return the name that the tests call: the task's own, or found in gold and the tests.

    It is the first name that a test calls and that gold defines at top level, or else the last name
    that gold defines. It is empty for tasks that ask for whole programs.
    """
    fields = PythonFields.of(task)
    if fields.entry:
        return fields.entry
    codes = tuple(test.code for test in fields.tests if isinstance(test, CodeTest))
    if not codes and not any(isinstance(test, CallTest) for test in fields.tests):
        return ""
    return _entry(task.gold, codes)


@lru_cache(4096)
def _split(
    setup: str, code: str, defined: frozenset[str], entry: str, methods: frozenset[str]
) -> Split:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler warns about "\d" in a test
        return split_test(setup, code, defined, entry, methods)


@lru_cache(4096)
def _entry(gold: tuple[str, ...], codes: tuple[str, ...]) -> str:
    defined = _defined_by(gold)
    for code in codes:
        tree = parse_code(code)
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree else ()
        for called in calls:
            if isinstance(called, ast.Name) and called.id in defined:
                return called.id
    return defined[-1] if defined else ""


@lru_cache(4096)
def _defined_by(gold: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the functions and classes that gold defines at top level, in order."""
    trees = filter(None, map(parse_code, gold))
    return tuple(
        node.name for tree in trees for node in tree.body if isinstance(node, _DEFINITIONS)
    )


@lru_cache(4096)
def _methods_of(gold: tuple[str, ...]) -> frozenset[str]:
    # Most golds do not define a class, so they do not need to be parsed.
    return methods_of(filter(None, (parse_code(code) for code in gold if "class " in code)))


def parse_code(code: str) -> ast.Module | None:
    """Return the syntax tree of source code, or None if it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
