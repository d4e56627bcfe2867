"""The judge's side of hidden tests: compare values with what the tests expect.

It never runs the agent's code, and gets only data from the agent. Each request is handled in a
child process, under another uid if there is one, so that a test, which is code of a dataset, does
not affect the next request.
"""

from __future__ import annotations

import builtins
import json
import os
import re
import resource
from typing import TYPE_CHECKING, Any

from pytest_intercode.environments.python.inside.decoding import Opaque, decode, parse, plain
from pytest_intercode.environments.python.inside.one_by_one import one_by_one

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["main", "verdict"]

_NOBODY = 65534
_MEMORY = 384 * 1024**2  # bytes for the code of one test
_KEYS = {
    "code": {"values", "raises", "stopped"},
    "call": {"value", "stopped"},
    "program": {"output", "status", "stopped"},
}
_FAILURES = {
    "died": "ended the interpreter",
    "timed out": "timed out",
    "too long": "gave too large an answer",
}


_NAME = re.compile(r"\w{1,100}")
_MAX_KINDS = 2  # unrelated exception classes that one exception may derive from


class _Raised(Exception):
    """An expression of the agent's side raised, or was never reached."""


class _Values:
    """The values that the agent's side returned, for the code of a test."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._decoded: dict[str, Any] = {}
        self._rows: dict[int, Any] = {}
        self.opaque = False

    def get(self, number: int) -> Any:
        """Return the value of an expression; raise ``_Raised`` if it does not have one."""
        name = str(number)
        if name not in self._decoded:
            data = self._values.get(name, ["raised"])
            if isinstance(data, list) and data[0] == "raised":
                raise _Raised(_name(data[1]) if len(data) > 1 else "")
            self._decoded[name] = decode(data)
            self.opaque |= isinstance(self._decoded[name], Opaque)
        return self._decoded[name]

    def side(self, number: int, otherwise: Any) -> Any:
        """Return one side of a comparison: the agent's side evaluated it, or it is done here."""
        return self.get(number) if str(number) in self._values else otherwise()

    def row(self, number: int) -> Any:
        """Return the values of the agent's expressions in a comprehension's next iteration."""
        if number not in self._rows:
            self._rows[number] = iter(self.get(number))
        return next(self._rows[number])


def verdict(test: tuple[Any, ...], answer: str) -> str:
    """Return why a test failed, in a few words; empty if it passed."""
    try:
        data = parse(answer)
    except (ValueError, RecursionError, MemoryError):
        return "gave no answer"
    if isinstance(data, str):
        return _FAILURES.get(data, "gave no answer")
    try:
        if not (isinstance(data, dict) and data.keys() <= _KEYS[test[0]]):
            return "gave no answer"
        if test[0] == "code":
            return _code(test[1], test[2], data)
        if "stopped" in data:
            return f"raised {_name(data['stopped'])}"
        if test[0] == "program":
            if data["status"] != 0:
                return f"ended with status {int(data['status'])}"
            passed = _lines(data["output"]) == _lines(test[1])
        else:
            passed = bool(plain(decode(data["value"])) == json.loads(test[1]))
        return "" if passed else "failed"
    except Exception:  # the data are not in our format, or hold unhashable items of a set
        return "failed"


def _name(text: Any) -> str:
    """Return the name of an exception's class, if it is valid: the agent may choose any."""
    return text if isinstance(text, str) and _NAME.fullmatch(text) else "an exception"


def _code(source: str, expected: Mapping[int, list[str]], data: Mapping[str, Any]) -> str:
    values = _Values(data["values"])
    scope = {
        "__name__": "tests",
        "__value__": values.get,
        "__side__": values.side,
        "__row__": values.row,
    }
    try:
        exec(compile(source, "<tests>", "exec", 0, True), scope)
    except _Raised as error:
        return f"raised {error}" if str(error) else "failed"
    except Exception:
        return "gave an object, not plain data" if values.opaque else "failed"
    noted = data["raises"]
    for number, names in noted:
        if names is None or not set(expected[number]) & _kinds(names):
            return "did not raise what it should"
    if "stopped" not in data and set(expected) - {number for number, _ in noted}:
        return "did not raise what it should"
    return f"raised {_name(data['stopped'])}" if "stopped" in data else ""


def _kinds(names: list[str]) -> set[str]:
    """Return the names of an exception's classes; none if it derives from too many kinds."""
    objects = [getattr(builtins, name) for name in names if hasattr(builtins, name)]
    kinds = [kind for kind in objects if isinstance(kind, type) and issubclass(kind, BaseException)]
    last = [
        kind
        for kind in kinds
        if not any(subclass != kind and issubclass(subclass, kind) for subclass in kinds)
    ]
    return set(names) if len(last) <= _MAX_KINDS else set()


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def main(request: dict[str, Any]) -> None:
    """Answer a request on standard output: one line of JSON for each test."""
    pairs = request["tests"]
    first = True

    def work(number: int) -> str:
        nonlocal first
        if first:
            first = False
            _step_down()
        return json.dumps(verdict(*pairs[number]))

    for number, line in enumerate(one_by_one(len(pairs), work, request["seconds"])):
        print(request["token"], number, line, flush=True)


def _step_down() -> None:
    empty = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(empty, descriptor)
    # Close the worker's own descriptors, but keep the one for answers.
    os.closerange(200, 202)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    if _knows_other_users():
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def _knows_other_users() -> bool:
    """Whether there are users besides root; not in a sandbox that an ordinary user made."""
    with open("/proc/self/uid_map") as file:  # noqa: PTH123  pathlib is slow to import
        return sum(int(line.split()[2]) for line in file) > 1
