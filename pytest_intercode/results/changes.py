"""What changed between two runs, task by task, and where their trajectories part.

Pure: tries in, changes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product, zip_longest
from typing import Any, Literal, NamedTuple, get_args

from pytest_intercode.results.reading import actions_of
from pytest_intercode.results.tries import TaskKey, Try, by_task

__all__ = ["KINDS", "Change", "Kind", "Parting", "Share", "changes", "parting"]

Kind = Literal[
    "broke",
    "less often",
    "mended",
    "more often",
    "as before",
    "only before",
    "only after",
    "not graded",
]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""All kinds, in the order in which they are told."""


class Share(NamedTuple):
    """How many of a task's graded tries were solved."""

    solved: int
    graded: int

    def __str__(self) -> str:
        return f"{self.solved}/{self.graded}"

    @property
    def rate(self) -> float:
        """Solved over graded."""
        return self.solved / self.graded


class Parting(NamedTuple):
    """The first turn in which two trajectories differ.

    Attributes:
        turn: its number, from 1; 0 where they do not differ.
        what: ``action``: the agent did something else; ``observation``: the same action showed
            something else, so the task is not deterministic; ``end``: one episode was over;
            ``nothing``: the same was done and seen, and graded otherwise.
        before: what the older one did or saw there; None where it was over.
        after: the same of the newer one.
        action: the action of that turn, where it was the same.
    """

    turn: int
    what: Literal["action", "observation", "end", "nothing"]
    before: str | None
    after: str | None
    action: str = ""


class Change(NamedTuple):
    """What became of a task.

    Attributes:
        key: the task.
        kind: ``broke`` where it was solved and is in no try now, ``mended`` where it was in no
            try and is now; ``less often`` and ``more often`` where it is in some tries.
        before: the older run's tries.
        after: the newer run's tries.
        parting: where the trajectories part, of a task that changed.
    """

    key: TaskKey
    kind: Kind
    before: Share
    after: Share
    parting: Parting | None


def changes(before: Sequence[Try], after: Sequence[Try]) -> list[Change]:
    """Return what became of every task of either run, in the order of the runs."""
    old, new = by_task(before), by_task(after)
    found = []
    for key in [*old, *(key for key in new if key not in old)]:
        were, are = old.get(key, []), new.get(key, [])
        was, now = _share(were), _share(are)
        kind = _kind(bool(were), bool(are), was, now)
        told = None
        if kind in KINDS[:4]:
            told = parting(*_pair(were, are, worse=now.rate < was.rate))
        found.append(Change(key, kind, was, now, told))
    return found


def _share(tries: Sequence[Try]) -> Share:
    graded = [each for each in tries if each.graded]
    return Share(sum(each.solved for each in graded), len(graded))


def _kind(in_old: bool, in_new: bool, was: Share, now: Share) -> Kind:
    if not in_new:
        return "only before"
    if not in_old:
        return "only after"
    if not (was.graded and now.graded):
        return "not graded"
    if now.rate < was.rate:
        return "less often" if now.solved else "broke"
    if now.rate > was.rate:
        return "more often" if was.solved else "mended"
    return "as before"


def _pair(
    before: Sequence[Try], after: Sequence[Try], *, worse: bool
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return two tries that show the change; those with the same number, if there are some."""
    pairs = [
        (old, new)
        for old, new in product(before, after)
        if old.graded and new.graded and old.solved is worse and new.solved is not worse
    ]
    old, new = next((pair for pair in pairs if pair[0].repeat == pair[1].repeat), pairs[0])
    return old.row, new.row


def parting(before: Mapping[str, Any], after: Mapping[str, Any]) -> Parting:
    """Return where two recorded episodes part."""
    over = object()
    turns = zip_longest(_turns(before), _turns(after), fillvalue=over)
    for number, (old, new) in enumerate(turns, 1):
        if isinstance(old, tuple) and isinstance(new, tuple):
            if old[0] != new[0]:
                return Parting(number, "action", old[0], new[0])
            if old[1] != new[1]:
                return Parting(number, "observation", old[1], new[1], old[0])
        elif isinstance(old, tuple):
            return Parting(number, "end", old[0], None)
        elif isinstance(new, tuple):
            return Parting(number, "end", None, new[0])
    return Parting(0, "nothing", None, None)


def _turns(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    seen = row["turn_history"].get("observations") or []
    actions = actions_of(row)
    return [
        (action.strip(), str(observation or "").rstrip())
        for action, observation in zip_longest(actions, seen[: len(actions)], fillvalue="")
    ]
