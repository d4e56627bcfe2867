"""Wrong answers to a swe task: parts of gold's patch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

from pytest_intercode.core.task import Task
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.swe.gold import gold_actions, is_patch

__all__ = ["change_gold"]

_FILE = re.compile(r"^diff --git ", re.MULTILINE)
_HUNK = re.compile(r"^@@ ", re.MULTILINE)


def change_gold(task: Task) -> Iterator[Answer]:
    """Yield a patch without one of its files, and without the last hunk of one."""
    if len(task.gold) != 1 or not is_patch(task.gold[0]):
        return
    begins = [match.start() for match in _FILE.finditer(task.gold[0])]
    files = [task.gold[0][a:b] for a, b in itertools.pairwise([*begins, len(task.gold[0])])]
    for index, text in enumerate(files):
        hunks = [match.start() for match in _HUNK.finditer(text)]
        for part, remainder in (
            ("a hunk", text[: hunks[-1]] if len(hunks) > 1 else ""),
            ("a file", ""),
        ):
            changed = "".join((*files[:index], remainder, *files[index + 1 :]))
            if changed and (remainder or part == "a file"):
                actions = tuple(gold_actions(replace(task, gold=(changed,))))
                yield Answer(actions, description=f"gold without {part}", certain=False)
