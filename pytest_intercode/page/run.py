"""A run as the page shows it: the tries that count, and what is the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.reading import read_results
from pytest_intercode.results.tries import TaskKey, Try, by_task, counted

__all__ = ["OUTCOMES", "Run", "facts"]

OUTCOMES = (
    "solved",
    "failed",
    "out-of-budget",
    "timed-out",
    "agent-error",
    "task-error",
    "infrastructure-error",
)
"""All outcomes, in the order in which they are shown."""

_NAMED = 4  # values of one fact that are named; more are counted


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        name: what it is called beside another one.
        when: when it ended, for people; empty where that is not known.
        tries: the tries that count.
        again: how many rows do not count, as their try was run again.
    """

    name: str
    when: str
    tries: list[Try]
    again: int = 0

    @classmethod
    def of(
        cls,
        rows: Path | Iterable[Mapping[str, Any]],
        name: str,
        torn: Callable[[str], None] | None = None,
    ) -> Run:
        """Read a run.

        Args:
            rows: a results file, or its rows.
            name: what the run is called.
            torn: told of a last line that is only begun, see ``read_results``.

        Raises:
            ConfigurationError: the file is wrong, or there is no episode in it.
        """
        when = datetime.now()
        where = "the run"
        if isinstance(rows, Path):
            where = str(rows)
            read = read_results(rows, torn)
            when = datetime.fromtimestamp(rows.stat().st_mtime)
            rows = read
        all_rows = list(rows)
        if not all_rows:
            raise ConfigurationError(f"{where}: holds no recorded episode, so there is no page")
        tries = counted(all_rows)
        return cls(name, f"{when:%Y-%m-%d %H:%M}", tries, len(all_rows) - len(tries))

    def tasks(self) -> dict[TaskKey, list[Try]]:
        """Return the tries of each task."""
        return by_task(self.tries)


def facts(run: Run) -> list[tuple[str, str]]:
    """Return what the head of the page says of a run, as pairs of a name and a value."""
    rows = [each.row for each in run.tries]
    found = [
        ("agent", _distinct(rows, "agent")),
        ("arguments", _arguments(rows)),
        ("profile", _distinct(rows, "profile")),
        ("feedback", "reward after every action" if any(map(_graded_often, rows)) else ""),
        ("sandbox", _distinct(rows, "sandbox")),
        ("image", _distinct(rows, "image")),
        ("dataset", _distinct(rows, "dataset")),
        ("run again", _again(run.again)),
        ("results of", run.when),
    ]
    return [(name, value) for name, value in found if value]


def _again(count: int) -> str:
    tries = "try" if count == 1 else "tries"
    return f"{count} {tries} that the infrastructure had spoiled" if count else ""


def _distinct(rows: Iterable[Mapping[str, Any]], key: str) -> str:
    return _listed({str(row[key]) for row in rows if row.get(key)})


def _listed(values: Iterable[str]) -> str:
    ordered = sorted(values)
    more = len(ordered) - _NAMED
    return ", ".join(ordered[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _arguments(rows: Iterable[Mapping[str, Any]]) -> str:
    pairs = {
        f"{name}={value}"
        for row in rows
        if isinstance(row.get("agent_arguments"), dict)
        for name, value in row["agent_arguments"].items()
    }
    return _listed(pairs)


def _graded_often(row: Mapping[str, Any]) -> bool:
    """Whether the agent was told its reward at several turns."""
    rewards = row["turn_history"].get("rewards") or []
    if "outcome" not in row:
        return any(rewards[:-1])  # InterCode's own
    parts = row.get("turn_parts")
    return isinstance(parts, list) and any(parts[:-1])
