"""Logs that only rows of SWE-rebench V2 have: ExUnit, Mocha, XCTest, xUnit.net, JUnit in a log.

The forms of names come from SWE-rebench V2 (MIT): its lists hold the names that its parsers give.
"""

from __future__ import annotations

import re
from functools import partial, wraps

from pytest_intercode.rewards.test_logs.results import (
    Parser,
    Results,
    Rule,
    Status,
    Statuses,
    without_colours,
)

_BY_WORD = {status.value: status for status in Status if status is not Status.XFAIL}


def _worst(rule: Rule, *, strip: bool = True) -> Parser:
    """Return a parser by lines; a test that once did not pass does not pass on a later line."""

    @wraps(rule)
    def parse(log: str) -> Statuses:
        results = Results()
        for line in log.splitlines():
            result = rule(line.strip() if strip else line.rstrip())
            if result is None or not result[0]:
                continue
            name, status = result
            if status is not Status.PASSED or name not in results:
                results[name] = status
        return results

    return parse


# -- Mocha

_TAIL = 100  # characters at the end of a line that are searched
_NUMBER = re.compile(r"\d+\)\s")
_BARE = re.compile(r"\(?\s?\d+(?:\.\d+)?\s?m?s\s?\)?$", re.IGNORECASE)
_WARNED = re.compile(r"\[W\]\s*\d+\)\s")


def _undated(name: str) -> str:
    """Return the name of a test without its duration, in parentheses or not."""
    name = name.strip()
    time = _BARE.search(name, max(0, len(name) - _TAIL))
    return name[: time.start()].strip() if time else name


def _mocha(line: str) -> tuple[str, Status] | None:
    """Read ``✔ name`` and ``- name``, which all of Mocha's forms have."""
    for mark, status in (("✔", Status.PASSED), ("-", Status.SKIPPED)):
        rest = line[1:]
        if line.startswith(mark) and rest[:1].isspace():
            return _undated(rest), status
    return None


@_worst
def parse_js(line: str) -> tuple[str, Status] | None:
    """Read ``1) name:`` and ``[W] 1) name`` as well, which failed."""
    if (number := _NUMBER.match(line)) and line.endswith(":"):
        return _undated(line[number.end() : -1]), Status.FAILED
    if number := _WARNED.match(line):
        return _undated(line[number.end() :]), Status.FAILED
    return _mocha(line)


@_worst
def parse_js_2(line: str) -> tuple[str, Status] | None:
    """Read ``1) name`` as well, which failed."""
    if number := _NUMBER.match(line):
        return _undated(line[number.end() :]), Status.FAILED
    return _mocha(line)


_MARKS = {
    **dict.fromkeys("✔✓", Status.PASSED),
    **dict.fromkeys("✘✖\N{MULTIPLICATION SIGN}", Status.FAILED),
    **dict.fromkeys("○◌◦⚪", Status.SKIPPED),
}
_SKIPS = ("(skipped)", "[skip]", "[skipped]", "[pending]", "[todo]")


@_worst
def parse_js_4(line: str) -> tuple[str, Status] | None:
    """Read a mark and a name, which may have a tag before it: ``✓ [chrome]: name``."""
    status = _MARKS.get(line[:1])
    if status is not None:
        name = line[1:].strip()
        if name.startswith("[") and "]:" in name:
            name = name.partition("]:")[2].strip()
        return _undated(name.removeprefix(":")), status
    lower = line.lower()
    if not any(word in lower for word in _SKIPS):
        return None
    for word in _SKIPS:
        line = line.replace(word, "")
    return _undated(line), Status.SKIPPED


_TOOK = re.compile(r"\s\(\d+(?:ms)?\)$")


def _without_module(name: str) -> str | None:
    """Return ``name`` of ``name (module)``, or None if there is no module."""
    inside = name.removesuffix(")")
    start = inside.find(" (", inside.rfind(")") + 1)
    return name[:start].rstrip() if start >= 0 and name.endswith(")") else None


def parse_npx(log: str) -> Statuses:
    """Read ``✔ name`` and ``1) name (module)``; the last line of a test counts."""
    results = Results()
    for line in map(str.strip, log.splitlines()):
        if line.startswith("✔") and line[1:2].isspace() and (name := line[1:].strip()):
            results[_TOOK.sub("", name).strip()] = Status.PASSED
        elif number := _NUMBER.match(line):
            name = line[number.end() :].strip()
            name = _without_module(name) or name
            if name:
                results[name] = Status.FAILED
    return results


# -- ExUnit, XCTest, xUnit.net

_PLACE = re.compile(r"\s\[L#\d+\]$")
_MILLISECONDS = re.compile(r"\s\(\d+(?:\.\d+)?ms\)$")


