"""Rules by which outputs in different formats count as equal, which a suite may declare.

The rules are tried in their declared order, each on the result of those before it, until both
outputs are equal. Every rule is a pure function of both texts. None searches the agent's output
for gold's: an agent that prints every answer that it can think of is wrong.
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

_MAX_LENGTH = 20_000  # characters; longer outputs are compared as they are
_MAX_COLUMNS = 16  # of the agent's lines; there are too many ways to choose among more
_MAX_TRIES = 64  # ways to find gold's columns among the agent's

Pair: TypeAlias = "tuple[list[str], list[str]]"
Rule: TypeAlias = "Callable[[list[str], list[str]], Pair]"


def equal_as(agent: str, gold: str, rules: Sequence[FormatName]) -> str | None:
    """Return the rule that makes two outputs equal, or None if none does.

    Args:
        agent: the agent's output.
        gold: gold's.
        rules: the rules, in order.
    """
    if max(len(agent), len(gold)) > _MAX_LENGTH:
        return None
    pair = agent.split("\n"), gold.split("\n")
    for rule in rules:
        pair = RULES[rule](*pair)
        if not any(line.strip() for line in pair[1]):
            return None  # nothing of gold is left, so that anything could pass for it
        if pair[0] == pair[1]:
            return rule
    return None


def _by_side(change: Callable[[list[str]], list[str]]) -> Rule:
    """Make a rule from a function that changes the lines of one output."""
    return lambda agent, gold: (change(agent), change(gold))


def _by_line(change: Callable[[str], str]) -> Rule:
    """Make a rule from a function that changes one line of an output."""
    return _by_side(lambda lines: [change(line) for line in lines])


# -- blanks, order, paths, sizes


def _spaces(lines: list[str]) -> list[str]:
    """Any run of blanks is one space; empty lines, and blanks at both ends, do not count."""
    return [short for line in lines if (short := " ".join(line.split()))]


def _words(agent: list[str], gold: list[str]) -> Pair:
    """The same words in the same order, wherever lines end."""
    if " ".join(agent).split() == " ".join(gold).split():
        return gold, gold
    return agent, gold


_LEADING = re.compile(r"(?<!\S)(?:\./|/)+(?=\S)")
_TRAILING = re.compile(r"(?<=[^\s/])/+(?!\S)")


def _path(line: str) -> str:
    """``/a/b/``, ``./a/b`` and ``a/b`` are the same, where the working directory is ``/``."""
    return _TRAILING.sub("", _LEADING.sub("", line))


_SIZE = re.compile(r"(?<!\S)(\d+(?:\.\d+)?)([KMGT])(?:i?B)?(?!\S)")
_KILOBYTES = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}


def _size(line: str) -> str:
    """``4.0K`` and ``4`` are the same, as are ``2M`` and ``2048``: kilobytes, as ``du`` counts."""

    def plain(match: re.Match[str]) -> str:
        return f"{float(match[1]) * _KILOBYTES[match[2]]:g}"

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
    """A moment in UTC, to the second, as ``date``, e-mail or ISO 8601 writes it."""

    def plain(match: re.Match[str]) -> str:
        month = match["month"]
        number = _MONTHS.index(month) + 1 if month in _MONTHS else month
        return f"{match['year']}-{number:0>2}-{match['day']:0>2}T{match['clock']}Z"

    for form in _DATES:
        line = form.sub(plain, line)
    return line


_DIGEST = re.compile(r"[A-Z][A-Z0-9-]* ?\(([^()]*)\) ?= ?([0-9a-f]{32,})")


def _digest(line: str) -> str:
    """``SHA256(a)= 9f86...``, as openssl and BSD write it, is ``9f86... a``."""
    match = _DIGEST.fullmatch(line)
    return f"{match[2]} {match[1]}" if match else line


# -- what programs add by themselves

_REASONS = "|".join(
    sorted({re.escape(os.strerror(code)) for code in errno.errorcode}, key=len, reverse=True)
)
_MESSAGE = re.compile(
    r"tar: .*|\* .*|[ ]+% Total.*|[ ]+Dload .*|[a-z][\w.+/-]*: .* terminated by signal \d+"
    rf"|[a-z][\w.+/-]*: (?:.*: )?(?:{_REASONS}|command not found|not found)"
)
_METER = re.compile(r"\r[ \dkMGTP:.-]*")  # curl's progress meter, before other output
_REASON = re.compile(rf".*: ({_REASONS})")
_QUOTED = re.compile("['\u2018]([^'\u2018\u2019]{0,4096})['\u2019]")


def only_messages(output: str) -> bool:
    """Whether an output has only messages of programs about their work, such as errors."""
    lines = [line for line in output.split("\n") if line.strip()]
    return bool(lines) and all(map(_MESSAGE.fullmatch, lines))


def _messages(lines: list[str]) -> list[str]:
    """Errors and meters do not count next to an answer; alone, errors' names and reasons do."""
    lines = [_METER.sub("", line) for line in lines]
    answer = [line for line in lines if not _MESSAGE.fullmatch(line)]
    if any(line.strip() for line in answer):
        return answer
    return [_reduce(line) for line in lines]


