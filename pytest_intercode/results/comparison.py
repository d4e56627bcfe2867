"""Two runs compared: what became of each task, the statistics of both, the verdict.

:class:`Compared` is what ``pytest-intercode compare`` and the page show; :class:`Baseline` is what
the gate goes by. Reads results files, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Turn
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.files import read_records
from pytest_intercode.results.recorded import is_ours, one_line
from pytest_intercode.results.summary import (
    Grouping,
    Summary,
    groups,
    rank_of_hardness,
    summarise,
)
from pytest_intercode.results.tries import (
    TaskKey,
    by_task,
    counted_tries,
    key_of,
    solved,
    task_key,
)
from pytest_intercode.statistics.fisher import fisher_exact
from pytest_intercode.statistics.paired import Verdict, paired_test

__all__ = [
    "KINDS",
    "Baseline",
    "Change",
    "Compared",
    "Difference",
    "Group",
    "Kind",
    "Run",
    "Share",
    "changes",
    "first_difference",
    "read_run",
]

# -- what became of a task

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
"""All kinds, in the order in which they are shown."""


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


class Difference(NamedTuple):
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
        difference: where the trajectories differ first, of a task that changed.
        p: how likely chance alone makes such a difference (Fisher's exact test), of a task that
            changed; None where there is one try in each run, of which nothing can be said.
    """

    key: TaskKey
    kind: Kind
    before: Share
    after: Share
    difference: Difference | None
    p: float | None = None

    @property
    def by_chance(self) -> bool:
        """Whether the change is no more than what chance makes in one task of twenty."""
        return self.p is not None and self.p > _LEVEL


_LEVEL = 0.05


def changes(before: Sequence[EpisodeRecord], after: Sequence[EpisodeRecord]) -> list[Change]:
    """Return what became of every task of either run, in the order of the runs."""
    old, new = by_task(before), by_task(after)
    found = []
    for key in [*old, *(key for key in new if key not in old)]:
        were, are = old.get(key, []), new.get(key, [])
        was, now = _share(were), _share(are)
        kind = _kind(bool(were), bool(are), was, now)
        difference, p = None, None
        if kind in KINDS[:4]:
            difference = first_difference(*_pair(were, are, worse=now.rate < was.rate))
            if was.graded > 1 or now.graded > 1:
                p = fisher_exact(was, now)
        found.append(Change(key, kind, was, now, difference, p))
    return found


def _share(tries: Sequence[EpisodeRecord]) -> Share:
    graded = [record for record in tries if record.graded]
    return Share(sum(record.succeeded for record in graded), len(graded))


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
    before: Sequence[EpisodeRecord], after: Sequence[EpisodeRecord], *, worse: bool
) -> tuple[EpisodeRecord, EpisodeRecord]:
    """Return two tries that show the change; those with the same number, if there are some."""
    pairs = [
        (old, new)
        for old, new in product(before, after)
        if old.graded and new.graded and old.succeeded is worse and new.succeeded is not worse
    ]
    return next((pair for pair in pairs if pair[0].task.repeat == pair[1].task.repeat), pairs[0])


def first_difference(before: EpisodeRecord, after: EpisodeRecord) -> Difference:
    """Return where two recorded episodes differ first; blanks at the end of a text do not count."""
    turns = zip_longest(before.turns, after.turns)
    for number, (old, new) in enumerate(turns, 1):
        if old is None or new is None:
            return Difference(
                number, "end", _action(old) if old else None, _action(new) if new else None
            )
        if _action(old) != _action(new):
            return Difference(number, "action", _action(old), _action(new))
        seen = old.observation.rstrip(), new.observation.rstrip()
        if seen[0] != seen[1]:
            return Difference(number, "observation", *seen, _action(old))
    return Difference(0, "nothing", None, None)


def _action(turn: Turn) -> str:
    return turn.action.strip()


# -- two runs

_SETTINGS = ("profile", "agent", "sandbox", "image")


@dataclass(frozen=True)
class Run:
    """A results file's tries.

    Attributes:
        path: the file.
        tries: those that count, with those that were not graded.
    """

    path: Path
    tries: list[EpisodeRecord]

    @property
    def ungraded(self) -> int:
        """How many tries a fault of the task or of the infrastructure spoiled."""
        return sum(not each.graded for each in self.tries)

    def settings(self) -> dict[str, str]:
        """Return what the run was made with, for people."""
        found = {name: _values(getattr(each, name) for each in self.tries) for name in _SETTINGS}
        given = [each.agent_arguments for each in self.tries]
        for name in sorted({name for each in given for name in each}):
            found[f"agent argument {name}"] = _values(each.get(name) for each in given)
        return {**found, "turns": _values(each.max_turns or None for each in self.tries)}


@dataclass(frozen=True)
class Group:
    """The statistics of some of the tasks that both runs graded."""

    by: str
    value: str
    before: Summary
    after: Summary


def read_run(path: Path, warn: Callable[[str], None]) -> Run:
    """Read a results file.

    Args:
        path: the file.
        warn: called with one line if the last line is truncated; that line is left out.

    Raises:
        ConfigurationError: it is no results file, or holds no episode.
    """
    tries = counted_tries(read_records(path, warn))
    if not tries:
        raise ConfigurationError(f"{path}: holds no recorded episode")
    return Run(path, tries)


