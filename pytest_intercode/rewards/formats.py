"""Whether two outputs say the same in another format: the rules that a suite may declare.

The rules are tried in the order in which they are declared, each on what those before it made,
until both outputs are equal. Every rule is a pure function of both texts. None looks for gold's
output anywhere within the agent's: an agent that prints every answer it can think of is not right.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from pytest_intercode.core.task import FormatName

__all__ = ["RULES", "equal_as", "only_messages"]

_MOST = 20_000  # characters: longer outputs are compared as they are
_MOST_COLUMNS = 16
_MOST_TRIES = 64  # ways to find gold's columns among the agent's

Pair: TypeAlias = "tuple[list[str], list[str]]"


def equal_as(agent: str, gold: str, rules: Sequence[FormatName]) -> str | None:
    """Return by which rule two outputs are equal, or None if they are not by any.

    Args:
        agent: the agent's output.
        gold: gold's.
        rules: the rules, in order.
    """
    if max(len(agent), len(gold)) > _MOST:
        return None
    pair = agent.split("\n"), gold.split("\n")
    for rule in rules:
        pair = RULES[rule](*pair)
        if not any(line.strip() for line in pair[1]):
            return None  # nothing of gold is left, so that anything could pass for it
        if pair[0] == pair[1]:
            return rule
    return None


def _each(change: Callable[[str], str]) -> Callable[[list[str], list[str]], Pair]:
    """Make a rule of what changes a line of either output."""

    def rule(agent: list[str], gold: list[str]) -> Pair:
        return [change(line) for line in agent], [change(line) for line in gold]

    return rule


# -- blanks, order, paths, sizes


def _spaces(agent: list[str], gold: list[str]) -> Pair:
    """Blanks of any kind and number are one; empty lines, and blanks at both ends, are none."""
    mine, theirs = (
        [short for line in lines if (short := " ".join(line.split()))] for lines in (agent, gold)
    )
    return mine, theirs


def _words(agent: list[str], gold: list[str]) -> Pair:
    """The same words in the same order, wherever lines end."""
    if " ".join(agent).split() == " ".join(gold).split():
        return gold, gold
    return agent, gold


def _line_order(agent: list[str], gold: list[str]) -> Pair:
    return sorted(agent), sorted(gold)


_BEFORE = re.compile(r"(?<!\S)(?:\./|/)+(?=\S)")
_AFTER = re.compile(r"(?<=[^\s/])/+(?!\S)")


def _path(line: str) -> str:
    """``/a/b/``, ``./a/b`` and ``a/b`` are the same, where the working directory is ``/``."""
    return _AFTER.sub("", _BEFORE.sub("", line))


_SIZE = re.compile(r"(?<!\S)(\d+(?:\.\d+)?)([KMGT])(?:i?B)?(?!\S)")
_KILOBYTES = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}


def _size(line: str) -> str:
    """``4.0K`` and ``4`` are the same, as are ``2M`` and ``2048``: kilobytes, as ``du`` counts."""

    def plain(found: re.Match[str]) -> str:
        return f"{float(found[1]) * _KILOBYTES[found[2]]:g}"

    return _SIZE.sub(plain, line)


_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d)"
_ZONE = r"(?:UTC|GMT|Z|[+-]00:?00)"
_DAY, _MONTH, _YEAR = r"(?P<day>\d{1,2})", r"(?P<month>[A-Z][a-z]{2})", r"(?P<year>\d{4})"
_DATES = [
    re.compile(text)
    for text in (
        rf"(?:[A-Z][a-z]{{2}} )?{_MONTH} +{_DAY} {_CLOCK} {_ZONE} {_YEAR}",
        rf"(?:[A-Z][a-z]{{2}}, )?{_DAY} {_MONTH} {_YEAR} {_CLOCK} {_ZONE}",
        rf"{_YEAR}-(?P<month>\d\d)-{_DAY}[T ]{_CLOCK} ?{_ZONE}",
    )
]
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _date(line: str) -> str:
    """A moment in UTC, to the second, as ``date`` has it, or e-mail, or ISO 8601."""

    def plain(found: re.Match[str]) -> str:
        month = found["month"]
        number = _MONTHS.index(month) + 1 if month in _MONTHS else month
        return f"{found['year']}-{number:0>2}-{found['day']:0>2}T{found['clock']}Z"

    for form in _DATES:
        line = form.sub(plain, line)
    return line


_DIGEST = re.compile(r"[A-Z][A-Z0-9-]* ?\(([^()]*)\) ?= ?([0-9a-f]{32,})")


def _digest(line: str) -> str:
    """``SHA256(a)= 9f86...``, as openssl and BSD write it, is ``9f86... a``."""
    found = _DIGEST.fullmatch(line)
    return f"{found[2]} {found[1]}" if found else line


# -- what programs add by themselves

_REASONS = "|".join(
    sorted({re.escape(os.strerror(code)) for code in errno.errorcode}, key=len, reverse=True)
)
_MESSAGE = re.compile(
    r"tar: .*|\* .*|[ ]+% Total.*|[ ]+Dload .*|[a-z][\w.+/-]*: .* terminated by signal \d+"
    rf"|[a-z][\w.+/-]*: (?:.*: )?(?:{_REASONS}|command not found|not found)"
)
_METER = re.compile(r"\r[ \dkMGTP:.-]*")  # curl's, in front of what comes after it
_REASON = re.compile(rf".*: ({_REASONS})")
_QUOTED = re.compile("['\u2018]([^'\u2018\u2019]{0,4096})['\u2019]")


def only_messages(output: str) -> bool:
    """Whether an output is nothing but what programs say about their work, such as errors."""
    lines = [line for line in output.split("\n") if line.strip()]
    return bool(lines) and all(map(_MESSAGE.fullmatch, lines))


def _messages(agent: list[str], gold: list[str]) -> Pair:
    """Errors and meters do not count beside an answer; of errors alone, names and reasons do."""
    mine, theirs = (_without_messages(lines) for lines in (agent, gold))
    return mine, theirs


def _without_messages(lines: list[str]) -> list[str]:
    lines = [_METER.sub("", line) for line in lines]
    answer = [line for line in lines if not _MESSAGE.fullmatch(line)]
    if any(line.strip() for line in answer):
        return answer
    return [_reduced(line) for line in lines]


def _reduced(message: str) -> str:
    names, reason = _QUOTED.findall(message), _REASON.fullmatch(message)
    return f"{' '.join(names)}: {reason[1]}" if names and reason else message


_PROCESS = re.compile(r"(?<=\w)\(\d{1,7}\)")


def _counters(agent: list[str], gold: list[str]) -> Pair:
    """Numbers of lines, offsets and processes that one output alone has."""
    if not any(map(_PROCESS.search, gold)):
        agent = [_PROCESS.sub("", line) for line in agent]
    mine, theirs = _counted(agent), _counted(gold)
    if (mine is None) == (theirs is None):
        return agent, gold
    return (agent if mine is None else mine), (gold if theirs is None else theirs)


def _counted(lines: list[str]) -> list[str] | None:
    """Return the lines without the counter before them; None if they have none."""
    split = [line.split(None, 1) for line in lines if line.strip()]
    heads = [words[0] for words in split]
    if len(split) < 2 or not all(re.fullmatch(r"\d{1,18}", head, re.ASCII) for head in heads):
        return None
    for base in (10, 8):
        try:
            numbers = [int(head, base) for head in heads]
        except ValueError:
            continue
        whole = numbers if len(split[-1]) > 1 else numbers[:-1]  # od ends with the length alone
        steps = {after - before for before, after in itertools.pairwise(whole)}
        if numbers[0] in (0, 1) and len(steps) == 1 and numbers == sorted(set(numbers)):
            return [words[1] for words in split if len(words) > 1]
    return None


# -- more than gold says of the same


_FILE = re.compile(r"[^\s:]*/[^:]*")


def _matches(agent: list[str], gold: list[str]) -> Pair:
    """``grep``'s lines with the file before each, where gold has the file or the line alone."""
    wanted = {line for line in gold if line}
    found = [(line.partition(":"), line) for line in agent if line]
    files = {file for (file, colon, _), _ in found if colon and _FILE.fullmatch(file)}
    if files == wanted and all(colon for (_, colon, _), _ in found):
        return gold, gold
    bare = [rest if colon and file in files else line for (file, colon, rest), line in found]
    if sorted(bare) == sorted(line for line in gold if line):
        return gold, gold
    return agent, gold