def _reduce(message: str) -> str:
    names, reason = _QUOTED.findall(message), _REASON.fullmatch(message)
    return f"{' '.join(names)}: {reason[1]}" if names and reason else message


_PROCESS = re.compile(r"(?<=\w)\(\d{1,7}\)")


def _counters(agent: list[str], gold: list[str]) -> Pair:
    """Line numbers, offsets and process ids that only one output has do not count."""
    if not any(map(_PROCESS.search, gold)):
        agent = [_PROCESS.sub("", line) for line in agent]
    bare_agent, bare_gold = _without_counters(agent), _without_counters(gold)
    if bare_agent is not None and bare_gold is None:
        return bare_agent, gold
    if bare_gold is not None and bare_agent is None:
        return agent, bare_gold
    return agent, gold


def _without_counters(lines: list[str]) -> list[str] | None:
    """Return the lines without the counters before them; None if they have none."""
    split = [line.split(None, 1) for line in lines if line.strip()]
    heads = [words[0] for words in split]
    if len(split) < 2 or not all(re.fullmatch(r"\d{1,18}", head, re.ASCII) for head in heads):
        return None
    for base in (10, 8):
        try:
            numbers = [int(head, base) for head in heads]
        except ValueError:
            continue
        whole = numbers if len(split[-1]) > 1 else numbers[:-1]  # od's last line is only the length
        steps = {next_number - number for number, next_number in itertools.pairwise(whole)}
        if numbers[0] in (0, 1) and len(steps) == 1 and numbers == sorted(set(numbers)):
            return [words[1] for words in split if len(words) > 1]
    return None


# -- more than gold says of the same


_FILE = re.compile(r"[^\s:]*/[^:]*")


def _matches(agent: list[str], gold: list[str]) -> Pair:
    """``grep``'s lines with the file before each, where gold has only the files or the lines."""
    gold_lines = {line for line in gold if line}
    split_lines = [(line.partition(":"), line) for line in agent if line]
    files = {file for (file, colon, _), _ in split_lines if colon and _FILE.fullmatch(file)}
    if files == gold_lines and all(colon for (_, colon, _), _ in split_lines):
        return gold, gold
    bare = [rest if colon and file in files else line for (file, colon, rest), line in split_lines]
    if sorted(bare) == sorted(line for line in gold if line):
        return gold, gold
    return agent, gold


_TOTAL = re.compile(r"total [\d.]+[KMGT]?")
_TARGET = re.compile(r" -> \S+$")


