"""Logs of test runners for Python: pytest in its summary's and its verbose form, unittest, others.

``pytest -rA`` ends with lines that begin with a status. An id that has a blank in it is cut there
by most of these parsers; the lists of published tasks hold the names that are cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pytest_intercode.rewards.test_logs.results import (
    Results,
    Status,
    Statuses,
    without_colours,
)

__all__ = [
    "parse_autograd",
    "parse_django",
    "parse_matplotlib",
    "parse_mypy",
    "parse_paramiko",
    "parse_pydantic",
    "parse_pytest",
    "parse_pytest_options",
    "parse_pytest_v2",
    "parse_pytest_verbose",
    "parse_seaborn",
    "parse_slugify",
    "parse_sympy",
    "parse_tornado",
]

_WORDS = tuple(status.value for status in Status)
_BY_WORD = {status.value: status for status in Status}
_SKIP_COUNT = re.compile(r"\[\d+\]")


def parse_pytest(log: str) -> Statuses:
    """Read ``STATUS name``; of a name with blanks the first word."""
    return _read_summary(log, lambda name: name)


def parse_pytest_options(log: str) -> Statuses:
    """Read ``STATUS name``, where a path as parameter is cut to its last part."""
    return _read_summary(log, _shorten_option)


def parse_matplotlib(log: str) -> Statuses:
    """Read ``STATUS name``, where a button of the mouse is its number."""
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


def parse_pytest_v2(log: str) -> Statuses:
    """Read ``STATUS name with blanks`` and the older ``name with blanks STATUS``, in colours."""
    statuses = Results()
    for line in log.split("\n"):
        line = without_colours(line)
        if line.startswith(_WORDS):
            if line.startswith("FAILED"):
                line = line.partition(" - ")[0]
            word, *name = line.split()
            if name and _is_count(word, name[0]):
                continue
        elif line.endswith(_WORDS):
            *name, word = line.split()
        else:
            continue
        if name and word in _BY_WORD:
            statuses[" ".join(name)] = _BY_WORD[word]
    return statuses


_SHARE = re.compile(r"FAILED\s*\[.*?\]")


def parse_pydantic(log: str) -> Statuses:
    """Read ``STATUS name`` and ``name STATUS``, in colours; of a name with blanks one word."""
    statuses = Results()
    for line in log.split("\n"):
        line = without_colours(line)
        end = line.rfind("]") + 1  # beyond it there is nothing to be left out
        line = _SHARE.sub("FAILED", line[:end]) + line[end:]
        if line.startswith(_WORDS):
            word, *name = line.split(None, 2)
        elif line.endswith(_WORDS):
            *name, word = line.split(None, 2)[:2]
        else:
            continue
        if name and word in _BY_WORD:
            statuses[name[0]] = _BY_WORD[word]
    return statuses


def parse_pytest_verbose(log: str) -> Statuses:
    """Read ``name STATUS``, as ``pytest --verbose`` prints while it runs."""
    statuses = Results()
    for line in log.split("\n"):
        words = line.split(None, 2)
        if len(words) > 1 and not line[0].isspace():
            status = next((word for word in _WORDS if words[1].startswith(word)), None)
            if status is not None:
                statuses[words[0]] = _BY_WORD[status]
    return statuses


def parse_seaborn(log: str) -> Statuses:
    """Read ``FAILED name``, ``PASSED name`` and ``name PASSED``."""
    statuses = Results()
    for line in log.split("\n"):
        words = line.split(None, 2)
        if len(words) < 2:
            continue
        if line.startswith("FAILED"):
            statuses[words[1]] = Status.FAILED
        elif " PASSED " in line:
            if words[1] == "PASSED":
                statuses[words[0]] = Status.PASSED
        elif line.startswith("PASSED"):
            statuses[words[1]] = Status.PASSED
    return statuses


# -- unittest, as Django's runner and `python -m unittest -v` print it

_PASSES = (" ... ok", " ... OK", " ...  OK")
_MIGRATION = "Applying sites.0002_alter_domain_unique...test_no_migrations"
_VERSION = "--version is equivalent to version"
_LONG_CHECK = re.compile(r"\s\.\.\.\sTesting against Django installed in ")
_CHECKED = re.compile(r" silenced\)\.\nok$", re.MULTILINE)
_SERVER_ERROR = re.compile(r"\s\.\.\.\sInternal Server Error: /")
_NO_ISSUES = re.compile(r"\s\.\.\.\sSystem check identified no issues \(0 silenced\)\nok$", re.M)


def parse_django(log: str) -> Statuses:
    """Read ``name ... ok`` and its kind, and results that other output has torn from their names.

    A test with a docstring is named by its first line. ``FAIL: name`` of the details adds an entry
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
    """Add the tests whose ``ok`` comes lines later, after a message that is known."""
    position = 0
    for marker in _LONG_CHECK.finditer(log):
        start = log.rfind("\n", 0, marker.start()) + 1
        if start < position:
            continue
        check = _CHECKED.search(log, marker.end())
        if check is None:
            break
        statuses[log[start : marker.start()]] = Status.PASSED
        position = check.end()
    position = -1
    for marker in _SERVER_ERROR.finditer(log):
        start, end = log.rfind("\n", 0, marker.start()) + 1, log.find("\n", marker.end())
        ok = log[end : end + 4] in ("\nok\n", "\nok")
        if start > position and end > marker.end() and log[end - 1] == "/" and ok:
            statuses[log[start : marker.start()]] = Status.PASSED
            position = start
    for marker in _NO_ISSUES.finditer(log):
        statuses[log[log.rfind("\n", 0, marker.start()) + 1 : marker.start()]] = Status.PASSED


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


