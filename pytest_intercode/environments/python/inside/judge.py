"""The judge's side of hidden tests: what they expect, and whether the values fit it.

It never runs the agent's code; what it gets of the agent are data. Each request is worked on in a
child, under another uid where there is one, so that a test, which is code of a data set, does not
touch the next one.
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
_MAX_KINDS = 2  # unrelated classes of exceptions that one exception may have


class _Raised(Exception):
    """An expression of the agent's side raised, or was never reached."""


class _Values:
    """What the agent's side returned, for the code of a test."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._decoded: dict[str, Any] = {}
        self._rows: dict[int, Any] = {}
        self.opaque = False

    def get(self, number: int) -> Any:
        """Return the value of an expression, if it has one."""
        name = str(number)
        if name not in self._decoded:
            data = self._values.get(name, ["raised"])
            if isinstance(data, list) and data[0] == "raised":
                raise _Raised(_name(data[1]) if len(data) > 1 else "")
            self._decoded[name] = decode(data)
            self.opaque |= isinstance(self._decoded[name], Opaque)
        return self._decoded[name]

    def side(self, number: int, otherwise: Any) -> Any:
        """Return one side of a comparison, as the agent's side worked it out or we do."""
        return self.get(number) if str(number) in self._values else otherwise()

    def row(self, number: int) -> Any:
        """Return what expressions were in the next round of a comprehension."""
        if number not in self._rows:
            self._rows[number] = iter(self.get(number))
        return next(self._rows[number])


def verdict(test: tuple[Any, ...], answer: str) -> str:
    """Return why a test failed, in a few words, or nothing if it passed."""
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
    except Exception:  # data that are not ours, or of which a set cannot be made
        return "failed"


def _name(text: Any) -> str:
    """Return the name of an exception's class, which is the agent's to choose."""
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
    """Return the names of an exception's classes; one of all kinds at once is of none."""
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
    """Answer a request on the standard output: one line of JSON for each test."""
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
    # Up to the interpreter's own, but not the one that answers go to.
    os.closerange(200, 202)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    if _knows_other_users():
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def _knows_other_users() -> bool:
    """Whether there is another user than root; not where an ordinary user made the sandbox."""
    with open("/proc/self/uid_map") as file:  # noqa: PTH123  pathlib is slow to import
        return sum(int(line.split()[2]) for line in file) > 1
