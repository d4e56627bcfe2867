"""Logs of test runners for JavaScript: jest, vitest, TAP, karma, mocha, and single projects' own.

Parsers that record only failures are in ``javascript_failures.py``. Which parser a task needs can
depend on its version or number; ``registry.py`` decides this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pytest_intercode.rewards.test_logs.results import (
    DURATION,
    MAX_SUITE_LENGTH,
    Outline,
    Results,
    Status,
    Statuses,
    by_line,
    by_pattern,
)

ESCAPE = re.compile(r"\x1B(?:[@-Z\\-_]|\[[0-?]*[ -/]*[@-~])")
"""Escape sequences of a terminal, such as colours."""

_MARKS = {
    **{"✓": Status.PASSED, "✔": Status.PASSED},
    **{"✕": Status.FAILED, "\u00d7": Status.FAILED, "✖": Status.FAILED, "✗": Status.FAILED},
    **{"○": Status.SKIPPED, "↓": Status.SKIPPED},
}

# -- runners

_JEST = re.compile(r"([✓✕○])\s(.+)")
_VITEST = re.compile(r"([✓\u00d7↓])\s(.+)")
_VITEST_TIME = re.compile(r"(?<=.)\s(?:\d+\s*m?s?|\[skipped\])$")


@by_line
def parse_jest(line: str) -> tuple[str, Status] | None:
    """Read ``jest --verbose``: a mark and the name, without the time where it is an integer."""
    result = _JEST.fullmatch(line)
    return (DURATION.sub("", result[2]).strip(), _MARKS[result[1]]) if result else None


@by_line
def parse_vitest(line: str) -> tuple[str, Status] | None:
    """Read ``vitest --reporter=verbose``: a mark and the path of the name, without the time."""
    result = _VITEST.fullmatch(line)
    return (_VITEST_TIME.sub("", result[2]), _MARKS[result[1]]) if result else None


parse_jest_json = by_pattern(
    r"\[(PASSED|FAILED)\]\s(.+)",
    Status.__members__,
    "Read ``[PASSED] suite > name``, into which jest's JSON is made.",
)

parse_tap = by_pattern(
    r"(ok|not ok) \d+ (.+)",
    {"ok": Status.PASSED, "not ok": Status.FAILED},
    "Read TAP, where what follows the number is the name, ``# SKIP`` included.",
)


_FILE_TIMES = tuple(re.compile(rf"(.*)\s\([\d.]+{unit}\)") for unit in ("ms", r"\ss", "s"))


def parse_carbon(log: str) -> Statuses:
    """Read ``PASS file`` and ``FAIL file``, as jest prints without ``--verbose``."""
    statuses = Results()
    for line in log.split("\n"):
        if line.startswith(("PASS", "FAIL")) and line[4:5].isspace():
            name = line[5:]
            timed = next(filter(None, (time.match(name) for time in _FILE_TIMES)), None)
            statuses[timed[1] if timed else name] = _file_status(line)
    return statuses


_GROMMET_TIME = re.compile(r"\s\([\d.]+\s?m?s\)$")


def parse_grommet(log: str) -> Statuses:
    """Read ``PASS file`` and ``FAIL file``; a file with both has passed."""
    statuses = Results()
    lines = [line for line in log.split("\n") if line.startswith(("PASS", "FAIL"))]
    for word in ("FAIL", "PASS"):
        for line in lines:
            if line.startswith(word) and line[4:5].isspace():
                statuses[_GROMMET_TIME.sub("", line[5:].strip())] = _file_status(line)
    return statuses


def _file_status(line: str) -> Status:
    return Status.PASSED if line.startswith("PASS") else Status.FAILED


_KARMA = re.compile(r"(\s*)([✔✖])\s(.*)")


def parse_karma(log: str) -> Statuses:
    """Read karma's list of suites and names, from the start of the browser to the summary."""
    statuses = Results()
    outline = Outline(" > ")
    indent, started = -1, False
    for line in log.split("\n"):
        if line.startswith("SUMMARY:"):
            break
        if "Starting browser" in line:
            started = True
        elif not started:
            continue
        elif result := _KARMA.fullmatch(line):
            statuses[outline.prefix + result[3]] = _MARKS[result[2]]
        elif len(line) > 1 and line[:2].isspace():
            blanks = len(line) - len(line.lstrip()) - 1
            if blanks > indent:
                outline.begin(line[blanks + 1 :])
            elif blanks < indent:
                outline.leave()
            indent = blanks
    return statuses


