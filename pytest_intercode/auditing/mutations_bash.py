"""Wrong but plausible answers to bash tasks: gold with one part of it changed. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_intercode.auditing.playing import Answer
from pytest_intercode.core.task import Task

__all__ = ["changed_gold"]

# A number that is a word, an option's value or awk's $N; not a part of a name, nor of `2>&1`.
_NUMBER = re.compile(r"(?<![\w.&>/-])\d+(?![\w.>]|&\d)")
# find's tests go with what they test for; what a number or a quote follows may need it.
_OPTION = re.compile(
    r"(?<=\s)(?<!read )(?:"
    r"-(?:type|i?name|i?path|i?regex|[acm]time|[acm]min|size|perm|user|group|newer|m(?:in|ax)depth)"
    r"\s+(?:'[^']*'|\"[^\"]*\"|\S+)"
    r"|-{1,2}[A-Za-z][\w-]*(?=\s)(?!\s+[+\d'\"]))"
)
_STAGE = re.compile(r"\s*\|\s*[^|&;()<>`\n]+$")
_PATH = re.compile(r"(?<![\w$/.*-])(?:[\w.-]+/)*[\w-]+\.[A-Za-z]\w*(?![\w/.])")


def changed_gold(task: Task) -> Iterator[Answer]:
    """Yield gold with another number, without an option, without its last filter, of another file.

    A person has to judge each that is taken for right: it may do the same in another way.
    """
    for at in reversed(range(len(task.gold))):
        command = task.gold[at]
        changes = (
            ("gold with another number", _number(command)),
            ("gold without an option", _cut(_OPTION, command)),
            ("gold without its last filter", _cut(_STAGE, command)),
            ("gold of another file", _other_file(task, command)),
        )
        for what, changed in changes:
            if changed and changed != command:
                actions = (*task.gold[:at], changed, *task.gold[at + 1 :])
                yield Answer(actions, what=what, surely=False)


def _number(command: str) -> str:
    found = _NUMBER.search(command)
    if found is None:
        return ""
    more = str(int(found[0]) + 1).rjust(len(found[0]), "0")
    return command[: found.start()] + more + command[found.end() :]


def _cut(pattern: re.Pattern[str], command: str) -> str:
    found = pattern.search(command)
    return "" if found is None else command[: found.start()] + command[found.end() :]


def _other_file(task: Task, command: str) -> str:
    """Name another of the task's files where gold names one."""
    names = [path for path, spec in task.files.items() if spec.kind == "file"]
    for found in _PATH.finditer(command):
        if found[0] in names:
            others = [name for name in names if name != found[0]]
            near = [n for n in others if n.rpartition(".")[2] == found[0].rpartition(".")[2]]
            for other in near or others:
                return command[: found.start()] + other + command[found.end() :]
    return ""
