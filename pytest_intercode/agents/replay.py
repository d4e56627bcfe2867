"""Replay: plays the actions of a recorded run, our own or one published by InterCode.

A recorded episode belongs to a task when the ids are equal, or, as InterCode numbers tasks by
their place in a file, when the queries are. Where a query occurs twice, the number decides; where
a query has been reworded since, file and number do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_intercode.agents.protocol import Agent, NoRecording
from pytest_intercode.agents.recordings import read_results
from pytest_intercode.suites.task import Task, TaskView

__all__ = ["make_replayer"]


def make_replayer(path: Path) -> Callable[[Task], Agent]:
    """Read a recorded run and return the maker of agents that play it.

    Raises:
        ConfigurationError: the file cannot be read as results.
    """
    by_id: dict[str, Mapping[str, Any]] = {}
    by_query: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    by_place: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in read_results(path):
        if row.get("superseded") or row.get("outcome") == "infrastructure-error":
            continue  # not what the agent would have done
        by_id[str(row["task_id"])] = row
        by_query[_plain(row.get("query", ""))].append(row)
        by_place[Path(row.get("dataset", "")).name, str(row["task_id"])] = row

    def make(task: Task) -> Agent:
        row = by_id.get(task.id) or _by_query(by_query, task) or by_place.get(_place(task))
        if row is None:
            raise NoRecording(f"{path.name} holds no episode of task {task.id}")
        history = row["turn_history"]
        unwrap = "thoughts" in history
        actions = [_unwrapped(action) if unwrap else action for action in history["actions"]]

        def run(_: TaskView, env: Any) -> None:
            for action in actions:
                *_rest, terminated, truncated, _info = env.step(action)
                if terminated or truncated:
                    return

        return Agent("loop", run=run)

    return make


def _by_query(
    by_query: Mapping[str, list[Mapping[str, Any]]], task: Task
) -> Mapping[str, Any] | None:
    rows = by_query.get(_plain(task.query), [])
    if len(rows) <= 1:
        return rows[0] if rows else None
    number = task.id.rpartition("-")[2].lstrip("0") or "0"
    return next((row for row in rows if str(row["task_id"]) == number), rows[0])


def _place(task: Task) -> tuple[str, str]:
    """Return the name of the file that a task is a row of, and the row's number."""
    path, _, number = task.source.rpartition(", row ")
    return Path(path).name, number


def _plain(query: str) -> str:
    return " ".join(query.split())


def _unwrapped(action: str) -> str:
    """Take an action out of the ``execute[...]`` of InterCode's ReAct recordings."""
    text = action.strip()
    if text.startswith("execute[") and text.endswith("]"):
        return text[len("execute[") : -1]
    return action