class Compared:
    """Two runs, compared.

    Args:
        before: the older run.
        after: the newer run.
        level: the p-value up to which a difference is significant.
        smallest: the drop that matters, as a share.

    Attributes:
        before: the older run.
        after: the newer run.
        changes: what became of each task.
        verdict: what it says of the whole.
    """

    def __init__(self, before: Run, after: Run, *, level: float, smallest: float) -> None:
        self.before = before
        self.after = after
        self.changes: list[Change] = changes(before.tries, after.tries)
        self.verdict: Verdict = paired_test(
            solved(before.tries), solved(after.tries), level=level, smallest=smallest
        )

    def groups(self) -> list[Group]:
        """Return the tasks that both graded by env and by hardness, and all of them last."""
        common = {each.key for each in self.changes if each.before.graded and each.after.graded}
        old, new = (
            [each for each in run.tries if key_of(each) in common]
            for run in (self.before, self.after)
        )
        found = []
        groupings: tuple[Grouping, ...] = ("env", "hardness")
        for by in groupings:
            was, now = groups(old, by), groups(new, by)
            values = sorted(was.keys() & now.keys(), key=rank_of_hardness)
            if values == ["-"]:
                continue
            found += [
                Group(by, each, summarise(was[each]), summarise(now[each])) for each in values
            ]
        return [*found, Group("all", "", summarise(old), summarise(new))]

    def warnings(self) -> list[str]:
        """Return what makes the two runs hard to compare, a line each."""
        found = []
        old, new = self.before.settings(), self.after.settings()
        for name in dict.fromkeys((*old, *new)):
            was, now = old.get(name, ""), new.get(name, "")
            # InterCode's records do not say; another agent is what is often compared.
            if was != now and name != "agent" and (name.startswith("agent ") or (was and now)):
                found.append(
                    f"the runs differ in {name}: {was or 'none'} before, {now or 'none'} after"
                )
        queries = self._changed(lambda record: one_line(record.task.query))
        # Digests of the first format covered less, and equal no later one.
        tasks = self._changed(lambda it: it.task.digest if it.format_version > 1 else "")
        if queries:
            found.append(f"the query is another in {_some(queries)}")
        if tasks := [key for key in tasks if key not in queries]:
            found.append(f"the task itself (gold, files or limits) is another in {_some(tasks)}")
        return found

    def _changed(self, value_of: Callable[[EpisodeRecord], str]) -> list[TaskKey]:
        """Return the tasks for which both runs record a value, and not the same."""
        old, new = (
            {key_of(each): value_of(each) for each in run.tries}
            for run in (self.before, self.after)
        )
        return [
            key for key, value in old.items() if value and new.get(key, value) not in ("", value)
        ]

    def data(self) -> dict[str, Any]:
        """Return all of it as builtins, ready for JSON."""
        return {
            "before": _about(self.before),
            "after": _about(self.after),
            "warnings": self.warnings(),
            "verdict": {**asdict(self.verdict), "sentence": self.verdict.sentence},
            "groups": [asdict(each) for each in self.groups()],
            "changes": [
                {
                    **each.key._asdict(),
                    "kind": each.kind,
                    "before": each.before._asdict(),
                    "after": each.after._asdict(),
                    "parting": each.difference and each.difference._asdict(),
                    "p": each.p,
                }
                for each in self.changes
            ],
        }


def _about(run: Run) -> dict[str, Any]:
    return {"file": str(run.path), "settings": run.settings(), **asdict(summarise(run.tries))}


def _values(values: Iterable[Any]) -> str:
    """Return what records say, the most frequent first; nothing where none says anything."""
    counts = Counter(str(each) for each in values if each not in (None, ""))
    return ", ".join(value for value, _ in counts.most_common())


def _some(keys: Sequence[TaskKey]) -> str:
    named = ", ".join(map(str, keys[:3])) + (", ..." if len(keys) > 3 else "")
    return f"1 task ({named})" if len(keys) == 1 else f"{len(keys)} tasks ({named})"


# -- what the gate compares with


class Baseline:
    """An earlier run's tries, by task.

    Args:
        path: its results file (``--intercode-baseline``).
        warn: called with one line if the last line is truncated; that line is left out.

    Raises:
        ConfigurationError: the file is no results file of ours, or has no graded episode.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self.path = path
        records = read_records(path, warn)
        if not all(map(is_ours, records)):
            raise ConfigurationError(
                f"--intercode-baseline={path}: has rows without an outcome, as InterCode writes "
                "them; a file that --intercode-results wrote is needed"
            )
        self._solved: Mapping[TaskKey, list[bool]] = solved(counted_tries(records))
        if not self._solved:
            raise ConfigurationError(
                f"--intercode-baseline={path}: holds no graded episode; write one with "
                "--intercode-results"
            )

    def may_fail(self, task: Task, function: str) -> str | None:
        """Return why a task may fail: the earlier run did not always solve it. None if it did.

        Args:
            task: the task.
            function: the node id of the test function that is run with it.
        """
        tries = self._solved.get(task_key(task.env, task.suite, task.id, function), [])
        if all(tries):
            return None
        return f"{sum(tries)} of {len(tries)} tries solved in {self.path.name}"

    def verdict(self, tries: Iterable[EpisodeRecord]) -> Verdict | None:
        """Compare a run's tries; None if the two have no graded task in common."""
        verdict = paired_test(self._solved, solved(tries))
        return verdict if verdict.tasks else None

    def unknown(self, tries: Iterable[EpisodeRecord]) -> int:
        """Return how many tasks of a run the earlier one did not have."""
        return len({key_of(each) for each in tries} - self._solved.keys())
