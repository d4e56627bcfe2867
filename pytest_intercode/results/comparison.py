"""Two runs compared: how each task changed, the statistics of both, the verdict.

:class:`Compared` is for runs of one cell each; ``results/cell_comparison.py`` compares runs of
several cells. Reads only results files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import first_names, pluralize
from pytest_intercode.core.turn import Turn
from pytest_intercode.results.files import iterate_records, no_episodes
from pytest_intercode.results.recorded import comparable_query
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
)
from pytest_intercode.statistics.paired import Verdict, fisher_exact

__all__ = [
    "KINDS",
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
    "run_data",
    "verdict_data",
]

# -- what became of a task

Kind = Literal[
    "broke",
    "less often",
    "fixed",
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
        turn: its number, from 1; 0 if they do not differ.
        what: ``action``: the agent did something else; ``observation``: the same action showed
            something else, so the task is not deterministic; ``end``: one episode was over;
            ``nothing``: actions and observations were the same, but graded differently.
        before: the older trajectory's action or observation there; None if it was over.
        after: the newer trajectory's, likewise.
        action: the action of that turn, if it was the same.
    """

    turn: int
    what: Literal["action", "observation", "end", "nothing"]
    before: str | None
    after: str | None
    action: str = ""


class Change(NamedTuple):
    """How a task changed.

    Attributes:
        key: the task.
        kind: ``broke`` if it was solved before and in no try now, ``fixed`` if it was solved in no
            try before and is now; ``less often`` and ``more often`` if it is solved in some tries.
        before: the older run's tries.
        after: the newer run's tries.
        difference: where the trajectories differ first, for a task that changed.
        p: how likely chance alone makes such a difference (Fisher's exact test), for a task that
            changed; None if each run has one try, which does not allow a test.
    """

    key: TaskKey
    kind: Kind
    before: Share
    after: Share
    difference: Difference | None
    p: float | None = None

    @property
    def by_chance(self) -> bool:
        """Whether the change is not significant, so that chance may explain it."""
        return self.p is not None and self.p > _SIGNIFICANCE_LEVEL


_SIGNIFICANCE_LEVEL = 0.05  # the p-value above which chance explains a change


def changes(before: Sequence[EpisodeRecord], after: Sequence[EpisodeRecord]) -> list[Change]:
    """Return how every task of either run changed, in the order of the runs."""
    old, new = by_task(before), by_task(after)
    task_changes = []
    for key in [*old, *(key for key in new if key not in old)]:
        old_tries, new_tries = old.get(key, []), new.get(key, [])
        old_share, new_share = _share(old_tries), _share(new_tries)
        kind = _classify(bool(old_tries), bool(new_tries), old_share, new_share)
        difference, p = None, None
        if kind in KINDS[:4]:
            difference = first_difference(
                *_representative_pair(old_tries, new_tries, worse=new_share.rate < old_share.rate)
            )
            if old_share.graded > 1 or new_share.graded > 1:
                p = fisher_exact(old_share, new_share)
        task_changes.append(Change(key, kind, old_share, new_share, difference, p))
    return task_changes


def _share(tries: Sequence[EpisodeRecord]) -> Share:
    graded = [record for record in tries if record.graded]
    return Share(sum(record.succeeded for record in graded), len(graded))


def _classify(in_old: bool, in_new: bool, old_share: Share, new_share: Share) -> Kind:
    if not in_new:
        return "only before"
    if not in_old:
        return "only after"
    if not (old_share.graded and new_share.graded):
        return "not graded"
    if new_share.rate < old_share.rate:
        return "less often" if new_share.solved else "broke"
    if new_share.rate > old_share.rate:
        return "more often" if old_share.solved else "fixed"
    return "as before"


def _representative_pair(
    before: Sequence[EpisodeRecord], after: Sequence[EpisodeRecord], *, worse: bool
) -> tuple[EpisodeRecord, EpisodeRecord]:
    """Return two tries that show the change, preferably with the same number."""
    pairs = [
        (old, new)
        for old, new in product(before, after)
        if old.graded and new.graded and old.succeeded is worse and new.succeeded is not worse
    ]
    return next((pair for pair in pairs if pair[0].task.repeat == pair[1].task.repeat), pairs[0])


