"""Logs of test runners for Python: pytest in its summary's and its verbose form, unittest, others.

``pytest -rA`` ends with lines that begin with a status. Most of these parsers cut a test id at its
first blank; the lists of published tasks contain names that are cut in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pytest_intercode.rewards.test_logs.results import (
    Parser,
    Results,
    Status,
    Statuses,
    by_whole_line,
    without_colours,
)

_WORDS = tuple(status.value for status in Status)
_BY_WORD = {status.value: status for status in Status}
_SKIP_COUNT = re.compile(r"\[\d+\]")


def parse_pytest(log: str) -> Statuses:
    """Read ``STATUS name``, and only the first word of a name with blanks."""
    return _read_summary(log, lambda name: name)


def parse_pytest_options(log: str) -> Statuses:
    """Read ``STATUS name``; a parameter that is a path is cut to its last part."""
    return _read_summary(log, _shorten_option)


def parse_matplotlib(log: str) -> Statuses:
    """Read ``STATUS name``; a mouse button in it becomes its number."""
    log = log.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3")
    return _read_summary(log, lambda name: name)


def _read_summary(log: str, rename: Callable[[str], str]) -> Statuses:
    statuses = Results()
    for line in log.split("\n"):
        if not line.startswith(_WORDS):
            continue
        if line.startswith("FAILED"):
            line = line.replace(" - ", " ")
        words = line.split(None, 2)
        if len(words) > 1 and words[0] in _BY_WORD and not _is_count(words[0], words[1]):
            statuses[rename(words[1])] = _BY_WORD[words[0]]
    return statuses


def _is_count(status: str, name: str) -> bool:
    """Whether this is ``SKIPPED [3] file:line: reason``, which names no test."""
    return status == "SKIPPED" and _SKIP_COUNT.fullmatch(name) is not None


def _shorten_option(name: str) -> str:
    start, end = name.find("["), name.rfind("]")
    if start < 0 or end < start:
        return name
    option = name[start + 1 : end]
    if option.startswith("/") and not option.startswith("//") and "*" not in option:
        option = "/" + option.rpartition("/")[2]
    return f"{name[:start]}[{option}]"


@by_whole_line
def parse_pytest_v2(line: str) -> tuple[str, Status] | None:
    """Read ``STATUS name with blanks`` and the older ``name with blanks STATUS``, in colours."""
    line = without_colours(line)
    if line.startswith(_WORDS):
        if line.startswith("FAILED"):
            line = line.partition(" - ")[0]
        word, *name = line.split()
        if name and _is_count(word, name[0]):
            return None
    elif line.endswith(_WORDS):
        *name, word = line.split()
    else:
        return None
    return (" ".join(name), _BY_WORD[word]) if name and word in _BY_WORD else None


_SHARE = re.compile(r"FAILED\s*\[.*?\]")


@by_whole_line
def parse_pydantic(line: str) -> tuple[str, Status] | None:
    """Read ``STATUS name`` and ``name STATUS``, in colours, and one word of a name with blanks."""
    line = without_colours(line)
    end = line.rfind("]") + 1  # after it there is nothing to remove
    line = _SHARE.sub("FAILED", line[:end]) + line[end:]
    if line.startswith(_WORDS):
        word, *name = line.split(None, 2)
    elif line.endswith(_WORDS):
        *name, word = line.split(None, 2)[:2]
    else:
        return None
    return (name[0], _BY_WORD[word]) if name and word in _BY_WORD else None


@by_whole_line
def parse_pytest_verbose(line: str) -> tuple[str, Status] | None:
    """Read ``name STATUS``, as ``pytest --verbose`` prints while it runs."""
    words = line.split(None, 2)
    if len(words) < 2 or line[0].isspace():
        return None
    status = next((word for word in _WORDS if words[1].startswith(word)), None)
    return (words[0], _BY_WORD[status]) if status is not None else None


@by_whole_line
def parse_seaborn(line: str) -> tuple[str, Status] | None:
    """Read ``FAILED name``, ``PASSED name`` and ``name PASSED``."""
    words = line.split(None, 2)
    if len(words) < 2:
        return None
    if line.startswith("FAILED"):
        return words[1], Status.FAILED
    if " PASSED " in line:
        return (words[0], Status.PASSED) if words[1] == "PASSED" else None
    return (words[1], Status.PASSED) if line.startswith("PASSED") else None


# -- unittest, as Django's runner and `python -m unittest -v` print it

_PASSES = (" ... ok", " ... OK", " ...  OK")
_MIGRATION = "Applying sites.0002_alter_domain_unique...test_no_migrations"
_VERSION = "--version is equivalent to version"
_LONG_CHECK = re.compile(r"\s\.\.\.\sTesting against Django installed in ")
_CHECKED = re.compile(r" silenced\)\.\nok$", re.MULTILINE)
_SERVER_ERROR = re.compile(r"\s\.\.\.\sInternal Server Error: /")
_NO_ISSUES = re.compile(r"\s\.\.\.\sSystem check identified no issues \(0 silenced\)\nok$", re.M)


def parse_django(log: str) -> Statuses:
    """Read ``name ... ok`` and the like, also if other output separates a result from its name.

    A test with a docstring is named by its first line. ``FAIL: name`` in the details adds an entry
    under the method's name alone. Expected failures are not recorded.
    """
    statuses = Results()
    last = None  # the name before the latest " ... "
    for line in map(str.strip, log.split("\n")):
        if _VERSION in line:
            statuses[_VERSION] = Status.PASSED
        if " ... " in line:
            last = line.partition(" ... ")[0]
        for suffix in _PASSES:
            if line.endswith(suffix):
                if line.startswith(_MIGRATION):
                    line = line.partition("...")[2].strip()
                statuses[line.removesuffix(suffix)] = Status.PASSED
                break
        if " ... skipped" in line:
            statuses[line.partition(" ... skipped")[0]] = Status.SKIPPED
        for word, status in (("FAIL", Status.FAILED), ("ERROR", Status.ERROR)):
            if line.endswith(f" ... {word}"):
                statuses[line.partition(f" ... {word}")[0]] = status
            if line.startswith(f"{word}:"):
                words = line.split(None, 2)
                if len(words) > 1:
                    statuses[words[1]] = status
        if line.startswith("ok") and last is not None:
            statuses[last] = Status.PASSED
    _add_late_passes(log, statuses)
    return statuses


def _add_late_passes(log: str, statuses: Statuses) -> None:
    """Add the tests whose ``ok`` comes lines later, after a known message."""
    position = 0
    for start, marker in _with_line_starts(_LONG_CHECK, log):
        if start < position:
            continue
        check = _CHECKED.search(log, marker.end())
        if check is None:
            break
        statuses[log[start : marker.start()]] = Status.PASSED
        position = check.end()
    position = end = -1
    for start, marker in _with_line_starts(_SERVER_ERROR, log):
        if end < marker.end():
            end = log.find("\n", marker.end())
        if end < 0:
            break
        ok = log[end : end + 4] in ("\nok\n", "\nok")
        if start > position and end > marker.end() and log[end - 1] == "/" and ok:
            statuses[log[start : marker.start()]] = Status.PASSED
            position = start
    for marker in _NO_ISSUES.finditer(log):
        statuses[log[log.rfind("\n", 0, marker.start()) + 1 : marker.start()]] = Status.PASSED


def _with_line_starts(pattern: re.Pattern[str], log: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the start of each match's line, and the match."""
    start = searched_end = 0
    for match in pattern.finditer(log):
        # A line may have very many matches, so it is not searched again for each of them.
        start = log.rfind("\n", searched_end, match.start()) + 1 or start
        searched_end = match.start()
        yield start, match


