"""Reads recorded runs: our own results files and InterCode's JSON, plain or with gzip.

A recorded episode belongs to a task when the ids are equal, or, as InterCode numbers tasks by
their place in a file, when the queries are. Where a query occurs twice, the number decides; where
a query has been reworded since, file and number do. Only reads files.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError

__all__ = ["RecordedRun", "Row", "actions_of", "env_of", "is_ours", "of_try_again", "read_results"]

Row: TypeAlias = "Mapping[str, Any]"

_TEXTS = ("environment", "dataset", "query", "suite", "profile", "outcome")
_TEXT = (str, type(None))
_BEGINNING = b'{"environment": '  # of each of our lines
_NUMBER = (int, float)
_KINDS: dict[str, tuple[Any, str]] = {
    "repeat": (int, "a whole number"),
    "reward": (_NUMBER, "a number"),
    "seconds": (_NUMBER, "a number"),
    "summary": (dict, "an object"),
    "usage": (dict, "an object"),
    "agent_arguments": (dict, "an object"),
    "tags": (list, "a list"),
    "hardness": (str, "a string"),
}
_BY_TURN = {
    "observations": _TEXT,
    "thoughts": _TEXT,
    "rewards": (int, float, type(None)),
}


def read_results(path: Path, torn: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Read a results file: our JSON Lines, or InterCode's one JSON object.

    Args:
        path: the file; with gzip if its name ends with ``.gz``.
        torn: told, in one line, of a last line that is only begun, as its run was killed; that
            line is left out, then. Without it, such a line is an error.

    Raises:
        ConfigurationError: it cannot be read, or is no results file.
    """
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        if torn is not None:
            data = _whole_lines(path, data, torn)
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such results file") from None
    except IsADirectoryError:
        raise ConfigurationError(
            f"{path}: cannot be read: it is a folder, a file is needed"
        ) from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    rows = _parse(path, text)
    for number, row in enumerate(rows):
        problem = _problem(row)
        if problem:
            raise ConfigurationError(f"{path}, row {number}: not a recorded episode: {problem}")
    return rows


