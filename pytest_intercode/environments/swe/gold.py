"""Gold of swe tasks: a patch in git's format, or commands; the paths and parts of a patch."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import replace

from pytest_intercode.core.patches import heredoc
from pytest_intercode.core.task import Task
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.swe.fields import repository_of
from pytest_intercode.errors import SolvedAtFirst

__all__ = ["change_gold", "check_first_state", "gold_actions", "is_patch", "paths_of_patch"]

_HEADER = re.compile(  # usually both names are equal, which shows where the first one ends
    r'^diff --git "?a/(?:(?P<both>.*?)"? "?b/(?P=both)|(?P<old>.*?)"? "?b/(?P<new>.*?))"?$',
    re.MULTILINE,
)
_FILE = re.compile(r"^diff --git ", re.MULTILINE)
_HUNK = re.compile(r"^@@ ", re.MULTILINE)


def is_patch(text: str) -> bool:
    """Whether a gold is a patch, and not a command."""
    return text.lstrip().startswith(("diff --git ", "--- a/"))


def paths_of_patch(patch: str) -> set[str]:
    """Return the old and new paths in a patch in git's format."""
    return {path for match in _HEADER.finditer(patch) for path in match.groups() if path}


def gold_actions(task: Task) -> list[str]:
    """Return the actions that bring a sandbox into gold's end state; git applies a patch."""
    repository = repository_of(task)
    folder = repository.at if repository is not None else task.workdir
    command = f"git -C {shlex.quote(folder)} apply --whitespace=nowarn"
    return [heredoc(command, gold) if is_patch(gold) else gold for gold in task.gold]


def change_gold(task: Task) -> Iterator[Answer]:
    """Yield wrong answers: the patch without a file, or without the last hunk of a file."""
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


def check_first_state(task: Task, patch: str, left_out: Collection[str]) -> None:
    """Check that a task whose tests all pass on a patch does not pass without one.

    The first state was tested if the patch is empty or all of it was left out. If the tests of
    ``fail_to_pass`` pass there, they are wrong or read wrongly, and the agent has not earned them.

    Args:
        task: the task; if only a patch of its repository is tested, it is checked.
        patch: the agent's changes to the repository.
        left_out: the paths of the patch that were not tested.

    Raises:
        SolvedAtFirst: the tests pass on the first state.
    """
    verification = task.verification
    if verification is None or verification.artifacts is not None or repository_of(task) is None:
        return
    if verification.place != "fresh" or not verification.fail_to_pass:
        return
    if not paths_of_patch(patch).difference(left_out):
        raise SolvedAtFirst(
            f"{task.source}: task {task.id!r}: its tests pass before anything is done: nothing "
            "that is tested was changed, and all of fail_to_pass pass"
        )