# -- others

_SYMPY = ((" E", Status.ERROR), (" F", Status.FAILED), (" ok", Status.PASSED))


def parse_sympy(log: str) -> Statuses:
    """Read ``bin/test -C --verbose``: ``test_name ok``, and headings of failures with the file."""
    statuses = Results()
    for line in log.split("\n"):  # `____ path/test_x.py:test_y ____`
        start, end = line.find(" "), line.rfind(" ")
        if start >= 0 and line.rfind(".py:", start + 1, end) >= 0:
            statuses[line[start + 1 : end]] = Status.FAILED
    for line in map(str.strip, log.split("\n")):
        if line.startswith("test_"):
            for suffix, status in _SYMPY:
                if line.endswith(suffix):
                    statuses[line.split(None, 1)[0]] = status
    return statuses


def _by_prefix(pattern: str, doc: str) -> Parser:
    """Return a parser of lines that begin with a status, the first group, and then a name."""
    form = re.compile(pattern)

    @by_whole_line
    def parse(line: str) -> tuple[str, Status] | None:
        match = form.match(line)
        return (match[2], _BY_WORD[match[1]]) if match else None

    parse.__doc__ = doc
    return parse


parse_paramiko = _by_prefix(
    rf"({'|'.join(_WORDS)})\s(\S+)", "Read ``STATUS name``, the whole of the first word."
)

parse_autograd = _by_prefix(
    rf"\[gw\d\]\s({'|'.join(_WORDS)})\s(\S+)",
    "Read ``[gw0] STATUS name``, as pytest-xdist prints while it runs.",
)


@by_whole_line
def parse_mypy(line: str) -> tuple[str, Status] | None:
    """Read the last word of each line that contains PASSED or FAILED."""
    status = next((word for word in ("PASSED", "FAILED") if word in line), None)
    return (line.rsplit(None, 1)[-1], _BY_WORD[status]) if status is not None else None


_SLUG = re.compile(r"([a-zA-Z0-9_\-,.\s()']+)\s\.{3}\s(ok|FAIL|ERROR)")
_SLUG_ENDS = {"ok": Status.PASSED, "FAIL": Status.FAILED, "ERROR": Status.ERROR}


@by_whole_line
def parse_python_slugify(line: str) -> tuple[str, Status] | None:
    """Read ``name ... ok``, where a name is letters, digits and a few marks."""
    result = _SLUG.fullmatch(line)
    return (result[1], _SLUG_ENDS[result[2]]) if result else None


@by_whole_line
def parse_tornado(line: str) -> tuple[str, Status] | None:
    """Read ``name ... ok``, ``name ... skipped`` and ``FAIL: method (class)``."""
    if line.endswith("... ok"):
        return line.partition(" ... ")[0], Status.PASSED
    if " ... skipped " in line:
        return line.partition(" ... ")[0], Status.SKIPPED
    if line.startswith(("ERROR:", "FAIL:")):
        return " ".join(line.split(None, 3)[1:3]), Status.FAILED
    return None