# -- mocha and its like

_PASSING = re.compile(r"\n[ \t]*\d+ passing")
NUMBERED = re.compile(r"\d+\)")
_TIME = re.compile(r"\(\d+ms\)")


def parse_highlightjs(log: str) -> Statuses:
    """Read mocha's list up to its summary; the indented line above a test is its suite."""
    statuses = Results()
    suite = ""
    for line in _PASSING.split(log, maxsplit=1)[0].split("\n"):
        bare = line.strip()
        if bare.startswith(("✓", "✔")):
            name, status = line.partition(bare[0])[2], Status.PASSED
        elif NUMBERED.match(bare):
            name, status = line.partition(")")[2], Status.FAILED
        else:
            if line.startswith("  "):
                suite = f"{bare[:MAX_SUITE_LENGTH]}."
            continue
        statuses[suite + _TIME.sub("", name).strip()] = status
    return statuses


_PRISM = "./node_modules/.bin/mocha tests/run.js --reporter json"


def parse_prismjs(log: str) -> Statuses:
    """Read the output of mocha's JSON reporter after each line with prism's test command."""
    statuses = Results()
    for run in log.split(_PRISM)[1:]:
        start, end = run.find("{"), run.rfind("}")
        try:
            report = json.loads(run[start : end + 1])
        except (ValueError, RecursionError):
            continue
        for key, status in (("failures", Status.FAILED), ("passes", Status.PASSED)):
            for name in _titles(report, key):
                statuses[name] = status
    return statuses


def _titles(report: Any, key: str) -> Iterator[str]:
    tests = report.get(key) if isinstance(report, dict) else None
    for test in tests if isinstance(tests, list) else ():
        title = test.get("fullTitle") if isinstance(test, dict) else None
        if isinstance(title, str):
            yield title


_TITLE = re.compile(r'"fullTitle":\s"')


def parse_lighthouse_json(log: str) -> Statuses:
    """Read the names in the output of mocha's JSON reporter, for lighthouse before version 3."""
    statuses = Results()
    for run in log.split("./node_modules/.bin/mocha --reporter json")[1:]:
        passes = run.rpartition('"passes": [')[2].rpartition("]")
        failures = run.rpartition('"failures": [')[2].rpartition("],")
        for part, status in ((passes, Status.PASSED), (failures, Status.FAILED)):
            for line in (part[0] if part[1] else part[2]).split("\n")[:-1]:
                title = _TITLE.search(line) if line.endswith('",') else None
                if title and title.end() <= len(line) - 2:
                    statuses[line[title.end() : -2]] = status
    return statuses


_MOCHA_RUN = re.compile(r"running\s\d+\stest\sfiles")
_MOCHA_PASSING = re.compile(r"(?<!\d)\d+\spassing")
_MOCHA_CASE = re.compile(r"(✔|\d+\))\s(.*)")
_MOCHA_TIME = re.compile(r"(.*)\s\(\d+m+s\)")


def parse_lighthouse_mocha(log: str) -> Statuses:
    """Read mocha's lists of suites and names, for lighthouse from version 9.5."""
    statuses = Results()
    for run in _MOCHA_RUN.split(log)[1:]:
        outline = Outline(" - ")
        for line in _MOCHA_PASSING.split(run, maxsplit=1)[0].strip().split("\n"):
            result = _MOCHA_CASE.match(line.strip())
            if result is None:
                outline.enter(line)
                continue
            timed = _MOCHA_TIME.match(result[2])
            name = timed[1] if timed else result[2]
            status = Status.PASSED if result[1] == "✔" else Status.FAILED
            statuses[outline.prefix + name] = status
    return statuses