def _columns(agent: list[str], gold: list[str]) -> Pair:
    """Additional columns of the agent's output that cannot be taken for gold's.

    Both outputs have the same number of lines, and gold's columns are among the agent's, in gold's
    order and in the same places in every line. The other columns are fewer than half as many as
    gold's; or each of them is of a kind that gold does not print, or is the same in every line. If
    gold is a number and names, the agent may print the number alone.
    """
    agent_rows, gold_rows = _table(agent), _table(gold)
    if len(agent_rows) != len(gold_rows) or not agent_rows:
        return agent, gold
    gold_width, agent_width = len(gold_rows[0]), len(agent_rows[0])
    if gold_width < agent_width <= _MAX_COLUMNS and any(
        _are_enough(agent_rows, columns)
        for columns in _column_choices(agent_rows, gold_rows, gold_width)
    ):
        return gold, gold
    number, gold_words = agent_rows[0][0], gold_rows[0]
    if len(gold_rows) == 1 and agent_width == 1 and gold_width > 1 and number in gold_words:
        rest = [word for word in gold_words if word != number]
        if _kind(number) in ("number", "hash") and all(_kind(w) in ("path", "word") for w in rest):
            return gold, gold
    return agent, gold


def _table(lines: list[str]) -> list[list[str]]:
    """Split lines into as many columns as every line has; the last column may contain blanks."""
    lines = [_TARGET.sub("", line) for line in lines if line and not _TOTAL.fullmatch(line)]
    width = min((len(line.split()) for line in lines), default=0)
    return [line.split(None, width - 1) for line in lines] if width else []


def _column_choices(
    agent_rows: list[list[str]], gold_rows: list[list[str]], gold_width: int
) -> Iterator[tuple[int, ...]]:
    """Yield the choices of the agent's columns, as indices, that together give gold's rows."""
    goals = [Counter(column) for column in zip(*gold_rows, strict=True)]
    fits = [[Counter(c) == goal for goal in goals] for c in zip(*agent_rows, strict=True)]
    lines = sorted(map(tuple, gold_rows))

    def search(goal: int, columns: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if goal == gold_width:
            yield columns
            return
        first = columns[-1] + 1 if columns else 0
        for column in range(first, len(fits) - (gold_width - goal) + 1):
            if fits[column][goal]:
                yield from search(goal + 1, (*columns, column))

    for columns in itertools.islice(search(0, ()), _MAX_TRIES):
        if sorted(tuple(words[column] for column in columns) for words in agent_rows) == lines:
            yield columns


def _are_enough(lines: list[list[str]], columns: tuple[int, ...]) -> bool:
    """Whether all other columns may be removed."""
    removed = [column for column in range(len(lines[0])) if column not in columns]
    if 2 * len(removed) < len(columns):
        return True
    kinds = {_kind(words[column]) for words in lines for column in columns}
    return all(
        (len(lines) > 1 and len({words[column] for words in lines}) == 1)
        or not kinds & {_kind(words[column]) for words in lines}
        for column in removed
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
    """Return the kind of a word: a hash, number, mode, part of a date, path, or plain word."""
    return next((kind for kind, form in _KINDS if form.fullmatch(word)), "word")


_FOLDERS = re.compile(r"(?<!\S)[^\s'\"]*/(?=[^\s/])")
_TREE_SIGNS = " │├└─|`_\xa0"
_TREE_TOTAL = re.compile(r"\d+ director(?:y|ies)(?:, \d+ files?)?")


def _names(agent: list[str], gold: list[str]) -> Pair:
    """Files by their last names, in any order, without the folders or tree drawn before them."""
    return _columns(_last_names(agent), _last_names(gold))


def _last_names(lines: list[str]) -> list[str]:
    return sorted(
        _name(line) for line in lines if len(lines) == 1 or not _TREE_TOTAL.fullmatch(line)
    )


def _name(line: str) -> str:
    bare = line.lstrip(_TREE_SIGNS)
    prefix = line[: len(line) - len(bare)]
    if any(sign in prefix for sign in ("│", "├", "└", "|_", "`-")):
        line = bare
    return _FOLDERS.sub("", line)


RULES: Mapping[FormatName, Rule] = {
    "messages": _by_side(_messages),
    "spaces": _by_side(_spaces),
    "words": _words,
    "sizes": _by_line(_size),
    "dates": _by_line(_date),
    "digests": _by_line(_digest),
    "counters": _counters,
    "paths": _by_line(_path),
    "line-order": _by_side(sorted),
    "matches": _matches,
    "columns": _columns,
    "names": _names,
}
"""The rules by their names in suites, in the order in which ``all`` tries them."""
