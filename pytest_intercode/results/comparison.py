"""Two runs compared: the changes, the tables, the verdict. Reads results files, no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.changes import Change, changes
from pytest_intercode.results.reading import read_results
from pytest_intercode.results.summary import Summary, groups, rank_of_hardness, summarise
from pytest_intercode.results.tries import TaskKey, Try, counted, solved
from pytest_intercode.statistics.paired import Verdict, paired_test

__all__ = ["Compared", "Group", "Run", "read_run"]

_SETTINGS = ("profile", "agent", "sandbox", "image")


@dataclass(frozen=True)
class Run:
    """A results file's tries.

    Attributes:
        path: the file.
        tries: those that count, spoiled ones with them.
    """

    path: Path
    tries: list[Try]

    @property
    def spoiled(self) -> int:
        """How many tries the infrastructure spoiled."""
        return sum(not each.graded for each in self.tries)

    def settings(self) -> dict[str, str]:
        """Return what the run was made with, for people."""
        told = {name: _values(each.row.get(name) for each in self.tries) for name in _SETTINGS}
        given = [each.row.get("agent_arguments") or {} for each in self.tries]
        for name in sorted({name for each in given for name in each}):
            told[f"agent argument {name}"] = _values(each.get(name) for each in given)
        turns = [(each.row.get("summary") or {}).get("turns_max") for each in self.tries]
        return {**told, "turns": _values(turns)}


@dataclass(frozen=True)
class Group:
    """Some of the tasks that both runs graded: by what, which, and what they came to."""

    by: str
    value: str
    before: Summary
    after: Summary


def read_run(path: Path, warn: Callable[[str], None]) -> Run:
    """Read a results file.

    Args:
        path: the file.
        warn: told of a torn last line, which is left out.

    Raises:
        ConfigurationError: it is no results file, or holds no episode.
    """
    tries = counted(read_results(path, torn=warn))
    if not tries:
        raise ConfigurationError(f"{path}: holds no recorded episode")
    return Run(path, tries)


class Compared:
    """What comparing two runs says.

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
            [each for each in run.tries if each.key in common] for run in (self.before, self.after)
        )
        found = []
        sorts: tuple[Literal["env", "hardness"], ...] = ("env", "hardness")
        for by in sorts:
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
        told = []
        old, new = self.before.settings(), self.after.settings()
        for name in dict.fromkeys((*old, *new)):
            was, now = old.get(name, ""), new.get(name, "")
            # Rows of InterCode's own do not say; another agent is what is often compared.
            if was != now and name != "agent" and (name.startswith("agent ") or (was and now)):
                told.append(
                    f"the runs differ in {name}: {was or 'none'} before, {now or 'none'} after"
                )
        queries, tasks = self._changed("query"), self._changed("task_digest")
        if queries:
            told.append(f"the query is another in {_some(queries)}")
        if tasks := [key for key in tasks if key not in queries]:
            told.append(f"the task itself (gold, files or limits) is another in {_some(tasks)}")
        return told

    def _changed(self, name: str) -> list[TaskKey]:
        """Return the tasks of which both runs tell something, and not the same."""
        old, new = (
            {each.key: each.row.get(name) for each in run.tries}
            for run in (self.before, self.after)
        )
        return [
            key
            for key, value in old.items()
            if value and new.get(key) and _plain(value) != _plain(new[key])
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
                    "parting": each.parting and each.parting._asdict(),
                }
                for each in self.changes
            ],
        }


def _about(run: Run) -> dict[str, Any]:
    return {"file": str(run.path), "settings": run.settings(), **asdict(summarise(run.tries))}


def _values(values: Iterable[Any]) -> str:
    """Return what rows say, the most frequent first; nothing where none says anything."""
    counts = Counter(str(each) for each in values if each not in (None, ""))
    return ", ".join(value for value, _ in counts.most_common())


def _some(keys: Sequence[TaskKey]) -> str:
    named = ", ".join(map(str, keys[:3])) + (", ..." if len(keys) > 3 else "")
    return f"1 task ({named})" if len(keys) == 1 else f"{len(keys)} tasks ({named})"


def _plain(value: Any) -> str:
    return " ".join(str(value).split())