_TOTAL = re.compile(r"total [\d.]+[KMGT]?")
_TARGET = re.compile(r" -> \S+$")


def _columns(agent: list[str], gold: list[str]) -> Pair:
    """Further columns of the agent's that cannot be taken for gold's.

    Lines are equal in number, and gold's columns are among the agent's, in their order and in the
    same places in every line. What else is there is of another kind than what gold prints, or the
    same in every line, or less than half of it. Of a gold that is a number and names, the agent may
    print the number alone.
    """
    mine, theirs = _table(agent), _table(gold)
    if len(mine) != len(theirs) or not mine:
        return agent, gold
    wanted, given = len(theirs[0]), len(mine[0])
    if wanted < given <= _MOST_COLUMNS and any(
        _may_go(mine, places) for places in _places(mine, theirs, wanted)
    ):
        return gold, gold
    if len(theirs) == 1 and given == 1 and wanted > 1 and mine[0][0] in theirs[0]:
        number, *rest = mine[0][0], *(word for word in theirs[0] if word != mine[0][0])
        if _kind(number) in ("number", "hash") and all(_kind(w) in ("path", "word") for w in rest):
            return gold, gold
    return agent, gold


def _table(lines: list[str]) -> list[list[str]]:
    """Split lines into as many columns as all of them have; the last may hold blanks."""
    lines = [_TARGET.sub("", line) for line in lines if line and not _TOTAL.fullmatch(line)]
    width = min((len(line.split()) for line in lines), default=0)
    return [line.split(None, width - 1) for line in lines] if width else []


