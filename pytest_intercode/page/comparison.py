"""Two runs side by side: which tasks broke, which were mended, and what that says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from pytest_intercode.page.run import Run
from pytest_intercode.reporting.runs import TaskKey, Try

if TYPE_CHECKING:
    from pytest_intercode.statistics.paired import Verdict

__all__ = ["CHANGES", "Change", "Kind", "changes", "verdict"]

Kind: TypeAlias = Literal["broke", "mended", "same", "only before", "only after", "not graded"]

CHANGES: tuple[Kind, ...] = ("broke", "mended", "same", "only before", "only after", "not graded")
"""All kinds, in the order in which they are shown."""


class Change(NamedTuple):
    """What became of a task.

    Attributes:
        key: the task.
        kind: ``broke`` where fewer of its tries are solved than before, ``mended`` where more are.
        before: the share of its tries that were solved; None where none was graded.
        after: the same of the newer run.
    """

    key: TaskKey
    kind: Kind
    before: float | None
    after: float | None


def changes(before: Run, after: Run) -> list[Change]:
    """Return what became of every task of either run, in the order of the runs."""
    old, new = before.tasks(), after.tasks()
    found = []
    for key in [*old, *(key for key in new if key not in old)]:
        was, now = _rate(old.get(key, ())), _rate(new.get(key, ()))
        found.append(Change(key, _kind(key in old, key in new, was, now), was, now))
    return found


def _rate(tries: Sequence[Try]) -> float | None:
    graded = [each.solved for each in tries if each.graded]
    return sum(graded) / len(graded) if graded else None


def _kind(in_old: bool, in_new: bool, was: float | None, now: float | None) -> Kind:
    if not in_new:
        return "only before"
    if not in_old:
        return "only after"
    if was is None or now is None:
        return "not graded"
    if was == now:
        return "same"
    return "broke" if now < was else "mended"


def verdict(before: Run, after: Run) -> Verdict | None:
    """Return whether the newer run is worse, better or neither; None without a common task."""
    from pytest_intercode.statistics.paired import paired_test

    old, new = (
        {key: [each.solved for each in tries if each.graded] for key, tries in run.tasks().items()}
        for run in (before, after)
    )
    common = [key for key, tries in old.items() if tries and new.get(key)]
    if not common:
        return None
    return paired_test({key: old[key] for key in common}, {key: new[key] for key in common})
