"""Logs of test runners for other languages: Go, Rust, Java, PHP, Ruby, C and C++."""

from __future__ import annotations

import re
from collections import deque

from pytest_intercode.errors import UngradableState
from pytest_intercode.rewards.test_logs.junit import read_xml
from pytest_intercode.rewards.test_logs.results import (
    DURATION,
    MAX_SUITE_LENGTH,
    Results,
    Status,
    Statuses,
    by_line,
    by_pattern,
)

_WORDS = {
    **{"PASS": Status.PASSED, "pass": Status.PASSED, "ok": Status.PASSED, "OK": Status.PASSED},
    **{"PASSED": Status.PASSED, "SUCCESS": Status.PASSED, "✔": Status.PASSED},
    **{"FAIL": Status.FAILED, "ERR": Status.FAILED, "err": Status.FAILED, "✘": Status.FAILED},
    **{"FAILED": Status.FAILED, "FAILURE": Status.FAILED},
    **{"SKIP": Status.SKIPPED, "skip": Status.SKIPPED, "ignore": Status.SKIPPED},
    **{"↩": Status.SKIPPED},
}

# -- Go and Rust


@by_line
def parse_gotest(line: str) -> tuple[str, Status] | None:
    """Read ``--- PASS: name (0.00s)``, including subtests; packages are not read."""
    status = _WORDS.get(line[4:8]) if line.startswith("--- ") and line[8:10] == ": " else None
    end = line.rfind(" (", 0, len(line) - 2)
    return (line[10:end], status) if status and line.endswith(")") and end > 10 else None


@by_line
def parse_cargo(line: str) -> tuple[str, Status] | None:
    """Read ``test name ... ok``; ignored tests, and names with blanks, are not recorded."""
    words = line.split(None, 4)
    if len(words) != 4 or words[0] != "test" or words[2] != "..." or words[3] not in _CARGO:
        return None
    return words[1], _CARGO[words[3]]


_CARGO = {"ok": Status.PASSED, "FAILED": Status.FAILED}

# -- Java


def parse_maven(log: str) -> Statuses:
    """Read ``BUILD SUCCESS``, one for each ``-Dtest=name`` of the commands, in their order."""
    statuses = Results()
    waiting: deque[str] = deque()
    early: list[Status] = []
    for line in map(str.strip, log.split("\n")):
        if name := _last_test(line):
            waiting.append(name)
        for word in ("SUCCESS", "FAILURE"):
            if line.endswith(f"BUILD {word}"):
                if waiting:
                    statuses[waiting.popleft()] = _WORDS[word]
                else:
                    early.append(_WORDS[word])
    for name, status in zip(waiting, early, strict=False):
        statuses[name] = status
    return statuses


def _last_test(line: str) -> str:
    index = len(line)
    while (index := line.rfind("-Dtest=", 0, index)) >= 0:
        start = index + len("-Dtest=")
        if line[start : start + 1].strip():
            return line[start:].split(None, 1)[0]
    return ""


parse_ant = by_pattern(
    r"\[junit\]\s+\[(PASS|FAIL|ERR)\]\s+(.*)", _WORDS, "Read ``[junit] [PASS] name``."
)


def parse_gradle_custom(log: str) -> Statuses:
    """Read ``class > name PASSED``, and a status on a later line of its own."""
    statuses = Results()
    waiting = ""
    for line in map(str.strip, log.split("\n")):
        word = next((word for word in ("PASSED", "FAILED") if line.endswith(word)), "")
        name = line[: -len(word) - 1] if word else ""
        if len(name) > 1 and name[0] != ">" and line[len(name)].isspace():
            statuses[name] = _WORDS[word]
            waiting = ""
        elif line == word and word:
            if waiting:
                statuses[waiting] = _WORDS[word]
            waiting = ""
        else:
            words = line.split(None, 3)
            if len(words) == 3 and words[1] == ">" and words[0][0] != ">":
                waiting = line
    return statuses


# -- PHP and Ruby

_PHP = re.compile(r"\s*([✔✘↩])\s*(.*)")


def parse_phpunit(log: str) -> Statuses:
    """Read ``phpunit --testdox``: a suite with its class in brackets, and marks below it."""
    statuses = Results()
    suite = "None"
    for line in log.split("\n"):
        end = line.rfind(" (", 0, len(line) - 2)
        if line.endswith(")") and end > 1 and (line[0].isalnum() or line[0] == "_"):
            suite = line[:end][:MAX_SUITE_LENGTH]
        elif result := _PHP.fullmatch(line):
            statuses[f"{suite} > {result[2]}"] = _WORDS[result[1]]
    return statuses


