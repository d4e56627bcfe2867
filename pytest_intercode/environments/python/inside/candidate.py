"""The agent's side of hidden tests: run what they call, and return the values as data.

This runs in an interpreter that has just played the agent's actions. So the agent's code may have
changed anything in it, including this module, and may write anything where the answers go. All that
it can gain is to choose the values that its function returns, which it can do anyway. What a test
expects is not here, nor anywhere in this sandbox.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
from typing import Any

from pytest_intercode.environments.python.inside.encoding import encode, is_iterator
from pytest_intercode.environments.python.inside.one_by_one import one_by_one

__all__ = ["Scope", "evaluate", "main"]

_MAX_OUTPUT = 4 * 1024**2  # bytes of a program's output
_OPAQUE = ["opaque", True]
_OURS = (200, 201)  # the worker's own descriptors, see python_worker.py


class Scope(dict):  # type: ignore[type-arg]
    """The names of a test, which falls back to the agent's names.

    So a test's own names do not replace any that the agent's code uses, and an agent that has
    called a number ``sum`` does not change what tests mean by it.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__(__builtins__=names.get("__builtins__", {}), __name__="tests")
        self._names = names

    def __missing__(self, name: str) -> Any:
        if name in vars(builtins):
            raise KeyError(name)
        return self._names[name]


class Raises:
    """``with raises(...)``: catches any exception, and notes its classes for the judge."""

    def __init__(self, number: int, noted: list[Any]) -> None:
        self._number, self._noted = number, noted
        self.value: BaseException | None = None

    def __enter__(self) -> Raises:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.value = error
        names = [ancestor.__name__ for ancestor in kind.__mro__] if kind else None
        self._noted.append([self._number, names])
        return error is not None


def evaluate(test: tuple[Any, ...], names: dict[str, Any], entry: str, submission: Any) -> Any:
    """Run the agent's side of one test.

    Args:
        test: its kind, and the values that belong to the kind.
        names: the agent's namespace.
        entry: the test's name for the submitted object.
        submission: the submitted object.
    """
    scope = Scope(names)
    root, _, path = entry.partition(".")
    if root:
        scope[root] = submission
    if test[0] == "code":
        return _code(test[1], scope, names)
    try:
        if test[0] == "program":
            return _program(test[1], test[2])
        called = submission
        if path and isinstance(submission, type):
            called = submission()
            for attribute in path.split("."):
                called = getattr(called, attribute)
        return {"value": encode(called(*eval(test[1], {})))[0]}
    except BaseException as error:
        return {"stopped": type(error).__name__}


def _code(steps: list[tuple[Any, ...]], scope: Scope, names: dict[str, Any]) -> Any:
    values: dict[int, Any] = {}
    objects: dict[int, Any] = {}
    opaque_numbers: set[int] = set()
    noted: list[Any] = []
    scope["__raises__"] = lambda number: Raises(number, noted)
    scope["__value__"] = objects.__getitem__
    answer = {"values": values, "raises": noted}
    later = {part for step in steps for part in step[3:]}  # values that later steps may use
    for kind, number, source, *parts in steps:
        try:
            if kind in ("run", "setup"):
                exec(compile(source, "<tests>", "exec", 0, True), scope)
                if kind == "setup":
                    # The agent's code may use names of setup that it does not define itself.
                    for name, value in scope.items():
                        if not name.startswith("__"):
                            names.setdefault(name, value)
            elif kind == "value" or opaque_numbers.intersection(parts):
                objects[number] = eval(compile(source, "<tests>", "eval", 0, True), scope)
                used_up = number in later and is_iterator(objects[number])
                values[number], opaque = (_OPAQUE, True) if used_up else encode(objects[number])
                if opaque:
                    opaque_numbers.add(number)
        except BaseException as error:
            if kind in ("run", "setup"):
                answer["stopped"] = type(error).__name__
                break
            values[number] = ["raised", type(error).__name__]
    return answer


def _program(source: str, text: str) -> Any:
    # Imported only here, because these imports take longer than most tests.
    import subprocess
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
        file.write(source)
        file.flush()
        process = subprocess.run(
            [sys.executable or "python3", file.name],
            input=text.encode("utf-8", "surrogateescape"),
            stdout=subprocess.PIPE,
            check=False,
        )
    output = process.stdout[:_MAX_OUTPUT].decode("utf-8", "backslashreplace")
    return {"output": output, "status": process.returncode}


def find(entry: str, submitted: str, names: dict[str, Any], defined: list[str]) -> tuple[bool, Any]:
    """Find the submitted object by its name, by the tests' name, or as the last definition."""
    root, _, path = entry.partition(".")
    candidates = [submitted] if submitted else [root, path, *reversed(defined)]
    for name in candidates:
        first, *rest = name.split(".")
        if first in names:
            value = names[first]
            for attribute in rest:
                value = getattr(value, attribute)
            return True, value
    return False, None


def main(request: dict[str, Any]) -> None:
    """Answer a request on standard output, one line for each test."""
    token, entry, tests = request["token"], request["entry"], request["tests"]
    interpreter = globals()["interpreter"]  # the worker defines it
    output = os.dup(1)
    names = interpreter.names
    try:
        is_there, submission = find(entry, request["submitted"], names, interpreter.defined)
    except Exception:
        is_there = False
    if entry and not is_there:
        _say(output, f"{token} -1 missing\n")
        return
    empty = os.open(os.devnull, os.O_RDWR)

    def work(number: int) -> str:
        for descriptor in _OURS:
            _close(descriptor)
        for descriptor in (0, 1, 2):
            os.dup2(empty, descriptor)
        return json.dumps(evaluate(tests[number], names, entry, submission))

    for number, answer in enumerate(one_by_one(len(tests), work, request["seconds"])):
        _say(output, f"{token} {number} {answer}\n")
    os.close(empty)
    os.close(output)


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        pass


def _say(output: int, line: str) -> None:
    data = line.encode("utf-8", "replace")
    while data:
        data = data[os.write(output, data) :]
