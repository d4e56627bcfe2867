"""Logs of test runners for JavaScript: jest, vitest, TAP, karma, mocha, and single projects' own.

Some of the last record failures only. Which one a task needs can depend on its version or number;
``registry.py`` decides it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pytest_intercode.rewards.test_logs.results import (
    LONGEST_SUITE,
    Outline,
    Results,
    Status,
    Statuses,
    by_line,
)

__all__ = [
    "parse_bpmn_js",
    "parse_calypso",
    "parse_chart_js",
    "parse_eslint",
    "parse_grommet",
    "parse_highlightjs",
    "parse_jest",
    "parse_jest_files",
    "parse_jest_json",
    "parse_karma",
    "parse_lighthouse",
    "parse_lighthouse_mocha",
    "parse_marked",
    "parse_mocha_json",
    "parse_next",
    "parse_next_mocha",
    "parse_openlayers",
    "parse_p5js",
    "parse_quarto",
    "parse_tap",
    "parse_vitest",
]

_ESCAPE = re.compile(r"\x1B(?:[@-Z\\-_]|\[[0-?]*[ -/]*[@-~])")
_BLANKS = re.compile(r"\s+")
_MARKS = {
    **{"✓": Status.PASSED, "✔": Status.PASSED},
    **{"✕": Status.FAILED, "\u00d7": Status.FAILED, "✖": Status.FAILED, "✗": Status.FAILED},
    **{"○": Status.SKIPPED, "↓": Status.SKIPPED},
}

# -- runners

_JEST = re.compile(r"([✓✕○])\s(.+)")
_JEST_TIME = re.compile(r"(?<=.)\s\(\d+\s*m?s\)$")
_VITEST = re.compile(r"([✓\u00d7↓])\s(.+)")
_VITEST_TIME = re.compile(r"(?<=.)\s(?:\d+\s*m?s?|\[skipped\])$")
_JEST_JSON = re.compile(r"\[(PASSED|FAILED)\]\s(.+)")
_TAP = re.compile(r"(ok|not ok) \d+ (.+)")


@by_line
def parse_jest(line: str) -> tuple[str, Status] | None:
    """Read ``jest --verbose``: a mark and the name, without the time where it is an integer."""
    result = _JEST.fullmatch(line)
    return (_JEST_TIME.sub("", result[2]).strip(), _MARKS[result[1]]) if result else None


@by_line
def parse_vitest(line: str) -> tuple[str, Status] | None:
    """Read ``vitest --reporter=verbose``: a mark and the path of the name, without the time."""
    result = _VITEST.fullmatch(line)
    return (_VITEST_TIME.sub("", result[2]), _MARKS[result[1]]) if result else None


@by_line
def parse_jest_json(line: str) -> tuple[str, Status] | None:
    """Read ``[PASSED] suite > name``, into which jest's JSON is made."""
    result = _JEST_JSON.fullmatch(line)
    return (result[2], Status(result[1])) if result else None


@by_line
def parse_tap(line: str) -> tuple[str, Status] | None:
    """Read TAP, where what follows the number is the name, ``# SKIP`` included."""
    result = _TAP.fullmatch(line)
    if result is None:
        return None
    return result[2], Status.PASSED if result[1] == "ok" else Status.FAILED


_FILE_TIMES = tuple(re.compile(rf"(.*)\s\([\d.]+{unit}\)") for unit in ("ms", r"\ss", "s"))


def parse_jest_files(log: str) -> Statuses:
    """Read ``PASS file`` and ``FAIL file``, as jest prints without ``--verbose``."""
    found = Results()
    for line in log.split("\n"):
        if line.startswith(("PASS", "FAIL")) and line[4:5].isspace():
            name = line[5:]
            timed = next(filter(None, (time.match(name) for time in _FILE_TIMES)), None)
            found[timed[1] if timed else name] = _file_status(line)
    return found


_GROMMET_TIME = re.compile(r"\s\([\d.]+\s?m?s\)$")


def parse_grommet(log: str) -> Statuses:
    """Read ``PASS file`` and ``FAIL file``; a file that is there with both has passed."""
    found = Results()
    lines = [line for line in log.split("\n") if line.startswith(("PASS", "FAIL"))]
    for word in ("FAIL", "PASS"):
        for line in lines:
            if line.startswith(word) and line[4:5].isspace():
                found[_GROMMET_TIME.sub("", line[5:].strip())] = _file_status(line)
    return found


def _file_status(line: str) -> Status:
    return Status.PASSED if line.startswith("PASS") else Status.FAILED


_KARMA = re.compile(r"(\s*)([✔✖])\s(.*)")