@_worst
def parse_elixir(line: str) -> tuple[str, Status] | None:
    """Read ``* test name (3ms) [L#1]`` and ``1) test name (Module)``."""
    if line.startswith("* test ") and (place := _PLACE.search(line)):
        name = line[len("* test ") : place.start()].strip()
        if name.endswith(" (skipped)"):
            return name.removesuffix("(skipped)").rstrip(), Status.SKIPPED
        return _MILLISECONDS.sub("", name).strip(), Status.PASSED
    number = _NUMBER.match(line)
    if number is None or not line.startswith("test ", number.end()):
        return None
    failed = _without_module(line[number.end() + len("test ") :])
    return (failed.strip(), Status.FAILED) if failed else None


_CASE = re.compile(r"Test Case '([^']+)'\s+(passed|failed)\s+\([0-9.]+\s+seconds\)")


def parse_swift(log: str) -> Statuses:
    """Read ``Test Case 'Class.test' passed (0.1 seconds)``; the last line of a test counts."""
    results = Results()
    for line in log.splitlines():
        if case := _CASE.fullmatch(line.strip()):
            results[case[1]] = Status(case[2].upper())
    return results


_FAILED_LATER = re.compile(r"\[xUnit\.net\s+[\d:.]+\]\s")
_WORDS = (("Passed", Status.PASSED), ("Failed", Status.FAILED), ("Skipped", Status.SKIPPED))


@partial(_worst, strip=False)
def parse_csharp(line: str) -> tuple[str, Status] | None:
    """Read ``  Passed name [1 ms]`` and ``[xUnit.net 00:00:01.00]    name [FAIL]``."""
    if (head := _FAILED_LATER.match(line)) and line.endswith(" [FAIL]"):
        return line[head.end() :].removesuffix("[FAIL]").strip(), Status.FAILED
    word, _, rest = line.strip().partition(" ")
    status = dict(_WORDS).get(word) if line[:1].isspace() else None
    if status is None:
        return None
    name, bracket, _ = rest.strip().removesuffix("]").partition(" [")
    timed = bool(bracket) and line.endswith("]")
    if not timed and status is not Status.SKIPPED:
        return None
    return (name if timed else rest).strip(), status


# -- pytest of several processes

_WORKER = re.compile(r"\[gw\d+\]\s+\[[^\]]*\]\s+(\w+)\s")
_SHARE = re.compile(r"\s(PASSED|FAILED|SKIPPED|ERROR)\s+\[[^\]]*\]\s+in\s+\d+(?:\.\d+)?s$")


def parse_pytest_nebo(log: str) -> Statuses:
    """Read ``[gw0] [ 5%] STATUS name``, ``name STATUS [ 5%] in 0.1s`` and ``STATUS name``."""
    results = Results()
    for line in log.splitlines():
        line = without_colours(line).strip()
        worker, share = _WORKER.match(line), _SHARE.search(line, max(0, len(line) - _TAIL))
        if worker and worker[1] in _BY_WORD:
            word, name = worker[1], line[worker.end() :]
        elif share and share.start():
            results[line[: share.start()].strip()] = _BY_WORD[share[1]]
            continue
        else:
            word, _, name = line.partition(" ")
        name = name.partition(" in ")[0].strip()
        if word in _BY_WORD and name:
            results[name] = _BY_WORD[word]
    return results


# -- JUnit's XML, within other output

_TESTCASE = re.compile(r"<testcase\b([^>]*)>")
_ATTRIBUTE = re.compile(r'\b(\w+)="([^"]*)"')
_CLOSING = "</testcase>"
_MAX_CASE_LENGTH = 4096  # characters of a case that is not closed
_OUTCOMES = (("<failure", Status.FAILED), ("<error", Status.ERROR), ("<skipped", Status.SKIPPED))


def parse_junit_text(log: str) -> Statuses:
    """Read each ``<testcase classname="C" name="n">`` as ``C n``, verbatim."""
    results = Results()
    place, last = 0, log.rfind(_CLOSING)
    end_of_tags = log.rfind(">") + 1  # after it no tag is closed
    while case := _TESTCASE.search(log, place, end_of_tags):
        place, inside = case.end(), ""
        attributes = dict(_ATTRIBUTE.findall(case[1]))
        if not attributes.get("name"):
            continue
        if not case[1].rstrip().endswith("/"):
            if place <= last:
                end = log.index(_CLOSING, place)
            else:
                next_case = log.find("<testcase", place, place + _MAX_CASE_LENGTH)
                end = next_case if next_case >= 0 else place + _MAX_CASE_LENGTH
            inside = log[place:end]
            place = end + len(_CLOSING) if end <= last else place
        name, owner = attributes["name"], attributes.get("classname")
        name = f"{owner} {name}".strip() if owner else name
        status = (status for word, status in _OUTCOMES if word in inside)
        results[name] = next(status, Status.PASSED)
    return results