def first_difference(before: EpisodeRecord, after: EpisodeRecord) -> Difference:
    """Return where two recorded episodes differ first; trailing blanks do not count."""
    turns = zip_longest(before.turns, after.turns)
    for number, (old, new) in enumerate(turns, 1):
        if old is None or new is None:
            return Difference(
                number, "end", _action(old) if old else None, _action(new) if new else None
            )
        if _action(old) != _action(new):
            return Difference(number, "action", _action(old), _action(new))
        observations = old.observation.rstrip(), new.observation.rstrip()
        if observations[0] != observations[1]:
            return Difference(number, "observation", *observations, _action(old))
    return Difference(0, "nothing", None, None)


def _action(turn: Turn) -> str:
    return turn.action.strip()


# -- two runs

_SETTINGS = ("profile", "agent", "sandbox", "image")
# A change of these makes a different project test. Its repository, which is copied into its image,
# and its agent are what is tested, so they change from run to run.
_PARTS_OF_TEST = ("test", "values")


@dataclass(frozen=True)
class Run:
    """A results file's tries.

    Attributes:
        path: the file.
        tries: the tries, including those that were not graded.
    """

    path: Path
    tries: list[EpisodeRecord]

    @property
    def ungraded(self) -> int:
        """How many tries failed because of the task or the infrastructure."""
        return sum(not record.graded for record in self.tries)

    def settings(self) -> dict[str, str]:
        """Return the settings of the run, for people."""
        settings = {
            name: _join_values(getattr(record, name) for record in self.tries) for name in _SETTINGS
        }
        agent_arguments = [record.agent_arguments for record in self.tries]
        for name in sorted({name for arguments in agent_arguments for name in arguments}):
            settings[f"agent argument {name}"] = _join_values(
                arguments.get(name) for arguments in agent_arguments
            )
        return {
            **settings,
            "turns": _join_values(record.max_turns or None for record in self.tries),
        }


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
        ConfigurationError: it is not a results file, or holds no episode.
    """
    # Actions and observations are compared, but not end states, which may be much larger.
    tries = counted_tries(record.without_end_state() for record in iterate_records(path, warn))
    if not tries:
        raise no_episodes(path)
    return Run(path, tries)


class Compared:
    """Two runs of one cell each, compared.

    Args:
        before: the older run.
        after: the newer run.
        verdict: the verdict of the paired test on the whole.

    Attributes:
        before: the older run.
        after: the newer run.
        changes: how each task changed.
        verdict: the verdict.
    """

    def __init__(self, before: Run, after: Run, verdict: Verdict) -> None:
        self.before = before
        self.after = after
        self.changes: list[Change] = changes(before.tries, after.tries)
        self.verdict: Verdict = verdict

    def groups(self) -> list[Group]:
        """Return the tasks that both runs graded, by env and by hardness, and all of them last."""
        common = {
            change.key for change in self.changes if change.before.graded and change.after.graded
        }
        old, new = (
            [record for record in run.tries if key_of(record) in common]
            for run in (self.before, self.after)
        )
        task_groups = []
        groupings: tuple[Grouping, ...] = ("env", "hardness")
        for grouping in groupings:
            old_groups, new_groups = groups(old, grouping), groups(new, grouping)
            values = sorted(old_groups.keys() & new_groups.keys(), key=rank_of_hardness)
            if values == ["-"]:
                continue
            task_groups += [
                Group(grouping, value, summarise(old_groups[value]), summarise(new_groups[value]))
                for value in values
            ]
        return [*task_groups, Group("all", "", summarise(old), summarise(new))]

    def warnings(self) -> list[str]:
        """Return what makes the two runs hard to compare, a line each."""
        warnings = []
        old, new = (
            {**run.settings(), "image": _join_values(map(_own_image, run.tries))}
            for run in (self.before, self.after)
        )
        for name in dict.fromkeys((*old, *new)):
            old_value, new_value = old.get(name, ""), new.get(name, "")
            # InterCode's records do not have the settings; different agents are often compared.
            if (
                old_value != new_value
                and name != "agent"
                and (name.startswith("agent ") or (old_value and new_value))
            ):
                warnings.append(
                    f"the runs differ in {name}: {old_value or 'none'} before, "
                    f"{new_value or 'none'} after"
                )
        queries = self._find_changed(lambda record: comparable_query(record.task.query))
        # Digests of the first format covered less, and never equal a later one.
        tasks = self._find_changed(
            lambda record: (
                record.task.digest if record.format_version > 1 and not record.test_digest else ""
            )
        )
        tests = self._find_changed(lambda record: _parts(record, *_PARTS_OF_TEST))
        sandboxes = self._find_changed(lambda record: _parts(record, "sandbox"))
        if queries:
            warnings.append(f"the query differs in {_task_list(queries)}")
        if tasks := [key for key in tasks if key not in queries]:
            warnings.append(
                f"the task itself (gold, files or limits) differs in {_task_list(tasks)}"
            )
        if tests := [key for key in tests if key not in queries]:
            warnings.append(
                f"the test itself (its code, marks or parameters) differs in {_task_list(tests)}"
            )
        if sandboxes and old["sandbox"] == new["sandbox"]:
            warnings.append(f"what its sandbox is made of differs in {_task_list(sandboxes)}")
        if line := self._describe_disjoint():
            warnings.append(line)
        return warnings

    def _describe_disjoint(self) -> str:
        """Return a line if no task is in both runs, with what to do; otherwise an empty text."""
        old, new = (set(map(key_of, run.tries)) for run in (self.before, self.after))
        if old & new or not (old and new):
            return ""
        line = "no task is in both runs: tasks are matched by env, suite and id"
        is_intercodes = [
            any(record.format_version == 0 for record in run.tries)
            for run in (self.before, self.after)
        ]
        if sum(is_intercodes) != 1:
            return line
        return (
            f"{line}, and InterCode's files have other ids; replay that one with "
            "--intercode-agent=replay:FILE and --intercode-results, and compare its results"
        )

    def _find_changed(self, value_of: Callable[[EpisodeRecord], str]) -> list[TaskKey]:
        """Return the tasks for which both runs recorded a value, but not the same one."""
        old, new = (
            {key_of(record): value_of(record) for record in run.tries}
            for run in (self.before, self.after)
        )
        return [
            key for key, value in old.items() if value and new.get(key, value) not in ("", value)
        ]

    def data(self) -> dict[str, Any]:
        """Return all of it as builtins, ready for JSON."""
        return {
            "before": run_data(self.before),
            "after": run_data(self.after),
            "warnings": self.warnings(),
            "verdict": verdict_data(self.verdict),
            "groups": [asdict(group) for group in self.groups()],
            "changes": [
                {
                    **change.key._asdict(),
                    "kind": change.kind,
                    "before": change.before._asdict(),
                    "after": change.after._asdict(),
                    "parting": change.difference and change.difference._asdict(),
                    "p": change.p,
                }
                for change in self.changes
            ],
        }


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as builtins; without the fields on several comparisons if it is single."""
    data = {**asdict(verdict), "sentence": verdict.sentence}
    return {
        name: value
        for name, value in data.items()
        if name not in ("corrected", "comparisons", "symmetric") or verdict.comparisons > 1
    }


def run_data(run: Run) -> dict[str, Any]:
    """Return a run's settings and statistics as builtins."""
    return {"file": str(run.path), "settings": run.settings(), **asdict(summarise(run.tries))}


def _own_image(record: EpisodeRecord) -> str:
    return "" if record.test_digest else record.image


def _parts(record: EpisodeRecord, *names: str) -> str:
    return " ".join(filter(None, map(record.test_digest.get, names)))


def _join_values(values: Iterable[Any]) -> str:
    """Return the values of records, the most frequent first; empty if no record has one."""
    counts = Counter(str(value) for value in values if value not in (None, ""))
    return ", ".join(value for value, _ in counts.most_common())


def _task_list(keys: Sequence[TaskKey]) -> str:
    return f"{pluralize(len(keys), 'task')} ({first_names(keys)})"