def parse_karma(log: str) -> Statuses:
    """Read karma's list of suites and names, from the start of the browser to the summary."""
    found = Results()
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
            found[outline.prefix + result[3]] = _MARKS[result[2]]
        elif len(line) > 1 and line[:2].isspace():
            blanks = len(line) - len(line.lstrip()) - 1
            if blanks > indent:
                outline.begin(line[blanks + 1 :])
            elif blanks < indent:
                outline.leave()
            indent = blanks
    return found


# -- mocha and its like

_PASSING = re.compile(r"\n[ \t]*\d+ passing")
_NUMBERED = re.compile(r"\d+\)")
_TIME = re.compile(r"\(\d+ms\)")


def parse_highlightjs(log: str) -> Statuses:
    """Read mocha's list up to its summary; the indented line above a test is its suite."""
    found = Results()
    suite = ""
    for line in _PASSING.split(log, maxsplit=1)[0].split("\n"):
        bare = line.strip()
        if bare.startswith(("✓", "✔")):
            name, status = line.partition(bare[0])[2], Status.PASSED
        elif _NUMBERED.match(bare):
            name, status = line.partition(")")[2], Status.FAILED
        else:
            if line.startswith("  "):
                suite = f"{bare[:LONGEST_SUITE]}."
            continue
        found[suite + _TIME.sub("", name).strip()] = status
    return found


_PRISM = "./node_modules/.bin/mocha tests/run.js --reporter json"


def parse_mocha_json(log: str) -> Statuses:
    """Read what mocha's JSON reporter wrote after each line with the command that prism uses."""
    found = Results()
    for run in log.split(_PRISM)[1:]:
        start, end = run.find("{"), run.rfind("}")
        try:
            report = json.loads(run[start : end + 1])
        except (ValueError, RecursionError):
            continue
        for key, status in (("failures", Status.FAILED), ("passes", Status.PASSED)):
            for name in _titles(report, key):
                found[name] = status
    return found


def _titles(report: Any, key: str) -> Iterator[str]:
    tests = report.get(key) if isinstance(report, dict) else None
    for test in tests if isinstance(tests, list) else ():
        title = test.get("fullTitle") if isinstance(test, dict) else None
        if isinstance(title, str):
            yield title


_TITLE = re.compile(r'"fullTitle":\s"')


def parse_lighthouse(log: str) -> Statuses:
    """Read the names in what mocha's JSON reporter wrote, of lighthouse before version 3."""
    found = Results()
    for run in log.split("./node_modules/.bin/mocha --reporter json")[1:]:
        passes = run.rpartition('"passes": [')[2].rpartition("]")
        failures = run.rpartition('"failures": [')[2].rpartition("],")
        for part, status in ((passes, Status.PASSED), (failures, Status.FAILED)):
            for line in (part[0] if part[1] else part[2]).split("\n")[:-1]:
                title = _TITLE.search(line) if line.endswith('",') else None
                if title and title.end() <= len(line) - 2:
                    found[line[title.end() : -2]] = status
    return found


_MOCHA_RUN = re.compile(r"running\s\d+\stest\sfiles")
_MOCHA_PASSING = re.compile(r"(?<!\d)\d+\spassing")
_MOCHA_CASE = re.compile(r"(✔|\d+\))\s(.*)")
_MOCHA_TIME = re.compile(r"(.*)\s\(\d+m+s\)")


def parse_lighthouse_mocha(log: str) -> Statuses:
    """Read mocha's lists of suites and names, of lighthouse from version 9.5."""
    found = Results()
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
            found[outline.prefix + name] = status
    return found


_CALYPSO_TIME = re.compile(r"\(\d+ms\)")


def parse_calypso(log: str) -> Statuses:
    """Read jest's list of suites and names after each command that calypso uses."""
    found = Results()
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
            if _CALYPSO_TIME.search(name):
                times = [*_CALYPSO_TIME.finditer(name)]
                if times[-1].end() != len(name):
                    continue
                name = name[: times[-1].start()]
            found[f"{outline.prefix or ' - '}{name[1:]}".strip()] = _MARKS[bare[0]]
    return found


_NEXT_ERROR = re.compile(r"AssertionError:\s+#")
_NEXT_NOISE = ("ERROR", "LOG", "WARN", "Check", "in")


def parse_next(log: str) -> Statuses:
    """Read karma's list of suites and names after each ``xvfb-run``, of fusion next."""
    found = Results()
    outline = Outline(" - ")
    log = _without_blocks(_ESCAPE.sub("", log))
    for run in log.split(" xvfb-run ")[1:]:
        for line in run.rpartition("Starting browser Chrome")[2].split("\n"):
            if line.startswith("TOTAL"):
                break
            if line.strip().startswith(_NEXT_NOISE):
                continue
            for mark in ("✗", "✓"):
                if mark in line:
                    name = line.partition(mark)[2].lstrip()
                    found[outline.prefix + name] = _MARKS[mark]
                    break
            else:
                outline.enter(line)
    return found