def _places(
    mine: list[list[str]], theirs: list[list[str]], wanted: int
) -> Iterator[tuple[int, ...]]:
    """Yield the places of columns of ``mine`` that together are the lines of ``theirs``."""
    goals = [Counter(column) for column in zip(*theirs, strict=True)]
    fits = [[Counter(c) == goal for goal in goals] for c in zip(*mine, strict=True)]
    lines = sorted(map(tuple, theirs))

    def search(at: int, places: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if at == wanted:
            yield places
            return
        first = places[-1] + 1 if places else 0
        for place in range(first, len(fits) - (wanted - at) + 1):
            if fits[place][at]:
                yield from search(at + 1, (*places, place))

    for places in itertools.islice(search(0, ()), _MOST_TRIES):
        if sorted(tuple(words[place] for place in places) for words in mine) == lines:
            yield places


def _may_go(lines: list[list[str]], kept: tuple[int, ...]) -> bool:
    """Whether the other columns may go."""
    others = [place for place in range(len(lines[0])) if place not in kept]
    if 2 * len(others) < len(kept):
        return True
    kinds = {_kind(words[place]) for words in lines for place in kept}
    return all(
        (len(lines) > 1 and len({words[place] for words in lines}) == 1)
        or not kinds & {_kind(words[place]) for words in lines}
        for place in others
    )


_KINDS = (
    ("hash", re.compile(r"[0-9a-f]{32,}")),
    ("number", re.compile(r"[-+]?\d[\d.,]*(?:[KMGT%]|[eE][-+]?\d+)?")),
    ("mode", re.compile(r"[-dlbcps][-rwxsStT]{9}[.+@]?")),
    (
        "date",
        re.compile(r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)|\d\d:\d\d.*|\d{4}-.*"),
    ),
    ("path", re.compile(r".*/.*")),
)


def _kind(word: str) -> str:
    """Return what a word is: a hash, a number, a mode, a part of a date, a path, or a word."""
    return next((kind for kind, form in _KINDS if form.fullmatch(word)), "word")


_FOLDERS = re.compile(r"(?<!\S)[^\s'\"]*/(?=[^\s/])")
_DRAWN = " │├└─|`_\xa0"
_COUNTED = re.compile(r"\d+ director(?:y|ies)(?:, \d+ files?)?")


def _names(agent: list[str], gold: list[str]) -> Pair:
    """Files by their last names, in any order, whatever is named or drawn before them."""
    mine, theirs = (
        sorted(_name(line) for line in lines if len(lines) == 1 or not _COUNTED.fullmatch(line))
        for lines in (agent, gold)
    )
    return _columns(mine, theirs)


def _name(line: str) -> str:
    bare = line.lstrip(_DRAWN)
    drawn = line[: len(line) - len(bare)]
    if any(sign in drawn for sign in ("│", "├", "└", "|_", "`-")):
        line = bare
    return _FOLDERS.sub("", line)


RULES: Mapping[FormatName, Callable[[list[str], list[str]], Pair]] = {
    "messages": _messages,
    "spaces": _spaces,
    "words": _words,
    "sizes": _each(_size),
    "dates": _each(_date),
    "digests": _each(_digest),
    "counters": _counters,
    "paths": _each(_path),
    "line-order": _line_order,
    "matches": _matches,
    "columns": _columns,
    "names": _names,
}
"""The rules, by the names that suites have for them, in the order in which all are tried."""
