"""Wrong answers to a bash task: gold with one part of a command changed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_intercode.core.task import Task
from pytest_intercode.environments.answer import Answer

__all__ = ["change_gold"]

# A number that is a word, an option's value or awk's $N, but not part of a name or of `2>&1`.
_NUMBER = re.compile(r"(?<![\w.&>/-])\d+(?![\w.>]|&\d)")
# A test of find is removed with its argument. An option before a number or a quote is kept, because
# that may be its argument.
_OPTION = re.compile(
    r"(?<=\s)(?<!read )(?:"
    r"-(?:type|i?name|i?path|i?regex|[acm]time|[acm]min|size|perm|user|group|newer|m(?:in|ax)depth)"
    r"\s+(?:'[^']*'|\"[^\"]*\"|\S+)"
    r"|-{1,2}[A-Za-z][\w-]*(?=\s)(?!\s+[+\d'\"]))"
)
_STAGE = re.compile(r"\s*\|\s*[^|&;()<>`\n]+$")
_PATH = re.compile(r"(?<![\w$/.*-])(?:[\w.-]+/)*[\w-]+\.[A-Za-z]\w*(?![\w/.])")


def change_gold(task: Task) -> Iterator[Answer]:
    """Yield gold with one command changed; a person has to judge those that solve the task."""
    for index in reversed(range(len(task.gold))):
        command = task.gold[index]
        changes = (
            ("gold with another number", _change_shell_number(command)),
            ("gold without an option", _cut(_OPTION, command)),
            ("gold without its last filter", _cut(_STAGE, command)),
            ("gold of another file", _change_file(task, command)),
        )
        for label, changed in changes:
            if changed and changed != command:
                actions = (*task.gold[:index], changed, *task.gold[index + 1 :])
                yield Answer(actions, description=label, certain=False)


def _change_shell_number(command: str) -> str:
    match = _NUMBER.search(command)
    if match is None:
        return ""
    number = str(int(match[0]) + 1).rjust(len(match[0]), "0")
    return command[: match.start()] + number + command[match.end() :]


def _cut(pattern: re.Pattern[str], command: str) -> str:
    match = pattern.search(command)
    return "" if match is None else command[: match.start()] + command[match.end() :]


def _change_file(task: Task, command: str) -> str:
    """Replace the first of the task's files in a command by another one."""
    names = [path for path, spec in task.files.items() if spec.kind == "file"]
    for match in _PATH.finditer(command):
        if match[0] in names:
            candidates = [name for name in names if name != match[0]]
            of_same_type = [
                n for n in candidates if n.rpartition(".")[2] == match[0].rpartition(".")[2]
            ]
            for replacement in of_same_type or candidates:
                return command[: match.start()] + replacement + command[match.end() :]
    return ""