def _without_blocks(log: str) -> str:
    """Leave out what assertions print, up to an empty line."""
    kept, done = [], 0
    for start in _NEXT_ERROR.finditer(log):
        if start.start() < done:
            continue
        end = log.find("\n\n", start.end())
        if end < 0:
            break
        kept.append(log[done : start.start()])
        done = end + 2
    return "".join([*kept, log[done:]])


_NEXT_SUITE = re.compile(r"\)\n{3}\s{2}(.*)\n")
_NEXT_FAILED = re.compile(r"^\s{4}\d+\)\s(.*)", re.MULTILINE)
_NEXT_PASSED = re.compile(r"^\s{4}✓\s(.*)\(", re.MULTILINE)


def parse_next_mocha(log: str) -> Statuses:
    """Read the lists of failures and passes below each ``Running:``, of fusion next 1.27."""
    found = Results()
    suites = []
    for suite in _NEXT_SUITE.finditer(log):
        begin = log.find("Running:", log.rfind("\n", 0, suite.start()) + 1, suite.start())
        if begin >= 0:
            suites.append((begin, suite))
    ends = [begin for begin, _ in suites[1:]]
    for (_, suite), end in zip(suites, [*ends, len(log)], strict=False):
        name, cases = suite[1][:LONGEST_SUITE], log[suite.end() : end]
        for pattern, status in ((_NEXT_FAILED, Status.FAILED), (_NEXT_PASSED, Status.PASSED)):
            for result in pattern.finditer(cases):
                found[f"{name}: {result[1].strip()}"] = status
    return found


# -- failures only

_CHART = re.compile(r"Chrome\s[\d.]+[^\S\r\n]\(")
_CHART_CLOSE = re.compile(r"\)[^\S\r\n]")


def parse_chart_js(log: str) -> Statuses:
    """Read ``Chrome 1.2 (Linux) name FAILED``."""
    found = Results()
    for line in _ESCAPE.sub("", log).split("\n"):
        if line.endswith("FAILED") and (start := _CHART.search(line)):
            close = _CHART_CLOSE.search(line, start.end() + 1, len(line) - len("FAILED"))
            if close is not None:
                found[line[close.end() : -len("FAILED")]] = Status.FAILED
    return found


_BPMN = (
    re.compile(r"2KPhantomJS\s[\d.]+\s\(Linux\s[\d.]+\)\s"),
    re.compile(r"2KPhantomJS\s[\d.]+\s\(Linux\sx86_64\)\s"),
    re.compile(r"HeadlessChrome\s[\d.]+\s\(Linux\s[\d.]+\)\s"),
)
_BPMN_CHROME = re.compile(r"Chrome\sHeadless\s")
_BPMN_LINUX = re.compile(r"\s\(Linux\sx86_64\)\s")


def parse_bpmn_js(log: str) -> Statuses:
    """Read ``BROWSER 1.2 (Linux) name FAILED``."""
    found = Results()
    for line in log.split("\n")[:-1]:
        if not line.endswith("FAILED"):
            continue
        for pattern in _BPMN:
            if start := pattern.search(line):
                found[line[start.end() : -len("FAILED")]] = Status.FAILED
        if start := _BPMN_CHROME.search(line):
            places = [*_BPMN_LINUX.finditer(line, start.end())]
            if places:
                found[line[places[-1].end() : -len("FAILED")]] = Status.FAILED
    return found


_OPENLAYERS = (
    re.compile(r"Chrome\sHeadless\s[\d.]+\s\(Linux\s\S+\)\s"),
    re.compile(r"Chrome\s[\d.]+\s\(Linux\s\S+\)\s"),
)
_OPENLAYERS_START = re.compile(r"^\s{2}\d+\)", re.MULTILINE)
_OPENLAYERS_CASE = re.compile(r":\smismatch")


def parse_openlayers(log: str) -> Statuses:
    """Read failures of karma, of mocha and of the comparison of pictures."""
    found = Results()
    lines = log.split("\n")
    for number, line in enumerate(lines):
        if line.endswith("FAILED") and number + 1 < len(lines):
            for pattern, tail in zip(_OPENLAYERS, (7, 6), strict=True):
                start = pattern.search(line)
                if start and len(line) - tail >= start.end() and line[-tail:].lstrip() == "FAILED":
                    found[_joined(line[start.end() : -tail])] = Status.FAILED
        if line.startswith("case") and line[4:5].isspace():
            ends = [end.start() for end in _OPENLAYERS_CASE.finditer(line, 5)]
            if ends:
                found[_joined(line[5 : ends[-1]])] = Status.FAILED
    done = 0
    for begin in _OPENLAYERS_START.finditer(log):
        if begin.start() < done:
            continue
        end = log.find("Error:", begin.end())
        if end < 0:
            break
        found[_joined(log[begin.end() : end])] = Status.FAILED
        done = end + len("Error:")
    return found