@by_line
def parse_minitest(line: str) -> tuple[str, Status] | None:
    """Read ``name. = 0.01 s = .``, by the last of ``.``, ``F`` and ``E``."""
    last = max(line.rfind(mark) for mark in ".FE")
    end = line.rfind(". ", 1, max(line.rfind("=", 0, max(last, 0)), 0))
    if end < 1:
        return None
    return line[:end], Status.PASSED if line[last] == "." else Status.FAILED


@by_line
def parse_cucumber(line: str) -> tuple[str, Status] | None:
    """Read ``name ....``, the progress of one feature."""
    ends = [end for end in _CUCUMBER.finditer(line) if end[2] or len(end[1]) > 1]
    if not ends:
        return None
    return line[: ends[-1].start()], Status.FAILED if ends[-1][2] else Status.PASSED


_CUCUMBER = re.compile(r" (\.+)(F?)")


@by_line
def parse_ruby_unit(line: str) -> tuple[str, Status] | None:
    """Read ``test: name: .``, by the last mark on the line."""
    prefix = len("test: ") if line.startswith("test: ") else 0
    for start in (prefix, 0):
        ends = [end for end in _RUBY.finditer(line, start) if end.start() > start]
        if ends:
            return line[start : ends[-1].start()], _RUBY_MARKS[ends[-1][1]]
    return None


_RUBY = re.compile(r":\s+(\.|E\b|F\b|O\b)")
_RUBY_MARKS = {
    **{".": Status.PASSED, "O": Status.SKIPPED},
    **{"E": Status.FAILED, "F": Status.FAILED},
}


@by_line
def parse_rspec_transformed_json(line: str) -> tuple[str, Status] | None:
    """Read ``name - passed``, to which rspec's JSON is converted."""
    passed, failed = line.rfind(" - passed"), line.rfind(" - failed")
    end = max(passed, failed)
    return (line[:end], Status.PASSED if passed > failed else Status.FAILED) if end > 0 else None


# -- C and C++

_REDIS = re.compile(r"\[(ok|err|skip|ignore)\]:\s(.+)")


@by_line
def parse_redis(line: str) -> tuple[str, Status] | None:
    """Read ``[ok]: name (3 ms)``; the file of a failure is left out."""
    result = _REDIS.fullmatch(line)
    if result is None:
        return None
    name, status = DURATION.sub("", result[2]), _WORDS[result[1]]
    if status is Status.FAILED:
        words = name.rsplit(None, 2)
        if len(words) == 3 and words[1] == "in" and not name[-1].isspace():
            name = words[0]
    return name, status


parse_jq = by_pattern(r"(PASS|FAIL):\s(.+)", _WORDS, "Read ``PASS: name``.")

parse_micropython_test = by_pattern(r"(pass|FAIL|skip)\s+(\S.*)", _WORDS, "Read ``pass name``.")


@by_line
def parse_googletest(line: str) -> tuple[str, Status] | None:
    """Read ``[ OK ] name (0 ms)``."""
    ends = [end.start() for end in _BRACKET.finditer(line)] if line.endswith(")") else []
    heads = [head for head in _GOOGLE.finditer(line) if ends and head.end() <= ends[-1]]
    return (line[heads[-1].end() : ends[-1]], _WORDS[heads[-1][1]]) if heads else None


_BRACKET = re.compile(r"\s\(")
_GOOGLE = re.compile(r"\[\s*(OK|FAILED)\s*\]\s")


def parse_doctest(log: str) -> Statuses:
    """Read the XML of doctest: a case passes if all its expressions succeed."""
    start = log.find("<doctest")
    end = log.find("</doctest>", max(start, 0))
    if start < 0 or end < 0:
        return {}
    try:
        root = read_xml(log[start : end + len("</doctest>")].encode("utf-8", "replace"))
    except UngradableState:
        return {}
    statuses = Results()
    for case in root.below("TestCase"):
        name = case.attributes.get("name", "None")[:MAX_SUITE_LENGTH]
        for part in case.below("SubCase"):
            failed = any(e.attributes.get("success") != "true" for e in part.below("Expression"))
            title = f"{name} > {part.attributes.get('name', 'None')}"
            statuses[title] = Status.FAILED if failed else Status.PASSED
    return statuses
