"""Results files: read, ours and InterCode's, and written as episodes end.

A file is ours (a line of JSON for each episode) or one that InterCode published, plain or with
gzip. Whatever its shape, episodes are read as :class:`EpisodeRecord`.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.format import from_row, to_line

__all__ = ["ResultsFile", "read_records", "read_results", "to_text"]

_BEGINNING = b'{"environment": '  # of each of our lines
_LARGEST = 2 * 1024**3  # bytes, unpacked
_FENCED = re.compile(r"```(?:bash|sh|shell)?\s+(.*?)\s*(?:```)?", re.DOTALL | re.IGNORECASE)


def read_records(path: Path, warn: Callable[[str], None] | None = None) -> list[EpisodeRecord]:
    """Read a results file of any version, or one that InterCode published.

    Args:
        path: the file; with gzip if its name ends with ``.gz``.
        warn: called with one line if the last line is truncated, as its run was killed; that line
            is left out, then. Without it, such a line is an error.

    Raises:
        ConfigurationError: it cannot be read, or is no results file.
    """
    return [from_row(row, f"{path}, row {at}") for at, row in enumerate(_rows(path, warn))]


def read_results(path: Path, warn: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Read a results file as the dictionaries that it holds; see :func:`read_records`.

    Returns:
        A row for each episode, with the keys of ``docs/episode-record.schema.json``. Episodes of
        InterCode's that have another shape (Plan & Solve, the human's) are given this one.

    Raises:
        ConfigurationError: it cannot be read, or is no results file.
    """
    rows = _rows(path, warn)
    for at, row in enumerate(rows):
        from_row(row, f"{path}, row {at}")
    return rows


def to_text(records: list[EpisodeRecord]) -> str:
    """Return the content of a results file."""
    return "".join(f"{to_line(record)}\n" for record in records)


def _rows(path: Path, warn: Callable[[str], None] | None) -> list[Any]:
    try:
        data = _content(path)
        if warn is not None:
            data = _whole_lines(path, data, warn)
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such results file") from None
    except IsADirectoryError:
        raise ConfigurationError(
            f"{path}: cannot be read: it is a folder, a file is needed"
        ) from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        return _parse_lines(path, text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith('{"'):  # a line of ours, and not InterCode's indented file
            return _parse_lines(path, text)
        raise ConfigurationError(f"{path}: not JSON: {_reason(error)}") from None
    return [_usual(episode) for episode in _episodes(whole)]


def _content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked, if they are not too many."""
    size = path.stat().st_size
    data = b""
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            chunks = []
            size = 0
            while size <= _LARGEST and (chunk := file.read(16 * 1024**2)):
                size += len(chunk)
                chunks.append(chunk)
        data = b"".join(chunks) if size <= _LARGEST else b""
    elif size <= _LARGEST:
        data = path.read_bytes()
    if size > _LARGEST:
        raise ConfigurationError(
            f"{path}: holds more than {_LARGEST // 1024**3} GiB, which is more than is read"
        )
    return data


def _whole_lines(path: Path, data: bytes, warn: Callable[[str], None]) -> bytes:
    """Return a file without a truncated last line: each line is written with its end."""
    whole, end, last = data.rpartition(b"\n")
    first = whole.partition(b"\n")[0]
    lines = _is_json(first) if first.strip() else last.startswith(_BEGINNING)
    if not last.strip() or not lines or _is_json(last):
        return data
    line = whole.count(b"\n") + 1 + bool(end)
    warn(f"{path}:{line}: the last line is truncated, as its run was killed; it is left out")
    return whole + end


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parse_lines(path: Path, text: str) -> list[Any]:
    rows = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            # Each line is written with its end, so a last one without it is truncated.
            truncated = number == len(lines) > 1
            hint = " (the last line is truncated: its run was killed; delete it)"
            raise ConfigurationError(
                f"{path}:{number}: not JSON: {_reason(error)}{hint if truncated else ''}"
            ) from None
    return rows


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"


# -- the shapes of InterCode's files


def _episodes(whole: Any) -> list[Any]:
    """Return the episodes of a file that is one JSON value."""
    if isinstance(whole, list):
        return whole
    if not isinstance(whole, dict) or "turn_history" in whole or "trajectory" in whole:
        return [whole]
    meta, logs = whole.get("meta"), whole.get("logs")
    if isinstance(meta, dict) and isinstance(logs, (dict, list)):
        found = logs.values() if isinstance(logs, dict) else logs
        return [_plan_and_solve(episode, meta) for episode in found]
    return list(whole.values())


def _plan_and_solve(episode: Any, meta: dict[str, Any]) -> Any:
    """Return an episode of Plan & Solve: its actions without fences, its file from the head."""
    history = episode.get("turn_history") if isinstance(episode, dict) else None
    actions = history.get("actions") if isinstance(history, dict) else None
    if not isinstance(actions, list) or not isinstance(history, dict):
        return episode
    head = {"environment": meta.get("env"), "dataset": meta.get("data_path")}
    return {
        **{name: value for name, value in head.items() if isinstance(value, str)},
        **episode,
        "turn_history": {**history, "actions": [_unfenced(action) for action in actions]},
    }


def _unfenced(action: Any) -> Any:
    fenced = _FENCED.fullmatch(action.strip()) if isinstance(action, str) else None
    return fenced[1] if fenced else action


def _usual(row: Any) -> Any:
    """Return an episode as most files have it; the human's has a list of turns."""
    turns = row.get("trajectory") if isinstance(row, dict) else None
    if not isinstance(turns, list) or "turn_history" in row:
        return row
    moved = ("trajectory", "query_idx", "reward")
    steps = [turn if isinstance(turn, dict) else {} for turn in turns]
    return {
        "task_id": row.get("query_idx"),
        "turn_history": {
            "actions": [step.get("action") for step in steps],
            "observations": [step.get("observation") for step in steps],
        },
        "summary": {"max_reward": row.get("reward"), "turns_taken": len(turns)},
        **{name: value for name, value in row.items() if name not in moved},
    }


# -- writing


class ResultsFile:
    """Appends records as episodes end, so that a killed run loses only what was running.

    Args:
        path: the file; what is there is replaced.
        resume: keep what is there, but for a truncated last line.

    Attributes:
        path: the file.
        written: how many records were written here.
        repairs: a line for people, if the last line was truncated.

    Raises:
        ConfigurationError: the file cannot be written, or what is to be resumed is no results file.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.written = 0
        self.repairs = _repair(path) if resume and path.exists() else []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] = path.open("a" if resume else "w", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"--intercode-results={path}: cannot be written: {error.strerror}"
            ) from None

    def write(self, line: str) -> None:
        """Append a record as :func:`to_line` wrote it; it is in the file when this returns."""
        self._file.write(f"{line}\n")
        self._file.flush()
        self.written += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _repair(path: Path) -> list[str]:
    """Cut a truncated last line off a results file, and end the last whole one; say what was."""
    warnings: list[str] = []
    read_records(path, warnings.append)
    with path.open("rb+") as file:
        whole, end, last = file.read().rpartition(b"\n")
        if warnings:
            file.truncate(len(whole) + len(end))
        elif last:
            file.write(b"\n")
    return warnings