def _whole_lines(path: Path, data: bytes, torn: Callable[[str], None]) -> bytes:
    """Return a file without a last line that is only begun: each is written with its end."""
    whole, end, rest = data.rpartition(b"\n")
    first = whole.partition(b"\n")[0]
    lines = _is_json(first) if first.strip() else rest.startswith(_BEGINNING)
    if not rest.strip() or not lines or _is_json(rest):
        return data
    line = whole.count(b"\n") + 1 + bool(end)
    torn(f"{path}:{line}: the last line is torn, as its run was killed; it is left out")
    return whole + end


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parse(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        return _parse_lines(path, text)
    except RecursionError:
        raise ConfigurationError(f"{path}: no results file: it is nested too deeply") from None
    if isinstance(whole, list):
        return whole
    if isinstance(whole, dict) and "turn_history" not in whole:
        return list(whole.values())
    return [whole]


def _parse_lines(path: Path, text: str) -> list[dict[str, Any]]:
    rows = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except (json.JSONDecodeError, RecursionError) as error:
            said = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            # Each line is written with its end, so a last one without it is only begun.
            torn = number == len(lines) > 1
            hint = " (the last line is torn: its run was killed; delete it)" if torn else ""
            raise ConfigurationError(f"{path}:{number}: not JSON: {said}{hint}") from None
    return rows


def _problem(row: Any) -> str:
    """Say what keeps a row from being a recorded episode, or return nothing."""
    history = row.get("turn_history") if isinstance(row, dict) else None
    if not isinstance(history, dict) or not isinstance(history.get("actions"), list):
        return "it has no turn_history.actions"
    if "task_id" not in row or not all(isinstance(a, str) for a in history["actions"]):
        return "task_id is missing, or an action is not a string"
    for name in _TEXTS:
        if not isinstance(row.get(name, ""), str):
            return f"{name} is not a string"
    for name, kinds in _BY_TURN.items():
        values = history.get(name, [])
        if not isinstance(values, list) or not all(isinstance(v, kinds) for v in values):
            return f"turn_history.{name} is not a list of what each turn gave"
    answers = row.get("turn_answers", [])
    if not isinstance(answers, list) or not all(isinstance(a, _TEXT) for a in answers):
        return "turn_answers is not a list of texts"
    passed = row.get("turn_passed", [])
    if not isinstance(passed, list) or not all(isinstance(p, bool) for p in passed):
        return "turn_passed is not a list of true and false"
    for name, (kinds, what) in _KINDS.items():
        if name in row and (not isinstance(row[name], kinds) or isinstance(row[name], bool)):
            return f"{name} is not {what}"
    if "outcome" in row and "reward" not in row:
        return "it has an outcome and no reward"
    return ""


# -- what a row says of itself


def env_of(row: Row) -> str:
    """Return the environment that a row was played in; empty where it does not say."""
    return str(row.get("environment", "")).removeprefix("ic_")


def is_ours(row: Row) -> bool:
    """Whether a run of ours wrote a row; InterCode's rows have no outcome."""
    return "outcome" in row


def of_try_again(row: Row) -> bool:
    """Whether a row of ours is of a run with rewards as feedback, graded at several turns."""
    parts = row.get("turn_parts")
    return is_ours(row) and isinstance(parts, list) and any(parts[:-1])


def actions_of(row: Row) -> list[str]:
    """Return the actions of a row, as an environment takes them."""
    history = row["turn_history"]
    wrapped = "thoughts" in history and not is_ours(row)
    return [_unwrapped(action) if wrapped else action for action in history["actions"]]


def _unwrapped(action: str) -> str:
    """Take an action out of the ``execute[...]`` of InterCode's ReAct recordings."""
    text = action.strip()
    if text.startswith("execute[") and text.endswith("]"):
        return text[len("execute[") : -1]
    return action


# -- which row belongs to which task


class RecordedRun:
    """The episodes of a recorded run, to be found by their tasks.

    Args:
        rows: rows as :func:`read_results` returns them. Of two episodes of one task, the last
            counts.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        self._by_id: dict[str, list[Row]] = defaultdict(list)
        self._by_query: dict[str, list[Row]] = defaultdict(list)
        self._by_place: dict[tuple[str, str], Row] = {}
        for row in self.rows:
            self._by_id[str(row["task_id"])].append(row)
            self._by_query[_plain(row.get("query", ""))].append(row)
            self._by_place[Path(row.get("dataset", "")).name, str(row["task_id"])] = row

    def row_of(self, task: Task) -> Row | None:
        """Return the recorded episode of a task, or None."""
        named = _of_env(self._by_id.get(task.id, ()), task)
        # Ids are unique in a suite; in a run of several, two tasks may share one.
        same_suite = [row for row in named if row.get("suite", task.suite) == task.suite]
        same_query = [row for row in named if _plain(row.get("query", "")) == _plain(task.query)]
        for rows in (same_suite, same_query, named):
            if rows:
                return rows[-1]
        return self._of_query(task) or self._by_place.get(_place(task))

    def _of_query(self, task: Task) -> Row | None:
        file, place = _place(task)
        rows = [
            row
            for row in _of_env(self._by_query.get(_plain(task.query), ()), task)
            # In one file, two tasks with one query are two tasks.
            if not file or Path(row.get("dataset", "")).name != file or str(row["task_id"]) == place
        ]
        if len(rows) <= 1:
            return rows[0] if rows else None
        number = task.id.rpartition("-")[2].lstrip("0") or "0"
        return next((row for row in rows if str(row["task_id"]) == number), rows[0])


def _of_env(rows: Iterable[Row], task: Task) -> list[Row]:
    return [row for row in rows if env_of(row) in ("", task.env)]


def _place(task: Task) -> tuple[str, str]:
    """Return the name of the file that a task is a row of, and the row's number."""
    path, _, number = task.source.rpartition(", row ")
    return Path(path).name, number


def _plain(query: str) -> str:
    return " ".join(query.split())
