"""Two runs side by side: which tasks broke, which were mended, and what that says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from pytest_intercode.page.run import Run
from pytest_intercode.results import changes as compared
from pytest_intercode.results.tries import TaskKey, solved

if TYPE_CHECKING:
    from pytest_intercode.statistics.paired import Verdict

__all__ = ["CHANGES", "Change", "Kind", "changes", "verdict"]

Kind: TypeAlias = Literal["broke", "mended", "same", "only before", "only after", "not graded"]

CHANGES: tuple[Kind, ...] = get_args(Kind)
"""All kinds, in the order in which they are shown."""

# The page has no more than one word for a task that is solved less often.
_SHOWN: Mapping[compared.Kind, Kind] = {
    **{"broke": "broke", "less often": "broke", "mended": "mended", "more often": "mended"},
    **{"as before": "same", "only before": "only before", "only after": "only after"},
    "not graded": "not graded",
}


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
    return [
        Change(each.key, _SHOWN[each.kind], *map(_rate, (each.before, each.after)))
        for each in compared.changes(before.tries, after.tries)
    ]


def _rate(share: compared.Share) -> float | None:
    return share.rate if share.graded else None


def verdict(before: Run, after: Run) -> Verdict | None:
    """Return whether the newer run is worse, better or neither; None without a common task."""
    from pytest_intercode.statistics.paired import paired_test

    found = paired_test(solved(before.tries), solved(after.tries))
    return found if found.tasks else None