def parse_calypso(log: str) -> Statuses:
    """Read jest's list of suites and names after each of calypso's test commands."""
    statuses = Results()
    outline = Outline(" - ")
    for run in log.split(" ./node_modules/.bin/jest ")[1:]:
        for line in run.split("\n"):
            if line.startswith(("Test Suites", "  ● ")):
                break
            bare = line.strip()
            if not bare.startswith(("✓", "✕")):
                outline.enter(line)
                continue
            name = line.lstrip()[1:]
            if not line[0].isspace() or not name[:1].isspace():
                continue
            if times := [*_TIME.finditer(name)]:
                if times[-1].end() != len(name):
                    continue
                name = name[: times[-1].start()]
            statuses[f"{outline.prefix or ' - '}{name[1:]}".strip()] = _MARKS[bare[0]]
    return statuses


_NEXT_ERROR = re.compile(r"AssertionError:\s+#")
_NEXT_NOISE = ("ERROR", "LOG", "WARN", "Check", "in")


def parse_next_karma(log: str) -> Statuses:
    """Read karma's list of suites and names after each ``xvfb-run``, for fusion next."""
    statuses = Results()
    outline = Outline(" - ")
    log = _without_blocks(ESCAPE.sub("", log))
    for run in log.split(" xvfb-run ")[1:]:
        for line in run.rpartition("Starting browser Chrome")[2].split("\n"):
            if line.startswith("TOTAL"):
                break
            if line.strip().startswith(_NEXT_NOISE):
                continue
            for mark in ("✗", "✓"):
                if mark in line:
                    name = line.partition(mark)[2].lstrip()
                    statuses[outline.prefix + name] = _MARKS[mark]
                    break
            else:
                outline.enter(line)
    return statuses


def _without_blocks(log: str) -> str:
    """Remove the output of failed assertions, up to an empty line."""
    pieces, position = [], 0
    for start in _NEXT_ERROR.finditer(log):
        if start.start() < position:
            continue
        end = log.find("\n\n", start.end())
        if end < 0:
            break
        pieces.append(log[position : start.start()])
        position = end + 2
    return "".join([*pieces, log[position:]])


_NEXT_SUITE = re.compile(r"\)\n{3}\s{2}(.*)\n")
_NEXT_FAILED = re.compile(r"^\s{4}\d+\)\s(.*)", re.MULTILINE)
_NEXT_PASSED = re.compile(r"^\s{4}✓\s(.*)\(", re.MULTILINE)


def parse_next_mocha(log: str) -> Statuses:
    """Read the lists of failures and passes below each ``Running:``, for fusion next 1.27."""
    statuses = Results()
    suites = []
    for suite in _NEXT_SUITE.finditer(log):
        begin = log.find("Running:", log.rfind("\n", 0, suite.start()) + 1, suite.start())
        if begin >= 0:
            suites.append((begin, suite))
    ends = [begin for begin, _ in suites[1:]]
    for (_, suite), end in zip(suites, [*ends, len(log)], strict=False):
        name, cases = suite[1][:MAX_SUITE_LENGTH], log[suite.end() : end]
        for pattern, status in ((_NEXT_FAILED, Status.FAILED), (_NEXT_PASSED, Status.PASSED)):
            for result in pattern.finditer(cases):
                statuses[f"{name}: {result[1].strip()}"] = status
    return statuses


# -- quarto

_QUARTO_CASE = re.compile(r"\[(?:smoke|unit)\]")
_QUARTO_FILES = (re.compile(r"/tmp/\w+\.qmd"), re.compile(r"/tmp/\w+/"))


def parse_quarto_cli(log: str) -> Statuses:
    """Read ``[unit] name ... ok`` in colours; temporary files are numbered by first appearance."""
    statuses = Results()
    numbers: dict[str, int] = {}
    for line in log.split("\n"):
        if "ERRORS" in line or "failures:" in line:
            break
        if not _QUARTO_CASE.search(line):
            continue
        for pattern in _QUARTO_FILES:
            if file := pattern.search(line):
                number = numbers.setdefault(file[0], len(numbers))
                line = pattern.sub(f"/tmp/{number}", line)
        name = line.partition("...")[0].strip()
        steps = all(word in line for word in ("passed", "failed", "steps"))
        if line.startswith("test result:") or steps or "34mINFO" in line:
            continue
        if "32mok" in line:
            statuses[name] = Status.PASSED
        elif "31mFAILED" in line or name not in statuses:
            statuses[name] = Status.FAILED
    return statuses
