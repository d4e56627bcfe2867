"""Logs of JavaScript test runners from which only the failures are recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_intercode.rewards.test_logs.javascript import ESCAPE, NUMBERED
from pytest_intercode.rewards.test_logs.results import (
    Results,
    Status,
    Statuses,
    by_whole_line,
)

_BLANKS = re.compile(r"\s+")
_CHART = re.compile(r"Chrome\s[\d.]+[^\S\r\n]\(")
_CHART_CLOSE = re.compile(r"\)[^\S\r\n]")


def parse_chart_js(log: str) -> Statuses:
    """Read ``Chrome 1.2 (Linux) name FAILED``."""
    statuses = Results()
    for line in ESCAPE.sub("", log).split("\n"):
        if line.endswith("FAILED") and (start := _CHART.search(line)):
            close = _CHART_CLOSE.search(line, start.end() + 1, len(line) - len("FAILED"))
            if close is not None:
                statuses[line[close.end() : -len("FAILED")]] = Status.FAILED
    return statuses


_BPMN = (
    re.compile(r"2KPhantomJS\s[\d.]+\s\(Linux\s[\d.]+\)\s"),
    re.compile(r"2KPhantomJS\s[\d.]+\s\(Linux\sx86_64\)\s"),
    re.compile(r"HeadlessChrome\s[\d.]+\s\(Linux\s[\d.]+\)\s"),
)
_BPMN_CHROME = re.compile(r"Chrome\sHeadless\s")
_BPMN_LINUX = re.compile(r"\s\(Linux\sx86_64\)\s")


def parse_bpmn_js(log: str) -> Statuses:
    """Read ``BROWSER 1.2 (Linux) name FAILED``."""
    statuses = Results()
    for line in log.split("\n")[:-1]:
        if not line.endswith("FAILED"):
            continue
        for pattern in _BPMN:
            if start := pattern.search(line):
                statuses[line[start.end() : -len("FAILED")]] = Status.FAILED
        if start := _BPMN_CHROME.search(line):
            # The name begins after the last match, as for a greedy pattern, but in linear time.
            places = [*_BPMN_LINUX.finditer(line, start.end())]
            if places:
                statuses[line[places[-1].end() : -len("FAILED")]] = Status.FAILED
    return statuses


_OPENLAYERS = (
    re.compile(r"Chrome\sHeadless\s[\d.]+\s\(Linux\s\S+\)\s"),
    re.compile(r"Chrome\s[\d.]+\s\(Linux\s\S+\)\s"),
)
_OPENLAYERS_START = re.compile(r"^\s{2}\d+\)", re.MULTILINE)
_OPENLAYERS_CASE = re.compile(r":\smismatch")


def parse_openlayers(log: str) -> Statuses:
    """Read failures of karma, of mocha and of image comparisons."""
    statuses = Results()
    lines = log.split("\n")
    for number, line in enumerate(lines):
        if line.endswith("FAILED") and number + 1 < len(lines):
            for pattern, tail in zip(_OPENLAYERS, (7, 6), strict=True):
                start = pattern.search(line)
                if start and len(line) - tail >= start.end() and line[-tail:].lstrip() == "FAILED":
                    statuses[_collapse_blanks(line[start.end() : -tail])] = Status.FAILED
        if line.startswith("case") and line[4:5].isspace():
            ends = [end.start() for end in _OPENLAYERS_CASE.finditer(line, 5)]
            if ends:
                statuses[_collapse_blanks(line[5 : ends[-1]])] = Status.FAILED
    position = 0
    for begin in _OPENLAYERS_START.finditer(log):
        if begin.start() < position:
            continue
        end = log.find("Error:", begin.end())
        if end < 0:
            break
        statuses[_collapse_blanks(log[begin.end() : end])] = Status.FAILED
        position = end + len("Error:")
    return statuses


def _collapse_blanks(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()


_ESLINT = re.compile(r"\s{2}\d+\)")


def parse_eslint(log: str) -> Statuses:
    """Read mocha's numbered failures: what is between the number and the error, on one line."""
    statuses = Results()
    start = _ESLINT.search(log)
    while start:
        bounds = _error_after(log, start.end())
        if bounds is None:
            break
        name_end, match_end = bounds
        statuses[_collapse_blanks(log[start.end() : name_end])] = Status.FAILED
        start = _ESLINT.search(log, match_end)
    return statuses


def _error_after(log: str, start: int) -> tuple[int, int] | None:
    """Return where the name that starts here ends, and where the line's last ``Error`` ends."""
    position = start
    while (error := log.find("Error", position)) >= 0:
        line = max(log.rfind("\n", position, error) + 1, position)
        end_of_line = log.find("\n", error)
        last = log.rfind("Error", line, end_of_line if end_of_line >= 0 else len(log))
        if line > start:  # blanks before this line belong to what separates name and error
            name_end = line
            while name_end > start and log[name_end - 1].isspace():
                name_end -= 1
            return name_end, last + len("Error")
        if blank := _BLANKS.search(log, start, last):
            return blank.start(), last + len("Error")
        position = last + len("Error")
    return None


@by_whole_line
def parse_marked(line: str) -> tuple[str, Status] | None:
    """Read ``1) name``."""
    result = re.match(r"\d+\)\s(.*)", line)
    return (result[1].strip(), Status.FAILED) if result else None


_P5_TAG = re.compile(r"<(/?)(\w+)>")
_P5_MAX_LENGTH = 1000


def parse_p5js(log: str) -> Statuses:
    """Read mocha's numbered failures: names of suites, each more indented, and a colon."""
    statuses = Results()
    log = _without_elements(_without_json(ESCAPE.sub("", log)))
    position = 0
    for line_start, line in _placed_lines(log):
        number = NUMBERED.match(line.lstrip())
        if number is None or line_start < position:
            continue
        start = line_start + len(line) - len(line.lstrip()) + number.end()
        end = log.find(":", start, start + _P5_MAX_LENGTH + 1)
        if end < 0:
            continue
        position = end + 1
        names, deepest = log[start:end].split("\n"), 0
        for name in names:
            indent = len(name) - len(name.lstrip())
            if indent <= deepest:
                break
            deepest = indent
        else:
            statuses[":".join(map(str.strip, names))] = Status.FAILED
    return statuses


def _placed_lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1


def _without_json(log: str) -> str:
    """Remove lines that are JSON, and all lines of an object or list that a line opens."""
    lines = []
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
            lines.append(line)
    return "\n".join(lines)


def _without_elements(log: str) -> str:
    """Remove XML elements, each up to the first closing tag of its name.

    Opening tags of the same name within an element stay, and may be closed later.
    """
    tags = [*_P5_TAG.finditer(log)]
    closings: dict[str, list[re.Match[str]]] = {}
    for tag in reversed(tags):
        if tag[1]:
            closings.setdefault(tag[2], []).append(tag)
    pieces, position = [], 0
    for tag in tags:
        if tag[1] or tag.start() < position:
            continue
        name, waiting, end = tag[2], 1, tag.end()
        later = closings.get(name, [])
        while waiting:
            while later and later[-1].start() < end:
                later.pop()
            if not later:
                break
            closing = later.pop()
            waiting += log.count(f"<{name}>", end, closing.start()) - 1
            end = closing.end()
        if end > tag.end():
            pieces += [log[position : tag.start()], f"<{name}>" * waiting]
            position = end
    return "".join([*pieces, log[position:]])
