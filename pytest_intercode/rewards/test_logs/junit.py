"""Reports that test runners write for programs: JUnit's XML, read safely, and JSON.

XML with a document type, and so with entities, is refused, and everything is limited. Runners of
nearly every language write JUnit's XML. There is no schema that all follow: a test is a
``testcase`` with ``classname`` and ``name``, and may contain ``failure``, ``error`` or ``skipped``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from pytest_intercode.errors import UngradableState
from pytest_intercode.rewards.test_logs.results import Results, Status, Statuses

__all__ = [
    "Element",
    "junit_name",
    "parse_json_tests",
    "parse_junit",
    "read_junit",
    "read_xml",
]

_MAX_SIZE = 32 * 1024**2  # bytes of a document
_MAX_DEPTH = 64  # nested elements
_MAX_ELEMENTS = 1_000_000


@dataclass(slots=True)
class Element:
    """An element of XML, without its text."""

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)

    def below(self, name: str) -> Iterator[Element]:
        """Yield the elements of a name at any depth below this one, in the document's order."""
        for child in self.children:
            if child.name == name:
                yield child
            yield from child.below(name)


def read_xml(data: bytes) -> Element:
    """Return the root of a document.

    Raises:
        UngradableState: it is not well-formed, has a document type, or is over a limit.
    """
    if len(data) > _MAX_SIZE:
        raise UngradableState(f"XML of more than {_MAX_SIZE // 1024**2} MiB")
    parser = expat.ParserCreate()
    top = Element("", {})
    open_ = [top]
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MAX_ELEMENTS or len(open_) > _MAX_DEPTH:
            raise UngradableState(
                f"XML with more than {_MAX_ELEMENTS:,} elements, or {_MAX_DEPTH} within each other"
            )
        element = Element(name, attributes)
        open_[-1].children.append(element)
        open_.append(element)

    def refuse(*declaration: object) -> NoReturn:
        raise UngradableState("XML with a document type, which could define entities, is refused")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: open_.pop()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise UngradableState(f"not XML: {error}") from None
    except (ValueError, LookupError) as error:  # an unknown encoding
        raise UngradableState(f"not XML: {error}") from None
    return top.children[0]


def read_junit(data: bytes) -> Statuses:
    """Return the status of each test case: by ``classname::name``, or by the name alone.

    A case that occurs more than once has its worst status: a test that is run again does not lose
    its failure.

    Raises:
        UngradableState: it is not JUnit's XML, or over a limit.
    """
    root = read_xml(data)
    if root.name not in ("testsuites", "testsuite"):
        raise UngradableState(f"JUnit's XML begins with testsuites, not with {root.name[:40]!r}")
    statuses = Results()
    for case in root.below("testcase"):
        owner, name = (case.attributes.get(key, "") for key in ("classname", "name"))
        title = f"{owner}::{name}" if owner else name
        status = _status({child.name for child in case.children})
        if title not in statuses or _WORST.index(status) < _WORST.index(statuses[title]):
            statuses[title] = status
    return statuses


_WORST = (Status.FAILED, Status.ERROR, Status.SKIPPED, Status.PASSED)


def _status(children: set[str]) -> Status:
    if "failure" in children:
        return Status.FAILED
    if "error" in children:
        return Status.ERROR
    return Status.SKIPPED if "skipped" in children else Status.PASSED


def junit_name(test: str) -> str:
    """Return how JUnit's XML names a test of pytest: ``a/b.py::C::d`` is ``a.b.C::d``.

    A name of another form is returned as it is.
    """
    head, bracket, parameters = test.partition("[")
    module, *parts = head.split("::")
    if not module.endswith(".py") or not parts:
        return test
    owner = ".".join([module.removesuffix(".py").replace("/", "."), *parts[:-1]])
    return f"{owner}::{parts[-1]}{bracket}{parameters}"


def parse_junit(log: str) -> Statuses:
    """Read JUnit's XML."""
    return read_junit(log.encode("utf-8", "replace"))


def parse_json_tests(log: str) -> Statuses:
    """Read ``{"tests": [{"name": ..., "status": ...}]}``, from the first brace to the last."""
    statuses = Results()
    try:
        tests = json.loads(log[log.find("{") : log.rfind("}") + 1])["tests"]
        for test in tests:
            name, status = test["name"], test["status"]
            if isinstance(name, str) and status in Status.__members__:
                statuses[name] = Status(status)
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    return statuses