def _joined(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()


_ESLINT = re.compile(r"\s{2}\d+\)")


def parse_eslint(log: str) -> Statuses:
    """Read mocha's numbered failures: what is between the number and the error, on one line."""
    found = Results()
    start = _ESLINT.search(log)
    while start:
        bounds = _error_after(log, start.end())
        if bounds is None:
            break
        name_end, match_end = bounds
        found[_joined(log[start.end() : name_end])] = Status.FAILED
        start = _ESLINT.search(log, match_end)
    return found


def _error_after(log: str, start: int) -> tuple[int, int] | None:
    """Return where a name ends that starts here, and where the line's last ``Error`` ends."""
    at = start
    while (error := log.find("Error", at)) >= 0:
        line = max(log.rfind("\n", at, error) + 1, at)
        end_of_line = log.find("\n", error)
        last = log.rfind("Error", line, end_of_line if end_of_line >= 0 else len(log))
        if line > start:  # blanks before this line belong to what separates name and error
            name_end = line
            while name_end > start and log[name_end - 1].isspace():
                name_end -= 1
            return name_end, last + len("Error")
        if blank := _BLANKS.search(log, start, last):
            return blank.start(), last + len("Error")
        at = last + len("Error")
    return None


def parse_marked(log: str) -> Statuses:
    """Read ``1) name``."""
    found = Results()
    for line in log.split("\n"):
        if result := re.match(r"\d+\)\s(.*)", line):
            found[result[1].strip()] = Status.FAILED
    return found


_P5_TAG = re.compile(r"<(/?)(\w+)>")
_P5_LONGEST = 1000


def parse_p5js(log: str) -> Statuses:
    """Read mocha's numbered failures: names of suites, each more indented, and a colon."""
    found = Results()
    log = _without_elements(_without_json(_ESCAPE.sub("", log)))
    done = 0
    for line_start, line in _placed_lines(log):
        number = _NUMBERED.match(line.lstrip())
        if number is None or line_start < done:
            continue
        start = line_start + len(line) - len(line.lstrip()) + number.end()
        end = log.find(":", start, start + _P5_LONGEST + 1)
        if end < 0:
            continue
        done = end + 1
        names, deepest = log[start:end].split("\n"), 0
        for name in names:
            indent = len(name) - len(name.lstrip())
            if indent <= deepest:
                break
            deepest = indent
        else:
            found[":".join(map(str.strip, names))] = Status.FAILED
    return found


def _placed_lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1


def _without_json(log: str) -> str:
    """Leave out lines that are JSON, and those from a line that opens an object or list."""
    kept = []
    in_object = in_list = False
    for line in log.split("\n"):
        end = line.rstrip()
        if end.endswith("{"):
            in_object = True
        elif end.endswith("["):
            in_list = True
        elif end == "}" and in_object:
            in_object = False
        elif end == "]" and in_list:
            in_list = False
        elif not (in_object or in_list) and (end[:1] + end[-1:]) not in ("{}", "[]"):
            kept.append(line)
    return "\n".join(kept)


def _without_elements(log: str) -> str:
    """Leave out elements of XML, up to the first tag that closes one of this name.

    Tags within that open one of the same name stay, and may be closed later.
    """
    tags = [*_P5_TAG.finditer(log)]
    closings: dict[str, list[re.Match[str]]] = {}
    for tag in reversed(tags):
        if tag[1]:
            closings.setdefault(tag[2], []).append(tag)
    kept, done = [], 0
    for tag in tags:
        if tag[1] or tag.start() < done:
            continue
        name, waiting, at = tag[2], 1, tag.end()
        later = closings.get(name, [])
        while waiting:
            while later and later[-1].start() < at:
                later.pop()
            if not later:
                break
            closing = later.pop()
            waiting += log.count(f"<{name}>", at, closing.start()) - 1
            at = closing.end()
        if at > tag.end():
            kept += [log[done : tag.start()], f"<{name}>" * waiting]
            done = at
    return "".join([*kept, log[done:]])


# -- quarto

_QUARTO_CASE = re.compile(r"\[(?:smoke|unit)\]")
_QUARTO_FILES = (re.compile(r"/tmp/\w+\.qmd"), re.compile(r"/tmp/\w+/"))


def parse_quarto(log: str) -> Statuses:
    """Read ``[unit] name ... ok`` in colours; temporary files are numbered as they come."""
    found = Results()
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
            found[name] = Status.PASSED
        elif "31mFAILED" in line or name not in found:
            found[name] = Status.FAILED
    return found