def parse_paramiko(log: str) -> Statuses:
    """Read ``STATUS name``, the whole of the first word."""
    return _read_prefixed(log, re.compile(rf"({'|'.join(_WORDS)})\s(\S+)"))


def parse_autograd(log: str) -> Statuses:
    """Read ``[gw0] STATUS name``, as pytest-xdist prints while it runs."""
    return _read_prefixed(log, re.compile(rf"\[gw\d\]\s({'|'.join(_WORDS)})\s(\S+)"))


def _read_prefixed(log: str, pattern: re.Pattern[str]) -> Statuses:
    statuses = Results()
    for line in log.split("\n"):
        if result := pattern.match(line):
            statuses[result[2]] = _BY_WORD[result[1]]
    return statuses


def parse_mypy(log: str) -> Statuses:
    """Read the last word of each line that says PASSED or FAILED."""
    statuses = Results()
    for line in log.split("\n"):
        status = next((word for word in ("PASSED", "FAILED") if word in line), None)
        if status is not None:
            statuses[line.rsplit(None, 1)[-1]] = _BY_WORD[status]
    return statuses


_SLUG = re.compile(r"([a-zA-Z0-9_\-,.\s()']+)\s\.{3}\s(ok|FAIL|ERROR)")
_SLUG_ENDS = {"ok": Status.PASSED, "FAIL": Status.FAILED, "ERROR": Status.ERROR}


def parse_slugify(log: str) -> Statuses:
    """Read ``name ... ok``, where a name is letters, digits and a few marks."""
    statuses = Results()
    for line in log.split("\n"):
        if result := _SLUG.fullmatch(line):
            statuses[result[1]] = _SLUG_ENDS[result[2]]
    return statuses


def parse_tornado(log: str) -> Statuses:
    """Read ``name ... ok``, ``name ... skipped`` and ``FAIL: method (class)``."""
    statuses = Results()
    for line in log.split("\n"):
        if line.endswith("... ok"):
            statuses[line.partition(" ... ")[0]] = Status.PASSED
        elif " ... skipped " in line:
            statuses[line.partition(" ... ")[0]] = Status.SKIPPED
        elif line.startswith(("ERROR:", "FAIL:")):
            statuses[" ".join(line.split(None, 3)[1:3])] = Status.FAILED
    return statuses
